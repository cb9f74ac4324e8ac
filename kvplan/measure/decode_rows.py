"""Decode steps: their parts and every batch and context, in turn, so that a busy moment hits all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

from kvplan.measure.decode_path import choose_paths
from kvplan.measure.decoder.cache.static import StaticCache
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.energy import energy_row
from kvplan.measure.parts import SHORT, Work, attention_call, linears_call
from kvplan.measure.rates import time_calls
from kvplan.measure.reached import decode_point
from kvplan.measure.rows import EXTRAPOLATED, FITTED, Row, row
from kvplan.measure.setting import Setting
from kvplan.measure.step_model import Point, StepParts, calibrate, held_out_errors, median_error, step_work
from kvplan.measure.steps import Decoding

LINEARS, SHORT_STEP, SHORT_ATTENTION, LONG_ATTENTION = "linears", "short step", "short attention", "long attention"
PARTS = (LINEARS, SHORT_STEP, SHORT_ATTENTION, LONG_ATTENTION)
Key = tuple[int, str | int]  # batch, and a part or a context
Samples = dict[Key, list[float]]


def decode_rows(s: Setting, decoder: Decoder) -> Iterator[Row]:
    """Rates of the parts, every point, and how well two contexts predict the others."""
    points: list[Point] = []
    parts: dict[int, StepParts] = {}
    paths = choose_paths(decoder, s.batches, max(context for _, context in s.points), s.observer.synchronize)
    s.progress.note(f"attention in decode steps: {', '.join(paths) or 'one form only'}")
    for batches in together(s):
        s.progress.begin(f"decode, batch {', '.join(map(str, batches))}")
        decodings = {batch: Decoding(decoder, batch, [*s.contexts(batch), SHORT]) for batch in batches}
        calls = {key: call for each in decodings.values() for key, call in _calls(s, decoder, each).items()}
        timed = _one_by_one if s.observer.device.type == "cuda" else _in_turn
        samples = timed(s, calls)
        for batch, decoding in decodings.items():
            parts[batch] = _parts(s, batch, samples)
            if decoding.refused:
                s.progress.note(f"decode steps run without a CUDA graph: {decoding.refused}")
            yield from _part_rows(s, batch, parts[batch])
            for context in s.contexts(batch):
                point = _observed(s, batch, context, samples)
                points.append(point)
                predicted = parts[batch].seconds(point.kv_bytes)
                yield from decode_point(s, samples[batch, context], predicted, batch, context)
                yield from energy_row(s, decoding, context)
        del decodings, calls
    yield from _calibration(points, parts)


def together(s: Setting) -> list[list[int]]:
    """All batches at once where their caches fit together, else one after another."""
    caches = sum(batch * max(s.contexts(batch)) for batch in s.batches) / s.ledger.context * s.ledger.slab.bytes
    return [s.batches] if caches <= s.ledger.budget.kv.bytes else [[batch] for batch in s.batches]


def _calls(s: Setting, decoder: Decoder, decoding: Decoding) -> dict[Key, Callable[[], Work]]:
    """What is timed of a batch; each is made when its turn comes, since on CUDA each holds a cache."""
    batch, repeats = decoding.batch, s.options.repeats
    longest = max(s.contexts(batch))

    def attention(context: int) -> Work:
        cache = decoding.cache or StaticCache(decoder, batch=batch, capacity=context)
        return attention_call(decoder, cache, context)

    calls: dict[Key, Callable[[], Work]] = {
        (batch, LINEARS): lambda: linears_call(decoder, batch),
        (batch, SHORT_STEP): lambda: decoding.step_at(SHORT, repeats),
        (batch, SHORT_ATTENTION): lambda: attention(SHORT),
        (batch, LONG_ATTENTION): lambda: attention(longest),
    }
    for context in s.contexts(batch):
        calls[batch, context] = lambda context=context: decoding.step_at(context, repeats)  # type: ignore[misc]
    return calls


def _one_by_one(s: Setting, calls: dict[Key, Callable[[], Work]]) -> Samples:
    return {key: time_calls(make(), s.options.repeats, s.observer.synchronize) for key, make in calls.items()}


def _in_turn(s: Setting, calls: dict[Key, Callable[[], Work]]) -> Samples:
    made = {key: make() for key, make in calls.items()}
    samples: Samples = {key: [] for key in made}
    for turn in range(s.options.repeats + 1):
        for key, call in made.items():
            s.observer.synchronize()
            start = perf_counter()
            call()
            s.observer.synchronize()
            if turn:  # the first is a warm-up
                samples[key].append(perf_counter() - start)
    return samples


def _parts(s: Setting, batch: int, samples: Samples) -> StepParts:
    linears, short, *attention = (median(samples[batch, part]) for part in PARTS)
    kv = [step_work(s.rank, s.dtype, batch, context).kv_bytes for context in (SHORT, max(s.contexts(batch)))]
    return StepParts(linears, short, attention[0], attention[1], kv[0], kv[1])


def _part_rows(s: Setting, batch: int, parts: StepParts) -> Iterator[Row]:
    rate = step_work(s.rank, s.dtype, batch, SHORT).weights_bytes / parts.linears_s
    share = rate / s.peaks.copy_bytes_per_s
    yield row("weights_rate", "bytes/s", observed=rate, batch=batch, share_of_copy=share)
    if parts.kv_s_per_byte > 0:
        yield row("kv_rate", "bytes/s", observed=1 / parts.kv_s_per_byte, batch=batch)
    yield row("fixed_cost", "s", observed=parts.fixed_s, batch=batch, note="of a step: the starts of its kernels")


def _observed(s: Setting, batch: int, context: int, samples: Samples) -> Point:
    kv_bytes = step_work(s.rank, s.dtype, batch, context).kv_bytes
    return Point(batch, context, kv_bytes, median(samples[batch, context]))


def _calibration(points: list[Point], parts: dict[int, StepParts]) -> Iterator[Row]:
    """Every point by the fit, and the median of the errors' absolute values at points that it did not see."""
    found = calibrate(points, parts)
    if found is None:
        return
    for point in points:
        basis = FITTED if point in found.points else EXTRAPOLATED
        at: dict[str, Any] = {"batch": point.batch, "context_tokens": point.context}
        predicted = found.seconds(point)
        yield row("decode_step_calibrated", "s", predicted=predicted, observed=point.observed_s, basis=basis, **at)
    errors = held_out_errors(found, points)
    low, high = (p.context for p in found.points)
    note = f"fitted at batch {found.points[0].batch}, contexts {low} and {high}; judged at the {len(errors)} others"
    yield row("calibrated_step_error", "ratio", observed=median_error(errors), note=note, errors=errors)
