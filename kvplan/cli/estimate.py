"""kvplan estimate: the ledger of one scenario, or several side by side."""

from __future__ import annotations

import sys
from typing import Any

import typer

from kvplan.cli import options as o

COMPARED = ("model", "gpu", "attention")  # labels of a refused row


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
    ep: o.Ep = "1",
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


def _run(given: dict[str, Any], *, strict: bool, explain: bool, format_name: str | None, output: Any) -> int:
    from kvplan.planning.alternatives import Refused, estimates
    from kvplan.report.output import open_output
    from kvplan.report.render import format_for

    form = format_for(format_name, output)
    lists, fixed = o.split_lists(given)
    with open_output(output) as out:
        found = estimates(lists, fixed)
        done = [each for each in found if not isinstance(each, Refused)]
        if strict:
            _refuse_long_contexts(done)
        out.write(_text(found, form, explain))
    if form != "table" or len(found) > 1:
        for note in dict.fromkeys(note for each in done for note in each.notes):
            print(f"note: {note}", file=sys.stderr)
    return 0 if any(each.fits for each in done) else 1


def _text(found: list[Any], form: str, explain: bool) -> str:
    from kvplan.report.render import render

    rows = [_row(each, explain) for each in found]
    if form != "table":
        return render(rows, form)
    if len(found) > 1:
        from kvplan.report.comparison import comparison_table

        return comparison_table(rows)
    return _ledger_text(found[0], rows[0], explain)


def _row(each: Any, explain: bool) -> dict[str, Any]:
    from kvplan.planning.alternatives import Refused

    if isinstance(each, Refused):
        return {**{name: each.options.get(name) for name in COMPARED}, "fits": False, "error": each.reason}
    row: dict[str, Any] = each.to_dict()
    return {**row, **_derivations(each)} if explain else row


def _derivations(each: Any) -> dict[str, Any]:
    from kvplan.planning.derivations import counts, work

    tensors = [{**tensor._asdict(), "count": tensor.times, "bytes": tensor.bytes} for tensor in each.stage.tensors]
    return {
        "tensors": tensors,
        "counts": [c._asdict() for c in counts(each)],
        "work": [w._asdict() for w in work(each)],
    }


def _ledger_text(estimate: Any, row: dict[str, Any], explain: bool) -> str:
    from kvplan.planning.advice import advice
    from kvplan.report.ledger import ledger_table

    text = ledger_table(row, notes=estimate.notes, advice=advice(estimate))
    if not explain:
        return text
    from kvplan.report.explain import explain_text

    return text + "\n" + explain_text(row, tensors=row["tensors"], counts=row["counts"], work=row["work"])


def _refuse_long_contexts(done: list[Any]) -> None:
    from kvplan.errors import InputError
    from kvplan.planning.notes import context_notes

    for each in done:
        for note in context_notes(each):
            raise InputError(f"--strict: {note}")
