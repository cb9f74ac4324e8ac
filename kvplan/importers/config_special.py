"""Families whose config needs more than names: nested sections, lists of blocks, blocks used again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from kvplan.importers.config_fields import Fields
from kvplan.importers.config_shape import Shape
from kvplan.specs.layers import Attention, Layer, Mlp


class Built(NamedTuple):
    """Layers in order and the kind of each."""

    layers: list[Layer]
    kinds: list[str]


def flattened(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The fields with those of `attn_config` lifted out of it (MPT, DBRX)."""
    if name == "zamba2":  # of its shared block, whose widths have names of their own
        return {**values, "kv_channels": None, "head_dim": None, "num_query_groups": None}
    if name == "chatglm" and isinstance(ratio := values.get("rope_ratio", 1), int | float):
        return {**values, "rope_theta": 10000 * ratio, "partial_rotary_factor": 0.5}  # half of a head turns
    nested = values.get("attn_config")
    if name not in ("mpt", "dbrx") or not isinstance(nested, dict):
        return values
    lifted = {key: nested[key] for key in ("alibi", "qk_ln", "rope_theta", "rope") if key in nested}
    return {**values, **lifted, "num_key_value_heads": nested.get("kv_n_heads", values.get("num_key_value_heads"))}


def norms_of(s: Shape) -> int:
    """Norms of a layer, where a switch decides: one before attention and MLP in parallel, or two."""
    f = s.f
    if s.name == "falcon":
        parallel = f.flag("parallel_attn", True)
        if f.flag("new_decoder_architecture", f.has("n_head_kv")):
            return f.size("num_ln_in_parallel_attn", 2, 1, 2)
        return 1 if parallel else 2
    if s.name == "stablelm":
        return 1 if f.flag("use_parallel_residual") else 2
    if s.name == "gemma4" and f.flag("enable_moe_block"):
        return s.family.norms + 3
    return s.family.norms


def openelm(s: Shape) -> Built:
    """Heads and widths of its own for every layer."""
    f = s.f
    heads, kv_heads = f.each("num_query_heads", s.layers), f.each("num_kv_heads", s.layers)
    factors, divisor = f.items("ffn_multipliers", s.layers), f.size("ffn_dim_divisor", 256)
    if factors is None or not f.flag("ffn_with_glu", True):
        f.refuse("ffn_multipliers", "expected a list with one factor for each layer, and gated MLPs")
    f.used.update(("qkv_multipliers", "num_gqa_groups"))  # the lists of heads follow from them
    layers = []
    for index in range(s.layers):
        if heads[index] % kv_heads[index]:
            f.refuse("num_query_heads", f"{heads[index]} heads do not divide by {kv_heads[index]} key-value heads")
        width = _divisible(_factor(f, "ffn_multipliers", factors[index]) * s.hidden, divisor)
        attention = Attention(
            heads=heads[index],
            kv_heads=kv_heads[index],
            head_dim=s.head_dim,
            v_head_dim=s.head_dim,
            qk_norm="head" if s.on(s.family.qk_norm_if) else None,
        )
        layers.append(Layer(attention=attention, mlp=Mlp(intermediate_size=width)))
    return Built(layers, [""] * s.layers)


def _factor(f: Fields, name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1000:
        f.refuse(name, "expected factors above 0")
    return value


def _divisible(width: float, divisor: int) -> int:
    """The nearest multiple, but never less than nine tenths."""
    rounded = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * width else rounded


def nemotron_nas(s: Shape) -> Built:
    """A block of its own for every layer, found by a search: fewer heads, a narrower MLP, or neither."""
    blocks = s.f.items("block_configs", s.layers)
    if blocks is None:
        s.f.refuse("block_configs", "missing; without it the layers are not known")
    built = [_nas_layer(s, index) for index in range(s.layers)]
    return Built([layer for layer, _ in built], [kind for _, kind in built])


def _nas_layer(s: Shape, index: int) -> tuple[Layer, str]:
    block = (s.f.items("block_configs") or [])[index]
    if not isinstance(block, dict):
        s.f.refuse("block_configs", "expected an object for each layer")
    part = Fields(block, s.f.source, f"block_configs[{index}]")
    attention, ffn = part.section("attention"), part.section("ffn")
    if attention is None or ffn is None:
        part.refuse("", "attention or ffn is missing")
    for section in (attention, ffn):
        if section.flag("replace_with_linear"):
            section.refuse("replace_with_linear", "a linear layer in this place is not known to kvplan")
        if section.value("sparsify") or section.value("window_length"):
            section.refuse("window_length", "windows and sparsity in blocks are not known to kvplan")
    mixer, mlp = _nas_attention(s, attention), _nas_mlp(s, ffn)
    kind = "_".join(name for name, there in (("attention", mixer), ("mlp", mlp)) if there) or "none"
    return Layer(attention=mixer, mlp=mlp, norms=bool(mixer) + bool(mlp)), kind


def _nas_attention(s: Shape, part: Fields) -> Attention | None:
    if part.flag("no_op"):
        return None
    group = part.size("n_heads_in_group")
    if s.heads % group:
        part.refuse("n_heads_in_group", f"{s.heads} query heads do not divide into groups of {group}")
    return Attention(heads=s.heads, kv_heads=s.heads // group, head_dim=s.head_dim, v_head_dim=s.head_dim)


def _nas_mlp(s: Shape, part: Fields) -> Mlp | None:
    if part.flag("no_op"):
        return None
    factor = _factor(part, "ffn_mult", part.value("ffn_mult"))
    return Mlp(intermediate_size=256 * math.ceil(int(2 * factor * s.hidden / 3) / 256))


def zamba2(s: Shape, mamba: Layer) -> Built:
    """Mamba layers, and before some of them one of a few attention blocks whose weights are used again and again."""
    f = s.f
    blocks, used = f.size("num_mem_blocks", 1), 0
    if f.flag("use_shared_attention_adapter"):
        f.refuse("use_shared_attention_adapter", "adapters on shared attention are not known to kvplan")
    width = f.size("attention_hidden_size", 2 * s.hidden)
    head_dim = f.size("attention_head_dim", width // s.heads)
    shared = Layer(
        attention=Attention(
            heads=s.heads, kv_heads=s.kv_heads, head_dim=head_dim, v_head_dim=head_dim, input_size=2 * s.hidden
        ),
        mlp=Mlp(intermediate_size=f.size("intermediate_size")),
        norms=3,
        use_projection=True,
        use_adapter_rank=f.size("adapter_rank"),
    )
    again = Layer(**{**{name: getattr(shared, name) for name in _SHARED}, "weights_of": "shared"})
    layers, kinds = [], []
    for word in s.mixers:
        if word == "hybrid":
            layers.append(shared if used < blocks else again)
            kinds.append("shared" if used < blocks else "again")
            used += 1
        layers.append(mamba)
        kinds.append("mamba")
    return Built(layers, kinds)


_SHARED = ("attention", "mlp", "norms", "use_projection", "use_adapter_rank")
SPECIAL: dict[str, Callable[[Shape], Built]] = {"openelm": openelm, "nemotron_nas": nemotron_nas}
