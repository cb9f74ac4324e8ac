"""Lists of what there is (models, GPUs, engines), and the facts of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvplan.report.console import WIDTH, grid, plain
from kvplan.report.flat import columns as keys_of
from kvplan.report.words import Row, exact, human, printable

if TYPE_CHECKING:
    from rich.table import Table

INDENT = "  "


Columns = Mapping[str, str] | Sequence[str]  # keys, or keys with their headers


def listing_table(rows: Sequence[Row], columns: Columns | None = None, *, width: int = WIDTH) -> str:
    """The rows as plain text, with all their keys or the columns asked for."""
    return plain(listing_view(rows, columns), width)


def listing_view(rows: Sequence[Row], columns: Columns | None = None) -> Table:
    """One line a row; columns of numbers stand right, unknown is '-'."""
    from rich.text import Text

    keys = keys_of(rows) if columns is None else columns
    headers = dict(keys) if isinstance(keys, Mapping) else {key: _header(key) for key in keys}
    numbers = frozenset(i for i, key in enumerate(headers) if _numeric([row.get(key) for row in rows]))
    table = grid(*headers.values(), right=numbers)
    if table.columns:
        table.columns[0].no_wrap = True  # a name is looked for
    for row in rows:
        table.add_row(*(Text(human(key, row.get(key))) for key in headers))
    return table


def _header(key: str) -> str:
    """The key in words; cells of bytes bring their own unit."""
    return key.removesuffix("_bytes").replace("_", " ")


def _numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in known)


def facts(spec: Mapping[str, Any]) -> str:
    """One spec as `key: value` lines, what belongs together indented; unknown facts are left out."""
    return "".join(f"{line}\n" for line in _lines(spec))


def _lines(spec: Mapping[str, Any]) -> list[str]:
    known = {key: value for key, value in spec.items() if value not in (None, {}, [], ())}
    plain_keys = [str(key) for key, value in known.items() if not _nested(value)]
    width = max(map(len, plain_keys), default=0) + 1
    lines = []
    for key, value in known.items():
        name = f"{printable(str(key))}:"
        if _nested(value):
            lines += [name, *(INDENT + line for line in _inside(value))]
        else:
            lines.append(f"{name:{width}} {_fact(value)}")
    return lines


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list | tuple) and any(_nested(each) for each in value))


def _inside(value: Any) -> list[str]:
    """A mapping's lines, or a list's, each entry behind a dash."""
    if isinstance(value, Mapping):
        return _lines(value)
    lines = []
    for each in value:
        first, *rest = _inside(each) if _nested(each) else [_fact(each)]
        lines += [f"- {first}", *(INDENT + line for line in rest)]
    return lines


def _fact(value: Any) -> str:
    """A value as it stands in the spec: nothing is rounded."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return exact(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_fact, value))
    return printable("-" if value is None else str(value))
