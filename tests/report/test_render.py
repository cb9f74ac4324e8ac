"""Exports: what a script reads back is what went in, whatever the text holds."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.report.render import FORMATS, format_for, render
from report.conftest import Golden, sample

HOSTILE = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]
values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20)
rows_of_anything = st.lists(st.dictionaries(st.sampled_from("abcdef"), values, min_size=1), min_size=1, max_size=5)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text, newline="")))


@pytest.mark.parametrize(
    ("name", "form", "human", "file"),
    [
        ("fits", "json", False, "fits.json"),
        ("fits", "csv", False, "fits.csv"),
        ("whatif", "csv", False, "whatif.csv"),
        ("fits", "markdown", True, "fits_human.md"),
        ("fits", "markdown", False, "fits.md"),
        ("whatif", "markdown", True, "whatif.md"),
        ("kvbudget", "jsonl", False, "kvbudget.jsonl"),
    ],
)
def test_exports(golden: Golden, name: str, form: str, human: bool, file: str) -> None:
    golden(file, render(sample(name), form, human=human))


@pytest.mark.parametrize("name", ["fits", "nofit", "kvbudget", "whatif"])
def test_json_reads_back_as_an_array(name: str) -> None:
    assert json.loads(render(sample(name), "json")) == sample(name)
    assert [json.loads(line) for line in render(sample(name), "jsonl").splitlines()] == sample(name)


def test_csv_has_the_keys_of_json_without_lists() -> None:
    row = {**sample("explained")[0], "engine_detail": {"num_blocks": 7, "version": "not the engine's version"}}
    (cells,) = read(render([row], "csv"))
    lists = {"ledger", "engine_detail", "tensors", "counts", "work"}
    assert list(cells) == [
        key if key != "engine_detail" else "engine_num_blocks" for key in row if key not in lists - {"engine_detail"}
    ]
    assert cells["engine_num_blocks"] == "7"
    assert cells["engine_version"] == ""
    assert cells["fits"] == "true"
    assert cells["max_seqs"] == ""
    assert int(cells["gpu_memory_bytes"]) == row["gpu_memory_bytes"]


def test_negative_numbers_stay_numbers_and_formulas_become_text() -> None:
    (cells,) = read(render([{"kv_budget_bytes": -5, **{f"t{i}": text for i, text in enumerate(HOSTILE)}}], "csv"))
    assert cells.pop("kv_budget_bytes") == "-5"
    assert list(cells.values()) == [f"'{text}" for text in HOSTILE]


def test_pandas_reads_the_same_figures() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(StringIO(render(sample("whatif"), "csv")))
    for key in ("kv_bytes_per_session", "max_sessions", "fits", "model", "memory_fraction"):
        assert frame[key].tolist() == [row[key] for row in sample("whatif")]


@given(rows_of_anything)
def test_csv_loses_no_row_and_no_cell(rows: list[dict[str, Any]]) -> None:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    back = read(render(rows, "csv"))
    assert len(back) == len(rows)
    for cells, row in zip(back, rows, strict=True):
        assert list(cells) == keys
        for key, value in row.items():
            if isinstance(value, str):
                assert cells[key].removeprefix("'") == value.removeprefix("'")


@given(rows_of_anything, st.booleans())
def test_markdown_loses_no_row_and_every_line_has_the_same_cells(rows: list[dict[str, Any]], human: bool) -> None:
    head, rule, *lines = render(rows, "markdown", human=human).removesuffix("\n").split("\n")
    assert len(lines) == (len(rows[0]) if len(rows) == 1 else len(rows))
    for line in (rule, *lines):
        assert cells_of(line) == cells_of(head)


def cells_of(line: str) -> int:
    """Cells of a line: bars that are not escaped."""
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) - 1


def test_markdown_cells_mean_only_themselves() -> None:
    text = render([{"model": "a|b\n<b>*x*</b> `c` \\| \x1b[0m"}], "markdown", human=True)
    assert "a\\|b<br>\\<b\\>\\*x\\*\\</b\\> \\`c\\` \\\\\\| \\\\x1b\\[0m" in text


def test_markdown_of_estimates_keeps_what_varies_and_the_results() -> None:
    head = render(sample("whatif"), "markdown").splitlines()[0]
    names = ["model", "gpu", "context_tokens", "kv_heads", "weights_bytes", "kv_bytes_per_session", "max_sessions"]
    assert head == f"| {' | '.join([*names, 'max_context_tokens', 'fits', 'limited_by'])} |"


def test_rows_with_other_keys_make_a_union() -> None:
    rows: list[dict[str, Any]] = [{"model": "a", "max_sessions": 1}, {"model": "b", "error": "refused"}]
    assert render(rows, "csv") == "model,max_sessions,error\na,1,\nb,,refused\n"
    assert render(rows, "markdown").splitlines()[0] == "| model | max_sessions | error |"


def test_no_rows() -> None:
    assert [render([], form) for form in ("json", "jsonl", "csv", "markdown")] == ["[]\n", "", "", ""]


@pytest.mark.parametrize(
    ("form", "output", "found"),
    [
        (None, None, "table"),
        (None, Path("a.json"), "json"),
        (None, Path("a.JSONL"), "jsonl"),
        (None, Path("a.csv"), "csv"),
        (None, Path("a.md"), "markdown"),
        (None, Path("a.parquet"), "parquet"),
        *((form, Path("a.txt"), form) for form in FORMATS),
    ],
)
def test_the_format_comes_from_the_option_or_the_suffix(form: str | None, output: Path | None, found: str) -> None:
    assert format_for(form, output) == found


@pytest.mark.parametrize(
    ("form", "output", "said"),
    [
        (None, Path("a.txt"), r"unknown suffix '.txt'; use one of \.json, \.jsonl, \.csv, \.md, \.parquet"),
        (None, Path("a"), "no suffix; use one of"),
        ("cvs", None, "did you mean 'csv'"),
    ],
)
def test_what_cannot_be_a_format_is_refused(form: str | None, output: Path | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        format_for(form, output)


@pytest.mark.parametrize(("form", "said"), [("parquet", "comes with sweep"), ("table", "expected one of json")])
def test_what_is_not_text_of_rows_is_refused(form: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        render([{"a": 1}], form)
