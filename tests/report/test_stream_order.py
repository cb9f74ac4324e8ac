"""Streams in order, and the line that tells how far they are."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.report.stream import parse_order
from kvplan.report.stream_columns import Part, parts_of, rows_of
from kvplan.report.stream_order import Order, best
from kvplan.report.stream_progress import shown
from tests.report.streams import TYPES, Chunk, chunks, plain_rows


@pytest.mark.parametrize("spare", [0, 65_536])
@settings(max_examples=50, deadline=None)
@given(
    st.lists(chunks(), min_size=1, max_size=6),
    st.sampled_from(["tokens", "bytes", "fits", "error", "model", "share"]),
    st.booleans(),
    st.none() | st.integers(1, 12),
)
def test_the_best_are_those_of_a_stable_sort(
    spare: int, found: list[Chunk], column: str, descending: bool, top: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvplan.report.stream_order.SPARE", spare)
        kept = best(parts_of(found, list(TYPES), {"tokens": -1}), Order(column, descending), top)
    rows = plain_rows(found)
    known = [row for row in rows if row[column] is not None]
    expected = sorted(known, key=lambda row: row[column], reverse=descending)
    assert list(rows_of(kept)) == (expected + [row for row in rows if row[column] is None])[:top]


def test_the_best_are_kept_in_little_memory() -> None:
    seen = 0

    def many() -> Iterator[Part]:
        nonlocal seen
        for start in range(0, 3_000_000, 10_000):
            seen += 1
            yield Part(10_000, {"n": np.arange(start, start + 10_000) * 7919 % 3_000_017})

    (first, second) = rows_of(best(many(), Order("n", True), 2))
    assert (first["n"], second["n"]) == (3_000_016, 3_000_015)
    assert seen == 300


@pytest.mark.parametrize(
    ("text", "order"),
    [("tokens", Order("tokens")), ("tokens:desc", Order("tokens", True)), ("tokens:asc", Order("tokens"))],
)
def test_an_order(text: str, order: Order) -> None:
    assert parse_order(text, list(TYPES)) == order


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tokns", "--sort: unknown column 'tokns'; did you mean 'tokens'"),
        ("x", "unknown column 'x'; columns: model, tokens, bytes"),
        ("tokens:down", "after the colon comes asc or desc, not 'down'"),
    ],
)
def test_no_order(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_order(text, list(TYPES))


def test_progress_waits_a_moment_and_is_gone_at_the_end() -> None:
    times = iter([0.0, 0.5, 1.5, 1.6, 3.0])
    out = io.StringIO()
    found = [Chunk(250, {})] * 4
    assert list(shown(found, 1000, out, clock=lambda: next(times))) == found
    clear = "\r\x1b[K"
    assert (
        out.getvalue() == f"{clear} 50%  500 of 1,000 rows, 2 s left{clear}100%  1,000 of 1,000 rows, 0 s left{clear}"
    )


def test_quick_work_shows_no_progress() -> None:
    out = io.StringIO()
    assert len(list(shown([Chunk(1, {})], 1, out, clock=lambda: 0.0))) == 1
    assert out.getvalue() == ""
