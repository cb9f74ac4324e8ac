"""Bytes of the weights on one rank, tensor by tensor, as ledger lines by component."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kvplan.arithmetic import ceil_div
from kvplan.formats import Format
from kvplan.memory.parameters import distinct_layers, edge_tensors, widths_of
from kvplan.memory.tensors import Tensor, Widths, layer_tensors, stored_tensors
from kvplan.schemes import Scheme, counted_as
from kvplan.schemes import scheme as scheme_of
from kvplan.sharding import Rank, shard
from kvplan.specs.layers import Layer
from kvplan.specs.model import ModelSpec
from kvplan.units import Line

EXTRA_BYTES = 2  # towers and prediction heads are served in 16 bit
SPECULATION_EXTRAS = ("mtp",)  # loaded only when speculation is asked for


class StoredTensor(NamedTuple):
    """Equal tensors of a rank and how they are stored."""

    component: str
    name: str
    times: int  # layers times copies
    rows: int
    columns: int
    format: str
    bytes_each: int
    formula: str  # of one
    fallback_from: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return self.times * self.bytes_each


def stored(rank: Rank, scheme: Scheme) -> list[StoredTensor]:
    """Every distinct tensor of the rank with its format and count."""
    counts: dict[StoredTensor, int] = {}
    for tensor, owner, repeats in placed(rank, scheme.depends_on_depth):
        entry = _stored(tensor, scheme, owner)
        counts[entry] = counts.get(entry, 0) + repeats * tensor.copies
    found = [entry._replace(times=count) for entry, count in counts.items()]
    return found + _as_in_file(rank, scheme, found)


def _as_in_file(rank: Rank, scheme: Scheme, found: list[StoredTensor]) -> list[StoredTensor]:
    """What a checkpoint has beside or instead of what its own scheme gives, in each component; shared out by size."""
    model = rank.model
    if not model.stored_bytes or scheme.name != scheme_of(model.weights).name:
        return []
    here, whole = _component_bytes(found), _component_bytes(found)
    if rank.tp * rank.stages > 1 or len(rank.layers) < len(model.stack):
        whole = _component_bytes(stored(shard(replace(model, stored_bytes={}))[0], scheme))
    made = []
    for component, given in model.stored_bytes.items():
        share = here.get(component, 0) if component in whole else int(rank.holds_embedding)
        difference = -((whole.get(component, 0) - given) * share // (whole.get(component, 0) or 1))  # rounded up
        if difference:
            made.append(StoredTensor(component, "as_in_file", 1, difference, 1, "file", difference, str(difference)))
    return made


def _component_bytes(found: list[StoredTensor]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for entry in found:
        sums[entry.component] = sums.get(entry.component, 0) + entry.bytes
    return sums


class Owner(NamedTuple):
    """Where a tensor stands, as far as schemes look at it."""

    layer: int = 0  # among the layers of the model that have a tensor of this role
    layers: int = 1
    gqa: int = 1
    experts: int = 0
    at: int = -1  # number among all layers; -1 outside them
    family: str = ""  # of the model


def placed(rank: Rank, by_depth: bool) -> Iterator[tuple[Tensor, Owner, int]]:
    """Stored tensors with their place and a repeat count; layers apart only where the scheme looks at depth."""
    widths, family = widths_of(rank.model), rank.model.family or ""
    for tensor in edge_tensors(rank):
        yield tensor, Owner(family=family), 1
    if not by_depth:
        for layer, count in distinct_layers(rank.layers):
            shape = gqa(layer, rank.model.stack), _experts(layer)
            owner = Owner(0, len(rank.model.stack), *shape, family=family)
            for tensor in stored_tensors(layer, widths):
                yield tensor, owner, count
    else:
        owners = _owners(rank.model, widths)
        for index, layer in enumerate(rank.layers, rank.first_layer):
            for tensor in stored_tensors(layer, widths):
                yield tensor, owners[tensor.name, index], 1
    for layer in _borrowed(rank):
        for tensor in layer_tensors(layer, widths):
            if tensor not in stored_tensors(layer, widths):
                yield tensor, Owner(0, 1, gqa(layer, rank.model.stack), _experts(layer), family=family), 1


def _borrowed(rank: Rank) -> list[Layer]:
    """Layers whose weights belong to a layer of an earlier stage: this stage keeps a copy of each, once."""
    kinds = rank.model.stack_kinds[rank.first_layer : rank.first_layer + len(rank.layers)]
    found = {layer.weights_of: layer for layer in rank.layers if layer.weights_of and layer.weights_of not in kinds}
    return list(found.values())


def _owners(model: ModelSpec, widths: Widths) -> dict[tuple[str, int], Owner]:
    """The place of every tensor of the whole model, by name and layer."""
    names = [dict.fromkeys(tensor.name for tensor in stored_tensors(layer, widths)) for layer in model.stack]
    places: dict[str, dict[int, int]] = {}
    for index, own in enumerate(names):
        for name in own:
            counted = places.setdefault(counted_as(name), {})
            counted.setdefault(index, len(counted))
    stack, family = model.stack, model.family or ""
    owners: dict[tuple[str, int], Owner] = {}
    for index, own in enumerate(names):
        shape = gqa(stack[index], stack), _experts(stack[index])
        for name in own:
            counted = places[counted_as(name)]
            owners[name, index] = Owner(counted[index], len(counted), *shape, index, family)
    return owners


def gqa(layer: Layer, stack: Sequence[Layer]) -> int:
    """Query heads for each KV head; of gated DeltaNet those of the model, as llama-quantize asks for them."""
    own = layer.attention
    if layer.delta and not own:
        own = next((each.attention for each in stack if each.attention), None)
    return own.heads // own.kv_heads if own else 1


def _experts(layer: Layer) -> int:
    return layer.moe.experts if layer.moe else 0


def format_at(tensor: Tensor, scheme: Scheme, owner: Owner) -> Format:
    """How the scheme stores a tensor at its place."""
    if tensor.role == "vector":
        return scheme.vector_format
    return scheme.format_of(tensor.component, tensor.name, tensor.rows, tensor.columns, **owner._asdict())


def _stored(tensor: Tensor, scheme: Scheme, owner: Owner) -> StoredTensor:
    rows, columns = tensor.rows, tensor.columns
    form = wanted = format_at(tensor, scheme, owner)
    if tensor.role != "vector":
        place = owner._asdict()
        wanted = scheme.intended(tensor.component, tensor.name, rows, columns, **place)
    fallback = wanted.name if wanted.name != form.name else None
    size, formula = form.matrix_bytes(rows, columns), form.formula(rows, columns)
    return StoredTensor(tensor.component, tensor.name, 0, rows, columns, form.name, size, formula, fallback)


def weight_lines(tensors: list[StoredTensor]) -> list[Line]:
    """One ledger line a component: the sum of its tensors over the layers of the rank."""
    components: dict[str, dict[str, int | float]] = {}
    for entry in tensors:
        terms = components.setdefault(entry.component, {})
        terms[entry.name] = terms.get(entry.name, 0) + entry.bytes
    return [
        Line(f"weights/{component}", int(sum(terms.values())), " + ".join(terms), terms, "shapes of the model file")
        for component, terms in components.items()
    ]


def extra_lines(rank: Rank, wanted: frozenset[str] | None) -> list[Line]:
    """Towers and heads served beside the model; `wanted` None means all but those for speculation.

    They are divided by tp and lie on the first stage; prediction heads on the last.
    """
    lines = []
    for name, parameters in rank.model.extras.items():
        speculation = name in SPECULATION_EXTRAS
        if (name not in wanted) if wanted is not None else speculation:
            continue
        if rank.holds_head if speculation else rank.holds_embedding:
            terms: dict[str, int | float] = {"parameters": parameters, "tp": rank.tp, "bytes_per_value": EXTRA_BYTES}
            size = ceil_div(parameters, rank.tp) * EXTRA_BYTES
            lines.append(
                Line(
                    f"weights/{name}",
                    size,
                    "ceil(parameters / tp) * bytes_per_value",
                    terms,
                    "extras of the model file",
                )
            )
    return lines
