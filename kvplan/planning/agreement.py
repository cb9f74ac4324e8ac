"""What a checkpoint's tensors say beside what its config (or the keys of its header) says, component by component."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from kvplan.importers.checkpoint import Checkpoint, Found
from kvplan.memory.weights import EXTRA_BYTES, SPECULATION_EXTRAS, stored
from kvplan.planning.facts import model_facts
from kvplan.schemes import scheme
from kvplan.sharding import shard
from kvplan.specs.model import ModelSpec

_FIGURES = (
    "name", "family", "layers", "parameters", "active_parameters", "weights", "weights_bytes", "kv_bytes_per_token",
    "state_bytes_per_session", "caches", "max_context", "extras", "source", "notes",
)  # fmt: skip
_REASONS = {
    "mtp": "layers for prediction, loaded only for speculation",
    "tower": "vision, audio or projector parts, served beside the model",
    "buffers": "tables that a server computes, such as rotary frequencies",
}


class Sums(NamedTuple):
    """Parameters and bytes of a component."""

    parameters: int = 0
    bytes: int = 0


def found_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What was found: the model's figures, exact sums of its files, and where the two agree."""
    model, files = checkpoint.model, _of_file(checkpoint.tensors)
    facts: dict[str, Any] = {"found": checkpoint.source, "kind": checkpoint.kind}
    if model is not None:
        known = model_facts(model)
        facts |= {key: known[key] for key in ("name", "family", "layers", "parameters", "active_parameters", "weights")}
        facts |= {
            key: known[key] for key in ("weights_bytes", "kv_bytes_per_token", "state_bytes_per_session", "caches")
        }
        facts |= {key: known[key] for key in ("max_context", "extras", "source", "notes") if known.get(key)}
    if checkpoint.tensors:
        packed = dict.fromkeys(each.packed for each in checkpoint.tensors if each.packed not in ("", "scale"))
        facts["file_tensors"] = len(checkpoint.tensors)
        facts["file_parameters"] = sum(each.parameters for each in files.values())
        facts["file_bytes"] = sum(each.bytes for each in files.values())
        facts["file_bytes_by_type"] = _by(checkpoint.tensors, "dtype")
        facts["file_packed"] = list(packed)
        facts["file_scale_bytes"] = sum(each.bytes for each in checkpoint.tensors if each.packed == "scale")
        facts["host_bytes"] = sum(each.bytes for each in checkpoint.tensors if each.host) or None
    facts["agreement"] = agreement(checkpoint)
    return facts


def agreement(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """One row a component: parameters and bytes by config and by file, and why they differ."""
    if not checkpoint.tensors:
        return []
    model = checkpoint.model
    said = _of_config(model) if model else {}
    files = _of_file(checkpoint.tensors)
    rows = []
    for component in dict.fromkeys((*said, *files)):
        config, file = said.get(component), files.get(component, Sums())
        rows.append(
            {
                "component": component,
                "from_config": config.parameters if config else None,
                "from_file": file.parameters,
                "difference": file.parameters - config.parameters if config else None,
                "bytes_from_config": config.bytes if config else None,
                "bytes_from_file": file.bytes,
                "why": _why(component, config, file, checkpoint),
            }
        )
    return rows


def with_needed_bytes(model: ModelSpec) -> ModelSpec:
    """The model without the `stored_bytes` that its scheme gives anyway."""
    given = _by_scheme(model)
    needed = {name: size for name, size in model.stored_bytes.items() if given.get(name, Sums()).bytes != size}
    return replace(model, stored_bytes=needed)


def _of_config(model: ModelSpec) -> dict[str, Sums]:
    sums = _by_scheme(model)
    for name, count in model.extras.items():
        component = "mtp" if name in SPECULATION_EXTRAS else "tower"
        before = sums.get(component, Sums())
        sums[component] = Sums(before.parameters + count, before.bytes + count * EXTRA_BYTES)
    return sums


def _by_scheme(model: ModelSpec) -> dict[str, Sums]:
    plain = replace(model, stored_bytes={})
    sums: dict[str, Sums] = {}
    for entry in stored(shard(plain)[0], scheme(model.weights)):
        before = sums.get(entry.component, Sums())
        count = entry.times * entry.rows * entry.columns
        sums[entry.component] = Sums(before.parameters + count, before.bytes + entry.bytes)
    return sums


def _of_file(tensors: list[Found]) -> dict[str, Sums]:
    sums: dict[str, Sums] = {}
    for each in tensors:
        before = sums.get(each.component, Sums())
        sums[each.component] = Sums(before.parameters + each.parameters, before.bytes + each.bytes)
    return sums


def _by(tensors: list[Found], what: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in tensors:
        sums[getattr(each, what)] = sums.get(getattr(each, what), 0) + each.bytes
    return sums


def _why(component: str, config: Sums | None, file: Sums, checkpoint: Checkpoint) -> str:
    """The reason for a difference, or that there is none."""
    model = checkpoint.model
    if model is None:
        return "no config to compare with"
    if config == file:
        return "agrees"
    if config is None or component in _REASONS:
        again = "the head is the embedding, and the file stores it a second time; servers keep one"
        return again if component == "head" and model.tied else _REASONS.get(component, "not in the config")
    difference = file.parameters - config.parameters
    if difference == 0:
        return _why_bytes(component, config, file, checkpoint)
    rows, rest = divmod(difference, model.hidden_size)
    padded = component in ("embedding", "head") and not rest
    told = f"{rows:+,} rows beside the config's vocabulary of {model.vocab_size:,}"
    return told if padded else "not explained: the shapes of the file are not those of the config"


def _why_bytes(component: str, config: Sums, file: Sums, checkpoint: Checkpoint) -> str:
    """Why equal parameters take other bytes."""
    if checkpoint.kind == "gguf":
        return "types that no scheme describes, or tables beside the weights; the file's bytes are used"
    own = [each for each in checkpoint.tensors if each.component == component]
    scales = sum(each.bytes for each in own if each.packed == "scale")
    if scales and abs(file.bytes - config.bytes) <= scales:
        return f"scales and zero points: {scales:,} bytes in the file"
    types = ", ".join(dict.fromkeys(each.dtype for each in own if each.packed != "scale"))
    return f"stored as {types}, served as the config says"
