"""How two models differ, one field at a time, and what each difference costs.

The first model is turned into the second step by step, so the costs add up to the difference of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

from kvplan.errors import InputError
from kvplan.kv_formats import kv_pair
from kvplan.memory.cache_groups import cache_groups, token_bytes
from kvplan.memory.parameters import parameters
from kvplan.memory.weights import stored
from kvplan.planning.estimate import estimate
from kvplan.planning.scenario import DEFAULT_CONTEXT, DEFAULT_KV
from kvplan.schemes import scheme
from kvplan.sharding import shard
from kvplan.specs.layers import Layer
from kvplan.specs.model import ModelSpec
from kvplan.specs.writer_layers import describe

# what costs nothing: names and where they are from
_APART = (
    "name", "aliases", "source", "family", "released", "notes", "unverified", "nominal_parameters", "hub_total",
    "hub_extra", "layers", "layer", "kinds", "per_layer", "stack", "stack_kinds", "weights", "stored_bytes",
)  # fmt: skip
Costs = dict[str, int | None]
COSTS = ("parameters", "weights_bytes", "kv_bytes_per_token", "sessions")


class Step(NamedTuple):
    """One difference: its field, the two values, and how to make the first model have the second's."""

    field: str
    a: Any
    b: Any
    apply: Callable[[ModelSpec], ModelSpec]


def model_diff(
    a: ModelSpec, b: ModelSpec, gpu: str | None = None, context: int | str = DEFAULT_CONTEXT
) -> list[dict[str, Any]]:
    """A row for each difference with what it costs, and last the whole; one row where the models are alike."""
    before = costs(a, gpu, context)
    rows: list[dict[str, Any]] = []
    last = before
    for step, now in _walk(a, list(steps(a, b)), gpu, context):
        rows.append({"field": step.field, "a": step.a, "b": step.b, **_change(last, now)})
        last = now
    after = costs(b, gpu, context)
    rest = _change(last, after)
    if any(rest.values()):
        rows.append({"field": "the rest", "a": None, "b": None, **rest})
    return [*rows, {"field": "in all", "a": a.name, "b": b.name, **_change(before, after)}]


def costs(model: ModelSpec, gpu: str | None = None, context: int | str = DEFAULT_CONTEXT) -> Costs:
    """The figures that a difference is measured in; sessions only on a GPU. Raises InputError."""
    (rank,) = shard(model)
    kv = kv_pair(model.kv_dtype or DEFAULT_KV)
    return {
        "parameters": parameters(model),
        "weights_bytes": sum(tensor.bytes for tensor in stored(rank, scheme(model.weights))),
        "kv_bytes_per_token": sum(g.layers * token_bytes(g, kv) for g in cache_groups(rank)),
        "sessions": estimate(model, gpu, context=context).to_dict()["max_sessions"] if gpu else None,
    }


def steps(a: ModelSpec, b: ModelSpec) -> Iterator[Step]:
    """The differences: of the model, of the layers by kind, of their order, and of the weights' formats last."""
    for field in fields(ModelSpec):
        own, other = getattr(a, field.name), getattr(b, field.name)
        if field.name not in _APART and own != other:
            yield Step(field.name, _text(own), _text(other), _setting(**{field.name: other}))
    yield from _layer_steps(a, b)
    if (a.weights, a.stored_bytes) != (b.weights, b.stored_bytes):
        setting = _setting(weights=b.weights, stored_bytes=b.stored_bytes)
        yield Step("weights", _text(a.weights), _text(b.weights), setting)


def _setting(**values: Any) -> Callable[[ModelSpec], ModelSpec]:
    return lambda model: replace(model, **values)


