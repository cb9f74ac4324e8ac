"""Orders of a matrix's elements: by rows as files have them, and those that a CPU may multiply faster.

`columns`: fp32 only. `onednn`: oneDNN's blocks, for 16 bit on CPUs that have the instructions. `fbgemm`: FBGEMM's
blocks of fp16, multiplied and summed in fp32, which need no more than AVX2. Every bf16 number of 2^-17 to 65504 is an
fp16 number too, and a smaller one moves by at most 2^-25; a matrix with larger ones is left as it is.

The operators of both libraries are private to PyTorch: they are tried on a small matrix first, and left alone where
they are missing or disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from kvplan.arithmetic import ceil_div
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.place import Place

FP16_STEP = 2.0**-25  # half the distance of the smallest fp16 numbers
MOST_PADDED = 1.5  # times the matrix
FBGEMM_ROWS, FBGEMM_COLUMNS = 16, 512  # of a block (fbgemm/FbgemmPackMatrixB.h); a matrix has whole blocks


class Layout(NamedTuple):
    """How a linear layer is put in this order, and what that needs."""

    arrange: Callable[[Linear, int], None]  # the int: rows of input to be fast for
    dtypes: tuple[torch.dtype, ...]
    operators: tuple[tuple[str, str], ...] = ()  # of PyTorch: library and name
    copies: bool = False  # the plain matrix goes, and a tied head is held twice


def _by_columns(linear: Linear, _batch: int) -> None:
    if linear.weight is not None:
        linear.weight = nn.Parameter(linear.weight.t().contiguous().t(), requires_grad=False)


def _onednn(linear: Linear, batch: int) -> None:
    if linear.weight is None:
        return
    packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), batch)
    linear.replace_weight(lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, linear.bias, "none", [], ""))


def _fbgemm(linear: Linear, _batch: int) -> None:
    weight = linear.weight
    if weight is None or not _fits_fp16(weight):
        return
    bias = None if linear.bias is None else linear.bias.float()
    packed = torch.ops.quantized.linear_prepack_fp16(weight.detach().float(), bias)
    linear.replace_weight(lambda x: torch.ops.quantized.linear_dynamic_fp16(x.float(), packed).to(x.dtype))


def _fits_fp16(weight: Tensor) -> bool:
    return bool((weight.half().to(weight.dtype) - weight).abs().max() <= FP16_STEP)


HALF = (torch.bfloat16, torch.float16)
LAYOUTS = {
    "rows": Layout(lambda _linear, _batch: None, (torch.float32, *HALF)),
    # in 16 bit PyTorch's product over columns is many times slower, and rounds otherwise
    "columns": Layout(_by_columns, (torch.float32,)),
    "onednn": Layout(
        _onednn,
        (torch.float32, *HALF),
        (("mkldnn", "_reorder_linear_weight"), ("mkldnn", "_linear_pointwise")),
        copies=True,
    ),
    "fbgemm": Layout(
        _fbgemm, HALF, (("quantized", "linear_prepack_fp16"), ("quantized", "linear_dynamic_fp16")), copies=True
    ),
}


def packed_elements(layout: str, rows: int, columns: int) -> int:
    """Elements that a matrix takes in this order."""
    if layout == "fbgemm":
        blocks = ceil_div(rows, FBGEMM_ROWS) * ceil_div(columns, FBGEMM_COLUMNS)
        return int(blocks * FBGEMM_ROWS * FBGEMM_COLUMNS)
    return rows * columns


def swells(layout: str, rows: int, columns: int) -> bool:
    """Whether the matrix would take so much more that it no longer shows the model's size."""
    return packed_elements(layout, rows, columns) > MOST_PADDED * rows * columns


def obstacle(layout: str, place: Place) -> str | None:
    """Why this order cannot be used with this device and format, or None."""
    needs = LAYOUTS[layout]
    if layout == "rows":
        return None
    if place.device.type != "cpu":
        return "weights are put in another order on a CPU only"
    if place.dtype not in needs.dtypes:
        return f"not for {str(place.dtype).partition('.')[2]}"
    if not all(_has(*operator) for operator in needs.operators):
        return f"PyTorch {torch.__version__} does not have it"
    try:
        return None if _agrees(layout, place) else "it gave other results on this machine"
    except RuntimeError as error:
        return str(error).splitlines()[0]


def possible(place: Place, layouts: Iterable[str] = LAYOUTS) -> list[str]:
    """Those of the orders that can be used with this device and format."""
    return [name for name in layouts if obstacle(name, place) is None]


def _has(library: str, name: str) -> bool:
    operators: Any = getattr(torch.ops, library)
    return hasattr(operators, name)


def _agrees(layout: str, place: Place) -> bool:
    x = torch.arange(128, device=place.device, dtype=place.dtype).view(2, 64)  # whole numbers: no rounding
    weight = torch.eye(64, device=place.device, dtype=place.dtype).roll(1, 0)
    linear = filled(Linear(64, 64, place), weight)
    LAYOUTS[layout].arrange(linear, 1)
    return torch.equal(functional.linear(x, weight), linear(x))


def filled(linear: Linear, values: Tensor) -> Linear:
    """The layer with these weights."""
    if linear.weight is not None:
        linear.weight.copy_(values)
    return linear
