"""A check as GitHub reads it: annotations at the lines of the plan, and a summary of the job in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import Problem
from kvplan.report import check_words as words
from kvplan.report.check_table import check_markdown
from kvplan.report.words import Row, printable

MAX_SUMMARY_BYTES = 1_000_000  # GitHub refuses more than 1 MiB from a step
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def github_text(rows: Sequence[Row], *, plan: str) -> str:
    """Workflow commands: an error for each check that failed, a notice for what moved otherwise; the outcome last."""
    shown = [row for row in rows if not row["ok"] or row.get("verdict") in ("better", "changed", "new")]
    return "".join(f"{_command(row, plan)}\n" for row in shown) + f"{words.summary(rows)}\n"


def github_summary(rows: Sequence[Row], *, plan: str, baseline: str = "") -> str:
    """Markdown for the page of the job; a table that is too long for it ends early and says so."""
    text = f"## kvplan check\n\n{check_markdown(rows, plan=plan, baseline=baseline)}\n"
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_SUMMARY_BYTES:
        return text
    whole = data[:MAX_SUMMARY_BYTES].decode("utf-8", "ignore").rpartition("\n")[0]
    return f"{whole}\n\nThe rest is left out here; see the log of the step.\n"


def problem_text(problems: Sequence[Problem], *, plan: str) -> str:
    """Workflow commands for what is wrong with the plan itself."""
    told = [(each.line, f"{each.path}: {each.message}" if each.path else each.message) for each in problems]
    return "".join(f"{_annotation('error', plan, line, 'kvplan check', message)}\n" for line, message in told)


def _command(row: Row, plan: str) -> str:
    title = f"{words.place(row)}: {words.title(row)}"
    message = "\n".join([words.sentence(row), *words.derived(row)])
    return _annotation("notice" if row["ok"] else "error", plan, row["line"], title, message)


def _annotation(level: str, plan: str, line: int | None, title: str, message: str) -> str:
    properties = {"file": plan, **({"line": str(line)} if line else {}), "title": title}
    told = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties.items())
    return f"::{level} {told}::{_escaped(message, _DATA)}"


def _escaped(text: str, marks: dict[str, str]) -> str:
    """The text as data of a command; % first, or the escapes would be escaped."""
    lines = (printable(line) for line in text.split("\n"))
    return "".join(marks.get(character, character) for character in "\n".join(lines))
