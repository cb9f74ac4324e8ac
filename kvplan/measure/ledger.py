"""The prediction: what this decoder will take of this machine's memory, line by line, before anything is built."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.arithmetic import whole_sessions
from kvplan.engines.base import Budget, EngineOptions, Held
from kvplan.engines.generic import group_lines
from kvplan.engines.local import Local
from kvplan.kv_formats import kv_pair
from kvplan.measure.activations import Pass, activation_line
from kvplan.measure.decoder.layouts import LAYOUTS, packed_elements, swells
from kvplan.measure.decoder.rope import rotary
from kvplan.memory.cache_groups import CacheGroup, cache_groups
from kvplan.memory.weights import StoredTensor, stored, weight_lines
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
    layouts: tuple[str, ...]  # that matrices may have until they have been tried, and then do have
    fp32_products: frozenset[tuple[int, int]] | None  # 16-bit matrices that take and give fp32; None: any may
    packed: tuple[int, int] | None = None  # bytes of copies and of padding, once tried
    libraries_bytes: int = 0  # taken since by libraries for themselves, at their first use


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
    overhead = [
        *_observed(host),
        *_tables(rank, host, context),
        *_packed(rank, host, tensors),
        activation_line(rank, prompt),
    ]
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


def _observed(host: Host) -> list[Line]:
    """What no formula gives."""
    found = {"baseline": (host.baseline_bytes, host.source), "libraries": (host.libraries_bytes, "at their first use")}
    return [
        Line(f"overhead/{name}", size, "observed", {"observed": size}, source)
        for name, (size, source) in found.items()
        if size
    ]


def _tables(rank: Rank, host: Host, context: int) -> list[Line]:
    """cos and sin of every position, once for each kind of rotary positions."""
    widths: set[tuple[Rope, int]] = set()
    for layer in rank.layers:
        if positions := rotary(layer, rank.model.rope):
            widths.add(positions)
    if not widths:
        return []
    terms: dict[str, int | float] = {
        "positions": context,
        "widths": sum(width for _, width in widths),
        "value_bytes": host.value_bytes,
    }
    size = 2 * context * int(terms["widths"]) * host.value_bytes
    return [Line("overhead/position_tables", size, "2 * positions * widths * value_bytes", terms, "cos and sin")]


def _packed(rank: Rank, host: Host, tensors: list[StoredTensor]) -> list[Line]:
    """What the CPU's own orders take beside the plain matrices; before they have been tried, at most."""
    copied, padding = host.packed or _most_packed(rank, host, tensors)
    if not copied + padding:
        return []
    source = "a tied head held twice, since the embedding needs its table, and matrices filled up to whole blocks"
    terms: dict[str, int | float] = {"copied": copied, "padding": padding}
    return [Line("overhead/packed", copied + padding, "copied + padding", terms, source)]


def _most_packed(rank: Rank, host: Host, tensors: list[StoredTensor]) -> tuple[int, int]:
    copies = rank.model.tied and any(LAYOUTS[name].copies for name in host.layouts)
    matrices = [t for t in tensors if t.columns > 1]
    padding = sum(t.times * (_most_elements(host, t) - t.rows * t.columns) for t in matrices) * host.value_bytes
    return rank.vocab_rows * rank.model.hidden_size * host.value_bytes if copies else 0, padding


def _most_elements(host: Host, t: StoredTensor) -> int:
    orders = (name for name in host.layouts if not swells(name, t.rows, t.columns))
    return max(packed_elements(name, t.rows, t.columns) for name in orders)
