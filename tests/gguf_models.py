"""Small made-up models of many families, written as GGUF by the gguf package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Shape = tuple[int, ...]  # rows first, as in PyTorch
Tensors = dict[str, Shape]
F32, F16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16
HIDDEN, VOCAB, INNER, HEADS, KV, DIM = 256, 512, 512, 8, 2, 32


def write(
    path: Path,
    architecture: str,
    keys: Mapping[str, Any],
    tensors: Mapping[str, Shape],
    types: Mapping[str, str] | None = None,
    matrix: str = "F16",
    **options: Any,
) -> Path:
    """A file with these tensors; `types` names others than `matrix` by the end of the tensor's name."""
    writer = gguf.GGUFWriter(path, architecture, **options)
    for name, value in keys.items():
        _add(writer, name if name.startswith(("general.", "tokenizer.")) else f"{architecture}.{name}", value)
    for name, shape in tensors.items():
        plain = len(shape) == 1 or not name.endswith("weight") or "conv" in name or "ffn_gate_inp" in name
        wanted = next((kind for end, kind in (types or {}).items() if name.endswith(end)), matrix)
        kind = F32 if plain else gguf.GGMLQuantizationType[wanted]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        assert shape[-1] % block == 0, (name, shape, kind)
        stored = np.zeros((*shape[:-1], shape[-1] // block * size), np.uint8)
        writer.add_tensor(name, stored, raw_shape=stored.shape, raw_dtype=kind)
    writer.write_header_to_file(path=path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, value)


def edges(hidden: int = HIDDEN, tied: bool = False) -> Tensors:
    found = {"token_embd.weight": (VOCAB, hidden), "output_norm.weight": (hidden,)}
    return found if tied else {**found, "output.weight": (VOCAB, hidden)}


def attention(i: int, heads: int = HEADS, kv: int = KV, dim: int = DIM, hidden: int = HIDDEN) -> Tensors:
    q, k = heads * dim, kv * dim
    return in_block(
        i, {"attn_q": (q, hidden), "attn_k": (k, hidden), "attn_v": (k, hidden), "attn_output": (hidden, q)}
    )


def mlp(i: int, inner: int = INNER, gated: bool = True) -> Tensors:
    found = {"ffn_up": (inner, HIDDEN), "ffn_down": (HIDDEN, inner)}
    return in_block(i, {**found, "ffn_gate": (inner, HIDDEN)} if gated else found)


def experts(i: int, count: int = 4, inner: int = 64, shared: int = 0) -> Tensors:
    found: Tensors = {"ffn_gate_inp": (count, HIDDEN), "ffn_down_exps": (count, HIDDEN, inner)}
    found |= dict.fromkeys(("ffn_gate_exps", "ffn_up_exps"), (count, inner, HIDDEN))
    if shared:
        found |= dict.fromkeys(("ffn_gate_shexp", "ffn_up_shexp"), (shared, HIDDEN))
        found["ffn_down_shexp"] = (HIDDEN, shared)
    return in_block(i, found)


def mamba2(i: int, heads: int = 8, dim: int = 64, state: int = 16, groups: int = 1) -> Tensors:
    inner, channels = heads * dim, heads * dim + 2 * groups * state
    found: Tensors = {"ssm_in": (inner + channels + heads, HIDDEN), "ssm_conv1d": (channels, 4)}
    plain: Tensors = {"ssm_a": (heads, 1), "ssm_d": (heads, 1), "ssm_dt.bias": (heads,), "ssm_conv1d.bias": (channels,)}
    found |= {"ssm_norm": (groups, inner // groups), "ssm_out": (HIDDEN, inner)}
    return {**in_block(i, found), **{f"blk.{i}.{name}": shape for name, shape in plain.items()}}


def mamba1(i: int, inner: int = 512, state: int = 16, rank: int = 16, norms: bool = False) -> Tensors:
    found: Tensors = {"ssm_in": (2 * inner, HIDDEN), "ssm_conv1d": (inner, 4), "ssm_x": (rank + 2 * state, inner)}
    found |= {"ssm_dt": (inner, rank), "ssm_out": (HIDDEN, inner)}
    if norms:
        found |= {"ssm_dt_norm": (rank,), "ssm_b_norm": (state,), "ssm_c_norm": (state,)}
    plain: Tensors = {"ssm_a": (inner, state), "ssm_d": (inner,), "ssm_dt.bias": (inner,), "ssm_conv1d.bias": (inner,)}
    return {**in_block(i, found), **{f"blk.{i}.{name}": shape for name, shape in plain.items()}}


def latent(i: int, heads: int = 4, split: bool = True) -> Tensors:
    """q rank 64, kv rank 128, rope 16, nope 32, values 32."""
    found: Tensors = {"attn_q_a": (64, HIDDEN), "attn_q_a_norm": (64,), "attn_q_b": (heads * 48, 64)}
    found |= {"attn_kv_a_mqa": (144, HIDDEN), "attn_kv_a_norm": (128,), "attn_output": (HIDDEN, heads * 32)}
    if split:
        found |= {"attn_k_b": (heads, 128, 32), "attn_v_b": (heads, 32, 128)}
    else:
        found["attn_kv_b"] = (heads * 64, 128)
    return in_block(i, found)


def delta(i: int, k_heads: int = 2, v_heads: int = 4, dim: int = 32) -> Tensors:
    k, v = k_heads * dim, v_heads * dim
    found: Tensors = {"attn_qkv": (2 * k + v, HIDDEN), "attn_gate": (v, HIDDEN), "ssm_conv1d": (2 * k + v, 4)}
    found |= {"ssm_ba": (2 * v_heads, HIDDEN), "ssm_norm": (dim,), "ssm_out": (HIDDEN, v)}
    return {**in_block(i, found), f"blk.{i}.ssm_a": (v_heads,), f"blk.{i}.ssm_dt.bias": (v_heads,)}


def short_conv(i: int) -> Tensors:
    parts: Tensors = {"conv": (HIDDEN, 3), "in_proj": (3 * HIDDEN, HIDDEN), "out_proj": (HIDDEN, HIDDEN)}
    return {f"blk.{i}.shortconv.{name}.weight": shape for name, shape in parts.items()}


def norms(i: int, *names: str) -> Tensors:
    return in_block(i, dict.fromkeys(names or ("attn_norm", "ffn_norm"), (HIDDEN,)))


def in_block(i: int, parts: Mapping[str, Shape]) -> Tensors:
    return {f"blk.{i}.{name}.weight": shape for name, shape in parts.items()}


def keys(layers: int, **more: Any) -> dict[str, Any]:
    """The keys that every language model has; a double underscore stands for a dot."""
    return {
        "block_count": layers,
        "context_length": 4096,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def dense(layers: int, tied: bool = False, **more: Any) -> tuple[dict[str, Any], Tensors]:
    """Keys and tensors of a plain decoder."""
    tensors = edges(tied=tied)
    for i in range(layers):
        tensors |= {**norms(i), **attention(i), **mlp(i)}
    return keys(layers, **more), tensors
