"""The layers of a config in order, each with its kind's name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvplan.importers.config_attention import softmax
from kvplan.importers.config_feed_forward import feed_forward
from kvplan.importers.config_shape import Shape
from kvplan.importers.config_special import SPECIAL, Built, norms_of, zamba2
from kvplan.importers.config_states import state
from kvplan.specs.layers import Attention, Layer

_SOFTMAX = ("full", "window", "chunk")
_STATE_NAMES = {"delta": "linear", "kimi_delta": "delta", "mamba1": "mamba", "mamba2": "mamba", "short_conv": "conv"}


def build_stack(s: Shape) -> Built:
    """Every layer; equal ones are one object."""
    if s.name in SPECIAL:
        return _shared(SPECIAL[s.name](s))
    if s.name == "zamba2":
        return _shared(zamba2(s, Layer(**state(s), norms=1)))
    parts, norms = feed_forward(s), norms_of(s)
    layers = [_layer(s, index, parts[index], norms) for index in range(s.layers)]
    built = Built(layers, _names(s, layers))
    return _shared(_with_caches_read_again(s, built))


def _layer(s: Shape, index: int, part: dict[str, Any], norms: int) -> Layer:
    mixer: dict[str, Any] = {}
    word = s.mixers[index]
    if word in _SOFTMAX or s.name == "falcon_h1":
        mixer = softmax(s, index)
    if word == "state" or s.name == "falcon_h1":
        mixer = {**mixer, **state(s)}
    scalars = s.family.scalars if s.name != "apertus" or "mlp" in part else 0
    return Layer(**mixer, **part, norms=norms, scalars=scalars)


def _shared(built: Built) -> Built:
    found: dict[Layer, Layer] = {}
    return Built([found.setdefault(layer, layer) for layer in built.layers], built.kinds)


def _names(s: Shape, layers: list[Layer]) -> list[str]:
    """Names for what differs: the mixer, the feed-forward part, or both."""
    mixer = [_mixer_name(s, index, layer) for index, layer in enumerate(layers)]
    part = ["dense" if layer.mlp and not layer.moe else "sparse" if layer.moe else "" for layer in layers]
    alone = {"dense": "mlp", "sparse": "moe"}
    if not any(mixer) or "mlp" in s.mixers or "moe" in s.mixers:
        return [name or alone.get(one, one) for name, one in zip(mixer, part, strict=True)]
    named = [mixer] if len(set(mixer)) > 1 else []
    named += [part] if len(set(part)) > 1 else []
    return (
        ["_".join(word for word in words if word) for words in zip(*named, strict=True)] if named else [""] * s.layers
    )


def _mixer_name(s: Shape, index: int, layer: Layer) -> str:
    word = s.mixers[index]
    if word == "state":
        return _STATE_NAMES.get(s.family.state, s.family.state)
    if word in ("window", "chunk"):
        return "local"
    if word not in _SOFTMAX:
        return ""
    if {"window", "chunk"} & set(s.mixers):
        return "global"
    if layer.latent:
        return "shared" if layer.latent.indexer is None and s.f.has("indexer_types") else "latent"
    bare = layer.attention is not None and layer.attention.rope == "none"
    return "nope" if bare else "attention" if s.family.state else "rope"


def _with_caches_read_again(s: Shape, built: Built) -> Built:
    """The last layers may have no cache of their own and read the nearest earlier one of their kind (Gemma 3n, 4)."""
    count = s.f.size("num_kv_shared_layers", 0, 0)
    if count == 0:
        return built
    first = s.layers - count
    kinds = [name or "own" for name in built.kinds]
    layers = list(built.layers)
    for index in range(max(first, 0), s.layers):
        attention, target = layers[index].attention, _same_before(s, built, index, first)
        if attention is None or target is None:
            s.f.refuse("num_kv_shared_layers", f"layer {index} has no earlier layer of its kind to read from")
        layers[index] = replace(layers[index], attention=replace(attention, cache_of=kinds[target]))
        kinds[index] += "_reuse"
    return Built(layers, kinds)


def _same_before(s: Shape, built: Built, index: int, first: int) -> int | None:
    def shape(attention: Attention | None) -> tuple[int, int, int] | None:
        return (attention.kv_heads, attention.head_dim, attention.v_head_dim) if attention else None

    wanted = shape(built.layers[index].attention)
    found = [i for i in range(first) if s.mixers[i] == s.mixers[index] and shape(built.layers[i].attention) == wanted]
    return found[-1] if found else None
