"""kvplan estimate: the ledger of one scenario, or several side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from kvplan.cli import options as o
from kvplan.errors import InputError

if TYPE_CHECKING:
    from kvplan.planning.alternatives import Refused
    from kvplan.planning.estimate import Estimate


def command(
    model: o.Model,
    gpu: o.Gpu = None,
    context: o.Context = "4096",
    sessions: o.Sessions = None,
    weights: o.Weights = None,
    kv_dtype: o.KvDtype = "auto",
    attention: o.Attention = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    engine: o.Engine = "generic",
    engine_version: o.EngineVersion = None,
    max_model_len: o.MaxModelLen = None,
    memory_fraction: o.MemoryFraction = None,
    max_seqs: o.MaxSeqs = None,
    max_batched_tokens: o.MaxBatchedTokens = None,
    block_size: o.BlockSize = None,
    eager: o.Eager = False,
    reserve: o.Reserve = None,
    kv_budget: o.KvBudget = None,
    lora_rank: o.LoraRank = None,
    max_loras: o.MaxLoras = None,
    draft_model: o.DraftModel = None,
    shared_prefix: o.SharedPrefix = None,
    extras: o.Extras = None,
    strict: o.Strict = False,
    explain: bool = typer.Option(False, "--explain", help="Every figure with its formula and the values filled in."),
    format: o.Format = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """How many conversations fit on a card, and what fills it. Exit 1 when nothing fits."""
    given = {key: value for key, value in locals().items() if key not in ("strict", "explain", "format", "output")}
    return _run(given, strict=strict, explain=explain, format_name=format, output=output)


def _run(given: dict[str, Any], *, strict: bool, explain: bool, format_name: str | None, output: Path | None) -> int:
    from kvplan.planning.alternatives import Refused, estimates
    from kvplan.report.output import open_output
    from kvplan.report.render import format_for, render

    form = format_for(format_name, output)
    lists, fixed = o.split_lists(given)
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
    if form != "table" or len(found) > 1:
        for note in dict.fromkeys(note for each in done for note in each.notes):
            print(f"note: {note}", file=sys.stderr)
    return 0 if any(each.fits for each in done) else 1


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
