"""Feed-forward blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.place import Place

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class Mlp(nn.Module):
    """(act(x W1) * (x V)) W2 (Shazeer 2020; SwiGLU with act = SiLU), or act(x W1) W2 without a gate."""

    def __init__(
        self, hidden: int, inner: int, activation: str, place: Place, *, gated: bool = True, bias: bool = False
    ) -> None:
        super().__init__()
        self.hidden, self.inner, self.gated = hidden, inner, gated
        self.activation = ACTIVATIONS[activation]
        self.up = Linear((2 if gated else 1) * inner, hidden, place, bias=bias)  # gate rows first, then up
        self.down = Linear(hidden, inner, place, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., M) to (..., M)."""
        h = self.up(x)  # (..., 2F), or (..., F)
        if not self.gated:
            return self.down(self.activation(h))
        gate, up = h.chunk(2, dim=-1)
        return self.down(self.activation(gate) * up)
