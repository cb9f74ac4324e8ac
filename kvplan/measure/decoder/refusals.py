"""Which models the decoder does not run, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.errors import InputError
from kvplan.measure.decoder.layer import norm_roles
from kvplan.measure.decoder.rope import SCALINGS, rotary
from kvplan.sharding import Rank
from kvplan.specs.layers import STATE_MIXERS, Layer
from kvplan.specs.model import ModelSpec


def check_runs(rank: Rank) -> None:
    """Raise InputError with the first kind of layer or input that the decoder does not run."""
    for kind in _kinds(rank):
        raise InputError(f"{rank.model.name} has {kind}, which kvplan's own decoder does not run")


def _kinds(rank: Rank) -> Iterator[str]:
    yield from _model_kinds(rank.model)
    if rank.stages > 1:
        yield "pipeline stages"
    for layer in dict.fromkeys(rank.layers):
        yield from _layer_kinds(layer)
        yield from _attention_kinds(layer, rank)
        yield from _rope_kinds(layer, rank)
        yield from _latent_kinds(layer)
        yield from _moe_kinds(layer)


def _present(*kinds: tuple[object, str]) -> Iterator[str]:
    return (kind for present, kind in kinds if present)


def _model_kinds(model: ModelSpec) -> Iterator[str]:
    yield from _present(
        (model.per_layer_input, "per-layer inputs (Gemma 3n, Gemma 4)"),
        (model.altup_inputs, "AltUp streams (Gemma 3n)"),
        (model.laurel_rank, "learned residuals (Gemma 3n)"),
        (model.attention_residuals, "attention residuals (Kimi K3)"),
        (model.embedding_size, "a projected embedding (OPT-350m)"),
    )


def _layer_kinds(layer: Layer) -> Iterator[str]:
    if layer.attention and layer.latent:
        yield "attention beside a latent"
    for name in STATE_MIXERS:
        if getattr(layer, name):
            yield f"recurrent state ({name.replace('_', ' ')})"
    if not (layer.attention or layer.latent or layer.mlp or layer.moe):
        yield "empty layers"
    elif norm_roles(layer) is None:
        yield f"layers with {layer.norms} norms"
    yield from _present(
        (layer.mlp and layer.moe, "an MLP beside the experts (Gemma 4)"),
        (layer.weights_of or layer.use_projection or layer.use_adapter_rank, "layers with shared weights (Zamba2)"),
        (layer.scalars, "learned scalars in its layers (Apertus, Gemma 4)"),
    )


def _attention_kinds(layer: Layer, rank: Rank) -> Iterator[str]:
    a = layer.attention
    if a is None:
        return
    yield from _present(
        (a.indexer, "sparse attention with an indexer (MiniMax M3)"),
        (a.head_gate, "a gate for each head (Step 3.7)"),
        (a.value_from_key, "values taken from the keys (Gemma 4)"),
        (a.cache_of, "layers that read another layer's cache (Gemma 3n, Gemma 4)"),
        (a.input_size, "attention over a wider input (Zamba2)"),
        (a.output_gate and a.qkv_bias, "an output gate together with biases"),
        (rank.tp > 1 and a.qk_norm == "full", "query and key norms over the full width, which tp would divide"),
    )


def _rope_kinds(layer: Layer, rank: Rank) -> Iterator[str]:
    positions = rotary(layer, rank.model.rope)
    if positions is None:
        return
    rope, _ = positions
    if rope.scaling not in SCALINGS:
        yield f"rotary scaling '{rope.scaling}'"
    elif rope.scaling and not (rope.factor and (rope.original_context or rope.scaling == "linear")):
        yield f"rotary scaling '{rope.scaling}' without its factor and original_context in the model file"


def _latent_kinds(layer: Layer) -> Iterator[str]:
    m = layer.latent
    if m is None:
        return
    yield from _present(
        (m.indexer, "sparse attention with an indexer (DeepSeek-V3.2)"),
        (m.output_gate, "an output gate beside a latent (Kimi K3)"),
    )


def _moe_kinds(layer: Layer) -> Iterator[str]:
    m = layer.moe
    if m is None:
        return
    yield from _present(
        (m.latent_size, "experts in a latent width"),
        (m.router_scales, "router scales (Gemma 4)"),
        (m.here != m.experts, "experts on other ranks (ep)"),
    )
