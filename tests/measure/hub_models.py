"""Tiny models twice: as a model file's shape and as the transformers model it describes, with random weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import transformers

from kvplan.measure.checkpoint import checkpoint_numerics, load_checkpoint
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.decoder import Decoder
from kvplan.specs.layers import Attention, Layer, Mlp, Moe, Rope
from kvplan.specs.model import ModelSpec

HIDDEN, VOCAB, LAYERS, INNER = 48, 97, 2, 80


def attention(heads: int, kv_heads: int, **more: Any) -> Attention:
    """Heads of width 8, as wide together as the residual stream only by chance."""
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=8, v_head_dim=8, **more)


def spec(*layers: Layer, **more: Any) -> ModelSpec:
    """A tiny model of these layers."""
    stack = layers * LAYERS if len(layers) == 1 else layers
    fields: dict[str, Any] = {"name": "tiny", "hidden_size": HIDDEN, "vocab_size": VOCAB, **more}
    return ModelSpec(layers=len(stack), stack=stack, stack_kinds=("layer",) * len(stack), **fields)


def dense(a: Attention, **more: Any) -> ModelSpec:
    """The usual block: attention and a gated MLP."""
    return spec(Layer(attention=a, mlp=Mlp(intermediate_size=INNER)), **more)


@dataclass(frozen=True)
class Case:
    """A shape, the transformers configuration class that has it, and that class's own options."""

    model: ModelSpec
    hub: str
    options: dict[str, Any]


def rope_case(theta: float = 10000.0, **scaling: Any) -> dict[str, Any]:
    """transformers' rotary parameters."""
    kind = scaling.pop("kind", "default")
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **scaling}}


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
MOE = Moe(experts=4, active=2, intermediate_size=40)

CASES = {
    "llama-mha": Case(dense(attention(4, 4)), "Llama", {}),
    "llama-gqa-llama3": Case(
        dense(attention(6, 2), rope=Rope(theta=10000.0, scaling="llama3", factor=8.0, original_context=32)),
        "Llama",
        rope_case(kind="llama3", **LLAMA3),
    ),
    "llama-mqa-linear": Case(
        dense(attention(4, 1), rope=Rope(scaling="linear", factor=4.0)), "Llama", rope_case(kind="linear", factor=4.0)
    ),
    "llama-odd-heads": Case(dense(attention(6, 3), rope=Rope(theta=500000.0)), "Llama", rope_case(500000.0)),
    "llama-yarn-tied": Case(
        dense(attention(4, 2), rope=Rope(scaling="yarn", factor=4.0, original_context=16), tied=True),
        "Llama",
        {**rope_case(kind="yarn", **YARN), "tie_word_embeddings": True},
    ),
    "mistral-window": Case(dense(attention(4, 2, window=7)), "Mistral", {"sliding_window": 7}),
    "qwen2-biases": Case(dense(attention(4, 2, qkv_bias=True)), "Qwen2", {}),
    "qwen3-norms": Case(dense(attention(4, 2, qk_norm="head")), "Qwen3", {}),
    "mixtral": Case(
        spec(Layer(attention=attention(4, 2), moe=MOE)),
        "Mixtral",
        {**rope_case(), "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 40},
    ),
    "qwen3-moe": Case(
        spec(Layer(attention=attention(4, 2, qk_norm="head"), moe=MOE)),
        "Qwen3Moe",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "norm_topk_prob": True},
    ),
    "gemma": Case(dense(attention(4, 1), tied=True, family="gemma"), "Gemma", {}),
}


@cache
def hub_model(name: str) -> Any:
    """The transformers model in fp32, every weight drawn at random."""
    case = CASES[name]
    a = case.model.stack[0].attention
    assert a is not None
    options = {
        "hidden_size": HIDDEN, "vocab_size": VOCAB, "num_hidden_layers": LAYERS, "intermediate_size": INNER,
        "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads, "head_dim": a.head_dim,
        "max_position_embeddings": 64, "tie_word_embeddings": False, **case.options,
    }  # fmt: skip
    if case.hub == "Gemma":
        options["tie_word_embeddings"] = True
    config = getattr(transformers, f"{case.hub}Config")(**options)
    model = getattr(transformers, f"{case.hub}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        scaled = drawn * parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else parameter.data + 0.1 * drawn
        parameter.data.copy_(scaled)
    return model


@cache
def saved(name: str) -> Path:
    """The model as a checkpoint folder."""
    folder = Path(mkdtemp(prefix=f"{name}-"))
    hub_model(name).save_pretrained(folder)
    return folder


@cache
def loaded(name: str) -> Decoder:
    """kvplan's decoder with the same weights, by way of the checkpoint."""
    decoder = build_decoder(CASES[name].model, numerics=checkpoint_numerics(saved(name)))
    load_checkpoint(decoder, saved(name))
    return decoder


def prompts(batch: int, tokens: int, seed: int = 3) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(VOCAB, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def furthest(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest absolute difference."""
    return float((a - b).abs().max())
