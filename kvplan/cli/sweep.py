"""kvplan sweep: every combination of lists and ranges, one row each, written as they are computed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from kvplan.cli import options as o
from kvplan.errors import InputError

if TYPE_CHECKING:
    from kvplan.planning.grid import Grid
    from kvplan.planning.plan_grid import PlanGrid
    from kvplan.report.stream import Stream
    from kvplan.report.stream_columns import Chunk

BEST = "max_sessions:desc"  # of --top without --sort


PLANNED = "of the plan"  # stands for the model where a plan names its own


def take_plan(ctx: typer.Context, path: Path | None) -> Path | None:
    """With a plan no --model is needed."""
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), "model": PLANNED}
    return path


@o.with_scenario
def command(
    given: dict[str, Any],
    plan: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PLAN.yaml]", help="Sweep the deployments of a plan.", is_eager=True, callback=take_plan
        ),
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", metavar="COLUMN", help="Order by a column; COLUMN:desc turns it around.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", min=1, help="Keep the first N (by max_sessions:desc, or --sort)."),
    ] = None,
    human: Annotated[bool, typer.Option("--human", help="Units for people, in table, markdown and csv.")] = False,
    metadata: Annotated[
        Path | None,
        typer.Option("--metadata", metavar="FILE", help="Write version, options, date, rows and columns as JSON."),
    ] = None,
    format: o.RowsFormat = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """One row for every combination of lists and ranges. Exit 1 when no row fits."""
    from kvplan.report.output import open_output
    from kvplan.report.render import format_for
    from kvplan.report.stream import check, write

    options = {name: value for name, value in given.items() if value not in (None, False)}
    form = format_for(format, output)
    grid = _grid(plan, options)
    stream = _stream(grid, form, human, sort, top)
    check(stream, grid.size)
    tally = _Tally()
    o.keep_inputs(output, plan, options.get("model"), options.get("gpu"), options.get("draft_model"))
    if metadata and output and metadata.absolute() == output.absolute():
        raise InputError(f"--metadata {metadata} is the file of the rows too; name another")
    described = open_output(metadata, "--metadata") if metadata else nullcontext()
    with described as about, open_output(output) as out:
        chunks: Iterable[Chunk] = tally.passing(grid.chunks())
        if sys.stderr.isatty() and (output or not sys.stdout.isatty()):
            from kvplan.report.stream_progress import shown

            chunks = shown(chunks, grid.size, sys.stderr)
        rows = write(chunks, stream, out)
        if about:
            _describe(about, stream, rows, {**options, "sort": sort, "top": top, "human": human or None})
    return 0 if tally.fits else 1


def _grid(plan: Path | None, options: dict[str, Any]) -> Grid | PlanGrid:
    from kvplan.planning.grid import Grid

    if plan is None:
        return Grid(options)
    beside = [name for name, value in options.items() if value not in (PLANNED, *o.Scenario._field_defaults.values())]
    if beside:
        option = "--" + beside[0].replace("_", "-")
        raise InputError(f"{option} beside a plan: its deployments have options of their own; write it there")
    from kvplan.planning.plan_grid import PlanGrid

    return PlanGrid(plan)


def _stream(grid: Grid | PlanGrid, form: str, human: bool, sort: str | None, top: int | None) -> Stream:
    from kvplan.arithmetic import NO_LIMIT
    from kvplan.planning.grid_columns import varied
    from kvplan.report.stream import Stream, parse_order

    by = sort or (BEST if top else None)
    return Stream(
        types=grid.columns,
        form=form,
        human=human,
        nulls={"max_context_tokens": NO_LIMIT},
        order=parse_order(by, list(grid.columns)) if by else None,
        top=top,
        varied=varied(grid.axes),
    )


class _Tally:
    """Whether any row fits, of those that pass by."""

    fits = False

    def passing(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks, unchanged."""
        for chunk in chunks:
            if not self.fits:
                fits = chunk.columns["fits"]
                self.fits = bool(fits.any() if hasattr(fits, "any") else fits)
            yield chunk


def _describe(out: TextIO, stream: Stream, rows: int, options: dict[str, Any]) -> None:
    """What was computed, when, and by which kvplan."""
    import json
    from datetime import UTC, datetime

    from kvplan import __version__

    about = {
        "kvplan_version": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": {name.replace("_", "-"): value for name, value in options.items() if value is not None},
        "format": stream.form,
        "rows": rows,
        "columns": list(stream.columns),
    }
    out.write(json.dumps(about, indent=2) + "\n")
