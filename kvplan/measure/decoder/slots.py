"""Where each named tensor of a model goes: a view into this rank's parameters, and the part of the whole it takes.

Names are those of Hugging Face's Llama without the leading `model.`. Fused projections have one slot for each part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from kvplan.measure.decoder.linear import Linear


class Slot(NamedTuple):
    """`target` takes elements [start, start + its size) of the whole tensor along `axis`; beyond its end are zeros."""

    target: Tensor
    full: tuple[int, ...]  # the whole tensor's shape
    axis: int = 0
    start: int = 0

    def fill(self, whole: Tensor) -> None:
        """Copy this rank's part, converted to the target's format."""
        kept = max(0, min(self.target.shape[self.axis], self.full[self.axis] - self.start))
        if kept < self.target.shape[self.axis]:
            self.target.zero_()
        if kept:
            self.target.narrow(self.axis, 0, kept).copy_(whole.narrow(self.axis, self.start, kept))


class Rows(NamedTuple):
    """A part of a fused projection: its name, its rows here, and which rows of the whole they are."""

    name: str
    here: int
    start: int
    full: int
    bias: bool = True


def whole(tensor: Tensor) -> Slot:
    """A tensor that every rank holds entirely."""
    return Slot(tensor, tuple(tensor.shape))


def row_slots(linear: Linear, parts: list[Rows]) -> Iterator[tuple[str, Slot]]:
    """Slots of a projection whose outputs are divided: weights and biases of each part."""
    weight, offset = matrix(linear), 0
    for part in parts:
        rows = slice(offset, offset + part.here)
        yield f"{part.name}.weight", Slot(weight[rows], (part.full, weight.shape[1]), 0, part.start)
        if linear.bias is not None and part.bias:
            yield f"{part.name}.bias", Slot(linear.bias[rows], (part.full,), 0, part.start)
        offset += part.here


def column_slots(linear: Linear, name: str, rank: int, full: int) -> Iterator[tuple[str, Slot]]:
    """Slots of a projection whose inputs are divided; the sum over ranks must count the bias once: on rank 0."""
    weight = matrix(linear)
    rows, columns = weight.shape
    yield f"{name}.weight", Slot(weight, (rows, full), 1, rank * columns)
    if linear.bias is not None:
        yield f"{name}.bias", Slot(linear.bias, (rows,), 0, 0 if rank == 0 else rows)


def matrix(linear: Linear) -> Tensor:
    """The plain weights; they are gone once packed."""
    if linear.weight is None:
        raise ValueError("load weights before packing the linear layers")
    return linear.weight
