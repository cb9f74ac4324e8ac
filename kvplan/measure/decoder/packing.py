"""Weights in the order that this machine multiplies fastest, tried for each shape of matrix.

A decode step reads every weight once, and PyTorch's plain matrix-vector product reaches half of the memory's speed or
less on many CPUs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.latent import Expansion
from kvplan.measure.decoder.layouts import LAYOUTS, filled, packed_elements, possible, swells
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.place import Place
from kvplan.measure.decoder.winner import winner

TRIAL_BYTES = 64 * 2**20  # beyond the caches of most CPUs
TRIAL_COPIES, TRIAL_ROUNDS = 64, 6  # of small matrices so many that they are beyond the caches too


Layouts = dict[tuple[int, int], str]  # by rows and columns of the matrices


class Packing(NamedTuple):
    """What was done, and what it takes beside the plain matrices."""

    layouts: Layouts
    copied_bytes: int = 0  # a tied head in a library's order, besides the embedding's table
    padding_bytes: int = 0  # to whole blocks

    @property
    def names(self) -> tuple[str, ...]:
        """The orders that were taken."""
        return tuple(sorted(set(self.layouts.values()))) or ("rows",)


def choose_layouts(decoder: Decoder, batches: Sequence[int] = (1,), layouts: Iterable[str] = LAYOUTS) -> Layouts:
    """The fastest order for each shape of matrix with these rows of input; a single one is not tried but taken."""
    names = possible(decoder.place, layouts)
    shapes = dict.fromkeys((linear.rows, linear.columns) for linear in _plain(decoder))
    if len(names) < 2:
        return {shape: name for shape in shapes for name in names}
    found = {}
    for shape in shapes:
        here = [name for name in names if not swells(name, *shape)]
        found[shape] = here[0] if len(here) == 1 else fastest(decoder.place, shape, batches, here)
    return found


def pack_linears(decoder: Decoder, layouts: Layouts, batch: int = 1) -> Packing:
    """Arrange every linear layer, originals freed one by one."""
    linears = _plain(decoder)
    tied = decoder.head if decoder.model.tied and decoder.head in linears else None
    padding = 0
    if "fbgemm" in layouts.values():
        for expansion in (m for m in decoder.modules() if isinstance(m, Expansion)):
            expansion.format = torch.float32
    for linear in linears:
        shape = (linear.rows, linear.columns)
        layout = layouts.get(shape, "rows")
        LAYOUTS[layout].arrange(linear, batch)
        if linear.weight is None:
            padding += (packed_elements(layout, *shape) - prod(shape)) * decoder.place.dtype.itemsize
    copied = 0
    if tied is not None and tied.weight is None:
        copied = decoder.embedding.nbytes
    elif tied is not None:
        decoder.embedding = tied.weight
    return Packing(layouts, copied, padding)


def _plain(decoder: Decoder) -> list[Linear]:
    return [m for m in decoder.modules() if isinstance(m, Linear) and m.weight is not None]


def fastest(place: Place, shape: tuple[int, int], batches: Sequence[int], layouts: Sequence[str]) -> str:
    """The order in which matrices of this shape multiply these rows of input in the least time, all batches alike."""
    return winner(trial_seconds(place, shape, batches, layouts), "rows")


@torch.inference_mode()
def trial_seconds(
    place: Place, shape: tuple[int, int], batches: Sequence[int], layouts: Sequence[str]
) -> dict[str, list[float]]:
    """By order and batch the best of some rounds, all in turn, over different matrices so that none is in a cache."""
    rows, columns = shape
    most = max(1, TRIAL_BYTES // (columns * place.dtype.itemsize))
    rows = min(rows, most)  # a part of a larger matrix tells as much
    copies = max(1, min(TRIAL_COPIES, most // rows))
    inputs = [torch.ones(batch, columns, device=place.device, dtype=place.dtype) for batch in batches]
    trials = {name: [_trial(rows, columns, place, name, min(batches)) for _ in range(copies)] for name in layouts}
    best = {name: [float("inf")] * len(batches) for name in layouts}
    for _ in range(TRIAL_ROUNDS + 1):  # the first is a warm-up
        for name, linears in trials.items():
            best[name] = [min(old, _round(linears, x)) for old, x in zip(best[name], inputs, strict=True)]
    return best


def _trial(rows: int, columns: int, place: Place, layout: str, batch: int) -> Linear:
    linear = filled(Linear(rows, columns, place), torch.ones(()))
    LAYOUTS[layout].arrange(linear, batch)
    return linear


def _round(linears: list[Linear], x: Tensor) -> float:
    start = time.perf_counter()
    for linear in linears:
        linear(x)
    return time.perf_counter() - start
