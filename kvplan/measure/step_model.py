"""The time of a decode step from parts, and the same calibrated on two contexts."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from kvplan.kv_formats import kv_pair
from kvplan.measure.ledger import cache_bytes
from kvplan.measure.parts import distinct_experts
from kvplan.schemes import scheme
from kvplan.sharding import Rank
from kvplan.speed.traffic import weights_read_bytes
from kvplan.speed.work import decode_operations, prefill_operations


class Work(NamedTuple):
    """What a step or a prefill moves and computes."""

    weights_bytes: int
    kv_bytes: int
    operations: int

    @property
    def bytes(self) -> int:
        """Weights and cache together."""
        return self.weights_bytes + self.kv_bytes


def step_work(rank: Rank, dtype: str, batch: int, context: int) -> Work:
    """Weights read once for the batch (of experts, as many as it is expected to choose), every session's cache once."""
    operations = batch * decode_operations(rank, context).total
    return Work(batch_weights(rank, dtype, batch), batch * cache_bytes(rank, dtype, context), operations)


def prefill_work(rank: Rank, dtype: str, batch: int, tokens: int) -> Work:
    """Weights read once, the cache written once."""
    operations = batch * prefill_operations(rank, tokens).total
    return Work(batch_weights(rank, dtype, batch * tokens), batch * cache_bytes(rank, dtype, tokens), operations)


def batch_weights(rank: Rank, dtype: str, tokens: int) -> int:
    """Weights that a pass over so many tokens reads."""
    read = weights_read_bytes(rank, scheme(dtype))
    value_bytes = kv_pair(dtype).key.vector_bytes(1, 1)
    for layer in rank.layers:
        if (m := layer.moe) is not None:
            expert = (3 if m.gated else 2) * rank.model.hidden_size * m.intermediate_size * value_bytes
            read += round((distinct_experts(m.here or m.experts, m.active, tokens) - m.active) * expert)
    return read


class StepParts(NamedTuple):
    """Measured apart for one batch."""

    linears_s: float  # all matrices
    short_s: float  # a whole step at a context of a few tokens
    attention_short_s: float  # the attention in it
    attention_long_s: float  # at the longest context
    kv_short_bytes: int
    kv_long_bytes: int

    @property
    def kv_s_per_byte(self) -> float:
        """Of keys and values, once the calls' own cost is taken off."""
        grown = self.attention_long_s - self.attention_short_s
        if grown <= 0 or self.kv_long_bytes <= self.kv_short_bytes:
            return self.attention_long_s / self.kv_long_bytes
        return grown / (self.kv_long_bytes - self.kv_short_bytes)

    @property
    def fixed_s(self) -> float:
        """What neither the matrices nor reading the cache take: the starts of all kernels."""
        return max(0.0, self.short_s - self.linears_s)

    def seconds(self, kv_bytes: int) -> float:
        """A step whose sessions hold so many bytes together."""
        return self.linears_s + self.fixed_s + max(0, kv_bytes - self.kv_short_bytes) * self.kv_s_per_byte


class Point(NamedTuple):
    """An observed step."""

    batch: int
    context: int
    kv_bytes: int
    observed_s: float


class Calibrated(NamedTuple):
    """Two contexts of one batch give the cache's rate and the fixed part; other batches keep their own matrices."""

    points: tuple[Point, Point]
    kv_s_per_byte: float
    base_s: dict[int, float]  # by batch

    def seconds(self, point: Point) -> float:
        """The step that the point is about."""
        return self.base_s[point.batch] + point.kv_bytes * self.kv_s_per_byte


def calibrate(points: list[Point], parts: dict[int, StepParts]) -> Calibrated | None:
    """By the shortest and the longest context of the smallest batch; None without two, or without others to predict."""
    first = min((p.batch for p in points), default=0)
    own = sorted((p for p in points if p.batch == first), key=lambda p: p.context)
    if len(own) < 2 or len(points) < 3:
        return None
    low, high = own[0], own[-1]
    rate = max(0.0, (high.observed_s - low.observed_s) / (high.kv_bytes - low.kv_bytes))
    base = low.observed_s - low.kv_bytes * rate
    bases = {batch: base + part.short_s - parts[first].short_s for batch, part in parts.items()}
    return Calibrated((low, high), rate, bases)


def held_out_errors(found: Calibrated, points: list[Point]) -> list[float]:
    """Relative errors at the points that the calibration did not see."""
    return [found.seconds(p) / p.observed_s - 1 for p in points if p not in found.points]


def median_error(errors: list[float]) -> float:
    """Of absolute values."""
    return median(map(abs, errors))
