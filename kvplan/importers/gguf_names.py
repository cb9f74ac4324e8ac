"""What a tensor of a GGUF file is: its block, its component, and the matrices of a model file that it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kvplan.importers.gguf_header import GgufTensor

Block = dict[str, GgufTensor]  # by the name behind `blk.N.`

_BLOCK = re.compile(r"blk\.(\d{1,6})\.(.+)")
_NEXTN = "nextn."
HOST = ("token_embd.weight", "per_layer_token_embd.weight")  # llama.cpp, llm_tensor_info: LLM_TENSOR_LAYER_INPUT

_EXPERTS = {"gate": ("gate_proj",), "up": ("up_proj",), "down": ("down_proj",), "gate_up": ("gate_proj", "up_proj")}
# name in a block -> component and matrices
_MATRICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "attn_q": ("attention", ("q_proj",)), "attn_k": ("attention", ("k_proj",)), "attn_v": ("attention", ("v_proj",)),
    "attn_qkv": ("attention", ("q_proj", "k_proj", "v_proj")), "attn_output": ("attention", ("o_proj",)),
    "attn_q_a": ("attention", ("q_a_proj",)), "attn_q_b": ("attention", ("q_b_proj",)),
    "attn_kv_a_mqa": ("attention", ("kv_a_proj",)), "attn_kv_b": ("attention", ("kv_b_proj",)),
    "attn_k_b": ("attention", ("kv_b_proj",)), "attn_v_b": ("attention", ("kv_b_proj",)),
    "attn_gate": ("attention", ("head_gate",)), "indexer.attn_q_b": ("attention", ("indexer_q_proj",)),
    "indexer.attn_k": ("attention", ("indexer_k_proj",)), "indexer.proj": ("attention", ("indexer_weights",)),
    **{f"ffn_{part}": ("mlp", names) for part, names in _EXPERTS.items()},
    **{f"ffn_{part}_exps": ("experts", names) for part, names in _EXPERTS.items()},
    **{f"ffn_{part}_shexp": ("shared_experts", names) for part, names in _EXPERTS.items()},
    "ffn_gate_inp": ("router", ("router",)), "ffn_gate_inp_shexp": ("router", ("shared_gate",)),
    "ffn_latent_down": ("mlp", ("latent_down",)), "ffn_latent_up": ("mlp", ("latent_up",)),
    "ssm_in": ("state", ("in_proj",)), "ssm_x": ("state", ("x_proj",)), "ssm_dt": ("state", ("dt_proj",)),
    "ssm_out": ("state", ("out_proj",)), "ssm_ba": ("state", ("in_proj_ba",)), "ssm_alpha": ("state", ("in_proj_ba",)),
    "ssm_beta": ("state", ("in_proj_ba",)), "ssm_f_a": ("state", ("f_a_proj",)), "ssm_f_b": ("state", ("f_b_proj",)),
    "ssm_g_a": ("state", ("g_a_proj",)), "ssm_g_b": ("state", ("g_b_proj",)),
    "shortconv.in_proj": ("state", ("in_proj",)), "shortconv.out_proj": ("state", ("out_proj",)),
    "inp_gate": ("other", ("per_layer_gate",)), "proj": ("other", ("per_layer_projection",)),
    "laurel_l": ("other", ("laurel_left",)), "laurel_r": ("other", ("laurel_right",)),
    "altup_router": ("other", ("altup_router",)), "altup_correct_coef": ("other", ("altup_coefficients",)),
    "altup_predict_coef": ("other", ("altup_coefficients",)),
    "per_layer_model_proj": ("other", ("per_layer_model_projection",)), "altup_proj": ("other", ("altup_projections",)),
    "altup_unembd_proj": ("other", ("altup_unembed",)), "per_layer_token_embd": ("embedding", ("per_layer_embedding",)),
    "token_embd": ("embedding", ("embed_tokens",)), "position_embd": ("embedding", ("positions",)),
    "output": ("head", ("lm_head",)),
}  # fmt: skip
# what some names mean in a layer with this mixer; `ssm_in` is of Qwen3-Next's files of 2025
_STATE: dict[str, dict[str, tuple[str, ...]]] = {
    "delta": {
        "attn_qkv": ("in_proj_qkv",), "attn_gate": ("in_proj_z",), "ssm_in": ("in_proj_qkv", "in_proj_z"),
    },
    "kimi_delta": {
        "attn_q": ("q_proj",), "attn_k": ("k_proj",), "attn_v": ("v_proj",), "attn_output": ("o_proj",),
        "ssm_beta": ("b_proj",),
    },
}  # fmt: skip
_VECTORS = {"ssm_conv1d": "state", "ssm_a": "state", "ssm_d": "state", "attn_sinks": "attention",
            "exp_probs_b": "router", "shortconv.conv": "state", "layer_output_scale": "norms",
            "altup_correct_scale": "norms", "ssm_conv1d_q": "state", "ssm_conv1d_k": "state",
            "ssm_conv1d_v": "state"}  # fmt: skip
BUFFERS = ("rope_freqs", "rope_factors_long", "rope_factors_short", "attn_rot_embd")


class Part(NamedTuple):
    """A tensor with its block (-1 outside them), its component and the matrices of a model file that it holds."""

    tensor: GgufTensor
    block: int
    component: str
    matrices: tuple[str, ...] = ()  # none for a vector


def blocks_of(tensors: Iterable[GgufTensor]) -> tuple[dict[int, Block], Block]:
    """The tensors of each block, and those outside of blocks."""
    blocks: dict[int, Block] = {}
    edges: Block = {}
    for tensor in tensors:
        found = _BLOCK.fullmatch(tensor.name)
        if found:
            blocks.setdefault(int(found[1]), {})[found[2]] = tensor
        else:
            edges[tensor.name] = tensor
    return blocks, edges


def mixer_of(block: Block) -> str:
    """Which mixer the tensors of a block make: a name of a layer's section, or nothing."""
    has = {name.removesuffix(".weight") for name in block}
    if "ssm_f_a" in has:
        return "kimi_delta"
    if "ssm_conv1d" in has:
        if has & {"ssm_ba", "ssm_alpha"}:
            return "delta"
        return "mamba1" if "ssm_x" in has else "mamba2"
    if "shortconv.conv" in has:
        return "short_conv"
    if "attn_kv_a_mqa" in has:
        return "latent"
    return "attention" if has & {"attn_q", "attn_qkv"} else ""


def part_of(name: str, tensor: GgufTensor, block: int, mixer: str) -> Part:
    """The place of a tensor; `other` without matrices for a name that is not known."""
    stem, _, ending = name.rpartition(".")
    known = _MATRICES.get(stem)
    own = _STATE.get(mixer, {}).get(stem)
    if own:
        known = ("state", own)
    if "norm" in stem.rpartition(".")[2]:
        return Part(tensor, block, "norms")
    if known is None:
        return Part(tensor, block, _VECTORS.get(stem, "other"))
    is_matrix = ending == "weight" and len([each for each in tensor.dimensions if each > 1]) > 1
    return Part(tensor, block, known[0], known[1] if is_matrix else ())


def is_known(name: str) -> bool:
    """Whether a name is one of a language model's tensors."""
    stem = name.rpartition(".")[0] or name
    return stem in _MATRICES or stem in _VECTORS or stem in BUFFERS or "norm" in stem or name.startswith(_NEXTN)
