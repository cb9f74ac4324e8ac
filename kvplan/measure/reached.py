"""Rows of one timed point: the time with its samples, tokens a second, and the share of the device that was reached."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median, quantiles
from typing import Any

from kvplan.measure.rows import BOUND, EXTRAPOLATED, FORMULA, Row, row
from kvplan.measure.setting import Setting
from kvplan.measure.step_model import Work, prefill_work, step_work


def decode_point(s: Setting, samples: list[float], predicted: float | None, batch: int, context: int) -> Iterator[Row]:
    """A decode step that makes token number `context` of each session."""
    at = {"batch": batch, "context_tokens": context}
    ran, whole = (step_work(rank, s.dtype, batch, context) for rank in (s.rank, s.whole))
    yield from _point(s, "decode_step", samples, predicted, work=ran, at=at)
    yield from _rate("decode_rate", batch, predicted, samples, at)
    yield from _whole_model(s, "decode_step", median(samples) * whole.bytes / ran.bytes, at)


def prefill_point(s: Setting, samples: list[float], predicted: float | None, batch: int, tokens: int) -> Iterator[Row]:
    """A prompt: the time to the first token."""
    at = {"batch": batch, "context_tokens": tokens}
    ran, whole = (prefill_work(rank, s.dtype, batch, tokens) for rank in (s.rank, s.whole))
    yield from _point(s, "ttft", samples, predicted, work=ran, at=at)
    yield from _rate("prefill_rate", batch * tokens, predicted, samples, at)
    yield from _whole_model(s, "ttft", median(samples) * whole.operations / ran.operations, at)


def _point(
    s: Setting, name: str, samples: list[float], predicted: float | None, *, work: Work, at: dict[str, Any]
) -> Iterator[Row]:
    seconds = median(samples)
    low, high = _spread(samples)
    more: dict[str, Any] = {
        "observed_low": low,
        "observed_high": high,
        "samples": samples,
        "bytes_moved": work.bytes,
        "operations": work.operations,
        "bytes_per_s": work.bytes / seconds,
        "flops_per_s": work.operations / seconds,
        "share_of_copy": work.bytes / seconds / s.peaks.copy_bytes_per_s,
        "share_of_product": work.operations / seconds / s.peaks.product_flops_per_s,
    }
    yield row(name, "s", predicted=predicted, observed=seconds, basis=FORMULA, **at, **more)
    if s.datasheet:
        bound, note = s.datasheet.seconds(work), f"{s.datasheet.gpu} on paper"
        yield row(f"{name}_bound", "s", predicted=bound, observed=seconds, basis=BOUND, note=note, **at)


def _rate(name: str, tokens: int, predicted: float | None, samples: list[float], at: dict[str, Any]) -> Iterator[Row]:
    expected = tokens / predicted if predicted else None
    yield row(name, "tokens/s", predicted=expected, observed=tokens / median(samples), **at)


def _whole_model(s: Setting, name: str, seconds: float, at: dict[str, Any]) -> Iterator[Row]:
    """Where fewer layers ran, the time of all: as their bytes (decode) or operations (prefill) to those that ran."""
    if s.rank.layers != s.whole.layers:
        note = f"{len(s.whole.layers)} layers, from {len(s.rank.layers)} that ran"
        yield row(f"{name}_whole_model", "s", predicted=seconds, basis=EXTRAPOLATED, note=note, **at)


def _spread(samples: list[float]) -> tuple[float, float]:
    """The ends of the middle half."""
    if len(samples) < 2:
        return samples[0], samples[0]
    first, _, third = quantiles(samples, n=4, method="inclusive")
    return first, third
