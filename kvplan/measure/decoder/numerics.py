"""What the arithmetic needs and a model's shape does not hold. It changes no size and hardly any time."""

from __future__ import annotations

from kvplan.records import Record
from kvplan.specs.model import ModelSpec


class Numerics(Record):
    """Constants of one architecture; a checkpoint's come from its config.json."""

    norm_eps: float = 1e-5
    norm_offset: float = 0.0  # Gemma multiplies by 1 + w
    embedding_scale: float = 1.0  # Gemma multiplies the embedding by sqrt(hidden_size)
    activation: str = "silu"  # silu | gelu | gelu_tanh | relu | clamped_swiglu (gpt-oss)
    renormalise: bool = True  # the weights of the chosen experts sum to 1 (Mixtral, Qwen3)
    scoring: str = "softmax"  # of experts | sigmoid, with a router's bias that only helps to choose (DeepSeek-V3)
    groups: int = 1  # of experts
    active_groups: int = 1  # in which a token's experts are (DeepSeek-V2 and V3)
    routed_scale: float = 1.0  # the sum of the chosen experts is multiplied by this
    interleaved: bool = True  # the rotary part of a latent turns neighbours (DeepSeek), not halves
    whole_pairs: bool = True  # YaRN's stretching sets in at a whole number of pairs; gpt-oss does not round
    mscale: float = 1.0  # of YaRN: a share of the growth in cos and sin ...
    mscale_all_dim: float = 0.0  # ... that is in the scores of whole heads instead (DeepSeek)


def numerics_of(model: ModelSpec) -> Numerics:
    """The constants that a model file's family implies."""
    if (model.family or "").startswith("gemma"):
        scale = model.hidden_size**0.5
        return Numerics(norm_eps=1e-6, norm_offset=1.0, embedding_scale=scale, activation="gelu_tanh")
    if model.family == "gpt_oss":
        return Numerics(activation="clamped_swiglu", whole_pairs=False)
    plain = any(layer.mlp and not layer.mlp.gated for layer in model.stack)
    return Numerics(activation="gelu" if plain else "silu")
