"""Layers with a recurrent state instead of keys and values, or beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.importers.config_fields import MOST_HEADS, Fields
from kvplan.importers.config_shape import Shape
from kvplan.specs.layers import Delta, KimiDelta, Lightning, Mamba1, Mamba2, ShortConv

Mixer = dict[str, Any]

_EXPAND = ("expand", "mamba_expand")


def state(s: Shape) -> Mixer:
    """The recurrent part of a layer, as the family has it."""
    return {s.family.state: _STATES[s.family.state](s)}


def _delta(s: Shape) -> Delta:
    f = s.f
    k_heads, v_heads = (f.size(name, maximum=MOST_HEADS) for name in ("linear_num_key_heads", "linear_num_value_heads"))
    return Delta(
        k_heads=k_heads,
        v_heads=v_heads,
        k_dim=f.size("linear_key_head_dim"),
        v_dim=f.size("linear_value_head_dim"),
        conv=f.size("conv", 4),
    )


def _kimi_delta(s: Shape) -> KimiDelta:
    linear = s.f.section("linear_attn_config")
    if linear is None:
        heads, head_dim = s.f.size("linear_num_heads", maximum=MOST_HEADS), s.f.size("linear_head_dim")
        return KimiDelta(heads=heads, head_dim=head_dim, conv=s.f.size("conv", 4))
    return KimiDelta(
        heads=linear.size("num_heads", maximum=MOST_HEADS),
        head_dim=linear.size("head_dim"),
        conv=linear.size("short_conv_kernel_size", 4),
        full_rank_gate=linear.flag("use_full_rank_gate"),
    )


def _lightning(s: Shape) -> Lightning:
    return Lightning(heads=s.heads, head_dim=s.head_dim)


def _short_conv(s: Shape) -> ShortConv:
    for name in ("conv_dim", "conv_dim_out", "block_dim"):
        if s.f.maybe(name) not in (None, s.hidden):
            s.f.refuse(name, f"convolutions of another width than {s.hidden} are not known to kvplan")
    if s.f.flag("conv_bias"):
        s.f.refuse("conv_bias", "biases in short convolutions are not known to kvplan")
    return ShortConv(conv=s.f.size("conv", minimum=2))


def _mamba1(s: Shape) -> Mamba1:
    f = s.f
    _check_biases(f)
    inner = f.maybe("intermediate_size") if s.name != "jamba" else None
    rank = f.value("time_step_rank") if f.has("time_step_rank") else f.value("mamba_dt_rank")
    return Mamba1(
        inner=inner or _expanded(s),
        state=f.size("state_size", 16),
        dt_rank=-(-s.hidden // 16) if rank in (None, "auto") else f.whole("time_step_rank", rank),
        conv=f.size("conv", 4),
        inner_norms=s.name == "jamba",
    )


def _mamba2(s: Shape) -> Mamba2:
    f = s.f
    _check_biases(f)
    heads, head_dim, groups = _mamba2_heads(s)
    return Mamba2(
        heads=heads,
        head_dim=head_dim,
        state=f.size("state_size"),
        groups=groups,
        conv=f.size("conv", 4),
        norm=f.flag("mamba_rms_norm") if s.name == "falcon_h1" else f.flag("rms_norm", True),
    )


def _mamba2_heads(s: Shape) -> tuple[int, int, int]:
    """State heads, their width and the groups; together the heads are as wide as the inner stream."""
    f = s.f
    if s.name == "mamba2":
        heads, width, inner = f.size("heads", maximum=MOST_HEADS), f.size("head_dim"), _expanded(s)
        f.maybe("intermediate_size")
    elif s.name == "nemotron_h":  # its inner width is not a multiple of the hidden size
        heads, width = f.size("mamba_num_heads", maximum=MOST_HEADS), f.size("mamba_head_dim")
        inner = heads * width
    elif s.name == "zamba2":
        heads, inner = f.size("n_mamba_heads", maximum=MOST_HEADS), _expanded(s)
        width = f.size("mamba_headdim", inner // heads)
    else:
        heads, inner = f.size("mamba_n_heads", maximum=MOST_HEADS), f.maybe("mamba_d_ssm") or _expanded(s)
        width = inner // heads if f.value("mamba_d_head") in (None, "auto") else f.size("mamba_d_head")
    if heads * width != inner:
        f.refuse("expand", f"{heads} state heads of {width} are not the inner width {inner}")
    names = ("n_groups", "mamba_n_groups", "mamba_ngroups")
    return heads, width, next((n for name in names if (n := f.maybe(name))), 1)


def _expanded(s: Shape) -> int:
    factor = next((value for name in _EXPAND if (value := s.f.number(name)) is not None), 2)
    return int(s.hidden * factor)


def _check_biases(f: Fields) -> None:
    """The convolution has a bias and the projections have none, in every published model."""
    for name in ("use_conv_bias", "mamba_conv_bias"):
        if not f.flag(name, True):
            f.refuse(name, "a convolution without biases is not known to kvplan")
    for name in ("use_bias", "mamba_proj_bias", "projectors_bias", "add_bias_linear"):
        if f.flag(name):
            f.refuse(name, "biases on the projections of a state are not known to kvplan")


_STATES: dict[str, Callable[[Shape], object]] = {
    "delta": _delta,
    "kimi_delta": _kimi_delta,
    "lightning": _lightning,
    "short_conv": _short_conv,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
}
