"""The numeric axes of a grid, cut into blocks of rows: what goes along one axis only is computed once for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.arithmetic import Number, ceil_div
from kvplan.errors import InputError, MissingPackageError
from kvplan.planning.axes import NUMBERS
from kvplan.planning.scenario import DEFAULT_CONTEXT
from kvplan.units import MAX_TOKENS

if TYPE_CHECKING:
    import numpy as np

    Values = range | np.ndarray

MOST = {"max_seqs": 10**15, "sessions": 10**15, "context": MAX_TOKENS}


class Asked(NamedTuple):
    """The numbers of a block of rows: each an int, or an array that reaches along its own axis of the block."""

    max_seqs: Number | None
    sessions: Number | None
    context: Number
    shape: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of the block."""
        return prod(self.shape)

    def column(self, value: Any) -> Any:
        """A number of the block as a column: one value for all rows, or an array with one for each."""
        if not hasattr(value, "dtype"):
            return value
        if value.size != self.rows:
            import numpy as np

            whole = np.empty(self.shape, value.dtype)
            whole[...] = value
            value = whole
        return value.reshape(-1)


class NumberAxes:
    """The product of the three axes, in blocks, without ever being whole."""

    def __init__(self, axes: Mapping[str, Sequence[Any]]) -> None:
        self._given = {name: axes[name] for name in NUMBERS if name in axes}
        for name, values in self._given.items():
            _check(name, values)
        self.lengths = tuple(len(self._given.get(name, (None,))) for name in NUMBERS)

    @cached_property
    def _values(self) -> list[Values | None]:
        """Ranges as they are, lists as arrays; None where nothing was given."""
        np = _numpy()
        axes = (self._given.get(name) for name in NUMBERS)
        found = [a if a is None or isinstance(a, range) else np.array(a, dtype=np.int64) for a in axes]
        return [*found[:2], range(DEFAULT_CONTEXT, DEFAULT_CONTEXT + 1) if found[2] is None else found[2]]

    def blocks(self, rows: int, shortest: int, longest: int) -> Iterator[tuple[Asked, bool]]:
        """The rows in order, at most `rows` at a time, and whether all contexts of a block are within the bounds."""
        contexts = self._values[2]
        assert contexts is not None
        ends = (contexts[0], contexts[-1]) if isinstance(contexts, range) else (contexts.min(), contexts.max())
        if shortest <= min(ends) and max(ends) <= longest:
            yield from ((block, True) for block in self._blocks(rows))
            return
        for start in range(0, prod(self.lengths), rows):
            block = self._flat(start, min(start + rows, prod(self.lengths)))
            yield from _runs(block, (block.context >= shortest) & (block.context <= longest))

    def _blocks(self, rows: int) -> Iterator[Asked]:
        """Blocks that are cut along the outermost axis that must be: inner axes whole, outer ones a single value."""
        outer, middle, inner = self.lengths
        sizes = (max(1, rows // (middle * inner)), max(1, min(middle, rows // inner)), min(inner, rows))
        for first in _cuts(outer, sizes[0]):
            for second in _cuts(middle, sizes[1]):
                for third in _cuts(inner, sizes[2]):
                    cuts = (first, second, third)
                    parts = (_part(values, cut) for values, cut in zip(self._values, cuts, strict=True))
                    max_seqs, sessions, context = (_along(part, 2 - axis) for axis, part in enumerate(parts))
                    yield Asked(max_seqs, sessions, context, tuple(len(cut) for cut in cuts))

    def _flat(self, start: int, stop: int) -> Asked:
        """Rows start to stop with a number of their own in each axis, for those of which some are refused."""
        np = _numpy()
        outer, inner = np.divmod(np.arange(start, stop), self.lengths[2])
        first, second = np.divmod(outer, self.lengths[1])
        max_seqs, sessions, context = map(_at, self._values, (first, second, inner))
        return Asked(max_seqs, sessions, context, (stop - start,))


def _check(name: str, values: Sequence[Any]) -> None:
    """Raise InputError for what is not a whole number in the range of the option."""
    option = "--" + name.replace("_", "-")
    ends = (values[0], values[-1]) if isinstance(values, range) and values else values
    for value in ends:
        if type(value) is not int or value < 1:
            raise InputError(f"{option}: expected a whole number of at least 1, got {value!r}")
        if value > MOST[name]:
            raise InputError(f"{option}: {value} is more than {MOST[name]:,}")


def _cuts(length: int, size: int) -> list[range]:
    """An axis in pieces of about the same length, at most `size`."""
    even = ceil_div(length, ceil_div(length, size))
    return [range(start, min(start + even, length)) for start in range(0, length, even)]


def _part(values: Values | None, cut: range) -> Values | None:
    return None if values is None else values[cut.start : cut.stop]


def _at(values: Values | None, index: np.ndarray) -> np.ndarray | None:
    if isinstance(values, range):
        return values.start + values.step * index
    return None if values is None else values[index]


def _along(values: Values | None, inner_axes: int) -> Number | None:
    """A single value as an int, several as an array along their axis of the block."""
    if values is None or len(values) == 1:
        return None if values is None else int(values[0])
    np = _numpy()
    array = np.arange(values.start, values.stop, values.step) if isinstance(values, range) else values
    return array.reshape(-1, *(1,) * inner_axes)


def _runs(block: Asked, good: np.ndarray) -> Iterator[tuple[Asked, bool]]:
    """Runs of rows that are all within the bounds, or all not."""
    cuts = [0, *((good[1:] != good[:-1]).nonzero()[0] + 1).tolist(), len(good)]
    for start, stop in pairwise(cuts):
        max_seqs, sessions, context = (None if part is None else part[start:stop] for part in block[:3])
        yield Asked(max_seqs, sessions, context, (stop - start,)), bool(good[start])


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError:
        raise MissingPackageError("a grid needs numpy: pip install 'kvplan[report]'") from None
    return np
