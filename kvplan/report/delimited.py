"""CSV by RFC 4180 with "\\n" line ends, safe to open in a spreadsheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvplan.report.flat import columns, flat, raw

if TYPE_CHECKING:
    from kvplan.report.words import Row

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")  # a spreadsheet would run the cell, or look past the start
_QUOTED = frozenset(',"\r\n')


def csv_text(rows: Sequence[Row]) -> str:
    """A header and one line a row; nothing where there are no rows."""
    cells = [flat(row) for row in rows]
    names = columns(cells)
    if not cells:
        return ""
    return line(names) + "".join(line([row.get(name) for name in names]) for row in cells)


def line(values: Sequence[Any]) -> str:
    """One row of cells."""
    # A line of nothing but one empty cell would be an empty line, which readers skip.
    return (",".join(map(cell, values)) or '""') + "\n"


def cell(value: Any) -> str:
    """One cell; only text is defused, so that negative numbers stay numbers."""
    text = raw(value)
    if isinstance(value, str) and text.startswith(_FORMULA_STARTS):
        text = f"'{text}"
    return quoted(text)


def quoted(text: str) -> str:
    """The text as a cell, in quotes where it needs them."""
    if _QUOTED.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'
