"""The stack of a model: `layer`, `kinds`, `layers` and `per_layer` of a file put together, layer by layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from kvplan.errors import Problem, did_you_mean
from kvplan.specs.fields import Kind, decode
from kvplan.specs.layers import Attention, Layer
from kvplan.specs.nodes import Node, join, merged, report
from kvplan.specs.order import MAX_LAYERS, parse_order
from kvplan.specs.scalars import shown, whole_number


class Stack(NamedTuple):
    """The layers in order and the kind of each; equal layers are one object, so that sums visit them once."""

    layers: tuple[Layer, ...] = ()
    kinds: tuple[str, ...] = ()


class LayerPart(Kind):
    """Some keys of a layer: what is missing here is said elsewhere in the file."""

    expected = "a mapping"
    takes = frozenset(("mapping",))

    def schema(self) -> dict[str, Any]:
        """A mapping; `schema.py` says with which keys."""
        return {"type": "object"}

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:  # noqa: ARG002
        return node


def read_stack(node: Node, hidden_size: int | None, problems: list[Problem]) -> Stack:
    """The layers that a model file describes, as far as they can be read; what cannot is in `problems`."""
    found: list[Problem] = []
    parts = _parts(node)
    order = _order(node, parts, found)
    if order:
        nodes = _with_columns([parts[kind] for kind in order], node, found)
        layers = [_with_widths(layer, hidden_size, node, found) for layer in _layers(order, nodes, found)]
        _check_references(node, order, layers, found)
    else:
        layers = []
        _layers(tuple(parts), _with_first_values(list(parts.values()), node), found)
    if not {"layer", "kinds", "per_layer"} & set(node.entries or ()):
        report(problems, node.line, "", "missing key 'layer' (what every layer has)")
    _add_new(problems, found)
    shared: dict[Layer, Layer] = {}
    return Stack(tuple(shared.setdefault(layer, layer) for layer in layers), order)


def _add_new(problems: list[Problem], found: list[Problem]) -> None:
    """Add problems once: a mistake in `layer` is met again in every kind."""
    known = {(p.line, p.message) for p in problems}
    for problem in found:
        if (problem.line, problem.message) not in known:
            known.add((problem.line, problem.message))
            report(problems, *problem)


def _entries(node: Node, name: str) -> dict[str, Node]:
    part = node.entries.get(name) if node.entries else None
    return (part.entries or {}) if part else {}


def _line(node: Node, name: str, inner: str) -> int:
    """The line of a key inside a section of the file."""
    part = (node.entries or {}).get(name, node)
    return part.key_lines.get(inner, part.line)


def _parts(node: Node) -> dict[str, Node]:
    """The merged node of each kind; the only kind of a file without `kinds` has no name."""
    base = (node.entries or {}).get("layer") or Node(node.line, entries={})
    kinds = _entries(node, "kinds")
    if not kinds:
        return {"": base}
    merged_kinds = {}
    for name, part in kinds.items():
        target = kinds.get(_text(part, "weights_of"))  # the same weights are the same shape
        merged_kinds[name] = merged(merged(base, target) if target else base, part)
    return merged_kinds


def _text(node: Node, name: str) -> str:
    value = (node.entries or {}).get(name)
    return (value.text or "") if value else ""


def _order(node: Node, parts: dict[str, Node], problems: list[Problem]) -> tuple[str, ...]:
    layers = (node.entries or {}).get("layers")
    if layers is None or layers.text is None or layers.flawed:
        return ()
    if layers.type == "number":
        return _counted(layers, parts, problems)
    try:
        order = parse_order(layers.text)
    except ValueError as error:
        report(problems, layers.line, "layers", str(error))
        return ()
    used = set(order)
    unknown = [name for name in dict.fromkeys(order) if name not in parts]
    for name in unknown:
        known = "; describe it in kinds" if "" in parts else f"; kinds has {_list(parts)}"
        near = did_you_mean(name[:60], parts) or known
        report(problems, layers.line, "layers", f"unknown kind '{shown(name)}'{near}")
    if unknown:  # a kind that is not used may be the one that was meant
        return ()
    for name in parts:
        if name and name not in used:
            report(problems, _line(node, "kinds", name), f"kinds.{shown(name)}", "this kind is not used in layers")
    return order


def _counted(layers: Node, parts: dict[str, Node], problems: list[Problem]) -> tuple[str, ...]:
    count = whole_number(layers.text or "")
    if "" not in parts:
        message = f"with kinds, write their order and not only a count: '2 ({_list(parts)})', for example"
        report(problems, layers.line, "layers", message)
        return ()
    return ("",) * count if count and 0 < count <= MAX_LAYERS else ()


def _list(parts: dict[str, Node]) -> str:
    names = [shown(name) for name in parts]
    return ", ".join(names[:6] + ["..."] * (len(names) > 6))


def _with_columns(nodes: list[Node], node: Node, problems: list[Problem]) -> list[Node]:
    """Each layer's node with its value of every column of `per_layer`."""
    for dotted, column in _entries(node, "per_layer").items():
        line, path = _line(node, "per_layer", dotted), join("per_layer", dotted)
        if column.items is None:
            report(problems, line, path, f"expected a list of {len(nodes)} values, got {column}")
        elif nodes and len(column.items) != len(nodes):
            report(problems, line, path, f"{len(column.items)} values for {len(nodes)} layers; give one for each")
        else:
            pairs = zip(nodes, column.items, strict=False)
            nodes = [merged(layer, _nested(dotted, value, line)) for layer, value in pairs]
    return nodes


