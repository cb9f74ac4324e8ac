"""kvplan import: a config, safetensors, a GGUF file or a model of the hub becomes a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvplan.cli import options as o
from kvplan.errors import InputError

if TYPE_CHECKING:
    from kvplan.specs.model import ModelSpec

_COLUMNS = {
    "component": "component",
    "from_config": "parameters by config",
    "from_file": "by file",
    "difference": "difference",
    "bytes_from_config": "bytes by scheme",
    "bytes_from_file": "in file",
    "why": "why",
}


def command(
    path: Annotated[
        str,
        typer.Argument(
            help="Model folder, config.json, safetensors (or its index), GGUF, or hf:ORG/NAME[@REVISION].",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the model file here (.yaml).", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the model (default: of the file).", show_default=False)
    ] = None,
    format: o.Format = None,  # noqa: A002 - the contract's name
) -> int:
    """Read headers and show what they hold; with -o, write it as a model file. No weights are read, nothing is run."""
    from dataclasses import replace

    from kvplan.importers.checkpoint import read_checkpoint
    from kvplan.planning.agreement import found_facts
    from kvplan.report.output import open_output

    if output is not None and output.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(f"--output {output}: a model file ends in .yaml; `--format` sets how the findings are shown")
    if name is not None and not name.strip():
        raise InputError("--name: expected text that is not blank")
    with open_output(output) as out:
        found = read_checkpoint(path)
        if name and found.model:
            found = found._replace(model=replace(found.model, name=name))
        if output is not None:
            out.write(_yaml(found.model, path))
        text = _shown(found_facts(found), format)
    typer.echo(text, nl=False)
    return 0


def _yaml(model: ModelSpec | None, path: str) -> str:
    from kvplan.planning.agreement import with_needed_bytes
    from kvplan.specs.writer import to_yaml

    if model is None:
        raise InputError(
            f"'{path}' has no config.json beside it: its tensors make sums but no model; leave --output out"
        )
    return to_yaml(with_needed_bytes(model))


def _shown(facts: dict[str, Any], format_name: str | None) -> str:
    from kvplan.report.listing import facts as facts_text
    from kvplan.report.listing import listing_table
    from kvplan.report.render import format_for, render

    form = format_for(format_name, None)
    if form != "table":
        return render([facts], form)
    rows = facts.pop("agreement")
    if not rows:
        return facts_text(facts)
    return f"{facts_text(facts)}\n{listing_table(rows, _COLUMNS, width=120)}"
