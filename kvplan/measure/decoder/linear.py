"""A linear layer whose weights can lie in the order that this machine multiplies fastest."""

from __future__ import annotations

from collections.abc import Callable

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
        self.product: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(..., columns) to (..., rows)."""
        return functional.linear(x, self.weight, self.bias) if self.product is None else self.product(x)

    def replace_weight(self, product: Callable[[Tensor], Tensor]) -> None:
        """Let `product`, which holds the weights, do the work; the plain matrix is freed unless held elsewhere."""
        self.product, self.weight = product, None
