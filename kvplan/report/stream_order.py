"""Streams in order: all rows sorted, or the best ones kept while the others pass by. Ties keep their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kvplan.errors import InputError, did_you_mean
from kvplan.report.stream_columns import Part, is_array, is_coded, join, take, values

SPARE = 65_536  # rows kept beside the best before they are weeded out


class Order(NamedTuple):
    """By which column; unknown values come last both ways."""

    column: str
    descending: bool = False


def parse_order(text: str, names: Sequence[str]) -> Order:
    """The order of a text such as max_sessions or max_sessions:desc; raises InputError for an unknown column."""
    column, colon, way = text.partition(":")
    if colon and way not in ("asc", "desc"):
        raise InputError(f"--sort '{text}': after the colon comes asc or desc, not '{way}'")
    if column not in names:
        raise InputError(f"--sort: unknown column '{column}'{did_you_mean(column, names)}; columns: {', '.join(names)}")
    return Order(column, way == "desc")


def best(parts: Iterable[Part], order: Order, top: int | None) -> Part:
    """The rows in order, the first `top` of them where it is given: then no more than those and some spare are kept."""
    kept: list[Part] = []
    rows, worst = 0, None
    for each in parts:
        part = each if worst is None else _before(each, order, worst)
        kept.append(part)
        rows += part.rows
        if top is not None and rows >= 2 * top + SPARE:
            kept = [_sorted(join(kept), order, top)]
            rows, worst = kept[0].rows, _last(kept[0], order)
    return _sorted(join(kept), order, top)


def _sorted(part: Part, order: Order, top: int | None) -> Part:
    import numpy as np

    keys, known = _keys(part, order)
    index = known.nonzero()[0]
    if order.descending:  # a stable sort of the rows back to front, read back to front
        back = index[::-1]
        placed = back[np.argsort(keys[back], kind="stable")][::-1]
    else:
        placed = index[np.argsort(keys[index], kind="stable")]
    found = np.concatenate([placed, (~known).nonzero()[0]])[:top]
    return take(part, found, len(found))


def _keys(part: Part, order: Order) -> tuple[Any, Any]:
    """A number for each row that sorts as its value does among these rows, and whether the value is known."""
    import numpy as np

    column = part.columns[order.column]
    if is_array(column):
        return np.ma.getdata(column), ~np.ma.getmaskarray(column)
    texts, codes = _coded(column, part.rows)
    places = {text: place for place, text in enumerate(sorted(text for text in texts if text is not None))}
    ranks = np.array([places.get(text, -1) for text in texts])[codes]
    return ranks, ranks >= 0


def _coded(column: Any, rows: int) -> tuple[tuple[Any, ...], Any]:
    """Few values, and which of them each row has."""
    import numpy as np

    return (column.texts, column.codes) if is_coded(column) else ((column,), np.zeros(rows, dtype=np.int64))


def _last(part: Part, order: Order) -> Any:
    """The value of the last row; None when it is unknown."""
    found = take(part, slice(part.rows - 1, part.rows), 1)
    return values(found.columns[order.column], 1)[0]


def _before(part: Part, order: Order, worst: Any) -> Part:
    """The rows that come before one with this value."""
    import numpy as np

    column = part.columns[order.column]
    if is_array(column):
        keys, known = _keys(part, order)
        sooner = known & (keys > worst if order.descending else keys < worst)
    else:
        texts, codes = _coded(column, part.rows)
        sooner = np.array([text is not None and (text > worst if order.descending else text < worst) for text in texts])
        sooner = sooner[codes]
    if sooner.all():
        return part
    index = sooner.nonzero()[0]
    return take(part, index, len(index))
