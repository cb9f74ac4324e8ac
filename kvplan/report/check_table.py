"""A check for people: what was expected, what has moved since the baseline, and why a check failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvplan.report import check_words as words
from kvplan.report.console import WIDTH, grid, plain
from kvplan.report.markdown import table as markdown_table
from kvplan.report.words import Row, counted, printable

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

_STYLES = {"FAILED": "red", "worse": "red", "gone": "red", "better": "green", "changed": "yellow", "new": "yellow"}
_EXPECTED = ("deployment", "scenario", "expected", "found", "")
_MOVED = ("deployment", "scenario", "figure", "before", "now", "change", "", "most of it from")
_NUMBERS = ("found", "before", "now", "change")


class Sheet(NamedTuple):
    """A table of texts: headers, lines, and the outcome of each line."""

    headers: tuple[str, ...]
    lines: list[list[str]]
    outcomes: list[str]

    @property
    def right(self) -> set[int]:
        """The columns of numbers."""
        return {i for i, header in enumerate(self.headers) if header in _NUMBERS}


def check_table(rows: Sequence[Row], *, plan: str, baseline: str = "", width: int = WIDTH) -> str:
    """The check as plain text."""
    return plain(check_view(rows, plan=plan, baseline=baseline), width)


def check_view(rows: Sequence[Row], *, plan: str, baseline: str = "") -> Group:
    """Two tables, the reasons of failures, and the outcome last, where the eye is; `baseline` says which it is."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if any(row["check"] == "expect" for row in rows):
        parts += [Text(printable(plan), "bold"), _view(expected_sheet(rows)), ""]
    if baseline:
        parts += [
            Text(printable(f"against {baseline}"), "bold"),
            *_moved_view(rows),
            Text(same_as_before(rows), "dim"),
            "",
        ]
    wrong = words.failed(rows)
    untold = [row for row in wrong if row["check"] == "expect" or row["column"] is None]  # by the second table
    for row in untold:
        parts += [Text(f"{printable(words.location(row, plan))}: {words.place(row)}: {words.sentence(row)}", "red")]
        parts += [Text(f"  {line}", "dim") for line in words.derived(row)]
    parts += [""] if untold else []
    return Group(*parts, Text(words.summary(rows), "bold red" if wrong else "bold green"))


def check_markdown(rows: Sequence[Row], *, plan: str, baseline: str = "") -> str:
    """The same tables in Markdown, the outcome first, where a page begins."""
    parts = [f"**{words.summary(rows)}**\n"]
    wrong = words.failed(rows)
    if wrong:
        told = [f"{words.location(row, plan)}: {words.place(row)}: {words.sentence(row)}" for row in wrong]
        parts.append("".join(("```text\n", *(f"{printable(line).replace('```', '...')}\n" for line in told), "```\n")))
    for sheet in (expected_sheet(rows), moved_sheet(rows)):
        if sheet.lines:
            parts.append(markdown_table(sheet.headers, sheet.lines, sheet.right))
    if baseline:
        code = printable(baseline).replace("`", "'")
        parts.append(f"{same_as_before(rows)}, against `{code}`\n")
    return "\n".join(parts)


def expected_sheet(rows: Sequence[Row]) -> Sheet:
    """Every expectation."""
    mine = [row for row in rows if row["check"] == "expect"]
    outcomes = ["ok" if row["ok"] else "FAILED" for row in mine]
    lines = [[*_names(row), words.title(row), words.found_text(row)] for row in mine]
    return _sheet(_EXPECTED, [[*line, outcome] for line, outcome in zip(lines, outcomes, strict=True)], outcomes)


def moved_sheet(rows: Sequence[Row]) -> Sheet:
    """Every figure that moved, and the scenarios that are new or gone."""
    mine = [row for row in rows if row["check"] == "baseline" and row["verdict"] != "same"]
    return _sheet(_MOVED, [_moved_cells(row) for row in mine], [row["verdict"] for row in mine])


def _moved_cells(row: Row) -> list[str]:
    return [*_names(row), *_figure_cells(row)]


def _figure_cells(row: Row) -> list[str]:
    if row["column"] is None:
        return ["", "", "", "", row["verdict"], ""]
    return [row["column"], *words.both(row), words.percent(row), words.word(row), words.moved_by(row)]


def _names(row: Row) -> list[str]:
    return [printable(row["deployment"]), printable(row["scenario"])]


def _sheet(headers: tuple[str, ...], lines: list[list[str]], outcomes: list[str]) -> Sheet:
    """Without the columns that are empty in every line."""
    used = [i for i in range(len(headers)) if any(line[i] for line in lines)]
    return Sheet(tuple(headers[i] for i in used), [[line[i] for i in used] for line in lines], outcomes)


def same_as_before(rows: Sequence[Row]) -> str:
    """How many figures stayed as they were."""
    same = sum(row["check"] == "baseline" and row["verdict"] == "same" for row in rows)
    return f"{counted(same, 'figure')} as before"


def _view(sheet: Sheet) -> Table:
    from rich.text import Text

    table = grid(*sheet.headers, right=frozenset(sheet.right))
    for cells, outcome in zip(sheet.lines, sheet.outcomes, strict=True):
        table.add_row(*(Text(cell, _STYLES.get(outcome, "")) for cell in cells))
    return table


def _moved_view(rows: Sequence[Row]) -> list[RenderableType]:
    """What moved, under the name of its deployment and scenario; what moved it below, where the names are long."""
    from rich.text import Text

    moved = [row for row in rows if row["check"] == "baseline" and row["verdict"] != "same"]
    cells = [_figure_cells(row)[:-1] for row in moved if row["column"]]
    widths = [max(map(len, column)) for column in zip(_MOVED[2:-1], *cells, strict=True)]
    lines = [Text(_aligned(["", *_MOVED[3:-1]], widths), "bold")] if cells else []
    for place in dict.fromkeys(words.place(row) for row in moved):
        mine = [row for row in moved if words.place(row) == place]
        for row in mine:
            if row["column"] is None:
                lines.append(Text(f"{place}: {row['verdict']}", _STYLES[row["verdict"]]))
        figures = [row for row in mine if row["column"]]
        lines += [Text(place)] * bool(figures)
        lines += [Text(_aligned(_figure_cells(row)[:-1], widths), _STYLES.get(row["verdict"], "")) for row in figures]
        lines += [Text(f"  {line}", "dim") for line in _causes(figures)]
    return list(lines)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if header in _NUMBERS else cell.ljust(width)
        for cell, width, header in zip(cells, widths, _MOVED[2:], strict=False)
    ]
    return f"  {'  '.join(padded)}".rstrip()


def _causes(figures: Sequence[Row]) -> list[str]:
    """The ledger lines behind the moves, with the figures that each of them moved unless that is all of them."""
    causes: dict[str, list[str]] = {}
    for row in figures:
        if row["ledger_line"]:
            causes.setdefault(words.moved_by(row), []).append(row["column"])
    if len(causes) == 1:
        return [f"most of it from {cause}" for cause in causes]
    return [f"most of {', '.join(columns)} from {cause}" for cause, columns in causes.items()]
