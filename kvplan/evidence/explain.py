"""Why a figure is off, and what a failed start would have needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kvplan.errors import InputError
from kvplan.evidence.conditions import Conditions
from kvplan.evidence.fixes import fixes
from kvplan.evidence.logs import EngineLog, Failure
from kvplan.evidence.prediction import Predicted
from kvplan.planning.estimate import estimate
from kvplan.units import GIB, human_bytes

OTHER_SEQS = (8, 16, 32, 64, 128, 256, 512, 1024)
_CONTEXT, _BUFFERS = 1.2 * GIB, 1.5 * GIB  # a card's memory before a start: context, and links to other cards


class Explained(NamedTuple):
    """A failed start in sentences, and flags that would fit."""

    failures: list[str]
    fixes: list[str]


def reasons(
    log: EngineLog,
    conditions: Conditions,
    predicted: Predicted,
    rows: Sequence[Mapping[str, Any]],
    tolerance: float,
) -> list[str]:
    """Likely reasons for an error beyond the tolerance, the most telling first."""
    errors = {row["quantity"]: row["error"] for row in rows if row["error"] is not None}
    found = list(_weights(errors, rows, tolerance))
    if abs(errors.get("kv_budget_bytes", 0)) > tolerance:
        row = next(row for row in rows if row["quantity"] == "kv_budget_bytes")
        found += _budget(log, conditions, predicted, row["observed"] - row["predicted"], row["observed"])
    if conditions.options.get("pp", 1) > 1 and not any("PP" in seen.rank for seen in log.all("available")):
        found.append(
            "with pipeline stages each rank prints its own memory; the smallest decides, and it may not be here"
        )
    found += _used_before(log, conditions)
    at_kv = errors.get("reported_tokens_at_logged_kv", errors.get("num_blocks_at_logged_kv", 0))
    if abs(at_kv) > tolerance:
        found.append(
            f"with the logged KV memory the tokens are still {at_kv:+.1%} off: another cache format, block size or"
            " layer layout (--kv-dtype, --block-size), or figures of one rank of several"
        )
    return found


def _weights(errors: Mapping[str, float], rows: Sequence[Mapping[str, Any]], tolerance: float) -> Iterator[str]:
    if abs(errors.get("weights_bytes", 0)) <= tolerance:
        return
    row = next(row for row in rows if row["quantity"] == "weights_bytes")
    ratio = row["observed"] / row["predicted"]
    if ratio < 0.7:
        yield f"the weights are {ratio:.2f} of what was planned: a quantised checkpoint? (--weights fp8, awq, ...)"
    elif ratio > 1.4:
        yield f"the weights are {ratio:.2f} times those planned: a 16-bit checkpoint, or another tp? (--weights, --tp)"
    else:
        yield (
            f"the weights differ by {human_bytes(row['observed'] - row['predicted'])}: a vision tower, drafting layers,"
            " adapters or layers kept in 16 bit (--extras, --weights)"
        )


def _budget(
    log: EngineLog, conditions: Conditions, predicted: Predicted, missing: float, observed: float
) -> Iterator[str]:
    """What would make the planned KV memory the observed one: a fraction, a max_num_seqs, the graphs."""
    total = conditions.card.gpu.memory_bytes().bytes if conditions.card else 0
    sign = "more" if missing > 0 else "less"
    yield f"the log has {human_bytes(abs(missing))} {sign} for the cache than was planned"
    near = 0.004 * max(observed, 0.02 * total)
    if "memory_fraction" in conditions.assumed and total:
        used = predicted.whole.to_dict()["memory_fraction"] if predicted.whole else 0
        fraction = used + missing / total
        if abs(fraction - round(fraction, 2)) * total < near and 0 < fraction <= 1:
            yield f"it would be so with a fraction of {round(fraction, 2):g} (--memory-fraction)"
    if "max_seqs" in conditions.assumed:
        yield from _other_seqs(conditions, observed, near)
    graphs = log.last("graph_estimate") or log.last("graphs")
    if graphs and abs(abs(missing) - graphs) < 0.15 * graphs:
        yield f"the difference is about that of the CUDA graphs ({human_bytes(graphs)})"


def _other_seqs(conditions: Conditions, observed: float, near: float) -> Iterator[str]:
    """Numbers of sequences that explain the memory; the fewest all take the same, that of the forward pass."""
    found = []
    for seqs in OTHER_SEQS:
        try:
            tried = estimate(**{**conditions.options, "max_seqs": seqs})
        except InputError:
            return
        if abs(tried.kv_budget_bytes - observed) < near:
            found.append(seqs)
    if found:
        fewer = " or fewer" if found[0] == OTHER_SEQS[0] else ""
        yield f"it would be so with max_num_seqs {found[-1]}{fewer} (--max-seqs)"


def _used_before(log: EngineLog, conditions: Conditions) -> Iterator[str]:
    free, total = log.first("free"), log.first("total")
    several = conditions.options.get("tp", 1) * conditions.options.get("pp", 1) > 1
    if free is not None and total is not None and total - free > _CONTEXT + _BUFFERS * several:
        yield f"{human_bytes(total - free)} of the card were in use before the start: other processes on it?"


def explain_failures(log: EngineLog, conditions: Conditions, predicted: Predicted) -> Explained:
    """Each failure by how much it missed, and the flags that would fit."""
    if not log.failures:
        return Explained([], [])
    sentences = [sentence for failure in log.failures for sentence in _failure(failure, predicted)]
    return Explained(list(dict.fromkeys(sentences)), fixes(log, conditions, predicted))


def _failure(failure: Failure, predicted: Predicted) -> Iterator[str]:
    numbers, kind = failure.numbers, failure.kind
    if kind == "kv_too_small" and "needed" in numbers and "available" in numbers:
        lacking = numbers["needed"] - numbers["available"]
        yield (
            f"one request of {numbers['max_model_len']:,.0f} tokens needs {human_bytes(numbers['needed'])} of cache,"
            f" {human_bytes(numbers['available'])} are there: {human_bytes(lacking)} are missing"
        )
    elif kind == "kv_too_small":
        had = f"{numbers['kv_tokens']:,.0f}" if "kv_tokens" in numbers else "fewer"
        yield f"one request of {numbers['max_model_len']:,.0f} tokens does not fit: the cache holds {had} tokens"
    elif kind == "no_cache":
        planned = f" (planned: {human_bytes(predicted.values['kv_budget_bytes'])})" if _has_budget(predicted) else ""
        yield f"weights and the profile run leave no memory for a cache{planned}"
    elif kind == "not_free":
        lacking = numbers["requested"] - numbers["free"]
        yield (
            f"{human_bytes(numbers['free'])} of {human_bytes(numbers['total'])} were free and"
            f" {human_bytes(numbers['requested'])} requested: {human_bytes(lacking)} are held by others, or the"
            f" fraction is above {numbers['free'] / max(1, numbers['total']):.3f}"
        )
    elif kind == "oom":
        where = {
            "weights": "while the weights were loaded",
            "profile": "in the profile run",
            "sampler": "in the sampler's warm-up, which takes a row of logits for each of max_num_seqs",
            "graphs": "after the cache was made: graphs and warm-up lie outside what was requested",
        }.get(failure.phase, "during the start")
        tried = f": {human_bytes(numbers['tried'])} more were asked for" if "tried" in numbers else ""
        left = f", {human_bytes(numbers['free'])} were free" if "free" in numbers else ""
        yield f"the card was full {where}{tried}{left}"
    else:
        yield "other processes took or gave back memory during the profile run; start again when the card is quiet"


def _has_budget(predicted: Predicted) -> bool:
    return "kv_budget_bytes" in predicted.values
