"""kvplan init: a plan to start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kvplan.errors import InputError

NAME = "plan.yaml"
STARTER = """\
# A plan for kvplan. `kvplan check plan.yaml` exits with 1 when a deployment does not do what is expected of it.
deployments:
  chat:
    model: mistral-7b            # `kvplan models` lists them; a YAML file beside this plan works too
    gpu: a100-80g                # `kvplan gpus`; 8xh100-sxm for eight of them
    context: 4096                # tokens of one conversation; 32k is 32768
    expect:
      fits: true
      max_sessions: ">= 100"     # conversations at once; >= and the like need quotes
      max_context_tokens: ">= 32k"
      kv_bytes_per_token: "<= 140000"

  # Lists make a grid. Every combination has to pass; every option of `kvplan estimate` can be set, with _ for -.
  code:
    model: qwen3-coder-30b-a3b
    gpu: 2xh100-sxm
    context: [8k, 32k]
    kv_dtype: fp8
    expect:
      max_sessions: ">= 8"

# How far a figure may move from a baseline before it counts (kvplan check plan.yaml --baseline baseline.json).
tolerances:
  max_sessions: 2%
"""


def command(
    place: Annotated[
        Path, typer.Argument(help="A folder (plan.yaml in it), or a .yaml file.", show_default=False)
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> int:
    """Write a plan to start from, with comments."""
    from kvplan.report.output import open_output

    # os.path answers no for a place that cannot be looked at; open_output then says why
    path = place if place.suffix.lower() in (".yaml", ".yml") and not os.path.isdir(place) else place / NAME
    if os.path.isfile(place) and path != place:
        raise InputError(f"{place} is a file, and no .yaml; name a folder or a .yaml file")
    if os.path.exists(path) and not force:
        raise InputError(f"{path} is there already; choose another name, or say --force to overwrite it")
    with open_output(path, option="") as out:
        out.write(STARTER)
    print(f"wrote {path}; now run: kvplan check {path}")
    return 0
