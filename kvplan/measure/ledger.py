"""The prediction: what this decoder will take of this machine's memory, line by line, before anything is built."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.arithmetic import whole_sessions
from kvplan.engines.base import Budget, EngineOptions, Held
from kvplan.engines.generic import group_lines
from kvplan.engines.local import Local
from kvplan.kv_formats import kv_pair
from kvplan.measure.activations import Pass, activation_line
from kvplan.memory.cache_groups import CacheGroup, cache_groups
from kvplan.memory.weights import stored, weight_lines
from kvplan.schemes import Scheme, scheme
from kvplan.sharding import Rank
from kvplan.specs.layers import Rope
from kvplan.units import Line


class Host(NamedTuple):
    """What the prediction has to know of the machine and of how the decoder runs on it."""

    memory_bytes: int
    baseline_bytes: int  # taken before the first weight
    source: str
    device: str  # cpu | cuda | mps
    dtype: str  # fp32 | bf16 | fp16
    value_bytes: int
    threads: int
    slab_granule: int
    packed_head: bool  # a tied head in the CPU's own order is held twice: the embedding needs a plain table


class Ledger(NamedTuple):
    """Lines of one rank's memory, in the order in which it is taken."""

    rank: Rank
    host: Host
    weights: list[Line]
    budget: Budget
    slab: Line  # of one session
    context: int

    @property
    def weights_bytes(self) -> int:
        """Weights as built."""
        return sum(line.bytes for line in self.weights)

    def overhead(self, name: str) -> int:
        """Bytes of the overhead line of this name, 0 without it."""
        return sum(line.bytes for line in self.budget.overhead if line.name == f"overhead/{name}")

    @property
    def sessions(self) -> int:
        """Sessions that the cache's share holds; 0 when the weights leave nothing."""
        return int(whole_sessions(self.budget.kv.bytes, self.slab.bytes))

    @property
    def lines(self) -> list[Line]:
        """All lines; weights, overhead and the cache's share add up to the memory."""
        return [*self.weights, *self.budget.overhead, self.budget.kv, self.slab]


def predict(rank: Rank, host: Host, context: int, prompt: Pass) -> Ledger:
    """The ledger of a rank whose sessions have room for `context` tokens, with the activations of this prompt."""
    engine, options, groups = Local(host.slab_granule), kv_options(host.dtype, context), cache_groups(rank)
    tensors = stored(rank, scheme_of(host))
    weights = weight_lines(tensors)
    overhead = [_baseline(host), *_tables(rank, host, context), *_copies(rank, host), activation_line(rank, prompt)]
    budget = engine.budget(host.memory_bytes, Held(rank, scheme_of(host), tensors, weights, overhead), options)
    return Ledger(rank, host, weights, budget, engine.slab_line(groups, options, context), context)


def cache_bytes(rank: Rank, dtype: str, context: int) -> int:
    """Live bytes of one session, as the planner counts them."""
    return sum(line.bytes for line in session_lines(cache_groups(rank), dtype, context))


def session_lines(groups: list[CacheGroup], dtype: str, context: int) -> list[Line]:
    """The bytes of one session, group by group."""
    return group_lines(groups, kv_options(dtype, context), context)


def kv_options(dtype: str, context: int) -> EngineOptions:
    """The cache in the decoder's own format."""
    return EngineOptions(kv=kv_pair(dtype), max_model_len=context)


def scheme_of(host: Host) -> Scheme:
    """Everything in the decoder's own format."""
    return scheme(host.dtype)


def _baseline(host: Host) -> Line:
    return Line("overhead/baseline", host.baseline_bytes, "observed", {"observed": host.baseline_bytes}, host.source)


def _tables(rank: Rank, host: Host, context: int) -> list[Line]:
    """cos and sin of every position, once for each kind of rotary positions."""
    widths: set[tuple[Rope, int]] = set()
    for layer in rank.layers:
        rope = layer.attention and (layer.attention.rope or rank.model.rope or Rope())
        if layer.attention and isinstance(rope, Rope):
            widths.add((rope, rope.dim or layer.attention.head_dim))
    if not widths:
        return []
    terms: dict[str, int | float] = {
        "positions": context,
        "widths": sum(width for _, width in widths),
        "value_bytes": host.value_bytes,
    }
    size = 2 * context * int(terms["widths"]) * host.value_bytes
    return [Line("overhead/position_tables", size, "2 * positions * widths * value_bytes", terms, "cos and sin")]


def _copies(rank: Rank, host: Host) -> list[Line]:
    """A tied head in the CPU's order stays a table for the embedding as well."""
    if not (host.packed_head and rank.model.tied):
        return []
    terms: dict[str, int | float] = {
        "rows": rank.vocab_rows,
        "hidden": rank.model.hidden_size,
        "value_bytes": host.value_bytes,
    }
    size = rank.vocab_rows * rank.model.hidden_size * host.value_bytes
    source = "a second copy, in oneDNN's order"
    return [Line("overhead/packed_head", size, "rows * hidden * value_bytes", terms, source)]
