"""Where the figures beside the ledger come from: counts and work, each with a formula that can be evaluated."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.arithmetic import session_units
from kvplan.planning.estimate import Estimate
from kvplan.speed.traffic import kv_read_bytes, weights_read_bytes
from kvplan.speed.work import Operations, cached_generation, decode_operations, naive_generation, prefill_operations


class Count(NamedTuple):
    """A figure with its formula; evaluating the formula with the terms gives the value."""

    name: str
    value: int
    unit: str
    formula: str
    terms: dict[str, int | float]
    source: str


def counts(e: Estimate) -> list[Count]:
    """Bytes of a token, sessions and tokens."""
    s, lines = e.scenario, e.session_lines
    per_session = Count(
        "kv_bytes_per_session",
        e.kv_bytes_per_session,
        "bytes",
        " + ".join(f"group_{i}" for i in range(1, len(lines) + 1)) or "0",
        {f"group_{i}": line.bytes for i, line in enumerate(lines, 1)},
        "the session lines of the ledger",
    )
    pool: dict[str, int | float] = {"kv_budget_bytes": e.kv_budget_bytes, "prefix_bytes": e.prefix_bytes}
    terms = {**pool, "kv_bytes_per_session": e.kv_bytes_per_session, "dp": s.dp}
    fit = "max(0, (kv_budget_bytes - prefix_bytes) // kv_bytes_per_session)"
    if (max_seqs := s.engine_options.max_seqs) is not None:
        terms["max_seqs"] = max_seqs
        fit = f"min(max_seqs, {fit})"
    sessions = Count("max_sessions", e.max_sessions, "sessions", f"dp * {fit}", terms, "whole sessions only")
    return [_per_token(e), per_session, sessions] if e.kv_bytes_per_session else [_per_token(e), per_session]


def _per_token(e: Estimate) -> Count:
    live, tokens = e.stage.live, e.scenario.own_tokens
    terms: dict[str, int | float] = {
        "live_at_context": session_units(live.charges, live.fixed, tokens),
        "live_one_token_before": session_units(live.charges, live.fixed, tokens - 1),
    }
    formula = "live_at_context - live_one_token_before"
    return Count("kv_bytes_per_token", e.kv_bytes_per_token, "bytes", formula, terms, "what the last token added")


def work(e: Estimate) -> list[Count]:
    """Operations and bytes of the deciding GPU: prefill, one decode step, and a whole generation with and without."""
    s, rank = e.scenario, e.stage.rank
    context = s.context
    passes = (
        (
            f"prefill of {context} tokens",
            prefill_operations(rank, context),
            "causal triangle, logits of the last token",
        ),
        (f"decode of token {context}", decode_operations(rank, context), "O(d^2) + O(context * d)"),
        (f"generating {context} tokens with the cache", cached_generation(rank, context), "quadratic"),
        (f"generating {context} tokens without it", naive_generation(rank, context), "cubic: recomputed at every step"),
    )
    return [_operations(name, found, source) for name, found, source in passes] + [_decode_bytes(e)]


def _operations(name: str, found: Operations, source: str) -> Count:
    terms: dict[str, int | float] = {key: value for key, value in found._asdict().items() if value}
    return Count(name, found.total, "FLOP", " + ".join(terms) or "0", terms, source)


def _decode_bytes(e: Estimate) -> Count:
    terms: dict[str, int | float] = {
        "weights_read_bytes": weights_read_bytes(e.stage.rank, e.scenario.weights),
        "kv_read_bytes": kv_read_bytes(e.stage.rank, e.scenario.kv, e.scenario.context),
    }
    value = int(sum(terms.values()))
    source = "one session; the embedding table is looked up, not streamed"
    return Count("bytes read by one decode step", value, "bytes", " + ".join(terms), terms, source)
