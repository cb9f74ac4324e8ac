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
CLAMP, SHARPNESS = 7.0, 1.702  # gpt-oss: openai/gpt-oss, gpt_oss/torch/model.py


def clamped_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """SwiGLU of gpt-oss: bounded, with a sharper SiLU, and one added to the linear half."""
    gate = gate.clamp(max=CLAMP)
    inner = (gate * SHARPNESS).sigmoid_().mul_(gate)
    del gate
    return up.clamp(-CLAMP, CLAMP).add_(1).mul_(inner)


class Mlp(nn.Module):
    """(act(x W1) * (x V)) W2 (Shazeer 2020; SwiGLU with act = SiLU), or act(x W1) W2 without a gate."""

    def __init__(
        self, hidden: int, inner: int, activation: str, place: Place, *, gated: bool = True, bias: bool = False
    ) -> None:
        super().__init__()
        self.hidden, self.inner, self.gated = hidden, inner, gated
        self.clamped = activation == "clamped_swiglu"
        self.activation = ACTIVATIONS["silu" if self.clamped else activation]
        self.up = Linear((2 if gated else 1) * inner, hidden, place, bias=bias)  # gate rows first, then up
        self.down = Linear(hidden, inner, place, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., M) to (..., M)."""
        h = self.up(x)  # (..., 2F), or (..., F)
        if not self.gated:
            return self.down(self.activation(h))
        gate, up = h.chunk(2, dim=-1)
        return self.down(clamped_swiglu(gate, up) if self.clamped else self.activation(gate) * up)
