"""What if the attention layers were MHA, MQA or GQA with another number of key-value heads?"""

from __future__ import annotations

import re
from dataclasses import replace

from kvplan.errors import InputError
from kvplan.specs.layers import Layer
from kvplan.specs.model import ModelSpec

_GQA = re.compile(r"gqa:([1-9]\d{0,5})")


def with_attention(model: ModelSpec, attention: str | None) -> ModelSpec:
    """The model with mha, mqa or gqa:N in its attention layers; raises InputError when that is no such model."""
    if attention is None:
        return model
    found = _GQA.fullmatch(attention)
    if attention not in ("mha", "mqa") and not found:
        raise InputError(f"--attention '{attention}': expected mha, mqa or gqa:N such as gqa:8")
    if any(layer.latent for layer in model.stack):
        raise InputError(f"--attention: {model.name} keeps a latent (MLA), which has no key-value heads to change")
    if not any(layer.attention for layer in model.stack):
        raise InputError(f"--attention: {model.name} has no attention layers")
    kv_heads = 1 if attention == "mqa" else int(found[1]) if found else None
    changed = {id(layer): _with_kv_heads(model.name, layer, kv_heads) for layer in model.stack}
    # what a file has for the heads it has is no figure for others
    return replace(model, stored_bytes={}, stack=tuple(changed[id(layer)] for layer in model.stack))


def _with_kv_heads(name: str, layer: Layer, kv_heads: int | None) -> Layer:
    attention = layer.attention
    if attention is None:
        return layer
    heads = attention.heads
    if kv_heads and heads % kv_heads:
        possible = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise InputError(f"--attention gqa:{kv_heads}: {name} has {heads} query heads, so N can be {possible}")
    return replace(layer, attention=replace(attention, kv_heads=kv_heads or heads))
