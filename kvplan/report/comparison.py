"""Scenarios side by side, the first one as the base: what differs, and what that changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kvplan.report.console import WIDTH, grid, plain
from kvplan.report.inputs import INPUTS, same, varying_inputs
from kvplan.report.words import Row, human, printable, subject

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

_NAMES = frozenset(("model", "gpu", "engine", "engine_version", "weight_scheme", "kv_dtype", "attention"))
_REFUSED = "refused"

Column = tuple[str, bool, Callable[[Row], str]]  # header, whether right-aligned, cell


def comparison_table(rows: Sequence[Row], *, width: int = WIDTH) -> str:
    """The rows as a plain text table; too many columns for the width go into a second one."""
    return plain(comparison_view(rows, width=width), width)


def comparison_view(rows: Sequence[Row], *, width: int = WIDTH) -> Group:
    """What is the same above, what differs and its results in a table, why a row was refused below."""
    from rich.console import Group
    from rich.text import Text

    varying = varying_inputs(rows)
    common = {key: value for key, value in _first(rows).items() if same(rows, key)} if rows else {}
    parts: list[RenderableType] = [Text(line, "bold" if i == 0 else "") for i, line in enumerate(subject(common))]
    left = [_input(key) for key in varying]
    numbered = any("error" in row for row in rows)
    for columns in _fitted(rows, left, _results(rows), numbered, width):
        parts += ["", _table(rows, columns, width)]
    reasons = [(index, row) for index, row in enumerate(rows, 1) if "error" in row]
    if reasons:
        parts += ["", _reasons(reasons, varying)]
    if len(rows) > 1:
        same_length = " of the same context" if _asked(rows[0], rows) and not same(rows, "context_tokens") else ""
        parts += ["", Text(f"factor: conversations against the first row{same_length}", "dim")]
    return Group(*parts)


def _first(rows: Sequence[Row]) -> Row:
    """The first row that was estimated, else the first."""
    return next((row for row in rows if "error" not in row), rows[0])


def _input(key: str) -> Column:
    return INPUTS[key], key not in _NAMES, lambda row: human(key, row.get(key))


def _results(rows: Sequence[Row]) -> list[Column]:
    columns: list[Column] = [
        ("weights per GPU", True, lambda row: human("weights_bytes", row.get("weights_bytes"))),
        ("KV per conversation", True, lambda row: human("kv_bytes_per_session", row.get("kv_bytes_per_session"))),
        ("conversations", True, lambda row: human("max_sessions", row.get("max_sessions"))),
        ("longest context", True, _longest),
    ]
    if not all(row.get("fits") for row in rows):
        columns.append(("fits", False, _fits))
    if len(rows) > 1:
        bases = _bases(rows)
        columns.append(("factor", True, lambda row: _factor(row.get("max_sessions"), bases.get(_asked(row, rows)))))
    return columns


def _asked(row: Row, rows: Sequence[Row]) -> Any:
    """The context of a row where other choices vary too: alternatives are compared at one length."""
    several = any(key not in ("context_tokens", "max_model_len") for key in varying_inputs(rows))
    return row.get("context_tokens") if several else None


def _bases(rows: Sequence[Row]) -> dict[Any, int | None]:
    """The sessions of the first row of each context."""
    bases: dict[Any, int | None] = {}
    for row in rows:
        bases.setdefault(_asked(row, rows), row.get("max_sessions"))
    return bases


def _longest(row: Row) -> str:
    if "error" in row:
        return "-"
    tokens = row.get("max_context_tokens")
    return "no limit" if tokens is None else human("max_context_tokens", tokens)


def _fits(row: Row) -> str:
    if "error" in row:
        return _REFUSED
    if row.get("fits"):
        return "yes"
    return "no: more asked for" if row.get("max_sessions") else f"no: {printable(str(row.get('limited_by')))}"


def _factor(sessions: int | None, base: int | None) -> str:
    return "-" if sessions is None or not base else f"x{sessions / base:,.2f}"


def _fitted(
    rows: Sequence[Row], left: list[Column], right: list[Column], numbered: bool, width: int
) -> list[list[Column]]:
    """One table where it fits the width, else the choices and the results apart, rows numbered in both."""
    numbers = {id(row): str(index) for index, row in enumerate(rows, 1)}
    number: Column = ("#", True, lambda row: numbers[id(row)])
    whole = [*([number] if numbered else []), *left, *right]
    if not left or None not in _widths(rows, whole, width):
        return [whole]
    return [[number, *left], [number, *right]]


def _table(rows: Sequence[Row], columns: list[Column], width: int) -> Table:
    from rich.text import Text

    table = grid(*(header for header, _, _ in columns), right=frozenset(i for i, c in enumerate(columns) if c[1]))
    for column, least in zip(table.columns, _widths(rows, columns, width), strict=True):
        column.no_wrap, column.vertical, column.width = False, "bottom", least
    for row in rows:
        refused = "error" in row
        style = "dim" if refused else "" if row.get("fits") else "red"
        table.add_row(*(Text(cell(row), style) for _, _, cell in columns))
    return table


def _widths(rows: Sequence[Row], columns: list[Column], width: int) -> list[int | None]:
    """Widths with headers on one line, or wrapped where that is too wide, or left to the table."""
    wide = [_column_width(rows, column, [column[0]]) for column in columns]
    if _total(wide) <= width:
        return list(wide)
    narrow = [_column_width(rows, column, column[0].split()) for column in columns]
    return list(narrow) if _total(narrow) <= width else [None] * len(columns)


def _column_width(rows: Sequence[Row], column: Column, header: list[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, [*header, *map(column[2], rows)]))


def _total(widths: list[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _reasons(refused: list[tuple[int, Row]], varying: list[str]) -> Table:
    """Why rows were refused, by number and by what sets them apart."""
    from rich.text import Text

    table = grid("", "", head=False)
    table.columns[0].no_wrap = True
    keys = dict.fromkeys((*varying, "attention"))  # only a refused row may have been given one
    for index, row in refused:
        reason = printable(str(row["error"]))
        told = [(key, human(key, row[key])) for key in keys if row.get(key) is not None]
        choices = ", ".join(f"{INPUTS[key]} {value}" for key, value in told if not _says(reason, value))
        table.add_row(f"# {index}", Text(f"{choices}: {reason}" if choices else reason))
    return table


def _says(text: str, value: str) -> bool:
    """Whether the text holds the value as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None
