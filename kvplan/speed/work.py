"""Operations and bytes of prefill and of one decode step on one rank, by kind of work.

A multiply-add is two operations. Only matrix products, attention scores and state updates are counted; norms,
activations and rotary positions are below a percent. Sources: Kaplan et al. 2020 (2 operations a parameter and token),
Pope et al. 2022 (inference), DeepSeek-V2 2024 (latent attention with absorbed projections in decode).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from kvplan.memory.parameters import distinct_layers, edge_tensors, widths_of
from kvplan.memory.tensors import Tensor, layer_tensors
from kvplan.sharding import Rank
from kvplan.specs.layers import Indexer, Layer
from kvplan.speed.pairs import naive_pairs, prefill_pairs, token_pairs

DELTA_OPERATIONS = 7  # for each state element: decay 1, what the key recalls 2, correction 2, read 2 (Yang et al. 2024)
STATE_OPERATIONS = 5  # for each state element: decay 1, input product 1, add 1, read 2 (Dao and Gu 2024)


class Operations(NamedTuple):
    """Operations by kind of work; the sum is the step's."""

    projections: int  # matrix products inside the layers, routed experts as used
    head: int  # logits
    attention: int  # scores and weighted sums
    state: int  # recurrent updates and convolutions

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


class Passes(NamedTuple):
    """How often each kind of work happens: tokens through the projections, logits computed, pairs scored."""

    tokens: int
    logits: int
    pairs: Callable[..., int]  # (window, chunk) -> pairs of one head
    absorbed: bool  # latent attention works in the latent (decode) or on expanded heads (prefill)


def prefill_operations(rank: Rank, tokens: int) -> Operations:
    """The first pass over a prompt; logits of the last token only."""
    return _operations(rank, Passes(tokens, 1, partial(prefill_pairs, tokens), absorbed=False))


def decode_operations(rank: Rank, context: int) -> Operations:
    """One new token that becomes token number `context`: O(d^2) projections plus O(context * d) attention."""
    return _operations(rank, Passes(1, 1, partial(token_pairs, context), absorbed=True))


def cached_generation(rank: Rank, tokens: int) -> Operations:
    """All decode steps from 1 to `tokens` in closed form: quadratic through attention, linear in the rest."""
    return _operations(rank, Passes(tokens, tokens, partial(prefill_pairs, tokens), absorbed=True))


def naive_generation(rank: Rank, tokens: int) -> Operations:
    """The same without a cache, everything recomputed at every step: cubic attention, quadratic projections."""
    steps = tokens * (tokens + 1) // 2
    return _operations(rank, Passes(steps, tokens, partial(naive_pairs, tokens), absorbed=False))


def _operations(rank: Rank, passes: Passes) -> Operations:
    widths = widths_of(rank.model)
    layers = distinct_layers(rank.layers)
    inside = sum(n * _matmul_parameters(layer_tensors(layer, widths)) for layer, n in layers)
    edges = [t for t in edge_tensors(rank) if t.component != "head"]
    return Operations(
        projections=2 * passes.tokens * (inside + _matmul_parameters(edges)),
        head=2 * passes.logits * _head_parameters(rank),
        attention=sum(n * _attention(layer, passes) for layer, n in layers),
        state=passes.tokens * sum(n * _state(layer, rank.model.hidden_size) for layer, n in layers),
    )


def _matmul_parameters(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.active_parameters for tensor in tensors if tensor.role == "linear")


def _head_parameters(rank: Rank) -> int:
    """Matrices that make logits; the head multiplies even where it is the embedding."""
    if not rank.holds_head:
        return 0
    return sum(
        tensor.parameters
        for tensor in edge_tensors(rank)
        if tensor.name == "tied_embed_tokens" or (tensor.component == "head" and tensor.role == "linear")
    )


def _attention(layer: Layer, passes: Passes) -> int:
    """Scores and weighted sums: 2 operations for each element of a head's key and value, and each pair."""
    operations = 0
    if a := layer.attention:
        kept = a.indexer.topk if a.indexer else a.window
        operations += 2 * a.heads * (a.head_dim + a.v_head_dim) * passes.pairs(kept, a.chunk)
        operations += _indexing(a.indexer, passes)
    if m := layer.latent:
        key, value = (m.kv_rank + m.rope_dim, m.kv_rank) if passes.absorbed else (m.nope_dim + m.rope_dim, m.v_dim)
        operations += 2 * m.heads * (key + value) * passes.pairs(m.indexer.topk if m.indexer else None, None)
        operations += _indexing(m.indexer, passes)
    return operations


def _indexing(indexer: Indexer | None, passes: Passes) -> int:
    """Sparse attention scores every token with its small heads, then attends to the best."""
    return 2 * indexer.heads * indexer.dim * passes.pairs(None, None) if indexer else 0


def _state(layer: Layer, hidden: int) -> int:
    """Operations of the recurrent parts of a layer for one token."""
    operations = 0
    if m1 := layer.mamba1:
        operations += STATE_OPERATIONS * m1.inner * m1.state + 2 * m1.conv * m1.inner
    if m2 := layer.mamba2:
        operations += STATE_OPERATIONS * m2.inner * m2.state + 2 * m2.conv * m2.conv_width
    if d := layer.delta:
        channels = 2 * d.k_heads * d.k_dim + d.v_heads * d.v_dim
        operations += DELTA_OPERATIONS * d.v_heads * d.k_dim * d.v_dim + 2 * d.conv * channels
    if k := layer.kimi_delta:
        operations += DELTA_OPERATIONS * k.heads * k.head_dim**2 + 2 * k.conv * 3 * k.heads * k.head_dim
    if li := layer.lightning:
        operations += STATE_OPERATIONS * li.heads * li.head_dim**2
    if sc := layer.short_conv:
        operations += 2 * sc.conv * (sc.channels or hidden)
    return operations