def _layer_steps(a: ModelSpec, b: ModelSpec) -> Iterator[Step]:
    left, right = _kinds(a), _kinds(b)
    whole = _setting(layers=b.layers, stack=b.stack, stack_kinds=b.stack_kinds)
    if left is None or right is None or left.keys() != right.keys():
        if a.stack != b.stack:
            yield Step("layers", describe(a).order, describe(b).order, whole)
        return
    found: dict[tuple[str, Any, Any], list[str]] = {}
    for kind, layer in left.items():
        for difference in _differences(layer, right[kind]):
            found.setdefault(difference, []).append(kind)
    for (path, own, wanted), kinds in found.items():
        name = path if len(kinds) == len(left) else f"{', '.join(kinds)}: {path}"
        yield Step(name, _text(own), _text(wanted), _in_kinds(kinds, path, wanted))
    if a.stack_kinds != b.stack_kinds:
        yield Step("layers", describe(a).order, describe(b).order, whole)


def _kinds(model: ModelSpec) -> dict[str, Layer] | None:
    """The layer of each kind, or None where layers of a kind differ."""
    found: dict[str, Layer] = {}
    for kind, layer in zip(model.stack_kinds, model.stack, strict=True):
        if found.setdefault(kind, layer) != layer:
            return None
    return found


def _differences(a: Layer, b: Layer) -> Iterator[tuple[str, Any, Any]]:
    """Dotted fields in which two layers differ; a part that only one has is one difference."""
    for field in fields(Layer):
        own, other = getattr(a, field.name), getattr(b, field.name)
        if own == other:
            continue
        if own is None or other is None or not hasattr(own, "__dict__"):
            yield field.name, own, other
            continue
        for inner in fields(own):
            pair = getattr(own, inner.name), getattr(other, inner.name)
            if pair[0] != pair[1] and inner.metadata and not _follows(inner.name, own, other):
                yield f"{field.name}.{inner.name}", *pair


def _follows(name: str, own: Any, other: Any) -> bool:
    """Values as wide as keys, in both models, are no difference of their own."""
    return name == "v_head_dim" and all(part.v_head_dim == part.head_dim for part in (own, other))


def _in_kinds(kinds: list[str], path: str, value: Any) -> Callable[[ModelSpec], ModelSpec]:
    def apply(model: ModelSpec) -> ModelSpec:
        made: dict[int, Layer] = {}
        stack = []
        for name, layer in zip(model.stack_kinds, model.stack, strict=True):
            if name in kinds and id(layer) not in made:
                made[id(layer)] = _with(layer, path, value)
            stack.append(made[id(layer)] if name in kinds else layer)
        return replace(model, stack=tuple(stack))

    return apply


def _with(layer: Layer, path: str, value: Any) -> Layer:
    name, _, inner = path.partition(".")
    if not inner:
        return replace(layer, **{name: value})
    part = getattr(layer, name)
    more = {"here": 0} if inner == "experts" else {}  # experts on a rank follow from all experts
    if inner == "head_dim" and part.v_head_dim == part.head_dim:
        more = {"v_head_dim": value}
    return replace(layer, **{name: replace(part, **{inner: value}, **more)})


def _walk(model: ModelSpec, waiting: list[Step], gpu: str | None, context: int | str) -> Iterator[tuple[Step, Costs]]:
    """Take the steps in an order in which every model between is one; those that cannot stand alone go together."""
    while waiting:
        for step in waiting:
            try:
                made = step.apply(model)
                now = costs(made, gpu, context)
            except (ValueError, InputError):  # heads that do not divide yet, rows that do not fill blocks
                continue
            waiting.remove(step)
            model = made
            yield step, now
            break
        else:
            return


def _change(before: Costs, after: Costs) -> Costs:
    pairs = {name: (before[name], after[name]) for name in COSTS}
    return {name: None if x is None or y is None else y - x for name, (x, y) in pairs.items()}


def _text(value: Any) -> Any:
    """A value as one reads it: sections as their fields."""
    if hasattr(value, "__dict__"):
        known = {f.name: getattr(value, f.name) for f in fields(value) if f.metadata}
        told = [f"{name} {_text(each)}" for name, each in known.items() if each not in (None, False, 0)]
        return ", ".join(told)
    if isinstance(value, dict):
        return ", ".join(f"{name}: {each}" for name, each in value.items()) or None
    return value
