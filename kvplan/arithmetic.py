"""The functions on numbers: they take ints and NumPy integer arrays alike, so a grid runs the lines of an estimate.

Domain: pools and sessions up to 2^50 units, contexts up to 2^32 tokens (`units.MAX_TOKENS`); larger is refused at the
edge, because int64 would overflow in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Number = Any  # an int or an integer ndarray; the functions are the same for both

MAX_UNITS = 2**50


class Charge(NamedTuple):
    """What a group of layers charges one session: `units` for every block of `block` tokens it holds."""

    units: int
    limit: int | None = None  # tokens held at most; None grows without end
    block: int = 1
    extra: int = 0  # blocks charged beside those that hold tokens


def ceil_div(count: Number, size: Number) -> Number:
    """Whole pieces of `size` that hold `count`."""
    return (count + (size - 1)) // size


def select(condition: Number, yes: Number, no: Number) -> Number:
    """`yes` where the condition holds, else `no`; one of them as it is where it decides for every row."""
    if isinstance(condition, int):
        return yes if condition else no
    if not condition.any():
        return no
    if condition.all():
        return yes
    import numpy as np  # the condition is an array, so it is loaded already

    return np.where(condition, yes, no)


def at_most(value: Number, limit: Number | None) -> Number:
    """min(value, limit) of ints and arrays; no limit leaves the value."""
    if limit is None:
        return value
    if isinstance(value, int) and isinstance(limit, int):
        return min(value, limit)
    import numpy as np  # one of the two is an array, so it is loaded already

    return np.minimum(value, limit)


def session_units(charges: Sequence[Charge], fixed: int, context: Number) -> Number:
    """Units that one session of `context` tokens takes: blocks of every group, and what does not depend on tokens."""
    parts = [charge.units * _blocks(charge, context) for charge in charges] or [0 * context]
    units = sum(parts[1:], parts[0])
    return units + fixed if fixed else units


def _blocks(charge: Charge, context: Number) -> Number:
    held = at_most(context, charge.limit)
    held = held if charge.block == 1 else ceil_div(held, charge.block)
    return held + charge.extra if charge.extra else held


def last_token_units(charges: Sequence[Charge], context: Number) -> Number:
    """What the last token of the context added, without blocks: the units of every group that still grows."""
    growing = 0 * context + sum(charge.units for charge in charges if charge.limit is None)
    for charge in charges:
        if charge.limit is not None:
            growing = growing + charge.units * (context <= charge.limit)
    return growing


def whole_sessions(pool_units: Number, units: Number) -> Number:
    """Sessions of `units` each, at least 1, that fit in a pool of at most MAX_UNITS; none when it is negative."""
    return _quotient(select(pool_units > 0, pool_units, 0), units)


def _quotient(part: Number, whole: Number) -> Number:
    """floor(part / whole) of a part from 0 to 2^52, and a whole of at least 1.

    A double rounds the quotient up to a whole number k only where k * whole comes near 2^53, which is more than part +
    whole here, or k is 1 and they differ too much: so this is exact, and quicker than int64's own division.
    """
    if isinstance(part, int) and isinstance(whole, int):
        return part // whole
    return (part / whole).astype("int64")


def tokens_held(pool_units: Number, units: Number, context: Number, sessions: Number | None = None) -> Number:
    """floor(pool * context / units): whole sessions first, then the part of one that the rest of the pool holds."""
    if sessions is None:
        sessions = whole_sessions(pool_units, units)
    rest = select(pool_units > 0, pool_units, 0) - sessions * units
    return sessions * context + _scaled_part(rest, context, units)


def _scaled_part(part: Number, context: Number, units: Number) -> Number:
    """floor(part * context / units) for part < units: long division by 8 bits at a time where int64 would overflow."""
    if isinstance(part, int) and isinstance(context, int):
        return part * context // units
    largest = _largest(part) * _largest(context)
    if largest < 2**63:
        return _quotient(part * context, units) if largest < 2**52 else part * context // units
    held, rest = 0 * part, 0 * part
    for shift in (24, 16, 8, 0):  # contexts have up to 32 bits; 2^32 itself is the first digit 256
        rest = rest * 256 + part * (context >> shift if shift == 24 else context >> shift & 255)
        held = held * 256 + rest // units
        rest = rest % units
    return held


def _largest(values: Number) -> int:
    return values if isinstance(values, int) else int(values.max(initial=0))


def pick(values: Sequence[Any], index: Number) -> Any:
    """values[index], for one index or an array of them."""
    if isinstance(index, int):
        return values[index]
    import numpy as np  # index is an array, so it is loaded already

    return np.asarray(values)[index]


def for_each_value(function: Callable[[int], int], values: Number) -> Number:
    """The function of every value, computed once for each distinct one: for what cannot be written as arithmetic."""
    if isinstance(values, int):
        return function(values)
    import numpy as np  # values is an array, so it is loaded already

    distinct, where = np.unique(values, return_inverse=True)
    return np.array([function(int(value)) for value in distinct], dtype=np.int64)[where]


NO_LIMIT = -1  # of the longest context: memory sets none


def longest_context(charges: Sequence[Charge], fixed: int, pool_units: int, ceiling: int) -> int:
    """The most tokens one session can hold, at most `ceiling`; NO_LIMIT when memory sets none (only windows)."""
    if session_units(charges, fixed, 1) > pool_units:
        return 0
    if session_units(charges, fixed, ceiling) <= pool_units:
        return ceiling if any(charge.limit is None for charge in charges) else NO_LIMIT
    low, high = 1, ceiling  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if session_units(charges, fixed, middle) <= pool_units:
            low = middle
        else:
            high = middle
    return low
