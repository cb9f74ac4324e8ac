"""A model: its shape, exact to the parameter, as an ordered stack of layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.errors import InputError, Problem, SpecError
from kvplan.kv_formats import kv_pair
from kvplan.records import Record
from kvplan.schemes import scheme
from kvplan.specs.fields import (
    boolean,
    choice,
    decode,
    either,
    integer,
    key,
    list_of,
    mapping_of,
    one_or_more,
    raw,
    section,
    text,
)
from kvplan.specs.layers import Layer, Rope
from kvplan.specs.nodes import report
from kvplan.specs.order import MAX_LAYERS
from kvplan.specs.reader import read_file
from kvplan.specs.stack import LayerPart, read_stack

if TYPE_CHECKING:
    from kvplan.specs.nodes import Node


class PerLayerInput(Record):
    """Embeddings that feed every layer (Gemma 3n, Gemma 4): one table row of `width` for each layer."""

    vocab_size: int = key(integer(), "rows of the table")
    width: int = key(integer(), "elements for each layer")


class ModelSpec(Record):
    """A model file. `stack` is the resolved order of layers; layers of one kind are one object."""

    name: str = key(text(), "the file's name")
    aliases: tuple[str, ...] = key(one_or_more(text()), "other names, hub ids among them", default=())
    source: tuple[str, ...] = key(one_or_more(text()), "where the figures are from", default=())
    family: str | None = key(text(), "family of architectures, near the hub's model_type", default=None)
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
    stored_bytes: dict[str, int] = key(
        mapping_of(integer(0)), "bytes of components where the file has others than the scheme gives", default=dict
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
    attention_residuals: bool = key(boolean(), "layers attend over earlier layers' outputs (Kimi K3)", default=False)
    layers: int | str = key(
        either(integer(1, MAX_LAYERS), text()), "count of layers, or their order such as '10 (5 local, global)'"
    )
    layer: Node | None = key(LayerPart(), "what every layer has", default=None)
    kinds: dict[str, Node] | None = key(mapping_of(LayerPart()), "what a named kind adds or changes", default=None)
    per_layer: dict[str, tuple[Node, ...]] | None = key(
        mapping_of(list_of(raw({}))), "values for each layer by dotted key, such as attention.heads", default=None
    )
    stack: tuple[Layer, ...] = ()
    stack_kinds: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields that describe the model as a whole."""
        return {name: getattr(self, name) for name in _DESCRIPTION}


_DESCRIPTION = (
    "name", "aliases", "source", "family", "released", "notes", "unverified", "nominal_parameters", "hub_total",
    "hidden_size", "vocab_size", "max_context", "weights", "kv_dtype", "state_dtype", "tied",
)  # fmt: skip


def load_model_file(path: Path) -> ModelSpec:
    """The model of a YAML file; SpecError tells all that is wrong with it."""
    return load_model_node(read_file(path, read_model), str(path))


def load_model_node(node: Node, source: str) -> ModelSpec:
    """The model a file describes; raises SpecError with every problem of the file."""
    problems: list[Problem] = []
    spec = read_model(node, problems)
    if spec is None or problems:
        raise SpecError(source, problems)
    return spec


def read_model(node: Node, problems: list[Problem]) -> ModelSpec | None:
    """The model as far as it can be read, with what is wrong in `problems`."""
    spec = decode(ModelSpec, node, problems)
    stack = read_stack(node, spec.hidden_size if spec else None, problems)
    if spec is None:
        return None
    _check_formats(spec, node, problems)
    return replace(spec, layer=None, kinds=None, per_layer=None, stack=stack.layers, stack_kinds=stack.kinds)


def _check_formats(spec: ModelSpec, node: Node, problems: list[Problem]) -> None:
    """The names of formats, which only their own modules know."""
    reads: dict[str, Callable[[], object]] = {
        "weights": lambda: scheme(spec.weights),
        "kv_dtype": lambda: spec.kv_dtype and kv_pair(spec.kv_dtype),
    }
    for name, read in reads.items():
        try:
            read()
        except InputError as error:
            report(problems, node.key_lines.get(name), name, str(error).removeprefix("weights: "))
