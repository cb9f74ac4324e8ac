"""The rows of a check in words: what was wanted, what was found, what moved it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplan.report.explain import fill, grouped
from kvplan.report.words import LIMITS, Row, counted, exact, human, printable
from kvplan.units import human_bytes

NEW = "not in the baseline yet; add it with --write-baseline"
GONE = "in the baseline, but no longer in the plan; write the baseline again with --write-baseline if that is meant"


def failed(rows: Sequence[Row]) -> list[Row]:
    """The checks that did not pass."""
    return [row for row in rows if not row["ok"]]


def place(row: Row) -> str:
    """chat, or chat (context=8192)."""
    scenario = f" ({row['scenario']})" if row["scenario"] else ""
    return printable(f"{row['deployment']}{scenario}")


def location(row: Row, plan: str) -> str:
    """The plan with the line that a row is about; a scenario that is gone has none."""
    return f"{plan}:{row['line']}" if row["line"] else plan


def title(row: Row) -> str:
    """What is checked: max_sessions >= 100, max_sessions against the baseline, or whether a scenario is there."""
    if row["check"] == "expect":
        compared = row["wanted"].startswith((">", "<", "!"))
        return printable(f"{row['column']} {row['wanted']}" if compared else f"{row['column']} is {row['wanted']}")
    return f"{row['column'] or 'scenario'} against the baseline"


def sentence(row: Row) -> str:
    """How the check came out."""
    if row["check"] == "expect":
        return _expected(row)
    if row["column"] is None:
        return NEW if row["verdict"] == "new" else GONE
    if row["verdict"] == "same":
        return f"{row['column']} is {amount(row['column'], row['now'])} as before"
    before, now = both(row)
    change = f" ({percent(row)})" if percent(row) else ""
    cause = f"; most of it from {moved_by(row)}" if row["ledger_line"] else ""
    return f"{row['column']}: {before} before, {now} now{change}, {word(row)}{cause}"


def _expected(row: Row) -> str:
    unlimited = row["found"] is None and row["column"] == "max_context_tokens"
    found = f"{row['column']} {'has' if unlimited else 'is'} {found_text(row)}"
    if row["ok"]:
        return f"{found}, as wanted: {printable(row['wanted'])}"
    limit = LIMITS.get(row["limited_by"] or "")
    reason = f"; limited by {limit}" if limit and row["column"] in ("max_sessions", "fits") else ""
    return f"{found}, wanted {printable(row['wanted'])}{reason}"


def derived(row: Row) -> list[str]:
    """Where a figure that failed comes from: the formula, and the formula with its values."""
    if not row.get("formula"):
        return []
    name, formula, terms = row["ledger_line"], row["formula"], row["terms"]
    steps = dict.fromkeys((grouped(formula), fill(formula, terms)))
    return [printable(f"{name if index == 0 else ' ' * len(name)} = {step}") for index, step in enumerate(steps)]


def found_text(row: Row) -> str:
    """The figure as it was asked for: with units where the condition has some."""
    value, column = row["found"], row["column"]
    if value is None or isinstance(value, bool | str):
        return amount(column, value)
    units = any(c.isalpha() for c in row["wanted"])
    return f"{exact(value)} ({human_bytes(value)})" if units and "bytes" in column.split("_") else exact(value)


def amount(column: str | None, value: Any) -> str:
    """A figure as people read it; no limit and unknown in words."""
    if value is None:
        return "no limit" if column == "max_context_tokens" else "unknown"
    return str(value).lower() if isinstance(value, bool) else human(column or "", value)


def both(row: Row) -> tuple[str, str]:
    """Before and now, with all digits where fewer would look the same."""
    before, now = amount(row["column"], row["before"]), amount(row["column"], row["now"])
    return (before, now) if before != now or row["change"] is None else (exact(row["before"]), exact(row["now"]))


def percent(row: Row) -> str:
    """A change in percent, or in numbers where it is too small for that or there was nothing before."""
    if row["change_percent"]:
        return f"{row['change_percent']:+,.2f}%"
    change = row["change"]
    return f"{'+' if change > 0 else '-'}{human(row['column'], abs(change))}" if change else ""


def word(row: Row) -> str:
    """The verdict with the tolerance that it went by."""
    verdict, tolerance = str(row["verdict"]), row["tolerance"]
    if verdict == "within":
        return f"within {tolerance}"
    return verdict if row["ok"] or tolerance == "0" else f"{verdict}, beyond {tolerance}"


def moved_by(row: Row) -> str:
    """The ledger line and by how much it moved."""
    if not row["ledger_line"]:
        return ""
    change = row["ledger_change_bytes"]
    return printable(f"{row['ledger_line']} {'+' if change > 0 else '-'}{human_bytes(abs(change))}")


def summary(rows: Sequence[Row]) -> str:
    """One line for the end: how many checks there were and how they came out."""
    wrong = len(failed(rows))
    total = counted(len(rows), "check")
    return f"FAILED: {exact(wrong)} of {total}" if wrong else f"passed: {total}"
