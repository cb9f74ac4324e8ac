"""Weights in the order that this machine multiplies fastest, tried for each shape of matrix.

A decode step reads every weight once, and PyTorch's plain matrix-vector product reaches half of the memory's speed or
less on many CPUs. oneDNN's own order comes near it where the processor has the instructions; in fp32 a matrix stored
by columns is often better than one stored by rows. oneDNN's operators are private to PyTorch: they are tried on a small
matrix first, and left alone where they are missing or disagree.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.place import Place

LAYOUTS = ("rows", "columns", "packed")
TRIAL_BYTES = 64 * 2**20  # beyond the caches of most CPUs
TRIAL_COPIES, TRIAL_ROUNDS = 8, 6
WORTH = 0.95  # rows stay rows unless another order takes less than this share of their time


class Packing(NamedTuple):
    """What was done: `copied_bytes` are held twice (a tied head in oneDNN's order, besides the embedding's table)."""

    layouts: dict[tuple[int, int], str]  # by rows and columns of the matrices
    copied_bytes: int = 0
    refused: str | None = None  # why oneDNN's order was not tried


def pack_linears(
    decoder: Decoder, *, batch: int = 1, layouts: Sequence[str] = LAYOUTS, tied_head: bool = True
) -> Packing:
    """Arrange every linear layer for `batch` rows of input, originals freed one by one; a single layout is forced.

    With `tied_head` false a head that is the embedding's table is not copied into oneDNN's order.
    """
    refused = obstacle(decoder.place)
    possible = [name for name in layouts if _possible(name, decoder.place, refused)]
    linears = [m for m in decoder.modules() if isinstance(m, Linear) and m.weight is not None]
    tied = decoder.head if decoder.model.tied and decoder.head in linears else None
    chosen: dict[tuple[int, int], str] = {}
    for linear in linears:
        shape = (linear.rows, linear.columns)
        names = [name for name in possible if linear is not tied or tied_head or name != "packed"]
        if names and shape not in chosen:
            chosen[shape] = names[0] if len(names) == 1 else fastest(decoder.place, shape, batch, names)
        _arrange(linear, chosen.get(shape, "rows"), batch)
    copied = 0
    if tied is not None and tied.weight is None:
        copied = decoder.embedding.nbytes
    elif tied is not None:
        decoder.embedding = tied.weight
    return Packing(chosen, copied, refused)


def _possible(layout: str, place: Place, refused: str | None) -> bool:
    if layout == "packed":
        return refused is None
    # In 16 bit PyTorch's product over columns is many times slower, and rounds otherwise.
    return layout == "rows" or (place.device.type == "cpu" and place.dtype == torch.float32)


def _arrange(linear: Linear, layout: str, batch: int) -> None:
    if layout == "packed":
        linear.pack(batch)
    elif layout == "columns":
        linear.by_columns()


def fastest(place: Place, shape: tuple[int, int], batch: int, layouts: Sequence[str]) -> str:
    """The order in which matrices of this shape multiply `batch` rows of input in the least time."""
    seconds = trial_seconds(place, shape, batch, layouts)
    best = min(seconds, key=lambda name: seconds[name])
    return best if best == "rows" or seconds[best] < WORTH * seconds.get("rows", float("inf")) else "rows"


@torch.inference_mode()
def trial_seconds(place: Place, shape: tuple[int, int], batch: int, layouts: Sequence[str]) -> dict[str, float]:
    """The best of some rounds, orders in turn, each over different matrices so that none is still in a cache."""
    rows, columns = shape
    most = max(1, TRIAL_BYTES // (columns * place.dtype.itemsize))
    rows = min(rows, most)  # a part of a larger matrix tells as much
    copies = max(1, min(TRIAL_COPIES, most // rows))
    x = torch.ones(batch, columns, device=place.device, dtype=place.dtype)
    trials = {name: [_trial(rows, columns, place, name, batch) for _ in range(copies)] for name in layouts}
    for linears in trials.values():
        _round(linears, x)
    rounds = [{name: _round(linears, x) for name, linears in trials.items()} for _ in range(TRIAL_ROUNDS)]
    return {name: min(each[name] for each in rounds) for name in layouts}


def _trial(rows: int, columns: int, place: Place, layout: str, batch: int) -> Linear:
    linear = _filled(Linear(rows, columns, place), torch.ones(()))
    _arrange(linear, layout, batch)
    return linear


def _round(linears: list[Linear], x: Tensor) -> float:
    start = time.perf_counter()
    for linear in linears:
        linear(x)
    return time.perf_counter() - start


def obstacle(place: Place) -> str | None:
    """Why oneDNN's order cannot be used with this device and format, or None."""
    if place.device.type != "cpu":
        return "weights are packed on a CPU only"
    if not all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")):
        return f"PyTorch {torch.__version__} has no packed linear layers"
    try:
        return None if _agrees(place) else "packed weights gave other results on this machine"
    except RuntimeError as error:
        return str(error).splitlines()[0]


def _agrees(place: Place) -> bool:
    x = torch.arange(128, device=place.device, dtype=place.dtype).view(2, 64)  # whole numbers: no rounding
    weight = torch.eye(64, device=place.device, dtype=place.dtype).roll(1, 0)
    trial = _filled(Linear(64, 64, place), weight)
    trial.pack(1)
    return torch.equal(functional.linear(x, weight), trial(x))


def _filled(linear: Linear, values: Tensor) -> Linear:
    if linear.weight is not None:
        linear.weight.copy_(values)
    return linear
