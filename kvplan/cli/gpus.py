"""kvplan gpus: the GPU zoo, listed, filtered, or one of it with its source."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.cli import completion
from kvplan.cli import options as o
from kvplan.cli.listing import show_list, show_one


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A GPU, or part of a name to search for.", show_default=False, autocompletion=completion.gpus
        ),
    ] = None,
    format: o.Format = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """List the GPUs, search them, or show one with its source, memory to plan with and MIG slices."""
    from kvplan.loading import load_gpu
    from kvplan.planning.facts import gpu_facts, gpu_summary
    from kvplan.specs import zoo

    if name and (name == "local" or ":" in name or zoo.is_path(name) or zoo.lookup("gpus", name)):
        return show_one(gpu_facts(load_gpu(name)), format, output)
    return show_list([gpu_summary(load_gpu(each)) for each in zoo.search("gpus", name)], format, output)
