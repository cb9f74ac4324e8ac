"""kvplan solve: the longest context for a number of sessions, or the fewest GPUs for a context and sessions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from kvplan.cli import options as o
from kvplan.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from kvplan.planning.alternatives import Refused
    from kvplan.planning.solve import Solution

QUESTIONS = ("context", "gpus")


@o.with_scenario
def command(
    given: dict[str, Any],
    what: Annotated[
        str, typer.Argument(metavar="context|gpus", help="The longest context, or the fewest GPUs.", show_default=False)
    ],
    max_gpus: Annotated[
        int | None, typer.Option("--max-gpus", metavar="N", min=1, help="Use no more than this many (with gpus).")
    ] = None,
    format: o.Format = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """The longest context, or the fewest GPUs, for --sessions N. Exit 1 when there is none."""
    from kvplan.planning.alternatives import Refused
    from kvplan.report.output import open_output
    from kvplan.report.render import format_for, render

    _check(what, given, max_gpus)
    form = format_for(format, output)
    o.keep_inputs(output, given.get("model"), given.get("gpu"), given.get("draft_model"))
    with open_output(output) as out:
        found = _solutions(what, given, {} if max_gpus is None else {"max_gpus": max_gpus})
        rows = [_row(each) for each in found]
        if form == "table":
            _show(found, rows, out)
        else:
            out.write(render(rows, form))
    done = [each for each in found if not isinstance(each, Refused)]
    told = [] if form == "table" else [each.sentence for each in done]
    if form != "table" or len(found) > 1:
        told += [note for each in done for note in each.notes]
    for note in dict.fromkeys(told):
        print(f"note: {note}", file=sys.stderr)
    return 0 if any(each.fits for each in done) else 1


def _check(what: str, given: dict[str, Any], max_gpus: int | None) -> None:
    if what not in QUESTIONS:
        hint = did_you_mean(what, QUESTIONS) or ";"
        raise InputError(f"unknown question '{what}'{hint} ask for context or gpus")
    if what == "context" and given["context"] is not None:
        raise InputError("--context is what is solved for; leave it out, or ask `kvplan estimate` whether it fits")
    if what == "context" and max_gpus is not None:
        raise InputError("--max-gpus belongs to `kvplan solve gpus`")


def _solutions(what: str, given: dict[str, Any], limits: dict[str, Any]) -> list[Solution | Refused]:
    """A solution for each combination of the lists; one that cannot be is a Refused, unless there is only one."""
    from kvplan.planning.alternatives import Refused, combinations
    from kvplan.planning.solve import solve_context
    from kvplan.planning.solve_gpus import solve_gpus

    solve = solve_context if what == "context" else solve_gpus
    options = list(combinations(*o.split_lists(given)))
    if len(options) == 1:
        return [solve(**options[0], **limits)]
    found: list[Solution | Refused] = []
    for each in options:
        try:
            found.append(solve(**each, **limits))
        except InputError as error:
            found.append(Refused(each, str(error)))
    return found


def _row(each: Solution | Refused) -> dict[str, Any]:
    from kvplan.planning.alternatives import Refused

    if isinstance(each, Refused):
        return {"answer": None, **each.inputs, "fits": False, "error": each.reason}
    return each.to_dict()


def _show(found: list[Solution | Refused], rows: list[dict[str, Any]], out: TextIO) -> None:
    """The answer and the ledger at it; of several, what they come to and their answers."""
    from kvplan.planning.advice import advice
    from kvplan.planning.alternatives import Refused
    from kvplan.report.console import show, width_of

    width = width_of(out)
    first = found[0]
    if len(found) == 1 and not isinstance(first, Refused):
        from kvplan.report.ledger import ledger_view

        out.write(f"{first.sentence}\n\n")
        show(ledger_view(rows[0], notes=first.notes, advice=advice(first.estimate)), out, width)
        return
    from kvplan.report.comparison import comparison_view

    show(comparison_view(rows, width=width), out, width)
    out.write("\n")
    for number, each in enumerate(found, 1):
        if not isinstance(each, Refused):
            out.write(f"# {number}  {each.sentence}\n")
