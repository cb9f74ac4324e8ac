"""What the arithmetic needs and a model's shape does not hold. It changes no size and hardly any time."""

from __future__ import annotations

from kvplan.records import Record
from kvplan.specs.model import ModelSpec


class Numerics(Record):
    """Constants of one architecture; a checkpoint's come from its config.json."""

    norm_eps: float = 1e-5
    norm_offset: float = 0.0  # Gemma multiplies by 1 + w
    embedding_scale: float = 1.0  # Gemma multiplies the embedding by sqrt(hidden_size)
    activation: str = "silu"  # silu | gelu | gelu_tanh | relu
    renormalise: bool = True  # the weights of the chosen experts sum to 1 (Mixtral, Qwen3)


def numerics_of(model: ModelSpec) -> Numerics:
    """The constants that a model file's family implies."""
    if (model.family or "").startswith("gemma"):
        scale = model.hidden_size**0.5
        return Numerics(norm_eps=1e-6, norm_offset=1.0, embedding_scale=scale, activation="gelu_tanh")
    plain = any(layer.mlp and not layer.mlp.gated for layer in model.stack)
    return Numerics(activation="gelu" if plain else "silu")
