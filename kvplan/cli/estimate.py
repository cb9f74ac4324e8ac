"""kvplan estimate: the ledger of one scenario, or several side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import typer

from kvplan.cli import options as o
from kvplan.errors import InputError

if TYPE_CHECKING:
    from kvplan.planning.alternatives import Refused
    from kvplan.planning.estimate import Estimate


@o.with_scenario
def command(
    given: dict[str, Any],
    launch: o.Launch = None,  # noqa: ARG001 - its callback has made defaults of it
    strict: o.Strict = False,
    explain: bool = typer.Option(False, "--explain", help="Every figure with its formula and the values filled in."),
    format: o.Format = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """How many conversations fit on a card, and what fills it. Exit 1 when nothing fits."""
    return _run(given, strict=strict, explain=explain, format_name=format, output=output)


def _run(given: dict[str, Any], *, strict: bool, explain: bool, format_name: str | None, output: Path | None) -> int:
    from kvplan.planning.alternatives import Refused, estimates
    from kvplan.report.output import open_output
    from kvplan.report.render import format_for, render

    form = format_for(format_name, output)
    lists, fixed = o.split_lists(given)
    launch_notes = _with_launch(lists, fixed)
    o.keep_inputs(output, given.get("model"), given.get("gpu"), given.get("draft_model"))
    with open_output(output) as out:
        found = estimates(lists, fixed)
        done = [each for each in found if not isinstance(each, Refused)]
        if strict:
            _refuse_long_contexts(done)
        rows = [_row(each, explain) for each in found]
        if form == "table":
            _show(found, rows, explain, out)
        else:
            out.write(render(rows, form))
    for note in launch_notes:
        print(f"note: --launch: {note}", file=sys.stderr)
    if form != "table" or len(found) > 1:
        for note in dict.fromkeys(note for each in done for note in each.notes):
            print(f"note: {note}", file=sys.stderr)
    return 0 if any(each.fits for each in done) else 1


def _with_launch(lists: dict[str, Any], fixed: dict[str, Any]) -> list[str]:
    """Put what --launch says and no option can into the options; notes about it."""
    context = click.get_current_context(silent=True)
    found = context.meta.get(o.LAUNCHED) if context else None
    if found is None:
        return []
    notes = list(found.notes)
    if fixed.get("engine") == "vllm":
        fixed["flags"] = dict(found.flags)
    if fixed.get("model") == found.options["model"]:
        fixed["model"] = found.model
    if found.automatic_length and not lists:
        from kvplan.evidence.launched import fitting_length

        length = fitting_length(fixed)
        if length:
            fixed.update(max_model_len=length, context=min(fixed["context"], length))
            notes.append(f"--max-model-len auto comes to {length}")
    return notes


def _row(each: Estimate | Refused, explain: bool) -> dict[str, Any]:
    from kvplan.planning.alternatives import Refused

    if isinstance(each, Refused):
        return {**each.inputs, "fits": False, "error": each.reason}
    return {**each.to_dict(), **_derivations(each)} if explain else each.to_dict()


def _derivations(each: Estimate) -> dict[str, Any]:
    from kvplan.planning.derivations import counts, work

    tensors = [{**tensor._asdict(), "count": tensor.times, "bytes": tensor.bytes} for tensor in each.stage.tensors]
    return {
        "tensors": tensors,
        "counts": [c._asdict() for c in counts(each)],
        "work": [w._asdict() for w in work(each)],
    }


def _show(found: list[Any], rows: list[dict[str, Any]], explain: bool, out: TextIO) -> None:
    """The view for people: one ledger, or alternatives side by side."""
    from kvplan.report.console import show, width_of

    width = width_of(out)
    if len(found) > 1:
        from kvplan.report.comparison import comparison_view

        show(comparison_view(rows, width=width), out, width)
        return
    from kvplan.planning.advice import advice
    from kvplan.report.ledger import ledger_view

    show(ledger_view(rows[0], notes=found[0].notes, advice=advice(found[0])), out, width)
    if explain:
        from kvplan.report.explain import explain_text

        row = rows[0]
        text = explain_text(row, tensors=row["tensors"], counts=row["counts"], work=row["work"], width=width)
        out.write("\n" + text)


def _refuse_long_contexts(done: list[Estimate]) -> None:
    from kvplan.planning.notes import context_notes

    for each in done:
        for note in context_notes(each):
            raise InputError(f"--strict: {note}")
