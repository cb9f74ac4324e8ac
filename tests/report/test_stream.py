"""Streams: the same bytes as rows written one by one, with and without pyarrow, in order or not, in little memory."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import InputError, MissingPackageError
from kvplan.report import stream_text
from kvplan.report.delimited import csv_text
from kvplan.report.render import render
from kvplan.report.stream import Stream, check, write
from kvplan.report.stream_columns import gathered, join, parts_of, rows_of, slices, take
from kvplan.report.stream_order import Order
from tests.report.streams import TYPES, Chunk, chunks, plain_rows


def text_of(found: list[Chunk], form: str, **more: Any) -> bytes:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape", newline="")
    write(found, Stream(TYPES, form, nulls={"tokens": -1}, **more), out)
    out.flush()
    return out.buffer.getvalue()


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
