"""Norms of the residual stream and of queries and keys."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from kvplan.measure.decoder.numerics import Numerics
from kvplan.measure.decoder.place import Place
from kvplan.specs.layers import Attention

FEW_ROWS = 16  # a decode step; for more, the copies of x cost more than the kernels saved


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * g (Zhang and Sennrich 2019): no mean is subtracted."""

    def __init__(self, width: int, numerics: Numerics, place: Place) -> None:
        super().__init__()
        self.weight = place.empty(width)
        self.width, self.eps, self.offset = (width,), numerics.norm_eps, numerics.norm_offset

    def forward(self, x: Tensor) -> Tensor:
        """Normalised over the last axis."""
        weight = self.weight + self.offset if self.offset else self.weight
        if x.device.type == "cpu" and x.numel() <= FEW_ROWS * self.width[0]:
            return _few_rows(x, self.width[0], self.eps) * weight
        return functional.rms_norm(x, self.width, weight, self.eps)


def _few_rows(x: Tensor, width: int, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) as the layer norm of (x, -x), which has mean 0 and the same mean square.

    PyTorch 2.13 makes a layer norm one kernel on a CPU and an RMS norm five: a third of the time for a single token.
    """
    return functional.layer_norm(torch.cat((x, -x), dim=-1), (2 * width,), None, None, eps).narrow(-1, 0, width)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * g + b; the scale and the bias may be absent."""

    def __init__(self, width: int, numerics: Numerics, place: Place, *, scale: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.weight = place.empty(width) if scale else None
        self.bias = place.empty(width) if bias else None
        self.width, self.eps = (width,), numerics.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalised over the last axis."""
        return functional.layer_norm(x, self.width, self.weight, self.bias, self.eps)


class QKNorm(nn.Module):
    """RMS norms of queries and keys: one of head width, over the full width, or one for each head."""

    def __init__(self, a: Attention, numerics: Numerics, place: Place) -> None:
        super().__init__()
        self.kind, self.heads, self.width = a.qk_norm, a.heads, a.head_dim
        self.eps, self.offset = numerics.norm_eps, numerics.norm_offset
        sizes = (1, 1) if a.qk_norm == "head" else (a.heads, a.kv_heads)
        self.q_weight, self.k_weight = (place.empty(n * a.head_dim) for n in sizes)

    def forward(self, qk: Tensor) -> Tensor:
        """Queries and keys side by side, (B, T, H + K, D)."""
        q, k = qk.tensor_split((self.heads,), dim=2)
        return torch.cat((self._normed(q, self.q_weight), self._normed(k, self.k_weight)), dim=2)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        weight = weight + self.offset if self.offset else weight
        if self.kind == "full":
            return functional.rms_norm(x.flatten(2), weight.shape, weight, self.eps).view_as(x)
        if self.kind == "each":
            return functional.rms_norm(x, (self.width,), None, self.eps) * weight.view(-1, self.width)
        return functional.rms_norm(x, (self.width,), weight, self.eps)


def make_norm(kind: str, width: int, numerics: Numerics, place: Place) -> RMSNorm | LayerNorm:
    """The norm that a model file names."""
    if kind == "rms":
        return RMSNorm(width, numerics, place)
    return LayerNorm(width, numerics, place, scale=kind != "none", bias=kind == "layer")
