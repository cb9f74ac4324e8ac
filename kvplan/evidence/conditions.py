"""Under which conditions an engine started: what the log tells, what the user adds, what has to be assumed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvplan.engines import load_engine
from kvplan.engines.vllm.rules import Flags
from kvplan.errors import InputError
from kvplan.evidence.cards import Card, find_card
from kvplan.evidence.launch import Launch, parse_launch
from kvplan.evidence.launch.meaning import meaning_of
from kvplan.evidence.logs import EngineLog
from kvplan.evidence.names import find_model
from kvplan.loading import load_model
from kvplan.records import Record
from kvplan.specs.model import ModelSpec

WHOLE_PRECISION = ("bf16", "fp16", "fp32")
_STATE_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_NUMBERED = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)")
_NOT_MODELLED = {
    "prefill_context_parallel_size": "--prefill-context-parallel-size",
    "mamba_block_size": "--mamba-block-size",
    "mm_encoder_tp_mode": "--mm-encoder-tp-mode",
}
_DEFAULTS = {  # what a log may leave out, and how to give it
    "engine_version": ("the version", "--engine-version"),
    "memory_fraction": ("gpu_memory_utilization", "--memory-fraction"),
    "max_seqs": ("max_num_seqs", "--max-seqs"),
}


class Conditions(Record):
    """Options of an estimate and where each comes from: option | log | command | inferred."""

    options: Mapping[str, Any]
    sources: Mapping[str, str]
    model: ModelSpec
    card: Card | None
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()  # option names the engine's default stands in for


def conditions_of(log: EngineLog, given: Mapping[str, Any]) -> Conditions:
    """The conditions of a start; raises InputError, which names the option that would help, without a model."""
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    notes: list[str] = []

    def take(source: str, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            if value is not None:
                found[name], sources[name] = value, source

    launch = _launch(log)
    flags: dict[str, Any] = {}
    if launch:
        take("command", {**launch.options, "model": launch.model, "engine_version": launch.version})
        flags |= launch.engine_flags
    meant = meaning_of(log.arguments)
    take("log", meant.options)
    flags |= meant.engine_flags
    notes += [*(launch.notes if launch else ()), *meant.notes, *meant.problems]
    take("log", _facts(log, meant.options))
    take("inferred", _inferred(log, found))
    take("option", given)
    if flags.pop("expert_parallel", False):
        take(sources.get("tp", "log"), {"ep": int(found.get("tp", 1)) * int(found.get("dp", 1))})
    if sources.get("engine_version") != "option":
        found["engine_version"] = usable_version(log.version or found.get("engine_version"))
    model = _model(found, sources, flags, notes)
    card = find_card(given.get("gpu"), log.last("gpu_name"), log.last("total"))
    notes += [card.note] if card and card.note else []
    notes += not_followed(flags)
    assumed = [name for name in _DEFAULTS if found.get(name) is None]
    options = scenario_options(model, found, {**flags, **_flags_of_facts(log)})
    options["flags"]["unknown"] = tuple(name for name in assumed if name in ("max_seqs",))
    options["gpu"] = card.gpu if card else None
    return Conditions(
        options=options,
        sources={name: source for name, source in sources.items() if name in options or name == "engine_version"},
        model=model,
        card=card,
        notes=tuple(dict.fromkeys(notes)),
        assumed=tuple(assumed),
    )


def not_followed(flags: Mapping[str, Any]) -> list[str]:
    """A note for each flag that matters but that the engine's rules do not look at."""
    return [f"{flag} is not followed" for name, flag in _NOT_MODELLED.items() if flags.get(name) is not None]


def assumed_note(conditions: Conditions) -> str | None:
    """Which facts the log leaves out, and the options that give them."""
    missing = [f"{_DEFAULTS[name][0]} ({_DEFAULTS[name][1]})" for name in conditions.assumed]
    return f"not in the log, so the engine's default is assumed: {', '.join(missing)}" if missing else None


