"""Streams: the same bytes as rows written one by one, with and without pyarrow, in order or not, in little memory."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import InputError, MissingPackageError
from kvplan.report import stream_text
from kvplan.report.delimited import csv_text
from kvplan.report.render import render
from kvplan.report.stream import Stream, check, parse_order, write
from kvplan.report.stream_columns import Coded, Part, gathered, join, parts_of, rows_of, slices, take
from kvplan.report.stream_order import Order, best
from kvplan.report.stream_progress import shown

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


def text_of(found: list[Chunk], form: str, **more: Any) -> bytes:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape", newline="")
    write(found, Stream(TYPES, form, nulls={"tokens": -1}, **more), out)
    out.flush()
    return out.buffer.getvalue()  # type: ignore[attr-defined]


def plain_rows(found: list[Chunk]) -> list[dict[str, Any]]:
    rows = [row for part in parts_of(found, list(TYPES), {"tokens": -1}) for row in rows_of(part)]
    assert all(row["tokens"] != -1 for row in rows)
    return rows


def bytes_of(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


@pytest.mark.parametrize("few", [0, 10_000], ids=["pyarrow", "plain"])
@settings(max_examples=30, deadline=None)
@given(st.lists(chunks(), min_size=1, max_size=4))
def test_the_bytes_are_those_of_rows_written_one_by_one(few: int, found: list[Chunk]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_text, "FEW", few)  # rows up to which pyarrow is not worth its while
        rows = plain_rows(found)
        assert text_of(found, "csv") == bytes_of(csv_text(rows))
        assert text_of(found, "jsonl") == bytes_of(render(rows, "jsonl"))
        assert json.loads(text_of(found, "json")) == json.loads(json.dumps(rows))
        lines = text_of(found, "markdown").decode(errors="surrogateescape").splitlines()
        assert len(lines) == len(rows) + 2


@settings(max_examples=30, deadline=None)
@given(st.lists(chunks(), min_size=1, max_size=4), st.booleans())
def test_without_pyarrow_it_is_the_same(found: list[Chunk], human: bool) -> None:
    forms = ("csv", "markdown") if human else ("csv", "jsonl", "json", "markdown")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_text, "FEW", 0)
        fast = [text_of(found, form, human=human) for form in forms]
        patch.setattr(stream_text, "_arrow", lambda: None)
        assert [text_of(found, form, human=human) for form in forms] == fast


def test_a_spreadsheet_runs_nothing() -> None:
    found = [Chunk(1, {"model": "=cmd|x", "tokens": -7, "error": "@x"})]
    assert text_of(found, "csv").splitlines()[1] == b"'=cmd|x,-7,,,,'@x"


def test_human_units() -> None:
    found = [Chunk(2, {"model": "m", "tokens": np.array([1024, -1]), "bytes": 2**31, "fits": True})]
    assert text_of(found, "csv", human=True).splitlines()[1:] == [
        b'm,"1,024",2.00 GiB,yes,,',
        b"m,,2.00 GiB,yes,,",
    ]


def test_markdown_shows_choices_and_results() -> None:
    found = [Chunk(2, {"model": "a|b", "tokens": np.array([1, 2]), "bytes": 5, "fits": True})]
    assert text_of(found, "markdown", varied=("tokens",)).decode() == (
        "| model | tokens | fits | error |\n| --- | ---: | --- | --- |\n"
        "| a\\|b | 1 | true |  |\n| a\\|b | 2 | true |  |\n"
    )


def test_a_table_has_an_error_only_where_there_is_one() -> None:
    known = {"model": "phi", "weights_bytes": 5, "kv_bytes_per_session": 7, "max_sessions": 2, "max_context_tokens": 9}
    types = {**dict.fromkeys(known, int), "model": str, "context_tokens": int, "fits": bool, "error": str}
    found = [
        Chunk(2, {**known, "context_tokens": np.array([1000, 2000]), "fits": True}),
        Chunk(1, {"model": "phi", "context_tokens": 3000, "fits": False, "error": "too long"}),
    ]
    out = io.StringIO()
    assert write(found, Stream(types, "table"), out) == 3
    assert out.getvalue().count("refused") == 1
    assert "# 3  context 3,000: too long" in out.getvalue()


@settings(max_examples=30, deadline=None)
@given(st.lists(chunks(), min_size=1, max_size=4))
def test_parts_can_be_cut_and_joined(found: list[Chunk]) -> None:
    parts = list(parts_of(found, list(TYPES), {"tokens": -1}))
    rows = plain_rows(found)
    whole = join(parts)
    assert list(rows_of(whole)) == rows
    assert [row for part in slices(whole, 3) for row in rows_of(part)] == rows
    assert [row for part in gathered(slices(whole, 2), 5) for row in rows_of(part)] == rows
    assert list(rows_of(take(whole, np.array([len(rows) - 1, 0]), 2))) == [rows[-1], rows[0]]
    assert list(rows_of(join([whole, whole]))) == rows + rows


@pytest.mark.parametrize("spare", [0, 65_536])
@settings(max_examples=40, deadline=None)
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


@pytest.mark.parametrize(
    ("stream", "rows", "message"),
    [
        (Stream(TYPES, "table"), 1001, "1,001 rows are too many to read"),
        (Stream(TYPES, "table", order=Order("tokens"), top=1001), 10**7, "1,001 rows are too many to read"),
        (Stream(TYPES, "csv", order=Order("tokens")), 2_000_001, "--sort keeps every row in memory"),
        (Stream(TYPES, "jsonl", human=True), 1, "--human is for table, markdown and csv"),
        (Stream(TYPES, "junit"), 1, "unknown format 'junit'"),
    ],
)
def test_what_is_refused_before_the_work(stream: Stream, rows: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(stream, rows)


def test_what_is_not_refused() -> None:
    check(Stream(TYPES, "table", order=Order("tokens"), top=20), 10**9)
    check(Stream(TYPES, "csv"), 10**9)


@settings(max_examples=15, deadline=None)
@given(st.lists(chunks(), min_size=1, max_size=4))
def test_parquet_holds_the_same_rows(found: list[Chunk]) -> None:
    table = pq.read_table(io.BytesIO(text_of(found, "parquet")))
    told = [{key: utf8(value) for key, value in row.items()} for row in plain_rows(found)]
    assert table.to_pylist() == told
    kinds = {field.name: str(field.type) for field in table.schema}
    assert {kinds["model"], kinds["error"]} == {"dictionary<values=string, indices=int32, ordered=0>"}
    assert (kinds["tokens"], kinds["fits"], kinds["share"]) == ("int64", "bool", "double")


def utf8(value: Any) -> Any:
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def test_parquet_comes_in_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.report.stream_parquet.GROUP_ROWS", 100)
    found = [Chunk(30, {"model": "m", "tokens": np.arange(30)}) for _ in range(10)]
    assert pq.ParquetFile(io.BytesIO(text_of(found, "parquet"))).num_row_groups == 3  # 120, 120, 60


def test_parquet_without_pyarrow_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'kvplan\[report\]'"):
        check(Stream(TYPES, "parquet"), 1)


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
