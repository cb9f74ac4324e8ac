"""The functions on numbers: they take ints and NumPy integer arrays alike, so a grid runs the lines of an estimate.

Domain: bytes up to 2^50 on one GPU, contexts up to 2^32 tokens (`units.MAX_TOKENS`); larger is refused at the edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Number = Any  # an int or an integer ndarray; the functions are the same for both


class Charge(NamedTuple):
    """What a group of layers charges one session: `units` for every block of `block` tokens it holds."""

    units: int
    limit: int | None = None  # tokens held at most; None grows without end
    block: int = 1
    extra: int = 0  # blocks charged beside those that hold tokens


def ceil_div(count: Number, size: Number) -> Number:
    """Whole pieces of `size` that hold `count`."""
    return -(-count // size)


def at_most(value: Number, limit: int | None) -> Number:
    """min(value, limit) without branching on arrays; no limit leaves the value."""
    if limit is None:
        return value
    return value - (value - limit) * (value > limit)


def session_units(charges: Sequence[Charge], fixed: int, context: Number) -> Number:
    """Units that one session of `context` tokens takes: blocks of every group, and what does not depend on tokens."""
    return sum(
        (charge.units * (ceil_div(at_most(context, charge.limit), charge.block) + charge.extra) for charge in charges),
        fixed + 0 * context,
    )


def whole_sessions(pool_units: Number, units: Number) -> Number:
    """Sessions of `units` each that fit in the pool; none when the pool is negative or a session takes nothing."""
    fits = (pool_units > 0) & (units > 0)
    return (pool_units * fits) // (units + (units == 0))


def tokens_held(pool_units: Number, units: Number, context: Number) -> Number:
    """floor(pool / units * context), quotient first so that the product stays small."""
    fits = (pool_units > 0) & (units > 0)
    pool, units = pool_units * fits, units + (units == 0)
    return pool // units * context + pool % units * context // units


def longest_context(charges: Sequence[Charge], fixed: int, pool_units: int, ceiling: int) -> int | None:
    """The most tokens one session can hold, at most `ceiling`; None when memory sets no limit (only windows)."""
    if session_units(charges, fixed, 1) > pool_units:
        return 0
    if session_units(charges, fixed, ceiling) <= pool_units:
        return ceiling if any(charge.limit is None for charge in charges) else None
    low, high = 1, ceiling  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if session_units(charges, fixed, middle) <= pool_units:
            low = middle
        else:
            high = middle
    return low
