"""Rows by the thousand as columns: one value for all of them, an array, or an index into few values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

SLICE = 16_384  # rows that are written at once


class Chunk(Protocol):
    """What is streamed: a number of rows, and columns as described above."""

    @property
    def rows(self) -> int:
        """How many."""

    @property
    def columns(self) -> dict[str, Any]:
        """Values by name; a name may be absent."""


class Coded(NamedTuple):
    """A column of few values: an index into them for each row. Any tuple with these names will do."""

    codes: Any
    texts: tuple[Any, ...]


class Part(NamedTuple):
    """Some rows with every column: a plain value, an integer or bool array (masked where unknown), or Coded."""

    rows: int
    columns: dict[str, Any]


def parts_of(chunks: Iterable[Chunk], names: Sequence[str], nulls: Mapping[str, int]) -> Iterator[Part]:
    """The chunks with all the columns and no others; `nulls` says which number of a column stands for unknown."""
    for chunk in chunks:
        columns = {name: chunk.columns.get(name) for name in names}
        for name, null in nulls.items():
            columns[name] = _masked(columns[name], null)
        yield Part(chunk.rows, columns)


def _masked(value: Any, null: int) -> Any:
    if not is_array(value):
        return None if value == null else value
    mask = value == null
    if not mask.any():
        return value
    import numpy as np  # the value is an array, so it is loaded already

    return np.ma.MaskedArray(value, mask)


def is_array(column: Any) -> bool:
    """Whether the column has a number for each row."""
    return hasattr(column, "dtype")


def is_coded(column: Any) -> bool:
    """Whether the column is an index into few values."""
    return hasattr(column, "codes")


def is_single(column: Any) -> bool:
    """Whether the column is one value for all rows."""
    return not is_array(column) and not is_coded(column)


def values(column: Any, rows: int) -> list[Any]:
    """The column in plain Python values."""
    if is_coded(column):
        return [column.texts[code] for code in column.codes.tolist()]
    found: list[Any] = column.tolist() if is_array(column) else [column] * rows
    return found


def rows_of(part: Part) -> Iterator[dict[str, Any]]:
    """One dict a row, in plain Python values."""
    names = list(part.columns)
    for row in zip(*(values(column, part.rows) for column in part.columns.values()), strict=True):
        yield dict(zip(names, row, strict=True))


def take(part: Part, index: Any, rows: int) -> Part:
    """The rows at an array of indices, or in a slice."""
    return Part(rows, {name: _taken(column, index) for name, column in part.columns.items()})


def _taken(column: Any, index: Any) -> Any:
    if is_coded(column):
        return Coded(column.codes[index], column.texts)
    return column[index] if is_array(column) else column


def slices(part: Part, rows: int = SLICE) -> Iterator[Part]:
    """The part cut into pieces of at most `rows`."""
    for start in range(0, part.rows, rows):
        stop = min(start + rows, part.rows)
        yield take(part, slice(start, stop), stop - start)


def gathered(parts: Iterable[Part], rows: int) -> Iterator[Part]:
    """The parts joined until they have at least `rows` rows."""
    waiting: list[Part] = []
    held = 0
    for part in parts:
        waiting.append(part)
        held += part.rows
        if held >= rows:
            yield join(waiting)
            waiting, held = [], 0
    if waiting:
        yield join(waiting)


def join(parts: Sequence[Part]) -> Part:
    """One part with the rows of all; a column stays a single value where it is the same in each."""
    if len(parts) == 1:
        return parts[0]
    lengths = [part.rows for part in parts]
    names = parts[0].columns
    return Part(sum(lengths), {name: _joined([part.columns[name] for part in parts], lengths) for name in names})


def _joined(columns: list[Any], lengths: list[int]) -> Any:
    if any(is_array(column) for column in columns):
        return _dense(columns, lengths)
    if all(is_single(column) and column == columns[0] for column in columns):
        return columns[0]
    import numpy as np

    known: dict[Any, int] = {}
    codes = np.empty(sum(lengths), dtype=np.int32)
    start = 0
    for column, length in zip(columns, lengths, strict=True):
        texts = column.texts if is_coded(column) else (column,)
        places = np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int32)
        codes[start : start + length] = places[column.codes] if is_coded(column) else places[0]
        start += length
    return Coded(codes, tuple(known))


def _dense(columns: list[Any], lengths: list[int]) -> Any:
    """An array with a value for each row, masked where one is unknown."""
    import numpy as np

    kind = next(column.dtype for column in columns if is_array(column))
    found, mask = np.zeros(sum(lengths), dtype=kind), np.zeros(sum(lengths), dtype=bool)
    start = 0
    for column, length in zip(columns, lengths, strict=True):
        place = slice(start, start + length)
        start += length
        if is_coded(column):
            unknown = np.array([text is None for text in column.texts])
            mask[place] = unknown[column.codes]
            found[place] = np.array([text or 0 for text in column.texts], dtype=kind)[column.codes]
        elif is_array(column):
            found[place] = np.ma.getdata(column)
            mask[place] = np.ma.getmaskarray(column)
        elif column is None:
            mask[place] = True
        else:
            found[place] = column
    return np.ma.MaskedArray(found, mask) if mask.any() else found