def scenario_options(model: ModelSpec, found: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `make_scenario` for engine vllm, from options and facts of a command line or a log."""
    options = {name: value for name, value in found.items() if name not in ("model", "gpu") and value is not None}
    state = _STATE_DTYPES.get(str(flags.get("mamba_ssm_cache_dtype") or flags.get("mamba_cache_dtype")))
    options["model"] = replace(model, state_dtype=state) if state and model.state_dtype else model
    if options.get("weights") and model.weights not in WHOLE_PRECISION:
        del options["weights"]  # the checkpoint's own formats are in its file
    if flags.get("speculative_method") == "mtp" and "mtp" in model.extras and "extras" not in options:
        options["extras"] = "all"
    if options.get("ep", 1) > 1 and not any(layer.moe for layer in model.stack):
        del options["ep"]
    length = options.get("max_model_len") or model.max_context or 4096
    options["max_model_len"] = length
    options.setdefault("context", length)
    options["flags"] = {name: value for name, value in flags.items() if name in Flags._fields and value is not None}
    options["engine"] = "vllm"
    return options


def usable_version(text: str | None) -> str | None:
    """The version in a form that the engine's rules know, or None.

    Whole where they read it: a build of the main branch (0.20.1rc1.dev91) has the rules of the next release.
    """
    whole = (text or "").strip().removeprefix("v")
    found = _NUMBERED.match(whole)
    for version in (whole, found[1], ".".join(found[1].split(".")[:2])) if found else ():
        try:
            load_engine("vllm", version)
        except InputError:
            continue
        return version
    return None


def _launch(log: EngineLog) -> Launch | None:
    try:
        return parse_launch(log.command) if log.command else None
    except InputError:
        return None  # a sentence that speaks of a command


def _facts(log: EngineLog, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine says it settled on, which is newer than its flags."""
    fraction = log.first("memory_fraction")
    rounded = log.first("memory_fraction_rounded")
    length = log.last("max_model_len") or log.first("concurrency_tokens")
    return {
        "max_model_len": log.first("concurrency_tokens") or length,
        "max_batched_tokens": log.last("max_batched_tokens"),
        "memory_fraction": flags.get("memory_fraction") or fraction or rounded,
        "kv_dtype": "fp8" if str(log.last("kv_dtype")).startswith("fp8") else None,
        "model": log.model,
    }


def _inferred(log: EngineLog, found: Mapping[str, Any]) -> dict[str, Any]:
    """The largest CUDA graph of a decode step tells max_num_seqs where it is below that of a mixed step."""
    full, piecewise = log.last("largest_full"), log.last("largest_piecewise")
    if found.get("max_seqs") is None and full and piecewise and full < piecewise:
        return {"max_seqs": full}
    return {}


def _flags_of_facts(log: EngineLog) -> dict[str, Any]:
    mode, scheduling = log.last("mamba_cache_mode"), log.last("async_scheduling")
    return {
        "state_mode": mode if mode in ("none", "align", "all") else None,
        "async_scheduling": None if scheduling is None else scheduling == "enabled",
        "multimodal_profile": False if log.last("skip_mm_profiling") else None,
    }


def _model(found: dict[str, Any], sources: Mapping[str, str], flags: Mapping[str, Any], notes: list[str]) -> ModelSpec:
    name = found.get("model")
    if name is None:
        raise InputError("the log does not name its model (its beginning is missing); give --model")
    if sources["model"] == "option":
        return load_model(name)
    known = find_model(str(name))
    if known is None:
        raise InputError(f"the log's model '{str(name)[:100]}' is not in the zoo; give the nearest one with --model")
    spec = load_model(known.name)
    if not known.exact:
        taken = known.weights if spec.weights in WHOLE_PRECISION else None
        notes.append(
            f"'{str(name)[:100]}' is taken as {spec.name}{f' with {taken} weights' if taken else ''} (--model)"
        )
    if known.weights and flags.get("quantization") != "fp8":
        found.setdefault("weights", known.weights)
    return spec
