"""The stack of a model as `layers`, `layer`, `kinds` and `per_layer` of a file."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvplan.records import Record
from kvplan.specs.fields import FieldSpec, field_specs
from kvplan.specs.layers import Attention, Layer
from kvplan.specs.model import ModelSpec
from kvplan.specs.writer_order import order_text

Paths = dict[str, Any]  # a value of a layer by its dotted key


class Described(NamedTuple):
    """The parts of a file that give the stack."""

    order: str
    layer: dict[str, Any]
    kinds: dict[str, dict[str, Any]]
    columns: dict[str, list[Any]]


def describe(model: ModelSpec) -> Described:
    """What all layers share, what each kind adds, and a column for what differs from layer to layer."""
    names = list(model.stack_kinds) if len(model.stack_kinds) == len(model.stack) else [""] * len(model.stack)
    columns = _columns(model, names)
    if columns is None:
        names, columns = _own_names(model, names), {}
    parts: dict[str, Paths] = {}
    for name, layer in zip(names, model.stack, strict=True):
        if name not in parts:
            paths = _paths(layer, model.hidden_size, whole="attention.heads" in columns)
            parts[name] = {key: value for key, value in paths.items() if key not in columns}
    shared = _shared(list(parts.values()))
    alone = len(parts) == 1 and (not next(iter(parts)) or not _references(model))
    if alone:
        only = next(iter(parts.values()))
        return Described(str(len(names)), _nested(only), {}, columns)
    kinds = {name: _nested(_without(paths, shared, parts)) for name, paths in parts.items()}
    return Described(order_text(names), _nested(shared), kinds, columns)


def _references(model: ModelSpec) -> bool:
    return any(layer.weights_of or (layer.attention and layer.attention.cache_of) for layer in model.stack)


def _without(paths: Paths, shared: Paths, parts: dict[str, Paths]) -> Paths:
    """What a kind adds to the shared part, or to the kind whose weights it uses."""
    target = parts.get(paths.get("weights_of", ""), {})
    return {key: value for key, value in paths.items() if key not in shared and target.get(key) != value}


def _shared(parts: list[Paths]) -> Paths:
    first = parts[0]
    return {key: value for key, value in first.items() if all(part.get(key) == value for part in parts)}


def _columns(model: ModelSpec, names: list[str]) -> dict[str, list[Any]] | None:
    """Values that differ between layers of one kind; None where a layer has no place for such a value."""
    groups: dict[str, list[Layer]] = {}
    for name, layer in zip(names, model.stack, strict=True):
        group = groups.setdefault(name, [])
        if layer not in group:
            group.append(layer)
    differing: dict[str, None] = {}
    for group in groups.values():
        described = [_paths(layer, model.hidden_size, whole=True) for layer in group]
        for key in dict.fromkeys(key for paths in described for key in paths):
            if len({repr(paths.get(key)) for paths in described}) > 1:
                differing[key] = None
    columns = {key: [_value(layer, key) for layer in model.stack] for key in differing}
    return None if any(value is None for column in columns.values() for value in column) else columns


def _own_names(model: ModelSpec, names: list[str]) -> list[str]:
    """A name for every distinct layer: the kind's, then the kind's with a number."""
    known: dict[tuple[str, Layer], str] = {}
    taken = set(names)
    for name, layer in zip(names, model.stack, strict=True):
        if (name, layer) not in known:
            first = name and name not in known.values()
            number = 2
            while not first and f"{name or 'kind'}_{number}" in taken:
                number += 1
            known[name, layer] = name if first else f"{name or 'kind'}_{number}"
            taken.add(known[name, layer])
    return [known[pair] for pair in zip(names, model.stack, strict=True)]


def _paths(layer: Layer, hidden: int, whole: bool) -> Paths:
    """The values of a layer that are not defaults; with `whole`, also those that follow from the heads."""
    paths = _section_paths(layer, "")
    attention = layer.attention
    if attention:
        for key in _derived(attention, hidden):
            if not whole or key == "v_head_dim":
                paths.pop(f"attention.{key}", None)
    return paths


def _derived(a: Attention, hidden: int) -> list[str]:
    """Widths that a reader works out."""
    found = ["kv_heads"] if a.kv_heads == a.heads else []
    if a.v_head_dim == a.head_dim:
        found.append("v_head_dim")
    width = a.input_size or hidden
    if width % a.heads == 0 and width // a.heads == a.head_dim:
        found.append("head_dim")
    return found


def _table(section: Record) -> dict[str, FieldSpec]:
    kind: type = type(section)
    return field_specs(kind)


def _section_paths(section: Record, prefix: str) -> Paths:
    paths: Paths = {}
    for name, spec in _table(section).items():
        value = getattr(section, name)
        if value == spec.default:
            continue
        if isinstance(value, Record):
            inner = _section_paths(value, f"{prefix}{name}.")
            first = next(iter(_table(value)))
            paths.update(inner or {f"{prefix}{name}.{first}": getattr(value, first)})
        else:
            paths[f"{prefix}{name}"] = value
    return paths


def _value(layer: Layer, key: str) -> Any:
    value: Any = layer
    for name in key.split("."):
        value = getattr(value, name, None)
        if value is None:
            return None
    return value


def _nested(paths: Paths) -> dict[str, Any]:
    """Mappings in mappings for dotted keys."""
    made: dict[str, Any] = {}
    for key, value in paths.items():
        *parents, last = key.split(".")
        place = made
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value
    return made
