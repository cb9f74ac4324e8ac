"""Rotary positions (Su et al. 2021), half-split as in Hugging Face transformers, and how they are stretched."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kvplan.measure.decoder.numerics import Numerics
from kvplan.measure.decoder.place import Place
from kvplan.specs.layers import Layer, Rope

# Llama 3.1 (Grattafiori et al. 2024): wavelengths above original / LOW are stretched, below original / HIGH kept.
LLAMA3_LOW, LLAMA3_HIGH = 1.0, 4.0
# YaRN (Peng et al. 2023): dimensions that turn more than FAST times within the original length are kept, those that
# turn less than SLOW times stretched; the softmax is sharpened by (0.1 ln(factor) + 1)^2.
YARN_FAST, YARN_SLOW = 32.0, 1.0
SCALINGS = (None, "linear", "llama3", "yarn")


def frequencies(rope: Rope, dim: int, *, whole_pairs: bool = True) -> Tensor:
    """Radians a position, one for each pair of elements: (dim / 2,) in fp32."""
    plain = rope.theta ** -(torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    factor, original = rope.factor or 1.0, rope.original_context or 0
    if rope.scaling == "linear":
        return plain / factor  # positional interpolation (Chen et al. 2023): positions divided by the factor
    if rope.scaling == "llama3":
        turns = original * plain / (2 * math.pi)  # turns within the original length
        kept = ((turns - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW)).clamp(0, 1)
        return kept * plain + (1 - kept) * plain / factor
    if rope.scaling == "yarn":
        low, high = _yarn_range(rope.theta, dim, original)
        if whole_pairs:
            low, high = math.floor(low), math.ceil(high)
        kept = 1 - _ramp(max(low, 0), min(high, dim - 1), dim // 2)
        return kept * plain + (1 - kept) * plain / factor
    return plain


def amplitude(rope: Rope, numerics: Numerics) -> float:
    """What cos and sin are multiplied by."""
    return _yarn_scale(rope, numerics.mscale) / _yarn_scale(rope, numerics.mscale_all_dim)


def sharpness(rope: Rope, numerics: Numerics) -> float:
    """What the scores of a latent are multiplied by: only a part of its heads turns, so cos and sin cannot do it."""
    return _yarn_scale(rope, numerics.mscale_all_dim) ** 2


def _yarn_scale(rope: Rope, share: float) -> float:
    return 0.1 * share * math.log(max(rope.factor, 1.0)) + 1 if rope.scaling == "yarn" and rope.factor else 1.0


def rotary(layer: Layer, default: Rope | str | None) -> tuple[Rope, int] | None:
    """A layer's rotary positions and the elements of a head that turn; None without."""
    a, m = layer.attention, layer.latent
    rope = (a.rope if a else None) or default or Rope()
    if not isinstance(rope, Rope):
        return None
    width = m.rope_dim if m else rope.dim or a.head_dim if a else 0
    return (rope, width) if width else None


def _yarn_range(theta: float, dim: int, original: int) -> tuple[float, float]:
    """The pairs between which stretching sets in: those that turn FAST and SLOW times in the original length."""

    def pair_that_turns(times: float) -> float:
        return dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    return pair_that_turns(YARN_FAST), pair_that_turns(YARN_SLOW)


def _ramp(low: float, high: float, size: int) -> Tensor:
    """0 up to `low`, 1 from `high` on, a line between."""
    span = max(high - low, 0.001)  # a step where both are the same pair
    return ((torch.arange(size, dtype=torch.float32) - low) / span).clamp(0, 1)


def cos_sin(speeds: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Tables (T, 1, 2 x pairs): both halves have the same angles; the first half of sin is negative."""
    angles = torch.outer(positions.to(torch.float32), speeds)  # (T, pairs)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1).unsqueeze(1), torch.cat((-sin, sin), dim=-1).unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair (x[i], x[i + dim / 2]) turned by its angle; elements beyond the rotary width pass unchanged."""
    dim = cos.shape[-1]
    if dim < x.shape[-1]:
        return torch.cat((rotate(x[..., :dim], cos, sin), x[..., dim:]), dim=-1)
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((second, first), dim=-1), sin)


def neighbours_apart(x: Tensor) -> Tensor:
    """Pairs (x[2i], x[2i + 1]) to the places i and i + dim / 2 that `rotate` turns together."""
    return torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)


class RopeTable:
    """cos and sin of the positions a cache may reach, computed once."""

    def __init__(self, rope: Rope, dim: int, place: Place, numerics: Numerics | None = None) -> None:
        numerics = numerics or Numerics()
        self.speeds, self.place = frequencies(rope, dim, whole_pairs=numerics.whole_pairs), place
        self.amplitude = amplitude(rope, numerics)
        self.cos = self.sin = torch.empty(0, 1, dim, device=place.device, dtype=place.dtype)

    def reserve(self, positions: int) -> None:
        """Make the tables at least this long."""
        if positions > len(self.cos):
            tables = cos_sin(self.speeds, torch.arange(positions))
            self.cos, self.sin = ((t * self.amplitude).to(self.place.device, self.place.dtype) for t in tables)

    def at(self, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of these positions, ready to broadcast over (B, T, H, D)."""
        return self.cos[positions], self.sin[positions]

    @property
    def nbytes(self) -> int:
        """Bytes of both tables."""
        return int(self.cos.nbytes + self.sin.nbytes)
