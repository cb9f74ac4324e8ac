"""Bytes that a decode step moves: stored and read are two quantities."""

from __future__ import annotations

from kvplan.kv_formats import KvPair
from kvplan.memory.cache_groups import CacheGroup, layer_caches, state_bytes, token_bytes
from kvplan.memory.parameters import distinct_layers, widths_of
from kvplan.memory.tensors import layer_tensors, stored_tensors
from kvplan.memory.weights import Owner, format_at, placed
from kvplan.schemes import Scheme
from kvplan.sharding import Rank
from kvplan.specs.layers import Layer
from kvplan.speed.pairs import token_pairs


def weights_read_bytes(rank: Rank, scheme: Scheme) -> int:
    """Weights that one token streams: the experts it uses, the head even where tied, no embedding table.

    Weights that several layers share are read at each use.
    """
    read = 0.0
    for tensor, owner, repeats in placed(rank, scheme.depends_on_depth):
        if tensor.role == "table" and not (tensor.name == "tied_embed_tokens" and rank.holds_head):
            continue
        form = format_at(tensor, scheme, owner)
        read += repeats * tensor.used * form.matrix_bytes(tensor.rows, tensor.columns)
    return int(read) + _read_again(rank, scheme)


def _read_again(rank: Rank, scheme: Scheme) -> int:
    """What layers read that use another's weights (Zamba2), beside the copy a stage may keep."""
    widths, read = widths_of(rank.model), 0.0
    for layer, count in distinct_layers(rank.layers):
        if layer.weights_of:
            own = set(stored_tensors(layer, widths))
            borrowed = [tensor for tensor in layer_tensors(layer, widths) if tensor not in own]
            read += count * sum(
                tensor.used * format_at(tensor, scheme, Owner()).matrix_bytes(tensor.rows, tensor.columns)
                for tensor in borrowed
            )
    return int(read)


def kv_read_bytes(rank: Rank, kv: KvPair, context: int) -> int:
    """Cache that one decode step of a conversation reads: every layer its own reach, borrowed caches too."""
    hidden, state_dtype = rank.model.hidden_size, rank.model.state_dtype
    return sum(
        count * (_seen(layer, group, context) * token_bytes(group, kv) + state_bytes(group, state_dtype))
        for layer, count in distinct_layers(rank.layers)
        for group in layer_caches(layer, hidden, borrowed=True)
    )


def _seen(layer: Layer, group: CacheGroup, context: int) -> int:
    """Tokens of the cache that a query reads; sparse attention reads its best, its indexer all."""
    part = layer.latent if group.kind == "latent" else layer.attention
    if group.kind == "indexer" or part is None:
        return context
    window, chunk = (group.window, None) if group.kind == "window" else (None, group.window)
    seen = token_pairs(context, window, chunk)
    return min(seen, part.indexer.topk) if part.indexer else seen
