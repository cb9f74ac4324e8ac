"""The feed-forward part of a layer: a dense MLP, experts, or (Gemma 4) both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.importers.config_order import sparse_layers
from kvplan.importers.config_shape import Shape, layer_sections
from kvplan.specs.layers import Mlp, Moe

Part = dict[str, Any]

_FOUR_TIMES = ("gpt2", "gptj", "gpt_neo", "gpt_bigcode", "bloom", "falcon", "mpt")  # 4 * hidden where nothing is said


def has_experts(s: Shape) -> bool:
    """Whether any layer is a mixture of experts."""
    if s.name == "gemma4" and not s.f.flag("enable_moe_block"):
        return False
    if s.name == "dbrx":
        return True
    value = s.f.value("experts")
    if value == 1:  # one expert is an MLP, whatever else is said of it
        if s.f.text("model_type") == "hunyuan_v1_moe":
            s.f.refuse(s.f.name("experts"), "one expert beside a shared one is not known in this family")
        for meaning in ("active", "shared_experts", "expert_size", "use_mixed_mlp_moe", "use_cla", "cla_share_factor"):
            s.f.value(meaning)
    return value is not None and max(s.f.each("experts", s.layers, minimum=0)) > 1


def feed_forward(s: Shape) -> list[Part]:
    """The feed-forward part of every layer."""
    if s.name in ("mamba", "mamba2", "falcon_mamba"):
        return [{}] * s.layers
    sparse = sparse_layers(s.f, s.layers) if has_experts(s) else [False] * s.layers
    if s.mixers and {"moe", "mlp"} & set(s.mixers):  # one part a layer
        sparse = [word == "moe" for word in s.mixers]
        wanted = [word in ("moe", "mlp") for word in s.mixers]
    else:
        wanted = [True] * s.layers
    widths = _dense_widths(s, sparse)
    parts: list[Part] = []
    for index in range(s.layers):
        part: Part = {}
        if wanted[index] and sparse[index]:
            part["moe"] = _moe(s, index)
        if wanted[index] and (not sparse[index] or s.name == "gemma4"):
            part["mlp"] = Mlp(intermediate_size=widths[index], gated=s.family.gated, bias=s.on(s.family.mlp_bias))
        parts.append(part)
    return parts


def _dense_widths(s: Shape, sparse: list[bool]) -> list[int]:
    """Inner width of the MLP of every layer, wherever one is."""
    f = s.f
    f.value("intermediate_size_mlp")
    if all(sparse) and s.name not in ("gemma4",):
        f.value("intermediate_size")
        return [1] * s.layers
    special = _WIDTHS.get(s.name)
    if special:
        return special(s)
    default = 4 * s.hidden if s.name in _FOUR_TIMES else None
    return f.each("intermediate_size", s.layers, default)


def _qwen(s: Shape) -> list[int]:
    """The first Qwen counts gate and up together."""
    return [width // 2 for width in s.f.each("intermediate_size", s.layers)]


def _llama4(s: Shape) -> list[int]:
    return [s.f.size("intermediate_size_mlp")] * s.layers


def _minimax_m3(s: Shape) -> list[int]:
    """`intermediate_size` is an expert's."""
    s.f.value("intermediate_size")
    return [s.f.size("dense_intermediate_size")] * s.layers


def _granite(s: Shape) -> list[int]:
    """Without experts, the shared one is the MLP."""
    s.f.value("intermediate_size")
    return [s.f.size("shared_size")] * s.layers


def _mpt(s: Shape) -> list[int]:
    ratio = s.f.number("expansion_ratio") or 4
    return [int(s.hidden * ratio)] * s.layers


_LFM2_FIELDS = (
    "block_ff_dim", "block_multiple_of", "block_ffn_dim_multiplier", "block_use_swiglu", "block_use_xavier_init",
    "block_mlp_init_scale", "block_out_init_scale", "block_norm_eps", "conv_L_cache", "conv_use_xavier_init",
)  # fmt: skip


