"""Made-up streams for tests: chunks of every kind of column, with names hostile to spreadsheets and encodings."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from kvplan.report.stream_columns import Coded, parts_of, rows_of

TYPES: dict[str, type] = {"model": str, "tokens": int, "bytes": int, "fits": bool, "share": float, "error": str}
HOSTILE = ("=cmd|' /C calc'!A0", "+1", "-1", "@x", "a,b", 'say "hi"', "two\nlines", "100 % | `x`", "ünï\udcff", "")


class Chunk(NamedTuple):
    rows: int
    columns: dict[str, Any]


def arrays(rows: int, elements: st.SearchStrategy[Any], kind: str) -> st.SearchStrategy[Any]:
    return st.lists(elements, min_size=rows, max_size=rows).map(lambda values: np.array(values, dtype=kind))


def texts(rows: int) -> st.SearchStrategy[Any]:
    few = st.lists(st.none() | st.sampled_from(HOSTILE) | st.text(max_size=5), min_size=1, max_size=3, unique=True)
    return few.flatmap(
        lambda found: arrays(rows, st.integers(0, len(found) - 1), "int64").map(lambda code: Coded(code, tuple(found)))
    )


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    """As a grid makes them: single values, arrays, few texts; refused rows have few columns."""
    rows = draw(st.integers(1, 8))
    numbers = st.integers(-(2**53), 2**53)
    columns = {
        "model": draw(st.sampled_from(HOSTILE)),
        "tokens": draw(numbers | arrays(rows, numbers | st.just(-1), "int64")),
        "error": draw(st.none() | texts(rows)),
    }
    if draw(st.booleans()):
        columns["bytes"] = draw(numbers | arrays(rows, numbers, "int64"))
        columns["fits"] = draw(st.booleans() | arrays(rows, st.booleans(), "bool"))
        columns["share"] = draw(st.none() | st.sampled_from([0.9, 0.25]))
    return Chunk(rows, columns)


def plain_rows(found: list[Chunk]) -> list[dict[str, Any]]:
    rows = [row for part in parts_of(found, list(TYPES), {"tokens": -1}) for row in rows_of(part)]
    assert all(row["tokens"] != -1 for row in rows)
    return rows
