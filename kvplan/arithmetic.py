"""The functions on numbers: they take ints and NumPy integer arrays alike, so a grid runs the lines of an estimate.

Domain: whole numbers from 0 to 2^53. Nothing here multiplies two of them without dividing first, so int64 holds.
"""

from __future__ import annotations

from typing import Any

Number = Any  # an int or an integer ndarray; the functions are the same for both


def ceil_div(count: Number, size: Number) -> Number:
    """Whole pieces of `size` that hold `count`."""
    return -(-count // size)


def at_most(value: Number, limit: int | None) -> Number:
    """min(value, limit) without branching on arrays; no limit leaves the value."""
    if limit is None:
        return value
    return value - (value - limit) * (value > limit)


def scaled(count: Number, numerator: Number, denominator: Number) -> Number:
    """floor(count * numerator / denominator), quotient first so that the product stays small."""
    return count // denominator * numerator + count % denominator * numerator // denominator
