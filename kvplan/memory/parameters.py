"""Parameters: sums over the tensors of a rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvplan.memory.tensors import Tensor, Widths, stored_tensors
from kvplan.sharding import Rank, shard

if TYPE_CHECKING:
    from kvplan.specs.layers import Layer
    from kvplan.specs.model import ModelSpec

NORM_VECTORS = {"rms": 1, "layer": 2, "layer-no-bias": 1, "none": 0}


def widths_of(model: ModelSpec) -> Widths:
    """What a layer's tensors need to know of the model."""
    return Widths(
        hidden=model.hidden_size,
        norm_vectors=NORM_VECTORS[model.norm],
        per_layer_input=model.per_layer_input.width if model.per_layer_input else 0,
        altup_inputs=model.altup_inputs or 0,
        laurel_rank=model.laurel_rank or 0,
        attention_residuals=model.attention_residuals,
    )


def edge_tensors(rank: Rank) -> Iterator[Tensor]:
    """The tensors outside the layers: embeddings on the first stage, final norm and head on the last."""
    model, norm_vectors = rank.model, NORM_VECTORS[rank.model.norm]
    width = model.embedding_size or model.hidden_size
    head = Tensor("head", "lm_head", rank.vocab_rows, width)
    if rank.holds_embedding:
        name = "tied_embed_tokens" if model.tied else "embed_tokens"
        yield Tensor("embedding", name, rank.vocab_rows, width, "table")
        yield from _input_tensors(rank)
    if rank.holds_head:
        if model.final_norm and norm_vectors:
            yield Tensor("norms", "final_norm", norm_vectors, model.hidden_size, "vector")
        if model.attention_residuals:
            yield Tensor("norms", "output_residual", 2, model.hidden_size, "vector")
        if model.embedding_size:
            yield Tensor("head", "project_out", model.embedding_size, model.hidden_size)
        if model.altup_inputs:
            n = model.altup_inputs - 1
            yield Tensor("other", "altup_unembed", model.hidden_size, model.hidden_size, copies=n, used=n)
        if not model.tied:
            yield head
        elif not rank.holds_embedding:
            yield head._replace(name="tied_head_copy")
        if model.head_bias:
            yield Tensor("head", "head_bias", rank.vocab_rows, 1, "vector")


def _input_tensors(rank: Rank) -> Iterator[Tensor]:
    model, norm_vectors = rank.model, NORM_VECTORS[rank.model.norm]
    if model.embedding_size:
        yield Tensor("embedding", "project_in", model.hidden_size, model.embedding_size)
    if model.embedding_norm:
        yield Tensor("norms", "embedding_norm", norm_vectors, model.hidden_size, "vector")
    if model.learned_positions:
        yield Tensor("embedding", "positions", model.learned_positions, model.hidden_size, "table")
    if model.per_layer_input:
        width = model.per_layer_input.width * len(model.stack)
        rows = -(-model.per_layer_input.vocab_size // rank.tp)
        yield Tensor("embedding", "per_layer_embedding", rows, width, "table")
        yield Tensor("other", "per_layer_model_projection", width, model.hidden_size)
        yield Tensor("norms", "per_layer_projection_norm", model.per_layer_input.width, 1, "vector")
    if model.altup_inputs:
        n = model.altup_inputs - 1
        yield Tensor("other", "altup_projections", model.hidden_size, model.hidden_size, copies=n, used=n)


def distinct_layers(layers: tuple[Layer, ...]) -> list[tuple[Layer, int]]:
    """Each distinct layer with its count, in order of first appearance (equal layers are one object)."""
    counts: dict[int, list[int]] = {}
    for index, layer in enumerate(layers):
        counts.setdefault(id(layer), []).append(index)
    return [(layers[where[0]], len(where)) for where in counts.values()]


def parameters(model: ModelSpec) -> int:
    """Parameters that the shapes give: the text model a server loads, a tied head counted once."""
    (rank,) = shard(model)
    widths = widths_of(model)
    inside = sum(n * t.parameters for layer, n in distinct_layers(rank.layers) for t in stored_tensors(layer, widths))
    return inside + sum(t.parameters for t in edge_tensors(rank))


def active_parameters(model: ModelSpec) -> int:
    """Parameters that one token's pass uses: of its experts, every other tensor whole, shared blocks once.

    The embedding counts whole, as published active counts have it; a head tied to it is the same matrix, counted once.
    """
    (rank,) = shard(model)
    widths = widths_of(model)
    layers = distinct_layers(rank.layers)
    inside = sum(n * t.active_parameters for layer, n in layers for t in stored_tensors(layer, widths))
    return inside + sum(t.active_parameters for t in edge_tensors(rank))