def _with_first_values(nodes: list[Node], node: Node) -> list[Node]:
    """The same where the order cannot be read: enough to see what else is wrong."""
    for dotted, column in _entries(node, "per_layer").items():
        if column.items:
            nodes = [merged(layer, _nested(dotted, column.items[0], column.line)) for layer in nodes]
    return nodes


def _nested(dotted: str, value: Node, line: int) -> Node:
    """The mappings that hold one value at a dotted key."""
    for name in reversed(dotted.split(".")):
        value = Node(line, entries={name: value}, key_lines={name: line})
    return value


def _layers(order: tuple[str, ...], nodes: list[Node], problems: list[Problem]) -> list[Layer]:
    read: dict[int, Layer | None] = {}
    for index, (kind, node) in enumerate(zip(order, nodes, strict=False)):
        if id(node) not in read:
            path = f"kinds.{kind}" if kind else f"layer {index}" if index else "layer"
            read[id(node)] = decode(Layer, node, problems, path)
    layers = [read[id(node)] for node in nodes]
    return [layer for layer in layers if layer is not None]


def _with_widths(layer: Layer, hidden_size: int | None, node: Node, problems: list[Problem]) -> Layer:
    """The layer with the head widths that follow from others."""
    attention = layer.attention
    if attention is None or (attention.head_dim and attention.v_head_dim):
        return layer
    width = attention.input_size or hidden_size or attention.heads
    if not attention.head_dim and width % attention.heads:
        message = f"{width} does not divide by {attention.heads} heads: give attention.head_dim"
        report(problems, node.key_lines.get("hidden_size"), "hidden_size", message)
    head_dim = attention.head_dim or max(1, width // attention.heads)
    v_head_dim = attention.v_head_dim or head_dim
    return replace(layer, attention=replace(attention, head_dim=head_dim, v_head_dim=v_head_dim))


def _check_references(node: Node, order: tuple[str, ...], layers: list[Layer], problems: list[Problem]) -> None:
    """A layer that uses another's cache or weights comes after one of that kind."""
    before: dict[str, Layer] = {}
    if len(layers) != len(order):  # one could not be read
        return
    for kind, layer in zip(order, layers, strict=True):
        if kind in before:
            continue
        line, path = _line(node, "kinds", kind), f"kinds.{kind}"
        if layer.attention and layer.attention.cache_of:
            wrong = _wrong_cache(layer.attention.cache_of, layer.attention, before, order)
            if wrong:
                report(problems, line, f"{path}.attention.cache_of", wrong)
        if layer.weights_of:
            wrong = _wrong_weights(layer.weights_of, before, order)
            if wrong:
                report(problems, line, f"{path}.weights_of", wrong)
        before[kind] = layer


def _wrong_cache(target: str, reader: Attention, before: dict[str, Layer], order: tuple[str, ...]) -> str:
    if target not in before:
        return _not_before(target, order)
    owner = before[target].attention
    if owner is None or owner.cache_of:
        return f"'{target}' layers have no cache of their own; name a kind that has"
    if (owner.kv_heads, owner.head_dim, owner.v_head_dim) != (reader.kv_heads, reader.head_dim, reader.v_head_dim):
        return f"the cache of '{target}' has other heads or widths than this kind reads"
    return ""


def _wrong_weights(target: str, before: dict[str, Layer], order: tuple[str, ...]) -> str:
    if target not in before:
        return _not_before(target, order)
    return f"'{target}' layers have no weights of their own; name a kind that has" if before[target].weights_of else ""


def _not_before(target: str, order: tuple[str, ...]) -> str:
    near = "" if target in order else did_you_mean(target[:60], set(order))
    return f"no '{shown(target)}' layer comes before this one{near}"
