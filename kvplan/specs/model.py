"""A model: its shape, exact to the parameter, as an ordered stack of layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvplan.errors import Problem, SpecError, did_you_mean
from kvplan.specs.fields import boolean, choice, either, integer, key, mapping_of, one_or_more, raw, section, text
from kvplan.specs.layers import Layer, Rope
from kvplan.specs.order import MAX_LAYERS, parse_order
from kvplan.specs.reader import Node, decode, merged, with_value

NO_WEIGHTS_MTP = "mtp"  # engines leave prediction heads out unless speculation is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class PerLayerInput:
    """Embeddings that feed every layer (Gemma 3n, Gemma 4): one table row of `width` for each layer."""

    vocab_size: int = key(integer(), "rows of the table")
    width: int = key(integer(), "elements for each layer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model file. `stack` is the resolved order of layers; layers of one kind are one object."""

    name: str = key(text(), "the file's name")
    aliases: tuple[str, ...] = key(one_or_more(text()), "other names, hub ids among them", default=())
    source: tuple[str, ...] = key(one_or_more(text()), "where the figures are from", default=())
    family: str | None = key(text(), "family of models", default=None)
    released: str | None = key(text(), "date of release, quoted", default=None)
    notes: str | None = key(text(), "what a reader should know", default=None)
    unverified: str | None = key(text(), "what could not be checked against a published figure", default=None)
    nominal_parameters: int | None = key(integer(), "the number in the name, for the textbook rule", default=None)
    hub_total: int | None = key(integer(), "published total of the checkpoint", default=None)
    hub_extra: dict[str, int] = key(
        mapping_of(integer(-(2**53))), "what the published total counts beside the model; never served", default=dict
    )
    extras: dict[str, int] = key(
        mapping_of(integer()), "parameters served with the model that are not it: vision tower, mtp", default=dict
    )
    hidden_size: int = key(integer(), "width of the residual stream")
    vocab_size: int = key(integer(), "rows of the embedding")
    max_context: int | None = key(integer(), "longest context the model was made for", default=None)
    rope: Rope | str | None = key(either(choice("none"), section(Rope)), "rotary positions, or none", default=None)
    weights: str | dict[str, str] = key(
        either(text(), mapping_of(text())), "scheme of the checkpoint, or a format for each component", default="bf16"
    )
    kv_dtype: str | None = key(text(), "format of the cache if the checkpoint asks for one", default=None)
    state_dtype: str | None = key(choice("fp32", "bf16", "fp16"), "format of recurrent state", default=None)
    tied: bool = key(boolean(), "the head is the embedding", default=False)
    norm: str = key(choice("rms", "layer", "layer-no-bias", "none"), "kind of norm", default="rms")
    final_norm: bool = key(boolean(), "a norm before the head", default=True)
    head_bias: bool = key(boolean(), "a bias on the head", default=False)
    embedding_size: int | None = key(integer(), "width of the embedding if projected (OPT-350m)", default=None)
    embedding_norm: bool = key(boolean(), "a norm after the embedding (BLOOM)", default=False)
    learned_positions: int | None = key(integer(), "rows of a learned position table", default=None)
    per_layer_input: PerLayerInput | None = key(section(PerLayerInput), "embeddings for every layer", default=None)
    altup_inputs: int | None = key(integer(2), "parallel streams of AltUp (Gemma 3n)", default=None)
    laurel_rank: int | None = key(integer(), "rank of the learned residual (Gemma 3n)", default=None)
    layers: int | str = key(
        either(integer(1, MAX_LAYERS), text()), "count of layers, or their order such as '10 (5 local, global)'"
    )
    layer: Node | None = key(raw({}), "what every layer has", default=None)
    kinds: Node | None = key(raw({}), "what a named kind adds or changes", default=None)
    per_layer: Node | None = key(raw({}), "values for each layer by dotted key", default=None)
    stack: tuple[Layer, ...] = ()
    stack_kinds: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields that describe the model as a whole."""
        names = ("name", "aliases", "source", "family", "released", "notes", "unverified", "nominal_parameters")
        names += ("hub_total", "hidden_size", "vocab_size", "max_context", "weights", "kv_dtype", "state_dtype", "tied")
        return {name: getattr(self, name) for name in names}


def load_model_node(node: Node, source: str) -> ModelSpec:
    """The model a file describes; raises SpecError with every problem of the file."""
    problems: list[Problem] = []
    spec = decode(ModelSpec, node, problems)
    order, parts = _layer_nodes(node, problems)
    stack = _decoded(order, parts, problems)
    if spec is None or problems:
        raise SpecError(source, problems)
    spec = replace(spec, stack=tuple(_with_head_dim(layer, spec.hidden_size) for layer in stack), stack_kinds=order)
    problems = _contradictions(spec, node)
    if problems:
        raise SpecError(source, problems)
    return _shared(spec)


def _layer_nodes(node: Node, problems: list[Problem]) -> tuple[tuple[str, ...], dict[str, Node] | list[Node]]:
    """The order of kinds, and the merged node of each kind, or of each layer when columns make them differ."""
    order = _order(node, problems)
    base = node.entries.get("layer") or Node(line=node.line, entries={}, key_lines={})
    kinds_node = node.entries.get("kinds")
    kinds = {"": base} if kinds_node is None else {n: merged(base, part) for n, part in kinds_node.entries.items()}
    for name in dict.fromkeys(order):
        if name not in kinds:
            line = node.key_lines.get("layers")
            problems.append(Problem(line, "layers", f"unknown kind '{name}'{did_you_mean(name, kinds)}; see kinds:"))
            return (), {}
    for name in sorted(set(kinds) - set(order) - {""} if order else set()):
        assert kinds_node is not None
        problems.append(Problem(kinds_node.key_lines[name], f"kinds.{name}", "is not used in layers:"))
    columns = node.entries.get("per_layer")
    if columns is None:
        return order, kinds
    return order, _with_columns([kinds[name] for name in order], columns, problems)


def _order(node: Node, problems: list[Problem]) -> tuple[str, ...]:
    layers = node.entries.get("layers")
    if layers is None or layers.text is None:
        return ()
    if layers.text.isdigit():
        if node.entries.get("kinds"):
            problems.append(Problem(layers.line, "layers", "with kinds: give the order of the kinds, not only a count"))
            return ()
        return ("",) * min(int(layers.text[:6]), MAX_LAYERS)
    try:
        return parse_order(layers.text)
    except ValueError as error:
        problems.append(Problem(layers.line, "layers", str(error)))
        return ()


def _with_columns(nodes: list[Node], columns: Node, problems: list[Problem]) -> list[Node]:
    for dotted, column in (columns.entries or {}).items():
        line = columns.key_lines[dotted]
        if column.items is None or len(column.items) != len(nodes):
            found = "no list" if column.items is None else f"{len(column.items)}"
            problems.append(Problem(line, f"per_layer.{dotted}", f"expected a list of {len(nodes)} values, got {found}"))
            continue
        try:
            nodes = [with_value(node, dotted, value) for node, value in zip(nodes, column.items, strict=True)]
        except ValueError as error:
            problems.append(Problem(line, f"per_layer.{dotted}", str(error)))
    return nodes


def _decoded(order: tuple[str, ...], parts: dict[str, Node] | list[Node], problems: list[Problem]) -> list[Layer]:
    if isinstance(parts, list):
        layers = [decode(Layer, node, problems, f"layer {i}") for i, node in enumerate(parts)]
        return [layer for layer in layers if layer is not None]
    kinds: dict[str, Layer | None] = {}
    for name in dict.fromkeys(order):
        kinds[name] = decode(Layer, parts[name], problems, f"kinds.{name}" if name else "layer")
    return [layer for layer in map(kinds.get, order) if layer is not None]


def _with_head_dim(layer: Layer, hidden_size: int) -> Layer:
    """Fill in the widths that follow from the hidden size."""
    attention = layer.attention
    if attention is None or (attention.head_dim and attention.v_head_dim):
        return layer
    head_dim = attention.head_dim or (attention.input_size or hidden_size) // attention.heads
    return replace(
        layer, attention=replace(attention, head_dim=head_dim, v_head_dim=attention.v_head_dim or head_dim)
    )


def _shared(spec: ModelSpec) -> ModelSpec:
    """One object for equal layers, so that sums over a stack visit each distinct layer once."""
    seen: dict[Layer, Layer] = {}
    return replace(spec, stack=tuple(seen.setdefault(layer, layer) for layer in spec.stack))


def _contradictions(spec: ModelSpec, node: Node) -> list[Problem]:
    problems = []
    if spec.hidden_size and any(
        a and a.head_dim * a.heads != (a.input_size or spec.hidden_size) and not _says_head_dim(node)
        for a in (layer.attention for layer in spec.stack)
    ):
        message = f"does not divide by the heads: give attention.head_dim (hidden_size is {spec.hidden_size})"
        problems.append(Problem(node.key_lines.get("hidden_size"), "hidden_size", message))
    known = set(spec.stack_kinds)
    for kind, layer in dict(zip(spec.stack_kinds, spec.stack, strict=True)).items():
        for field, target in (("cache_of", layer.attention and layer.attention.cache_of), ("weights_of", layer.weights_of)):
            if target and target not in known:
                message = f"{field}: unknown kind '{target}'{did_you_mean(target, known)}"
                problems.append(Problem(_kind_line(node, kind), f"kinds.{kind}", message))
    return problems


def _says_head_dim(node: Node) -> bool:
    parts = [node.entries.get("layer"), *((node.entries["kinds"].entries or {}).values() if "kinds" in node.entries else ())]
    return any("head_dim" in (part.entries["attention"].entries or {}) for part in parts if part and "attention" in (part.entries or {}))


def _kind_line(node: Node, kind: str) -> int | None:
    kinds = node.entries.get("kinds")
    return kinds.key_lines.get(kind) if kinds else node.key_lines.get("layer")
