"""The layers of a GGUF file: widths from its keys, held against its tensors, which also say what else a layer has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.importers.gguf_attention import Shape, attention, columns, rows
from kvplan.importers.gguf_names import Block, mixer_of
from kvplan.specs.layers import (
    Delta,
    Indexer,
    KimiDelta,
    Latent,
    Layer,
    Mamba1,
    Mamba2,
    Mlp,
    Moe,
    ShortConv,
)

_NORMS = ("attn_norm", "attn_norm_2", "attn_output_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm",
          "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2", "layer_output_norm")  # fmt: skip


def layer_of(s: Shape, index: int, block: Block) -> Layer:
    """One layer from its tensors."""
    mixer = mixer_of(block)
    parts: dict[str, Any] = {}
    if mixer == "attention":
        parts[mixer] = attention(s, index, block)
    elif mixer:
        section, figures = _STATES[mixer]
        parts[mixer] = section(**figures(s, index, block))
    if mixer == "mamba2" and "attn_q.weight" in block:  # Falcon-H1: both, in parallel
        parts["attention"] = attention(s, index, block)
    if "ffn_up.weight" in block:
        parts["mlp"] = Mlp(**_mlp(block))
    if "ffn_down_exps.weight" in block:
        parts["moe"] = Moe(**_moe(s, block))
    elif "ffn_down.0.weight" in block:
        s.keys.refuse("expert_count", "experts are in a tensor each, as converters no longer write; convert it again")
    norms = sum(f"{name}.weight" in block for name in _NORMS)
    return Layer(**parts, norms=norms, scalars=int("layer_output_scale.weight" in block))


def _latent(s: Shape, index: int, block: Block) -> dict[str, Any]:
    rope_dim = s.keys.size("rope.dimension_count", least=0)
    newer = s.keys.get("attention.key_length_mla") is not None
    k_width = s.keys.size("attention.key_length_mla" if newer else "attention.key_length")
    indexer = "indexer.attn_k.weight" in block
    return {
        "heads": s.heads[index],
        "q_rank": s.keys.optional("attention.q_lora_rank") if "attn_q_a.weight" in block else None,
        "kv_rank": s.keys.size("attention.kv_lora_rank"),
        "rope_dim": rope_dim,
        "nope_dim": k_width - rope_dim,
        "v_dim": s.keys.size("attention.value_length_mla" if newer else "attention.value_length"),
        "indexer": _indexer(s) if indexer else None,
    }


def _indexer(s: Shape) -> Indexer:
    name = "attention.indexer"
    return Indexer(
        heads=s.keys.size(f"{name}.head_count"),
        dim=s.keys.size(f"{name}.key_length"),
        topk=s.keys.size(f"{name}.top_k"),
    )


def _mamba1(s: Shape, index: int, block: Block) -> dict[str, Any]:  # noqa: ARG001 - every mixer takes it
    return {
        "inner": s.keys.size("ssm.inner_size"),
        "state": s.keys.size("ssm.state_size"),
        "dt_rank": s.keys.size("ssm.time_step_rank"),
        "conv": s.keys.size("ssm.conv_kernel"),
        "inner_norms": "ssm_dt_norm.weight" in block,
    }


def _mamba2(s: Shape, index: int, block: Block) -> dict[str, Any]:  # noqa: ARG001
    heads, inner = s.keys.size("ssm.time_step_rank"), s.keys.size("ssm.inner_size")
    if inner % heads:
        s.keys.refuse("ssm.inner_size", f"{inner} does not divide by {heads} heads (ssm.time_step_rank)")
    return {
        "heads": heads,
        "head_dim": inner // heads,
        "state": s.keys.size("ssm.state_size"),
        "groups": s.keys.size("ssm.group_count", 1),
        "conv": s.keys.size("ssm.conv_kernel"),
        "norm": "ssm_norm.weight" in block,
    }


def _delta(s: Shape, index: int, block: Block) -> dict[str, Any]:  # noqa: ARG001
    """llama.cpp, build_layer_attn_linear of Qwen3-Next: the names of Mamba stand for other figures."""
    v_heads, inner = s.keys.size("ssm.time_step_rank"), s.keys.size("ssm.inner_size")
    if inner % v_heads:
        s.keys.refuse("ssm.inner_size", f"{inner} does not divide by {v_heads} value heads (ssm.time_step_rank)")
    k_heads, k_dim = s.keys.size("ssm.group_count"), s.keys.size("ssm.state_size")
    conv = s.keys.size("ssm.conv_kernel")
    return {"k_heads": k_heads, "v_heads": v_heads, "k_dim": k_dim, "v_dim": inner // v_heads, "conv": conv}


def _kimi_delta(s: Shape, index: int, block: Block) -> dict[str, Any]:  # noqa: ARG001
    heads = s.heads[index] or max(s.heads)
    return {"heads": heads, "head_dim": s.keys.size("kda.head_dim"), "conv": s.keys.size("ssm.conv_kernel")}


def _short_conv(s: Shape, index: int, block: Block) -> dict[str, Any]:  # noqa: ARG001
    return {"conv": s.keys.size("shortconv.l_cache", block["shortconv.conv.weight"].dimensions[0], 2)}


def _mlp(block: Block) -> dict[str, Any]:
    down, up = block.get("ffn_down.weight"), block["ffn_up.weight"]
    inner = columns(down) if down else rows(up)
    biased = any(f"ffn_{part}.bias" in block for part in ("up", "down", "gate"))
    return {"intermediate_size": inner, "gated": "ffn_gate.weight" in block or rows(up) == 2 * inner, "bias": biased}


def _moe(s: Shape, block: Block) -> dict[str, Any]:
    shared = block.get("ffn_up_shexp.weight")
    latent = block.get("ffn_latent_down.weight")
    return {
        "experts": s.keys.size("expert_count"),
        "active": s.keys.size("expert_used_count"),
        "intermediate_size": columns(block["ffn_down_exps.weight"]),
        "shared_size": rows(shared) if shared else 0,
        "shared_gate": "ffn_gate_inp_shexp.weight" in block,
        "gated": any(f"ffn_{part}_exps.weight" in block for part in ("gate", "gate_up")),
        "bias": any(f"ffn_{part}_exps.bias" in block for part in ("up", "down", "gate_up")),
        "router_bias": any(name in block for name in ("exp_probs_b.bias", "exp_probs_b", "ffn_gate_inp.bias")),
        "router_scales": "ffn_gate_inp.scale" in block,
        "latent_size": rows(latent) if latent else None,
    }


_STATES: dict[str, tuple[type[Any], Callable[[Shape, int, Block], dict[str, Any]]]] = {
    "latent": (Latent, _latent),
    "mamba1": (Mamba1, _mamba1),
    "mamba2": (Mamba2, _mamba2),
    "delta": (Delta, _delta),
    "kimi_delta": (KimiDelta, _kimi_delta),
    "short_conv": (ShortConv, _short_conv),
}
