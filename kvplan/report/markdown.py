"""Markdown tables for issues, pull requests and notebooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kvplan.report.flat import PREFIX, columns, flat, raw
from kvplan.report.inputs import INPUTS, same, varying_inputs
from kvplan.report.words import Row, printable
from kvplan.report.words import human as human_value

NAMES = ("model", "gpu")  # a table says what it is about
RESULTS = (
    "weights_bytes",
    "kv_bytes_per_session",
    "max_sessions",
    "max_context_tokens",
    "fits",
    "limited_by",
    "error",
)
_MINOR = (  # figures behind the key results
    "gpu_memory_bytes",
    "gpu_memory_source",
    "overhead_bytes",
    "kv_budget_bytes",
    "unrequested_bytes",
    "kv_bytes_per_token",
    "kv_bytes_per_session_logical",
    "parameters",
    "active_parameters",
    "kv_tokens",
    "model_max_context",
    "checked",
)
ENDS = ("_low", "_high")
_SPECIAL = re.compile(r"([\\`*_<>\[\]|~&$])")  # marks that Markdown or its HTML would act on
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def markdown_text(rows: Sequence[Row], *, human: bool = False) -> str:
    """One row as key and value; several side by side with the columns that vary and the key results."""
    cells = [flat(row) for row in rows]
    if not cells:
        return ""
    if len(cells) == 1:
        return table(["key", "value"], [[key, value_text(key, value, human)] for key, value in cells[0].items()], {1})
    names = _telling(cells)
    numbers = {i for i, name in enumerate(names) if any(_is_number(row.get(name)) for row in cells)}
    return table(names, [[value_text(name, row.get(name), human) for name in names] for row in cells], numbers)


def _telling(cells: list[dict[str, Any]]) -> list[str]:
    """Names, choices that vary, and key results; every column where the rows are not estimates."""
    names = columns(cells)
    if not any(name in RESULTS for name in names):
        return names
    chosen = varying_inputs(cells)
    return [
        name
        for name in names
        if name in NAMES or name in RESULTS or name in chosen or (_major(name) and not same(cells, name))
    ]


def _major(name: str) -> bool:
    """Neither an input, judged apart, nor a figure that readers of a summary can do without."""
    return name not in INPUTS and name not in _MINOR and not name.startswith(PREFIX) and not name.endswith(ENDS)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def value_text(key: str, value: Any, human: bool) -> str:
    """A value in base units or as people read it."""
    return human_value(key, value) if human and not isinstance(value, str) else raw(value)


def table(head: Sequence[str], lines: Sequence[Sequence[str]], right: set[int]) -> str:
    """A table of texts, those of the columns in `right` set to the right."""
    rule = ["---:" if index in right else "---" for index in range(len(head))]
    escaped = [[escape(cell) for cell in line] for line in (head, *lines)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (escaped[0], rule, *escaped[1:]))


def escape(text: str) -> str:
    """Text that stays in its cell and means only itself; names_like_this need no escape."""
    if re.fullmatch(r"[A-Za-z0-9_]+", text):
        return text
    return "<br>".join(_SPECIAL.sub(r"\\\1", printable(line)) for line in _LINE_ENDS.split(text))
