"""Rotary positions, and the longest context, from every way in which configs write them."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.importers.config_families import Family
from kvplan.importers.config_fields import CONTEXT_NAMES, Fields
from kvplan.specs.layers import Rope
from kvplan.specs.scalars import MAX_INTEGER, shown

# What the hub calls a stretching, and what a model file does; "" leaves positions as trained.
_SCALINGS = {
    "default": "",
    "none": "",
    "mrope": "",
    "proportional": "",
    "linear": "linear",
    "dynamic": "dynamic",
    "ntk": "dynamic",
    "llama3": "llama3",
    "yarn": "yarn",
    "deepseek_yarn": "yarn",
    "longrope": "longrope",
    "su": "longrope",
}
_THETAS = ("rope_theta", "rotary_emb_base", "rope_freq_constant")
_SHARES = ("partial_rotary_factor", "rotary_pct", "rope_pct")
_HARMLESS = ("mrope_section", "mrope_interleaved", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
             "attention_factor", "attn_factor", "extrapolation_factor", "finetuned", "low_freq_factor",
             "high_freq_factor", "long_factor", "short_factor", "long_mscale", "short_mscale", "alpha", "type",
             "rope_type", "llama_4_scaling_beta", "max_position_embeddings", "xdrope_section",
             "original_max_position_embeddings", "factor", "rope_theta", "partial_rotary_factor")  # fmt: skip


class Ropes(NamedTuple):
    """Positions of the model, and of its windowed layers where they differ."""

    model: Rope | str | None
    windowed: Rope | None


def read_ropes(f: Fields, family: Family, head_dim: int | None) -> Ropes:
    """The rotary positions; `head_dim` is the width of which a share turns (None: all of it does)."""
    sections = _sections(f)
    full, windowed = sections.get("full_attention"), sections.get("sliding_attention")
    if full is None:
        full = f.section("rope_parameters") if not sections else None
    scaling = f.section("rope_scaling") or full
    model = _rope(f, full or f, scaling, head_dim)
    local_theta = windowed.number("rope_theta") if windowed else _first(f, ("rope_local_base_freq", "swa_rope_theta"))
    if not family.rope:
        return Ropes("none", None)
    if local_theta is None and (family.scaled_windows or model is None or model.scaling is None):
        return Ropes(model, None)
    local = Rope(
        theta=local_theta or (model.theta if model else 10000), dim=_windowed_dim(f, model, windowed, head_dim)
    )
    return Ropes(model, None if local == model else local)


def _sections(f: Fields) -> dict[str, Fields]:
    """`rope_parameters` by kind of layer, as newer configs have it."""
    both = f.section("rope_parameters")
    if both is None or not {"full_attention", "sliding_attention"} & set(both.values):
        return {}
    return {name: part for name in ("full_attention", "sliding_attention") if (part := both.section(name))}


def _rope(f: Fields, part: Fields, scaling: Fields | None, head_dim: int | None) -> Rope | None:
    here, above = _first(part, _THETAS), _first(f, _THETAS)
    theta, dim = here or above, _turned(f, part, head_dim)
    how, factor, original = _stretched(f, scaling) if scaling else (None, None, None)
    if theta is None and dim is None and how is None:
        return None
    return Rope(theta=10000 if theta is None else theta, dim=dim, scaling=how, factor=factor, original_context=original)


def _stretched(f: Fields, scaling: Fields) -> tuple[str | None, float | None, int | None]:
    kind = scaling.text("rope_type") or scaling.text("type") or "default"
    if kind not in _SCALINGS:
        known = ", ".join(_SCALINGS)
        scaling.refuse("rope_type", f"the scaling '{shown(kind)}' of rotary positions is not known (known: {known})")
    _check_rest(scaling)
    factor, original = scaling.number("factor"), scaling.maybe("original_max_position_embeddings")
    if not _SCALINGS[kind] or (factor == 1 and _SCALINGS[kind] in ("linear", "dynamic")):
        return None, None, None
    return _SCALINGS[kind], factor, original or f.maybe("original_max_position_embeddings")


def _check_rest(scaling: Fields) -> None:
    scaling.used.update(_HARMLESS)
    for name, value in scaling.values.items():
        if name not in scaling.used and isinstance(value, dict):
            scaling.refuse(name, "rotary positions of a kind of layer that is not known")


def _turned(f: Fields, part: Fields, head_dim: int | None) -> int | None:
    """Elements of a head that turn, where not all do."""
    dim = f.maybe("rotary_dim")
    if dim is None:
        here, above = _first(part, _SHARES), _first(f, _SHARES)
        share = here or above
        if share is None or share == 1 or head_dim is None:
            return None
        if share > 1:
            f.refuse(_SHARES[0], f"a share of the head is at most 1, got {share}")
        dim = int(head_dim * share)
    return None if dim in (head_dim, 0) else dim


def _windowed_dim(f: Fields, model: Rope | None, windowed: Fields | None, head_dim: int | None) -> int | None:
    if windowed is None or windowed is f:
        return model.dim if model and f.has("swa_rope_theta") else None
    share = _first(windowed, _SHARES)
    return int(head_dim * share) if share and share < 1 and head_dim else None


def _first(f: Fields, names: tuple[str, ...]) -> float | int | None:
    values = [f.number(name) for name in names]
    return next((value for value in values if value is not None), None)


def longest_context(f: Fields, rope: Rope | str | None, scaled_by_factor: bool) -> int | None:
    """Tokens the model was made for: what the config says, stretched where it says the length before stretching."""
    values = [(name, f.value(name)) for name in CONTEXT_NAMES]
    value = next((_whole(f, name, value) for name, value in values if value is not None), None)
    if value is None or not isinstance(rope, Rope) or not rope.factor:
        return value
    if rope.scaling == "yarn" and rope.original_context:
        return max(value, int(rope.original_context * rope.factor))
    return int(value * rope.factor) if scaled_by_factor and rope.scaling in ("linear", "dynamic") else value


def _whole(f: Fields, name: str, value: object) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > MAX_INTEGER:
        return None  # the tokenizer's word for "no limit"
    return f.whole(name, value, 1, MAX_INTEGER)
