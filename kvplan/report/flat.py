"""Rows flattened for tables: one cell a key, the engine's own figures prefixed, the ledger left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvplan.report.words import Row


PREFIX = "engine_"
LISTS = ("ledger", "tensors", "counts", "work")  # what stands behind a row's figures


def flat(row: Row) -> dict[str, Any]:
    """The row without its ledger and derivations, `engine_detail` as `engine_<key>` in its place."""
    cells: dict[str, Any] = {}
    for key, value in row.items():
        if key == "engine_detail" and isinstance(value, Mapping):
            cells |= {f"{PREFIX}{name}": each for name, each in value.items() if f"{PREFIX}{name}" not in row}
        elif key not in LISTS:
            cells[key] = value
    return cells


def columns(rows: Iterable[Row]) -> list[str]:
    """Every key of any row, in the order in which they are first seen."""
    return list(dict.fromkeys(key for row in rows for key in row))


def raw(value: Any) -> str:
    """A cell in base units: nothing for unknown, true or false, numbers with all their digits, lists as JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        import json

        return json.dumps(value, allow_nan=False)
    return str(value)
