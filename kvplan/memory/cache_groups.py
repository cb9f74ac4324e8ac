"""What the layers of a rank leave behind for every conversation, engine-neutral."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvplan.kv_formats import KvPair
from kvplan.memory.parameters import distinct_layers
from kvplan.sharding import Rank
from kvplan.specs.layers import Layer

STATE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
CONV_BYTES = 2  # the convolution's inputs stay in the 16-bit compute dtype


class CacheGroup(NamedTuple):
    """Layers with the same cache: `heads` keys of `k_width` and values of `v_width` a token, or a fixed state."""

    kind: str  # full | window | chunk | latent | indexer | state
    layers: int
    heads: int = 0
    k_width: int = 0
    v_width: int = 0
    window: int | None = None  # tokens kept; None grows without end
    conv_elements: int = 0
    state_elements: int = 0

    @property
    def elements_per_token(self) -> int:
        """Cached elements of one token in one layer."""
        return self.heads * (self.k_width + self.v_width)


def cache_groups(rank: Rank) -> list[CacheGroup]:
    """The caches of a rank, equal layers together, in the order in which they first appear."""
    counts: dict[CacheGroup, int] = {}
    for layer, count in distinct_layers(rank.layers):
        for group in layer_caches(layer, rank.model.hidden_size):
            counts[group] = counts.get(group, 0) + count
    return [group._replace(layers=count) for group, count in counts.items()]


def layer_caches(layer: Layer, hidden: int, *, borrowed: bool = False) -> Iterator[CacheGroup]:
    """The caches of one layer; with `borrowed` also one that an earlier layer keeps for it."""
    a, m = layer.attention, layer.latent
    if a and (borrowed or not a.cache_of):
        kind = "window" if a.window else "chunk" if a.chunk else "full"
        yield CacheGroup(kind, 1, a.kv_heads, a.head_dim, a.v_head_dim, a.reach)
        if a.indexer:
            yield CacheGroup("indexer", 1, 1, a.indexer.dim, 0)
    if m:
        yield CacheGroup("latent", 1, 1, m.kv_rank, m.rope_dim)
        if m.indexer:
            yield CacheGroup("indexer", 1, 1, m.indexer.dim, 0)
    yield from _states(layer, hidden)


def _states(layer: Layer, hidden: int) -> Iterator[CacheGroup]:
    """Recurrent state: the last inputs of the convolution, and the state itself."""
    if (m1 := layer.mamba1) is not None:
        yield _state((m1.conv - 1) * m1.inner, m1.inner * m1.state)
    if (m2 := layer.mamba2) is not None:
        yield _state((m2.conv - 1) * m2.conv_width, m2.inner * m2.state)
    if (d := layer.delta) is not None:
        channels = 2 * d.k_heads * d.k_dim + d.v_heads * d.v_dim
        yield _state((d.conv - 1) * channels, d.v_heads * d.k_dim * d.v_dim)
    if (k := layer.kimi_delta) is not None:
        yield _state((k.conv - 1) * 3 * k.heads * k.head_dim, k.heads * k.head_dim**2)
    if (li := layer.lightning) is not None:
        yield _state(0, li.heads * li.head_dim**2)
    if (sc := layer.short_conv) is not None:
        yield _state((sc.conv - 1) * (sc.channels or hidden), 0)


def _state(conv_elements: int, state_elements: int) -> CacheGroup:
    return CacheGroup("state", 1, conv_elements=conv_elements, state_elements=state_elements)


def token_bytes(group: CacheGroup, kv: KvPair) -> int:
    """Bytes that one token leaves in one layer of the group, scales included."""
    if group.kind == "state":
        return 0
    if group.kind == "latent":
        return kv.key.latent_bytes(group.k_width, group.v_width)
    if group.kind == "indexer":
        return kv.key.indexer_bytes(group.k_width)
    return kv.key.vector_bytes(group.heads, group.k_width) + kv.value.vector_bytes(group.heads, group.v_width)


def token_formula(group: CacheGroup, kv: KvPair) -> str:
    """The same as a text that can be evaluated."""
    if group.kind == "latent":
        return kv.key.latent_formula(group.k_width, group.v_width)
    if group.kind == "indexer":
        return kv.key.indexer_formula(group.k_width)
    return f"{kv.key.formula(group.heads, group.k_width)} + {kv.value.formula(group.heads, group.v_width)}"


def state_bytes(group: CacheGroup, state_dtype: str | None) -> int:
    """Bytes of fixed state one conversation keeps in one layer of the group."""
    return group.conv_elements * CONV_BYTES + group.state_elements * STATE_BYTES[state_dtype or "bf16"]
