"""kvplan engines: whose rules can be asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.cli import completion
from kvplan.cli import options as o
from kvplan.cli.listing import show_list


def command(
    name: Annotated[
        str | None, typer.Argument(help="One engine.", show_default=False, autocompletion=completion.engines)
    ] = None,
    format: o.Format = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """List the engines whose rules are modelled."""
    from kvplan.engines import ENGINE_NAMES, load_engine

    wanted = [load_engine(name)] if name else [load_engine(each) for each in ENGINE_NAMES]
    rows = [
        {
            "engine": engine.name,
            "engine_version": engine.version,
            "memory_fraction": engine.memory_fraction,
            "rule": (type(engine).__doc__ or "").strip(),
        }
        for engine in wanted
    ]
    return show_list(rows, format, output)
