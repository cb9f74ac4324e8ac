"""Exports: the rows of a result as JSON, JSON lines, CSV or Markdown. Raw base units unless asked otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from kvplan.report.words import Row

FORMATS = ("table", "json", "jsonl", "csv", "markdown", "parquet")
SUFFIXES = {".json": "json", ".jsonl": "jsonl", ".csv": "csv", ".md": "markdown", ".parquet": "parquet"}


def format_for(format: str | None, output: Path | None) -> str:  # noqa: A002 - named after the option
    """The format asked for, else the one of the file's suffix, else table."""
    if format is not None:
        return _known(format)
    if output is None:
        return "table"
    suffix = output.suffix.lower()
    if suffix not in SUFFIXES:
        what = f"unknown suffix '{suffix}'" if suffix else "no suffix"
        raise InputError(f"--output {output}: {what}; use one of {', '.join(SUFFIXES)}, or say --format")
    return SUFFIXES[suffix]


def render(rows: Sequence[Row], format: str, *, human: bool = False) -> str:  # noqa: A002 - named after the option
    """The rows as text of a format; `human` writes units for people where the format is read by people."""
    if format not in _RENDERERS:
        hint = did_you_mean(format, _RENDERERS) or ";"
        raise InputError(f"rows cannot be written as '{format}'{hint} expected one of {', '.join(_RENDERERS)}")
    return _RENDERERS[format](rows, human)


def _known(name: str) -> str:
    if name not in FORMATS:
        raise InputError(
            f"unknown format '{name}'{did_you_mean(name, FORMATS) or ';'} expected one of {', '.join(FORMATS)}"
        )
    return name


def _json(rows: Sequence[Row], human: bool) -> str:  # noqa: ARG001 - every renderer takes it
    import json

    return json.dumps([dict(row) for row in rows], indent=2, allow_nan=False) + "\n"


def _jsonl(rows: Sequence[Row], human: bool) -> str:  # noqa: ARG001 - every renderer takes it
    import json

    return "".join(json.dumps(dict(row), allow_nan=False) + "\n" for row in rows)


def _csv(rows: Sequence[Row], human: bool) -> str:  # noqa: ARG001 - every renderer takes it
    from kvplan.report.delimited import csv_text

    return csv_text(rows)


def _markdown(rows: Sequence[Row], human: bool) -> str:
    from kvplan.report.markdown import markdown_text

    return markdown_text(rows, human=human)


def _parquet(rows: Sequence[Row], human: bool) -> str:  # noqa: ARG001 - every renderer takes it
    raise InputError("parquet is a binary format that comes with sweep; use csv or jsonl here")


_RENDERERS: dict[str, Callable[[Sequence[Row], bool], str]] = {
    "json": _json,
    "jsonl": _jsonl,
    "csv": _csv,
    "markdown": _markdown,
    "parquet": _parquet,
}
