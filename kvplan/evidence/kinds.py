"""Kinds of architecture, for errors by kind."""

from __future__ import annotations

from kvplan.specs.model import ModelSpec

_STATES = ("mamba1", "mamba2", "delta", "kimi_delta", "lightning", "short_conv")
_TOWERS = ("vision_tower", "audio_tower")


def kinds_of(model: ModelSpec) -> tuple[str, ...]:
    """The kinds of architecture that a model is of; dense is what is none of the others."""
    layers = set(model.stack)
    parts = [layer.attention for layer in layers if layer.attention]
    found = {
        "MoE": any(layer.moe for layer in layers),
        "sliding or chunked": any(part.window or part.chunk for part in parts),
        "hybrid (state)": any(getattr(layer, name) for layer in layers for name in _STATES),
        "MLA": any(layer.latent for layer in layers),
        "multimodal": any(tower in model.extras for tower in _TOWERS),
    }
    return tuple(name for name, is_so in found.items() if is_so) or ("dense",)
