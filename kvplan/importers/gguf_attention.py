"""The attention of a GGUF file: heads, widths and windows from its keys, held against the shapes of its tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvplan.importers.gguf_architectures import Architecture
from kvplan.importers.gguf_header import GgufTensor, refuse
from kvplan.importers.gguf_keys import Keys
from kvplan.importers.gguf_names import Block
from kvplan.specs.layers import Attention, Rope


class Shape(NamedTuple):
    """What every layer looks at."""

    keys: Keys
    architecture: Architecture
    hidden: int
    layers: int
    heads: list[int]
    kv_heads: list[int]
    local: list[bool]  # layers that slide or are chunked
    shared: int  # layers at the end that read an earlier cache


def read_shape(keys: Keys, architecture: Architecture, layers: int) -> Shape:
    """The keys that hold a figure for each layer."""
    heads = keys.per_layer("attention.head_count", layers, 0)
    value = keys.get("attention.head_count_kv")
    return Shape(
        keys=keys,
        architecture=architecture,
        hidden=keys.size("embedding_length"),
        layers=layers,
        heads=heads,
        kv_heads=heads if value is None else keys.per_layer("attention.head_count_kv", layers),
        local=local_layers(keys, architecture, layers),
        shared=keys.size("attention.shared_kv_layers", 0, 0),
    )


def local_layers(keys: Keys, architecture: Architecture, layers: int) -> list[bool]:
    """Which layers have a window: as the file says, else as the code of llama.cpp has it."""
    window = _window(keys, architecture)
    if not window or (architecture.period is None and not architecture.pattern_in_file):
        return [False] * layers
    said = keys.flags("attention.sliding_window_pattern", layers)
    if isinstance(said, list):
        return said
    period = said if said is not None else architecture.period
    if period is None:
        keys.refuse("attention.sliding_window_pattern", "is missing: which layers slide cannot be known without it")
    if period < 1:
        return [False] * layers
    if architecture.dense_first:
        return [index % period != 0 for index in range(layers)]
    return [index % period < period - 1 for index in range(layers)]


def _window(keys: Keys, architecture: Architecture) -> int | None:
    if keys.get("attention.sliding_window") is None:
        return architecture.window
    found = keys.optional("attention.sliding_window")
    return architecture.window if found and architecture.chunked else found


def attention(s: Shape, index: int, block: Block) -> Attention:
    """Softmax attention; a tensor that does not have the shape of the keys is refused."""
    heads, kv_heads, local = s.heads[index], s.kv_heads[index], s.local[index]
    if not heads or not kv_heads:
        s.keys.refuse("attention.head_count_kv", f"says that layer {index} has no heads, but it has their tensors")
    usual = max(1, s.hidden // heads)
    k_width = _width(s, "key_length", local) or usual
    v_width = _width(s, "value_length", local) or usual
    extra: dict[str, Any] = {**_check_projections(s, block, (heads, kv_heads, k_width, v_width))}
    if local:
        extra["chunk" if s.architecture.chunked else "window"] = _window(s.keys, s.architecture)
        theta = s.keys.number("rope.freq_base_swa")
        extra["rope"] = Rope(theta=theta) if theta else None
    elif any(s.local) and not s.architecture.rope_in_full:
        extra["rope"] = "none"
    reads = index >= s.layers - s.shared and any(s.local[i] == local for i in range(s.layers - s.shared))
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=k_width,
        v_head_dim=v_width,
        qkv_bias=any(f"{name}.bias" in block for name in ("attn_q", "attn_k", "attn_qkv")),
        out_bias="attn_output.bias" in block,
        qk_norm=_qk_norm(block, k_width),
        sinks=any(name.startswith("attn_sinks") for name in block),
        value_from_key="attn_k.weight" in block and "attn_v.weight" not in block,
        cache_of=("local" if local else "global" if any(s.local) else "own") if reads else None,
        **extra,
    )


def _width(s: Shape, name: str, local: bool) -> int | None:
    own = s.keys.optional(f"attention.{name}_swa") if local else None
    return own or s.keys.optional(f"attention.{name}")


def _check_projections(s: Shape, block: Block, sizes: tuple[int, int, int, int]) -> dict[str, bool]:
    """The rows of the projections against heads and widths; gates of the output are found by the way."""
    heads, kv_heads, k_width, v_width = sizes
    q, k, v = heads * k_width, kv_heads * k_width, kv_heads * v_width
    gate = block.get("attn_gate.weight")
    gates = {"output_gate": bool(gate and rows(gate) > heads), "head_gate": bool(gate and rows(gate) <= heads)}
    if "attn_q.weight" in block and rows(block["attn_q.weight"]) == 2 * q and not gate:
        gates["output_gate"], q = True, 2 * q
    for name, wanted in (("attn_q", q), ("attn_k", k), ("attn_v", v), ("attn_qkv", q + k + v)):
        tensor = block.get(f"{name}.weight")
        if tensor and rows(tensor) != wanted:
            message = f"{tensor.name} has {rows(tensor)} rows; {heads} heads, {kv_heads} for keys, of {k_width} and"
            refuse(s.keys.source, f"{message} {v_width} make {wanted}: kvplan does not know this layout")
    return gates


def _qk_norm(block: Block, k_width: int) -> str | None:
    norm = block.get("attn_q_norm.weight")
    if norm is None:
        return None
    return "head" if norm.elements == k_width else "full" if len(norm.dimensions) == 1 else "each"


def columns(tensor: GgufTensor) -> int:
    """The length of a row."""
    return tensor.dimensions[0] if tensor.dimensions else 1


def rows(tensor: GgufTensor) -> int:
    """The rows of one matrix of a tensor."""
    return tensor.dimensions[1] if len(tensor.dimensions) > 1 else 1
