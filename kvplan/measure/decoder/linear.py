"""A linear layer whose weights can lie in the order that this machine multiplies fastest."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from kvplan.measure.decoder.place import Place


class Linear(nn.Module):
    """y = x W^T + b."""

    def __init__(self, rows: int, columns: int, place: Place, *, bias: bool = False) -> None:
        super().__init__()
        self.rows, self.columns = rows, columns
        self.weight: nn.Parameter | None = place.empty(rows, columns)
        self.bias = place.empty(rows) if bias else None
        self.packed: Any = None

    def forward(self, x: Tensor) -> Tensor:
        """(..., columns) to (..., rows)."""
        if self.packed is None:
            return functional.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")

    def by_columns(self) -> None:
        """Keep the weights column by column; shape and values stay."""
        if self.weight is not None:
            self.weight = nn.Parameter(self.weight.t().contiguous().t(), requires_grad=False)

    def pack(self, batch: int) -> None:
        """Keep the weights only in oneDNN's order; the plain matrix is freed unless something else holds it."""
        if self.weight is not None:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), batch)
            self.weight = None
