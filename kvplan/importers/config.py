"""config.json of a Hugging Face checkpoint becomes the model that a careful person would have written, or is refused.

Only fields are read: no code of `auto_map` runs. What changes the arithmetic and is not understood is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvplan.errors import SpecError
from kvplan.importers.config_edges import edges
from kvplan.importers.config_fields import Fields
from kvplan.importers.config_json import problem, read_json
from kvplan.importers.config_leftovers import check_leftovers
from kvplan.importers.config_order import mixers, no_rope_layers
from kvplan.importers.config_quantization import read_quantization
from kvplan.importers.config_rope import longest_context, read_ropes
from kvplan.importers.config_shape import Shape, count_layers, read_heads
from kvplan.importers.config_stack import build_stack
from kvplan.importers.config_text import Found, find_text
from kvplan.importers.config_towers import extras
from kvplan.specs.model import ModelSpec

QUANTIZATION_FILE = "hf_quant_config.json"


def import_config(path: Path) -> ModelSpec:
    """The model of a config.json, or of a folder with one; SpecError or InputError says what is not understood."""
    file = path / "config.json" if path.is_dir() else path
    source, values = str(file), read_json(file)
    beside = _quantization_file(file)
    try:
        return _model(find_text(values, source), _name(file), file.name, read_json(beside) if beside else None)
    except (SpecError, RecursionError, OverflowError) as error:
        if isinstance(error, SpecError):
            raise
        raise problem(source, "", "a value is nested or large beyond any model") from None
    except ValueError as error:  # a relation that a section checks at birth
        raise problem(source, "", str(error)) from None


def _quantization_file(file: Path) -> Path | None:
    """The quantisation that ModelOpt writes beside a config."""
    beside = file.parent / QUANTIZATION_FILE if file.name == "config.json" else file.with_suffix(".hf_quant.json")
    return beside if beside.is_file() else None


def _name(file: Path) -> str:
    """The folder's name, or the file's, as a zoo file is named; what stands before `__` is the organisation."""
    stem = file.resolve().parent.name if file.name == "config.json" else file.name.removesuffix(".json")
    words = re.sub(r"[^a-z0-9.]+", "-", stem.rpartition("__")[2].lower()).strip("-.")
    return words or "model"


def _model(found: Found, name: str, file_name: str, beside: dict[str, Any] | None) -> ModelSpec:
    f, family = found.text, found.family
    hidden, layers = f.size("hidden_size"), count_layers(f)
    heads, kv_heads, head_dim = read_heads(f, found.name, hidden)
    ropes = read_ropes(f, family, None if f.has("kv_lora_rank") else f.maybe("global_head_dim") or head_dim or None)
    shape = Shape(
        f=f,
        name=found.name,
        family=family,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ropes=ropes,
        mixers=tuple(mixers(f, family, layers)),
        no_rope=_no_rope(f, found, layers),
    )
    built = build_stack(shape)
    general = edges(found, shape)
    model = ModelSpec(
        name=name,
        source=(f"{file_name} of a checkpoint",),
        family=found.name,
        nominal_parameters=_nominal(name),
        max_context=longest_context(f, ropes.model, "gemma3" not in found.name),
        layers=len(built.layers),
        stack=tuple(built.layers),
        stack_kinds=tuple(built.kinds),
        **general,
    )
    return _completed(model, found, shape, beside)


def _no_rope(f: Fields, found: Found, layers: int) -> tuple[bool, ...]:
    """Layers whose attention has no rotary positions, beside others that have."""
    flags, words = no_rope_layers(f, layers), mixers(f, found.family, layers)
    if flags is not None:
        return tuple(flags)
    mixed = bool({"window", "chunk"} & set(words)) and not found.family.rope_in_full
    return tuple(mixed and word == "full" for word in words)


def _nominal(name: str) -> int | None:
    """The parameters that a name states, such as 70b or 30b-a3b."""
    said = re.search(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(b|m|t)(?![a-z0-9])", name)
    if said and re.search(r"-\d+e\b", name):  # Llama 4 names the active ones
        return None
    return round(float(said[1]) * {"m": 10**6, "b": 10**9, "t": 10**12}[said[2]]) if said else None


def _completed(model: ModelSpec, found: Found, shape: Shape, beside: dict[str, Any] | None) -> ModelSpec:
    """The model with its quantisation, what is served beside it, and notes; then nothing may be left unread."""
    quantized = read_quantization(found, model, beside)
    served, notes = extras(found, shape, model)
    ignored = check_leftovers(found.text)
    if ignored:
        notes.append(f"fields not used: {', '.join(ignored[:20])}")
    notes.extend(quantized.notes)
    return replace(
        model,
        weights=quantized.weights or model.weights,
        kv_dtype=quantized.kv_dtype,
        extras=served,
        notes="; ".join(notes) or None,
    )
