"""Figures against a baseline: verdicts, what moved them, and the file."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import __version__, estimate
from kvplan.errors import InputError
from kvplan.planning.baseline import (
    LESS_IS_BETTER,
    MORE_IS_BETTER,
    Move,
    Scenario,
    baseline_text,
    moves,
    read_baseline,
    scenario_of,
)
from kvplan.planning.row import BANDED, KEYS
from kvplan.specs.expectations import COLUMNS, Tolerance

TWO_PERCENT = Tolerance(Fraction(2), True, "2%")
NUMBERS = st.integers(0, 2**50)


def kept(**options: Any) -> Scenario:
    return scenario_of(estimate(**{"model": "mistral-7b", "gpu": "a100-80g", **options}).to_dict())


def moved(column: str, before: Any, now: Any, tolerance: Tolerance | None = None) -> Move:
    given_tolerances = {} if tolerance is None else {column: tolerance}
    (move,) = moves(Scenario({column: before}, {}), Scenario({column: now}, {}), given_tolerances)
    return move


@pytest.mark.parametrize(
    ("column", "before", "now", "tolerance", "verdict", "ok"),
    [
        ("max_sessions", 100, 100, None, "same", True),
        ("max_sessions", 100, 101, None, "better", True),
        ("max_sessions", 100, 99, None, "worse", False),
        ("max_sessions", 100, 98, TWO_PERCENT, "within", True),
        ("max_sessions", 100, 97, TWO_PERCENT, "worse", False),
        ("max_sessions", 100, 103, TWO_PERCENT, "better", True),
        ("kv_bytes_per_token", 100, 99, None, "better", True),
        ("kv_bytes_per_token", 100, 101, None, "worse", False),
        ("kv_budget_bytes", -5, -6, None, "worse", False),
        ("fits", True, False, None, "worse", False),
        ("fits", False, True, None, "better", True),
        ("max_context_tokens", None, 5, None, "worse", False),  # there was no limit
        ("max_context_tokens", 5, None, None, "better", True),
        ("overhead_bytes_low", None, 5, None, "changed", True),  # unknown is neither more nor less
        ("context_tokens", 4096, 8192, None, "changed", True),
        ("context_tokens", 4096, 8192, TWO_PERCENT, "changed", False),
        ("context_tokens", 4096, 4100, TWO_PERCENT, "within", True),
        ("gpu", "a", "b", None, "changed", True),
        ("gpu", None, "b", None, "changed", True),
        ("max_sessions", 5, "5", None, "changed", True),  # a baseline edited by hand
    ],
)
def test_verdicts(column: str, before: Any, now: Any, tolerance: Tolerance | None, verdict: str, ok: bool) -> None:
    move = moved(column, before, now, tolerance)
    assert (move.verdict, move.ok) == (verdict, ok)


@given(st.sampled_from(sorted((MORE_IS_BETTER | LESS_IS_BETTER) - {"fits"})), NUMBERS, NUMBERS)
def test_a_move_and_its_reverse_are_judged_oppositely(column: str, before: int, now: int) -> None:
    opposite = {"better": "worse", "worse": "better", "same": "same"}
    there, back = moved(column, before, now), moved(column, now, before)
    assert back.verdict == opposite[there.verdict]
    assert there.change is not None
    assert there.change == -(back.change or 0)


@given(NUMBERS.filter(bool), NUMBERS, st.integers(0, 100))
def test_a_wider_tolerance_never_fails_more(before: int, now: int, percent: int) -> None:
    narrow = moved("max_sessions", before, now, Tolerance(Fraction(percent), True, ""))
    wide = moved("max_sessions", before, now, Tolerance(Fraction(percent + 1), True, ""))
    assert wide.ok or not narrow.ok


def test_changes_are_exact() -> None:
    move = moved("max_sessions", 115, 57)
    assert (move.change, move.change_percent) == (-58, -50.43)
    assert moved("memory_fraction", 0.9, 0.92).change == 0.02
    assert moved("overhead_bytes", 0, 5).change_percent is None
    assert moved("gpu", "a", "b").change is None


def test_directions_are_of_columns_with_numbers_and_go_for_their_ranges() -> None:
    assert set(KEYS) >= MORE_IS_BETTER | LESS_IS_BETTER
    assert not MORE_IS_BETTER & LESS_IS_BETTER
    assert all(COLUMNS[name] not in ("text", "number") for name in MORE_IS_BETTER | LESS_IS_BETTER)
    for name in BANDED:
        for better in (MORE_IS_BETTER, LESS_IS_BETTER):
            assert len({name in better, f"{name}_low" in better, f"{name}_high" in better}) == 1


@pytest.mark.parametrize(
    ("change", "column", "line"),
    [
        ({"context": 8192}, "max_sessions", "session/full"),
        ({"weights": "fp8"}, "max_sessions", "weights/mlp"),  # the MLP holds most of the weights
        ({"weights": "fp8"}, "weights_bytes", "weights/mlp"),
        ({"reserve": "4GiB"}, "kv_budget_bytes", "overhead/reserve"),
        ({"memory_fraction": 0.8}, "max_context_tokens", "unrequested"),
        ({"gpu": "h200-sxm"}, "max_sessions", "gpu_memory"),
        ({"kv_dtype": "fp8"}, "kv_bytes_per_token", "session/full"),
        # 4 GiB of 57.7 are 7 % of the pool; 4096 to 4608 tokens are 11 % of a conversation
        ({"reserve": "4GiB", "context": 4608}, "max_sessions", "session/full"),
        ({"reserve": "9GiB", "context": 4608}, "max_sessions", "overhead/reserve"),
    ],
)
def test_the_line_that_moved_a_figure_most(change: dict[str, Any], column: str, line: str) -> None:
    before, now = kept(), kept(**change)
    move = next(move for move in moves(before, now, {}) if move.column == column)
    assert move.ledger_line == line
    assert move.ledger_change_bytes == now.ledger.get(line, 0) - before.ledger.get(line, 0) != 0


def test_what_did_not_move_has_no_line() -> None:
    found = moves(kept(), kept(max_seqs=64), {})
    sessions = next(move for move in found if move.column == "max_sessions")
    assert (sessions.now, sessions.ledger_line) == (64, None)
    assert {move.verdict for move in moves(kept(), kept(), {})} == {"same"}


def test_the_file_holds_all_figures_and_is_the_same_each_time(tmp_path: Path) -> None:
    found = {("b", ""): kept(), ("a", "context=1"): kept(context=1), ("a", ""): kept(kv_budget="1GiB", gpu=None)}
    text = baseline_text(found)
    assert text == baseline_text(dict(reversed(found.items())))
    path = tmp_path / "baseline.json"
    path.write_text(text, encoding="utf-8")
    read = read_baseline(path)
    assert read.scenarios == found
    assert read.kvplan_version == __version__
    assert len(read.date) == len("2026-01-01")
    entries = json.loads(text)["scenarios"]
    assert [(e["deployment"], e["scenario"]) for e in entries] == sorted(found)
    assert all(set(e["figures"]) == set(KEYS) for e in entries)
    assert text.count(read.date) == 1  # in the head alone


GOOD: dict[str, Any] = {"kvplan_baseline": 1, "kvplan_version": "0", "date": "", "scenarios": []}
ENTRY: dict[str, Any] = {"deployment": "a", "scenario": "", "figures": {}, "ledger": {}}


@pytest.mark.parametrize(
    "content",
    [
        "", "null", "[]", "{}", "5", "{", "\x00", "[" * 100_000, '{"kvplan_baseline": 1}',
        json.dumps({**GOOD, "scenarios": {}})[:-2] + "5}", json.dumps({**GOOD, "scenarios": [5]}),
        json.dumps({**GOOD, "scenarios": [{**ENTRY, "figures": {"max_sessions": []}}]}),
        json.dumps({**GOOD, "scenarios": [{**ENTRY, "figures": {"max_sessions": float("nan")}}]}),
        json.dumps({**GOOD, "scenarios": [{**ENTRY, "figures": {"max_sessions": 10**400}}]}),
        json.dumps({**GOOD, "scenarios": [{**ENTRY, "figures": {"max_sessions": 5}}]}).replace("5", "1e999"),
        json.dumps({**GOOD, "scenarios": [{**ENTRY, "ledger": {"x": "y"}}]}),
        json.dumps({**GOOD, "scenarios": [{**ENTRY, "figures": 5}]}),
        json.dumps({**GOOD, "scenarios": [{**ENTRY, "figures": {"max_sessions": "abc"}}]}),
        json.dumps({**GOOD, "scenarios": [ENTRY, ENTRY]}),  # which of the two is guarded?
        json.dumps({**GOOD, "kvplan_version": __version__, "scenarios": [ENTRY]}),  # figures taken out
    ],
)  # fmt: skip
def test_a_file_that_is_no_baseline_is_told_so(tmp_path: Path, content: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match="is not a baseline of kvplan; write one with --write-baseline"):
        read_baseline(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file; write it with --write-baseline"):
        read_baseline(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_baseline(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(InputError, match="is not a baseline"):
        read_baseline(tmp_path / "latin.json")


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_is_refused(tmp_path: Path, version: Any) -> None:
    path = tmp_path / "b.json"
    path.write_text(json.dumps({**GOOD, "kvplan_baseline": version}), encoding="utf-8")
    with pytest.raises(InputError, match=r"has format .*, and kvplan .* reads format 1; write it again with --write-"):
        read_baseline(path)


def test_columns_that_a_baseline_lacks_are_not_compared() -> None:
    before, now = kept(), kept(context=8192)
    del before.figures["max_sessions"]
    assert "max_sessions" not in {move.column for move in moves(before, now, {})}
    before.figures["of_the_future"] = 5
    assert moves(before, now, {})
