"""Bytes that a decode step moves: stored and read are two quantities."""

from __future__ import annotations

from kvplan.memory.parameters import distinct_layers, edge_tensors, widths_of
from kvplan.memory.tensors import Tensor, layer_tensors
from kvplan.schemes import Scheme
from kvplan.sharding import Rank


def weights_read_bytes(rank: Rank, scheme: Scheme) -> int:
    """Weights that one token streams: the experts it uses, the head even where tied, no embedding table.

    Shared weights are read at each use. Depth-dependent mixtures are read as their first layer is stored.
    """
    widths = widths_of(rank.model)
    inside = sum(
        count * _read(tensor, scheme)
        for layer, count in distinct_layers(rank.layers)
        for tensor in layer_tensors(layer, widths)
    )
    return inside + sum(
        _read(tensor, scheme)
        for tensor in edge_tensors(rank)
        if tensor.role != "table" or (tensor.name == "tied_embed_tokens" and rank.holds_head)
    )


def _read(tensor: Tensor, scheme: Scheme) -> int:
    if tensor.role == "vector":
        form = scheme.vector_format
    else:
        form = scheme.format_of(tensor.component, tensor.name, tensor.rows, tensor.columns)
    return tensor.used * form.matrix_bytes(tensor.rows, tensor.columns)
