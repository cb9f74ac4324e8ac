"""Many rows, written as they come: any number of them in the memory of a few thousand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TextIO

from kvplan.errors import InputError, did_you_mean
from kvplan.report.stream_columns import Chunk, Part, gathered, parts_of, rows_of, slices
from kvplan.report.stream_order import Order, best, parse_order

__all__ = ["Stream", "check", "parse_order", "write"]

FORMATS = ("table", "json", "jsonl", "csv", "markdown", "parquet")
TABLE_ROWS = 1000  # more is nothing to read
SORTED_ROWS = 2_000_000  # sorting them all keeps them all in memory


class Stream(NamedTuple):
    """How rows are written."""

    types: Mapping[str, type]  # the columns in order, and of which type their values are
    form: str
    human: bool = False  # units for people, where people read
    nulls: Mapping[str, int] = {}  # which number of a column stands for unknown
    order: Order | None = None
    top: int | None = None
    varied: tuple[str, ...] = ()  # the columns of choices, which people want to see beside the key results

    @property
    def columns(self) -> Mapping[str, type]:
        """The columns that are written."""
        if self.form != "markdown":
            return self.types
        from kvplan.report.markdown import NAMES, RESULTS

        return {name: kind for name, kind in self.types.items() if name in (*NAMES, *self.varied, *RESULTS)}


def check(stream: Stream, rows: int) -> None:
    """Raise InputError for what cannot be done with so many rows, before anything is computed."""
    if stream.form not in FORMATS:
        hint = did_you_mean(stream.form, FORMATS)
        raise InputError(f"unknown format '{stream.form}'{hint}; expected one of {', '.join(FORMATS)}")
    if stream.human and stream.form in ("json", "jsonl", "parquet"):
        raise InputError(f"--human is for table, markdown and csv; {stream.form} is read by programs")
    if stream.form == "parquet":
        from kvplan.report.stream_parquet import check_parquet

        check_parquet()
    kept = rows if stream.top is None else min(rows, stream.top)
    if stream.form == "table" and kept > TABLE_ROWS:
        raise InputError(
            f"{kept:,} rows are too many to read: write them with --output rows.csv (or .parquet, .jsonl), "
            "or keep the best with --top 20"
        )
    if stream.order and kept > SORTED_ROWS:
        raise InputError(
            f"--sort keeps every row in memory, at most {SORTED_ROWS:,}, and there are {kept:,}: add --top, "
            "or sort the file afterwards"
        )


def write(chunks: Iterable[Chunk], stream: Stream, out: TextIO) -> int:
    """Write the rows; returns how many there were to write."""
    parts = parts_of(chunks, list(stream.types), stream.nulls)
    if stream.order:
        parts = slices(best(parts, stream.order, stream.top))
    counted = _Counted(parts)
    if stream.form == "table":
        _write_table(counted, out)
    elif stream.form == "parquet":
        from kvplan.report.stream_parquet import write_parquet

        write_parquet(counted, stream.types, out.buffer)
    else:
        _write_text(counted, stream, out)
    return counted.rows


class _Counted:
    """Parts that pass by, counted."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts, self.rows = parts, 0

    def __iter__(self) -> Any:
        for part in self.parts:
            self.rows += part.rows
            yield part


def _write_text(parts: Iterable[Part], stream: Stream, out: TextIO) -> None:
    from kvplan.report.stream_text import layout, written

    pieces = written(layout(stream.form, stream.columns, stream.human), gathered(parts, 1024))
    binary = getattr(out, "buffer", None)
    if binary is not None:
        out.flush()
    for piece in pieces:
        if binary is not None:
            binary.write(piece)
        else:
            out.write(bytes(piece).decode(errors="surrogateescape"))


def _write_table(parts: Iterable[Part], out: TextIO) -> None:
    from kvplan.report.comparison import comparison_view
    from kvplan.report.console import show, width_of

    width = width_of(out)
    rows = [_told(row) for part in parts for row in rows_of(part)]
    show(comparison_view(rows, width=width), out, width)


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A row as views have it: an error only where there is one, and then nothing but what was asked."""
    if row["error"] is None:
        return {key: value for key, value in row.items() if key != "error"}
    return {key: value for key, value in row.items() if value is not None}
