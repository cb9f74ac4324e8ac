"""Tiny models twice: as a model file's shape and as the transformers model it describes, with random weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import transformers

from kvplan.measure.checkpoint import checkpoint_numerics, load_checkpoint
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.decoder import Decoder
from kvplan.specs.layers import Attention, Latent, Layer, Mlp, Moe, Rope
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


def latent(q_rank: int | None = None, v_dim: int = 8) -> Latent:
    """Four heads over a latent of 20 and a rotary key of 4."""
    return Latent(heads=4, q_rank=q_rank, kv_rank=20, rope_dim=4, nope_dim=12, v_dim=v_dim)


def deepseek(m: Latent, *, router_bias: bool, **more: Any) -> ModelSpec:
    """One dense layer, then one with eight experts and a shared one."""
    moe = Moe(experts=8, active=2, intermediate_size=40, shared_size=40, router_bias=router_bias)
    return spec(Layer(latent=m, mlp=Mlp(intermediate_size=INNER)), Layer(latent=m, moe=moe), **more)


def latent_options(m: Latent, **more: Any) -> dict[str, Any]:
    """transformers' names of the same."""
    return {
        "q_lora_rank": m.q_rank, "kv_lora_rank": m.kv_rank, "qk_rope_head_dim": m.rope_dim,
        "qk_nope_head_dim": m.nope_dim, "v_head_dim": m.v_dim, "moe_intermediate_size": 40, "n_shared_experts": 1,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 1, **more,
    }  # fmt: skip


def sunk(window: int | None) -> Attention:
    """Attention of gpt-oss."""
    return attention(4, 2, qkv_bias=True, out_bias=True, sinks=True, window=window)


IN_GROUPS = {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}
DEEPSEEK_YARN = rope_case(kind="yarn", **YARN, mscale=0.7, mscale_all_dim=0.7)
STRETCHED = Rope(scaling="yarn", factor=4.0, original_context=16)

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
    "deepseek-v2-lite": Case(
        deepseek(latent(), router_bias=False, rope=STRETCHED),
        "DeepseekV2",
        {**latent_options(latent()), **DEEPSEEK_YARN},
    ),
    "deepseek-v2": Case(
        deepseek(latent(24), router_bias=False),
        "DeepseekV2",
        latent_options(latent(24), topk_method="group_limited_greedy", **{**IN_GROUPS, "topk_group": 1}),
    ),
    "deepseek-v3": Case(
        deepseek(latent(24), router_bias=True, rope=STRETCHED),
        "DeepseekV3",
        {**latent_options(latent(24), **IN_GROUPS), **DEEPSEEK_YARN, "num_mtp_layers": 0},
    ),
    "glm-flash": Case(
        deepseek(latent(24, v_dim=16), router_bias=True),
        "Glm4MoeLite",
        latent_options(latent(24, v_dim=16), routed_scaling_factor=1.8, mlp_layer_types=["dense", "sparse"]),
    ),
    "gpt-oss": Case(
        spec(
            *(Layer(attention=sunk(window), moe=replace(MOE, bias=True, router_bias=True)) for window in (7, None)),
            rope=Rope(theta=1000.0, scaling="yarn", factor=4.0, original_context=256),  # two pairs between
            family="gpt_oss",
        ),
        "GptOss",
        {
            **rope_case(1000.0, kind="yarn", truncate=False, factor=4.0, original_max_position_embeddings=256),
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 40,
            "sliding_window": 7,
        },
    ),
    "gemma": Case(dense(attention(4, 1), tied=True, family="gemma"), "Gemma", {}),
}


@cache
def hub_model(name: str) -> Any:
    """The transformers model in fp32, every weight drawn at random."""
    case = CASES[name]
    a, m = case.model.stack[0].attention, case.model.stack[0].latent
    heads = {"num_attention_heads": m.heads, "num_key_value_heads": m.heads} if m else {}
    if a:
        heads = {"num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads, "head_dim": a.head_dim}
    options = {
        "hidden_size": HIDDEN, "vocab_size": VOCAB, "num_hidden_layers": LAYERS, "intermediate_size": INNER,
        **heads, "max_position_embeddings": 64, "tie_word_embeddings": False, **case.options,
    }  # fmt: skip
    if case.hub == "Gemma":
        options["tie_word_embeddings"] = True
    config = getattr(transformers, f"{case.hub}Config")(**options)
    model = getattr(transformers, f"{case.hub}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(1)
    biases = [buffer for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")]
    for parameter in [*model.parameters(), *biases]:
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
    """kvplan's decoder with the same weights, by way of the checkpoint where its type is read."""
    if CASES[name].hub == "GptOss":
        return filled(build_decoder(CASES[name].model), unfused(hub_model(name)))
    decoder = build_decoder(CASES[name].model, numerics=checkpoint_numerics(saved(name)))
    load_checkpoint(decoder, saved(name))
    return decoder


@torch.inference_mode()
def filled(decoder: Decoder, tensors: dict[str, torch.Tensor]) -> Decoder:
    """The decoder with these tensors, of which none may be left over."""
    for name, slot in decoder.slots():
        slot.fill(tensors.pop(name))
    assert not tensors
    return decoder


def unfused(model: Any) -> dict[str, torch.Tensor]:
    """gpt-oss's tensors under the decoder's names: experts one by one, gate and up apart, outputs as rows."""
    found = {}
    for hub, tensor in model.state_dict().items():
        name = hub.removeprefix("model.").replace(".router.", ".gate.")
        layer, is_expert, part = name.partition(".experts.")
        for index, expert in enumerate(tensor if is_expert else ()):
            kind = "bias" if part.endswith("_bias") else "weight"
            rows = expert.t() if kind == "weight" else expert
            halves = {"gate_proj": rows[0::2], "up_proj": rows[1::2]} if "up" in part else {"down_proj": rows}
            found |= {f"{layer}.experts.{index}.{half}.{kind}": each for half, each in halves.items()}
        if not is_expert:
            found[name] = tensor
    return found


def prompts(batch: int, tokens: int, seed: int = 3) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(VOCAB, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def furthest(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest absolute difference."""
    return float((a - b).abs().max())
