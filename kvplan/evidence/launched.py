"""A server's command line as options of an estimate: what `--launch` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.errors import InputError
from kvplan.evidence.conditions import not_followed, scenario_options, usable_version
from kvplan.evidence.launch import Launch
from kvplan.evidence.names import find_model
from kvplan.loading import load_model
from kvplan.planning.estimate import estimate
from kvplan.planning.scenario import DEFAULT_CONTEXT
from kvplan.records import Record
from kvplan.specs.model import ModelSpec


class Launched(Record):
    """Options under kvplan's names, and what has no option: the model itself, flags of the engine, notes."""

    options: Mapping[str, Any]
    model: ModelSpec
    flags: Mapping[str, Any]
    automatic_length: bool = False  # --max-model-len auto: as long as the memory holds
    notes: tuple[str, ...] = ()


def launched(launch: Launch) -> Launched:
    """What a command line starts; raises InputError for an unknown model and for flags that cannot be planned."""
    launch.check()
    if launch.model is None:
        raise InputError("--launch: the command names no model")
    known = find_model(launch.model)
    model = load_model(known.name if known else launch.model)
    found: dict[str, Any] = {**launch.options, "engine_version": usable_version(launch.version)}
    if known and known.weights:
        found.setdefault("weights", known.weights)
    found.setdefault("tp", 1)
    if launch.engine_flags.get("expert_parallel"):
        found["ep"] = found["tp"] * found.get("dp", 1)
    options = scenario_options(model, found, launch.engine_flags)
    options["context"] = min(DEFAULT_CONTEXT, options["max_model_len"])
    flags, spec = options.pop("flags"), options.pop("model")
    return Launched(
        options={**options, "model": known.name if known else launch.model},
        model=spec,
        flags=flags,
        automatic_length=launch.engine_flags.get("max_model_len") == "auto",
        notes=(*_decided(launch), *launch.notes, *not_followed(launch.engine_flags)),
    )


def _decided(launch: Launch) -> list[str]:
    """Which flags matter for memory and which do not."""
    found = []
    if launch.relevant:
        said = (said.flag if said.value is True else f"{said.flag} {_short(said.value)}" for said in launch.relevant)
        found.append(f"these flags decide the memory: {', '.join(dict.fromkeys(said))}")
    if launch.irrelevant:
        found.append(f"these do not: {', '.join(dict.fromkeys(launch.irrelevant))}")
    return found


def _short(value: Any) -> str:
    text = "off" if value is False else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def fitting_length(options: Mapping[str, Any]) -> int | None:
    """What the engine makes of an automatic length: the longest request that the memory holds, or None for none."""
    found = estimate(**options)
    longest = found.max_context_tokens
    if longest is None or longest >= found.scenario.max_model_len:
        return found.scenario.max_model_len
    return longest if longest > 0 else None
