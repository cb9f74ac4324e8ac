"""Generation without a cache against generation with one, at growing lengths.

Without a cache everything is computed again for every token: the scores of attention sum to n^3, the projections to
n^2. With one, projections grow with n and scores with n^2. Operations are counted while they run, from the shapes that
the kernels were given; of causal attention the triangle that is needed is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kvplan.measure.decode_path import FIRST, use_path
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.rows import FORMULA, Row, row
from kvplan.measure.setting import Setting
from kvplan.speed.pairs import prefill_pairs
from kvplan.speed.work import Operations, cached_generation, naive_generation

LENGTHS = (16, 32, 64, 128, 256)
PRODUCTS = {  # where the input is
    "aten::linear": 0, "aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "mkldnn::_linear_pointwise": 0,
    "quantized::linear_dynamic_fp16": 0,
}  # fmt: skip
SHARE_OF_BUDGET = 0.25  # that the longest naive generation may take


class Counted(NamedTuple):
    """Operations of matrix products and of attention, and seconds."""

    matrices: int
    attention: int
    seconds: float


class Counter(TorchDispatchMode):
    """Counts a multiply-add as two operations, in matrix products and in attention."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices = self.attention = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if "scaled_dot_product" in name:
            self.attention += _attention(args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        if name in PRODUCTS:
            self.matrices += 2 * out.numel() * args[PRODUCTS[name]].shape[-1]
        return out


def _attention(args: Any, kwargs: dict[str, Any]) -> int:
    """2 for each element of a query's key and value, and each pair of a query and a key that it sees."""
    q, k, v = args[:3]
    causal = kwargs.get("is_causal", next((a for a in args[3:] if isinstance(a, bool)), False))
    pairs = prefill_pairs(q.shape[-2]) if causal else q.shape[-2] * k.shape[-2]
    return 2 * q.shape[0] * q.shape[1] * (q.shape[-1] + v.shape[-1]) * pairs


def naive_rows(s: Setting, decoder: Decoder) -> Iterator[Row]:
    """Operations and seconds of both ways at each length, and the powers of n with which they grew."""
    use_path(decoder, FIRST)  # the kernel whose operations are counted
    found: dict[tuple[str, int], Counted] = {}
    predicted: dict[tuple[str, int], Operations] = {}
    lengths: list[int] = []
    for length in LENGTHS:
        if lengths and _too_long(s, found["naive", lengths[-1]].seconds):
            s.progress.note(f"naive generation stops at {lengths[-1]} tokens: --time-budget")
            break
        lengths.append(length)
        s.progress.begin(f"{length} tokens without a cache and with one")
        for way in ("naive", "cached"):
            found[way, length] = _generate(decoder, length, cached=way == "cached")
            count = cached_generation if way == "cached" else naive_generation
            predicted[way, length] = count(s.rank, length)
            yield from _point(way, length, predicted[way, length], found[way, length])
    yield from _powers(lengths, predicted, found)


def _too_long(s: Setting, last_s: float) -> bool:
    """Twice the length takes up to eight times as long."""
    return 8 * last_s > s.options.time_budget_s * SHARE_OF_BUDGET


def _point(way: str, length: int, expected: Operations, found: Counted) -> Iterator[Row]:
    at: dict[str, Any] = {"context_tokens": length, "batch": 1}
    yield row(
        f"{way}_operations", "FLOP", predicted=expected.total, observed=found.matrices + found.attention,
        tolerance=0.01, **at,
    )  # fmt: skip
    yield row(f"{way}_attention_operations", "FLOP", predicted=expected.attention, observed=found.attention, **at)
    yield row(f"{way}_generation", "s", observed=found.seconds, **at)


@torch.inference_mode()
def _generate(decoder: Decoder, length: int, *, cached: bool) -> Counted:
    """Positions 1 to `length`, counted once and timed once."""
    cache = ContiguousCache(decoder, batch=1, capacity=length)
    tokens = torch.ones(1, length, dtype=torch.int64, device=decoder.place.device)

    def run() -> None:
        cache.seek(0)
        for n in range(1, length + 1):
            if cached:
                decoder.step(tokens[:, n - 1], cache)
            else:
                cache.seek(0)
                decoder.prefill(tokens[:, :n], cache)
        if decoder.place.device.type == "cuda":
            torch.cuda.synchronize(decoder.place.device)

    with Counter() as counter:
        run()
    start = perf_counter()
    run()
    return Counted(counter.matrices, counter.attention, perf_counter() - start)


def _powers(lengths: list[int], predicted: Any, found: dict[tuple[str, int], Counted]) -> Iterator[Row]:
    """Between the two longest lengths, n to the power of what."""
    if len(lengths) < 2:
        return
    low, high = lengths[-2:]
    for way in ("naive", "cached"):
        first, last = found[way, low], found[way, high]
        if not first.attention:
            continue  # attention in products that do not tell it apart
        power = log(predicted[way, high].attention / predicted[way, low].attention) / log(high / low)
        counted = log(last.attention / first.attention) / log(high / low)
        note = f"between {low} and {high} tokens"
        yield row(f"{way}_attention_power", "1", predicted=power, observed=counted, basis=FORMULA, note=note)
        timed = log(last.seconds / first.seconds) / log(high / low)
        yield row(f"{way}_seconds_power", "1", observed=timed, note=note)
