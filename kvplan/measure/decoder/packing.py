"""Weights in oneDNN's own order: a matrix-vector product then reads them at nearly the memory's speed.

The operators are private to PyTorch, so they are tried on a small matrix first; without them nothing changes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.place import Place


class Packing(NamedTuple):
    """What was packed: `copied_bytes` are held twice (a tied head, which stays a table for the embedding as well)."""

    linears: int = 0
    copied_bytes: int = 0
    refused: str | None = None  # why nothing was packed


def pack_linears(decoder: Decoder, *, batch: int = 1, tied_head: bool = True) -> Packing:
    """Pack every linear layer for `batch` rows of input; the originals are freed one by one."""
    refused = obstacle(decoder.place)
    if refused:
        return Packing(refused=refused)
    linears = [m for m in decoder.modules() if isinstance(m, Linear) and m.packed is None]
    shared = [m for m in linears if m.weight is decoder.embedding]
    chosen = [m for m in linears if tied_head or m not in shared]
    copied = sum(m.weight.nbytes for m in shared if m in chosen and m.weight is not None)
    for linear in chosen:
        linear.pack(batch)
    return Packing(linears=len(chosen), copied_bytes=copied)


def obstacle(place: Place) -> str | None:
    """Why this device and format cannot be packed, or None."""
    if place.device.type != "cpu":
        return "weights are packed on a CPU only"
    if not all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")):
        return f"PyTorch {torch.__version__} has no packed linear layers"
    try:
        return None if _agrees(place) else "packed weights gave other results on this machine"
    except RuntimeError as error:
        return str(error).splitlines()[0]


def _agrees(place: Place) -> bool:
    trial = Linear(64, 64, place)
    nn.init.eye_(trial.weight)
    x = torch.ones(2, 64, device=place.device, dtype=place.dtype)
    plain = functional.linear(x, trial.weight)
    trial.pack(1)
    return torch.equal(plain, trial(x))
