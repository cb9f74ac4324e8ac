"""The columns of a grid: names, types, and what tells rows apart that the contract has no column for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.planning.axes import NUMERIC, ROW_KEYS, given_inputs
from kvplan.planning.row import KEYS

TEXTS = ("model", "gpu", "engine", "engine_version", "weight_scheme", "kv_dtype", "gpu_memory_source", "limited_by")
TYPES: dict[str, type] = {
    **dict.fromkeys(KEYS, int),
    **dict.fromkeys(TEXTS, str),
    "checked": bool,
    "fits": bool,
    "memory_fraction": float,
}
# Options that a row shows under another name or its own.
SHOWN = {
    **{option: key for option, key in ROW_KEYS.items() if key in KEYS},
    **{
        name: name
        for name in ("engine", "engine_version", "kv_dtype", "max_model_len", "max_batched_tokens", "block_size")
    },
    "kv_budget": "kv_budget_bytes",
}
# Names of columns for the others, where the option's own would not say the unit or what is meant.
NAMES = {"reserve": "reserve_bytes", "shared_prefix": "shared_prefix_tokens", "ep": "expert_parallel"}


def column_types(axes: Mapping[str, Sequence[Any]]) -> dict[str, type]:
    """Every column in order with the type of its values: the contract's, what was asked beside them, the reason."""
    asked = {"sessions": int} if "sessions" in axes else {}
    return {**TYPES, **asked, **{NAMES.get(name, name): _type(name) for name in _added(axes)}, "error": str}


def told_apart(axes: Mapping[str, Sequence[Any]], options: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the options that have several and no column in the contract."""
    return {NAMES.get(name, name): _plain(options[name]) for name in _added(axes)}


def refused_inputs(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a combination that cannot be: the options that were given, under the keys of a row."""
    own = ("engine", "engine_version", "kv_dtype", "max_model_len", "max_batched_tokens", "block_size")
    given = {name: options[name] for name in own if options.get(name) not in (None, "auto")}
    return {**given, **{key: _plain(value) for key, value in given_inputs(options).items()}}


def varied(axes: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """The columns of the options that have several values."""
    names = [SHOWN.get(name, NAMES.get(name, name)) for name, values in axes.items() if len(values) > 1]
    return (*names, "gpus") if "gpu" in names else tuple(names)  # h100-sxm and 8xh100-sxm


def _added(axes: Mapping[str, Sequence[Any]]) -> list[str]:
    return [name for name, values in axes.items() if len(values) > 1 and name not in SHOWN and name != "sessions"]


def _type(name: str) -> type:
    return int if name in NUMERIC else bool if name == "eager" else str


def _plain(value: Any) -> Any:
    """A loaded file by its name, a path by its text, everything else as it is."""
    found = getattr(value, "name", value)
    return found if isinstance(found, int | float | str) else str(found)
