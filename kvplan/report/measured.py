"""Predicted beside observed, for people: memory first, then time, then what was asked for besides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kvplan.report.console import grid
from kvplan.report.words import Row, exact, printable
from kvplan.units import human_bytes

if TYPE_CHECKING:
    from rich.console import Group

HEADERS = ("quantity", "predicted", "observed", "error", "within", "basis")
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SECTIONS = {"s": "Time", "tokens/s": "Time", "bytes/s": "Time", "FLOP/s": "Time", "J": "Time", "ratio": "Time"}


def measured_view(rows: Sequence[Row]) -> Group:
    """The run's conditions in two lines, then a table for each section."""
    from rich.console import Group
    from rich.text import Text

    run = rows[0]["run"] if rows else {}
    parts: list[Any] = [Text(line, "bold" if i == 0 else "") for i, line in enumerate(_about(run))]
    sections: dict[str, list[Row]] = {}
    for row in rows:
        sections.setdefault(_SECTIONS.get(row["unit"], "Memory") if row["unit"] != "FLOP" else "Work", []).append(row)
    for title in ("Memory", "Time", "Work"):
        if title in sections:
            table = grid(title, *HEADERS[1:], right=frozenset({1, 2, 3}))
            for row in sections[title]:
                table.add_row(*(Text(cell, _style(row, i)) for i, cell in enumerate(_cells(row))))
            parts += ["", table]
    for row in rows:
        if row.get("text") is not None:
            parts += ["", Text(printable(str(row["text"])))]
    return Group(*parts)


def _about(run: Row) -> list[str]:
    options = run.get("options", {})
    first = f"{options.get('model')} in {run.get('dtype')} on {run.get('device_name')} ({run.get('device')})"
    second = f"torch {run.get('torch')}, {run.get('threads')} threads, {run.get('date')}"
    return [printable(first), printable(second)]


def _cells(row: Row) -> list[str]:
    within = {None: "-", True: "yes", False: "NO"}[row["within"]]
    error = "-" if row["error"] is None else f"{row['error']:+.1%}"
    if row["error"] is not None and abs(row["error"]) < 0.01:
        error = f"{row['error']:+.2%}"
    numbers = [figure(row[key], row["unit"]) for key in ("predicted", "observed")]
    return [_label(row), *numbers, error, within, row["basis"] or "-"]


def _label(row: Row) -> str:
    at = []
    if row.get("batch") is not None:
        at.append(f"batch {row['batch']}")
    if row.get("context_tokens") is not None:
        at.append(f"{exact(row['context_tokens'])} tokens")
    name = str(row["quantity"]).replace("_", " ")
    return f"{name} ({', '.join(at)})" if at else name


def _style(row: Row, column: int) -> str:
    return "bold red" if column == 4 and row["within"] is False else ""


def figure(value: float | None, unit: str) -> str:
    """A number with its unit as people read it; '-' where there is none."""
    if value is None:
        return "-"
    if unit in _WORDS:
        return _WORDS[unit](value)
    for factor, prefix in _SCALES:
        if abs(value) >= factor:
            return f"{value / factor:,.2f} {prefix}{unit.replace('bytes', 'B')}"
    return f"{value:,.0f} {unit}"


def _seconds(value: float) -> str:
    if value >= 10:
        return f"{value:,.1f} s"
    return f"{value * 1e3:,.1f} ms" if value >= 1e-3 else f"{value * 1e6:.1f} us"


_WORDS: dict[str, Callable[[float], str]] = {
    "bytes": human_bytes,
    "s": _seconds,
    "ratio": "{:.1%}".format,
    "1": "{:.3g}".format,
    "sessions": "{:,.0f}".format,
    "tokens/s": "{:,.4g} tokens/s".format,
    "J": "{:.3g} J".format,
}
