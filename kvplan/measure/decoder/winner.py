"""Which of several ways that give the same result is worth taking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

WORTH = 0.95  # the usual way stays unless another takes less than this share of its time


def winner(seconds: Mapping[str, Sequence[float]], usual: str) -> str:
    """The way with the least geometric mean over what was timed, so that every case counts alike."""
    means = {name: prod(each) ** (1 / len(each)) for name, each in seconds.items()}
    best = min(means, key=lambda name: means[name])
    return best if means[best] < WORTH * means.get(usual, float("inf")) else usual
