"""kvplan diff: how two models differ, and what each difference costs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvplan.cli import options as o


def command(
    a: Annotated[str, typer.Argument(help="A model: zoo name, hub id, YAML file or checkpoint.", show_default=False)],
    b: Annotated[str, typer.Argument(help="The model to compare it with.", show_default=False)],
    gpu: o.Gpu = None,
    context: o.Context = "4096",
    format: o.Format = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """Show how model B differs from A, field by field, and what each costs in bytes and, with --gpu, in sessions."""
    from kvplan.loading import load_model
    from kvplan.planning.diff import model_diff
    from kvplan.report.output import open_output
    from kvplan.report.render import format_for, render

    form = format_for(format, output)
    with open_output(output) as out:
        rows = model_diff(load_model(a), load_model(b), gpu, context or "4096")
        out.write(_table(rows, gpu) if form == "table" else render(rows, form))
    return 0


def _table(rows: list[dict[str, Any]], gpu: str | None) -> str:
    from kvplan.report.listing import listing_table

    *changes, total = rows
    if not changes:
        return f"{total['a']} and {total['b']} are alike in shape and formats\n"
    columns = {"field": "field", "a": str(total["a"]), "b": str(total["b"])}
    costs = {"parameters": "parameters", "weights_bytes": "weights", "kv_bytes_per_token": "KV a token"}
    shown = [{**row, "a": str(row["a"]), "b": str(row["b"])} for row in changes]
    shown.append({**total, "a": "", "b": ""})
    return listing_table(shown, {**columns, **costs, **({"sessions": "sessions"} if gpu else {})}, width=120)
