"""Bytes of the weights on one rank, tensor by tensor, as ledger lines by component."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvplan.arithmetic import ceil_div
from kvplan.memory.parameters import edge_tensors, widths_of
from kvplan.memory.tensors import Tensor, stored_tensors
from kvplan.schemes import Scheme
from kvplan.sharding import Rank
from kvplan.units import Line

EXTRA_BYTES = 2  # towers and prediction heads are served in 16 bit
SPECULATION_EXTRAS = ("mtp",)  # loaded only when speculation is asked for


class StoredTensor(NamedTuple):
    """Equal tensors of a rank and how they are stored."""

    component: str
    name: str
    count: int  # layers times copies
    rows: int
    columns: int
    format: str
    bytes_each: int
    formula: str  # of one
    fallback_from: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return self.count * self.bytes_each


def stored(rank: Rank, scheme: Scheme) -> list[StoredTensor]:
    """Every distinct tensor of the rank with its format and count."""
    counts: dict[StoredTensor, int] = {}
    for tensor, layer, repeats in _placed(rank, scheme.depends_on_depth):
        entry = _stored(tensor, rank, scheme, layer)
        counts[entry] = counts.get(entry, 0) + repeats * tensor.copies
    return [entry._replace(count=count) for entry, count in counts.items()]


def _placed(rank: Rank, by_depth: bool) -> Iterator[tuple[Tensor, int, int]]:
    """Tensors with the index of their layer and a repeat count; layers apart only where the scheme looks at depth."""
    widths = widths_of(rank.model)
    for tensor in edge_tensors(rank):
        yield tensor, 0, 1
    repeats: dict[int, int] = {}
    for layer in rank.layers:
        repeats[id(layer)] = repeats.get(id(layer), 0) + 1
    done: set[int] = set()
    for index, layer in enumerate(rank.layers, rank.first_layer):
        if not by_depth and id(layer) in done:
            continue
        done.add(id(layer))
        for tensor in stored_tensors(layer, widths):
            yield tensor, index, 1 if by_depth else repeats[id(layer)]


def _stored(tensor: Tensor, rank: Rank, scheme: Scheme, layer: int) -> StoredTensor:
    rows, columns = tensor.rows, tensor.columns
    if tensor.role == "vector":
        form, wanted = scheme.vector_format, scheme.vector_format
    else:
        place = {"layer": layer, "layers": len(rank.model.stack)}
        form = scheme.format_of(tensor.component, tensor.name, rows, columns, **place)
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
                Line(f"weights/{name}", size, "ceil(parameters / tp) * bytes_per_value", terms, "extras of the model file")
            )
    return lines