def _lfm2(s: Shape) -> list[int]:
    """Two thirds of the width said, rounded up to whole blocks, unless switched off."""
    f, width = s.f, s.f.size("intermediate_size", s.f.maybe("block_ff_dim"))
    f.used.update(_LFM2_FIELDS)
    if s.name == "lfm2" and f.flag("block_auto_adjust_ff_dim", True):
        multiple = f.size("block_multiple_of", 256)
        width = int(int(2 * width / 3) * (f.number("block_ffn_dim_multiplier") or 1))
        width = multiple * -(-width // multiple)
    return [width] * s.layers


def _gemma4(s: Shape) -> list[int]:
    """Layers that read another's cache may have an MLP of twice the width."""
    f = s.f
    first_shared = s.layers - f.size("num_kv_shared_layers", 0, 0)
    factor = 2 if f.flag("use_double_wide_mlp") else 1
    width = f.size("intermediate_size")
    widths = [width * (factor if i >= first_shared > 0 else 1) for i in range(s.layers)]
    return [
        own.size("intermediate_size", width) for own, width in zip(layer_sections(f, s.layers), widths, strict=True)
    ]


_WIDTHS: dict[str, Callable[[Shape], list[int]]] = {
    "qwen": _qwen,
    "llama4": _llama4,
    "granitemoehybrid": _granite,
    "granitemoeshared": _granite,
    "mpt": _mpt,
    "minimax_m3": _minimax_m3,
    "lfm2": _lfm2,
    "gemma4": _gemma4,
}


def _moe(s: Shape, index: int) -> Moe:
    f, family = s.f, s.family
    if s.name == "dbrx":
        return _dbrx(s)
    experts = f.each("experts", s.layers)[index]
    active = f.each("active", s.layers)[index]
    if active > experts:
        f.refuse(f.name("active"), f"{active} experts a token uses, of {experts}")
    width = _expert_width(s, index)
    latent = f.maybe("moe_latent_size") or f.maybe("routed_expert_hidden_size")
    return Moe(
        experts=experts,
        active=active,
        intermediate_size=width,
        shared_size=_shared_size(s, index, width),
        shared_gate=family.shared_gate,
        gated=family.gated,
        bias=s.on(family.mlp_bias),
        router_bias=s.on(family.router_bias),
        router_scales=s.name == "gemma4",
        latent_size=latent,
        latent_norm=latent is not None and f.flag("latent_moe_use_norm"),
    )


def _expert_width(s: Shape, index: int) -> int:
    f = s.f
    if f.value("expert_size") is not None:
        f.value("intermediate_size")  # a dense width that sparse layers do not have
        return f.each("expert_size", s.layers)[index]
    return f.each("intermediate_size", s.layers)[index]


def _shared_size(s: Shape, index: int, width: int) -> int:
    """Inner width of the shared experts together."""
    f = s.f
    count = f.each("shared_experts", s.layers, 0, 0)[index] if f.value("shared_experts") is not None else None
    size = f.maybe("shared_size", 0)
    if s.name == "llama4":
        return width
    if s.name == "hunyuan" and f.flag("use_cla"):
        f.refuse("use_cla", "layers that share keys and values with the next one are not known in this family")
    f.used.add("cla_share_factor")
    if s.name == "hunyuan" and not f.flag("use_mixed_mlp_moe", True):
        return 0
    if size is not None and (count is None or s.family.shared_gate or s.name == "nemotron_h"):
        return size if count != 0 else 0
    if size is not None and count is not None:
        return count * size
    if s.name == "hunyuan" and count is None:
        return width
    return (count or 0) * width


def _dbrx(s: Shape) -> Moe:
    ffn = s.f.section("ffn_config")
    if ffn is None:
        s.f.refuse("ffn_config", "missing; without it the experts are not known")
    return Moe(
        experts=ffn.size("moe_num_experts", 4),
        active=ffn.size("moe_top_k", 1),
        intermediate_size=ffn.size("ffn_hidden_size", 3584),
    )
