"""Flags with which a failed start would fit, each tried with the plan and corrected by what the log measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

from kvplan.errors import InputError
from kvplan.evidence.conditions import Conditions
from kvplan.evidence.logs import EngineLog
from kvplan.evidence.prediction import Predicted
from kvplan.planning.estimate import Estimate, estimate
from kvplan.units import human_bytes

SMALLER_SEQS = (256, 128, 64, 16)
SMALLER_BATCHES = (8192, 4096, 2048)
MOST_FRACTION = 0.99  # of a card whose free memory is not printed: its context takes the rest
_LARGEST_TP = 64


class _Measured(NamedTuple):
    """What the log says of the memory, where it does."""

    available: float | None  # for the cache
    needed: float  # of one request
    correction: float  # measured less planned
    most_fraction: float


def fixes(log: EngineLog, conditions: Conditions, predicted: Predicted) -> list[str]:
    """One change each that makes room for one request of the configured length, the smallest changes first."""
    measured = _measure(log, predicted)
    if any(failure.kind == "not_free" for failure in log.failures):
        return _on_a_card_in_use(conditions, measured)
    found = [
        *_shorter(log, conditions, measured, predicted),
        *_larger_fraction(conditions, measured, predicted),
        *_changes(conditions, measured),
    ]
    return list(dict.fromkeys(found))


def _changes(conditions: Conditions, measured: _Measured) -> list[str]:
    return [
        *_smaller_cache(conditions, measured),
        *_smaller_profile(conditions, measured),
        *_eager(conditions, measured),
        *_more_gpus(conditions, measured),
        *_smaller_weights(conditions, measured),
    ]


def _on_a_card_in_use(conditions: Conditions, measured: _Measured) -> list[str]:
    """With the share of the card that is free, alone or together with another change."""
    share = int(measured.most_fraction * 1000) / 1000
    if share <= 0:
        return []
    flag = f"--gpu-memory-utilization {share:g}"
    smaller = replace(conditions, options={**conditions.options, "memory_fraction": share})
    tried = _try(smaller.options)
    if tried and _fits(tried, measured):
        return [f"{flag}: leaves {human_bytes(_left(tried, measured))} for the cache"]
    return [f"{flag} {change}" for change in _changes(smaller, measured)]


def _measure(log: EngineLog, predicted: Predicted) -> _Measured:
    numbers: dict[str, float] = {}
    for failure in log.failures:
        numbers = {**failure.numbers, **numbers}
    available = numbers.get("available")
    if available is None:
        available = min((seen.value for seen in log.by_rank("available").values()), default=None)
    planned = predicted.values.get("kv_budget_bytes")
    correction = available - planned if available is not None and planned is not None else 0
    free, total = log.first("free"), log.first("total")  # at the start, not when the card was full
    most = free / total if free and total else MOST_FRACTION
    needed = numbers.get("needed") or predicted.values["kv_bytes_per_session"]
    return _Measured(available, needed, correction, min(most, MOST_FRACTION))


def _shorter(log: EngineLog, conditions: Conditions, measured: _Measured, predicted: Predicted) -> Iterator[str]:
    """The longest request that the memory holds, by the plan or by the engine's own count."""
    options = conditions.options
    counted = [n[key] for n in (f.numbers for f in log.failures) for key in ("fitting_length", "kv_tokens") if key in n]
    length: float | None = min(counted, default=None)
    if measured.available is not None and measured.available > 0:
        tried = _try(options, kv_budget=int(measured.available))
        length = tried.max_context_tokens if tried else length
    elif length is None and predicted.whole:
        length = predicted.whole.max_context_tokens
    if length and length < options["max_model_len"]:
        yield f"--max-model-len {length:.0f}"


def _larger_fraction(conditions: Conditions, measured: _Measured, predicted: Predicted) -> Iterator[str]:
    """A larger share of the card, as far as its memory is free."""
    if not predicted.whole or not conditions.card:
        return
    now = float(predicted.whole.to_dict()["memory_fraction"])
    total = conditions.card.gpu.memory_bytes().bytes
    have = predicted.whole.kv_budget_bytes + measured.correction
    wanted = ceil((now + (measured.needed - have) / total) * 1000) / 1000
    if now < wanted <= measured.most_fraction:
        yield f"--gpu-memory-utilization {wanted:g}"


def _smaller_cache(conditions: Conditions, measured: _Measured) -> Iterator[str]:
    """Keys and values in eight bits."""
    options = conditions.options
    if options.get("kv_dtype", "auto") not in ("auto", "bf16", "fp16") or measured.available is None:
        return
    tried = _try(options, kv_dtype="fp8", kv_budget=max(1, int(measured.available)))
    if tried and tried.fits:
        yield f"--kv-cache-dtype fp8: one request takes {human_bytes(tried.kv_bytes_per_session)}"


def _smaller_profile(conditions: Conditions, measured: _Measured) -> Iterator[str]:
    """Fewer sequences or smaller batches: a smaller profile run leaves more."""
    options = conditions.options
    for name, flag, values in (
        ("max_seqs", "--max-num-seqs", SMALLER_SEQS),
        ("max_batched_tokens", "--max-num-batched-tokens", SMALLER_BATCHES),
    ):
        base = _try(options)
        now = base.to_dict()[name] if base else None
        for value in values:
            if now is None or value >= now:
                continue
            tried = _try(options, **{name: value})
            if tried and _fits(tried, measured):
                yield f"{flag} {value}: leaves {human_bytes(_left(tried, measured))} for the cache"
                break


def _eager(conditions: Conditions, measured: _Measured) -> Iterator[str]:
    """Without CUDA graphs, where they are taken off the budget."""
    now, tried = _try(conditions.options), _try(conditions.options, eager=True)
    if now and tried and tried.kv_budget_bytes > now.kv_budget_bytes and _fits(tried, measured):
        yield f"--enforce-eager: leaves {human_bytes(_left(tried, measured))} for the cache"


def _more_gpus(conditions: Conditions, measured: _Measured) -> Iterator[str]:
    """The next degree of tensor parallelism that the model allows and that fits."""
    tp = int(conditions.options.get("tp", 1))
    while conditions.card and tp < _LARGEST_TP:
        tp *= 2
        tried = _try(conditions.options, tp=tp)
        if tried and tried.fits and _left(tried, measured) > 0:
            room = human_bytes(_left(tried, measured))
            yield f"--tensor-parallel-size {tp}: leaves {room} for the cache on each GPU"
            return


def _smaller_weights(conditions: Conditions, measured: _Measured) -> Iterator[str]:
    """Weights in eight bits, where they are not quantised already."""
    model, options = conditions.model, conditions.options
    if not conditions.card or options.get("weights") or model.weights not in ("bf16", "fp16"):
        return
    tried = _try(options, weights="fp8")
    if tried and _fits(tried, measured):
        yield f"--quantization fp8: leaves {human_bytes(_left(tried, measured))} for the cache"


def _try(options: Mapping[str, Any], **changed: Any) -> Estimate | None:
    changes = dict(changed)
    if "kv_budget" not in changes and options.get("gpu") is None:
        return None
    try:
        return estimate(**{**options, **changes})
    except InputError:
        return None


def _left(tried: Estimate, measured: _Measured) -> int:
    return int(tried.kv_budget_bytes + measured.correction)


def _fits(tried: Estimate, measured: _Measured) -> bool:
    return _left(tried, measured) >= measured.needed
