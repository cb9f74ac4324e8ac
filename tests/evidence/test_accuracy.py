"""docs/accuracy.md is what benchmarks/accuracy.py computes now, and its figures hold what they promise."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from kvplan.evidence.conditions import usable_version

ROOT = Path(__file__).resolve().parent.parent.parent
TOLD = ("blocks", "tokens", "concurrency")


@pytest.fixture(scope="module")
def script() -> Any:
    """The modules of the script, which is no part of the package."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import accuracy
        from scoring import chart, page, reasons, result
    finally:
        sys.path.pop(0)

    class Script:
        main, drawn, text, why, gathered = accuracy, chart, page, reasons, result

    return Script


@pytest.fixture(scope="module")
def result(script: Any) -> Any:
    return script.main.compute(script.main.RUNS)


@pytest.fixture(scope="module")
def errors(script: Any, result: Any) -> Any:
    """Median, 90th percentile and worst of votes."""

    def found(quantity: str, *wanted: Any) -> tuple[float, float, float]:
        values = [vote.error for vote in result.votes(quantity, *wanted)]
        return median(values), script.gathered.percentile_90(values), max(values)

    return found


def undated(text: str, beginning: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(beginning)]


def test_the_page_is_up_to_date(script: Any, result: Any) -> None:
    written = script.main.PAGE.read_text(encoding="utf-8")
    again = "run python benchmarks/accuracy.py --write"
    assert undated(written, script.text.DATED) == undated(script.text.page(result), script.text.DATED), again
    assert sum(line.startswith(script.text.DATED) for line in written.splitlines()) == 1
    assert script.main.CHART.read_text(encoding="utf-8") == script.drawn.picture(result), again


def test_weights(script: Any, result: Any, errors: Any) -> None:
    four_bit = script.gathered.four_bit_floats
    middle, most, _ = errors("weights")
    assert len(result.votes("weights")) >= 45
    assert middle <= 0.001
    assert most <= 0.007
    assert errors("weights", lambda each: not four_bit(each))[2] <= 0.025
    assert errors("weights", four_bit)[2] <= 0.03


def test_memory_for_the_cache(script: Any, result: Any, errors: Any) -> None:
    settled = script.gathered.settled
    middle, most, _ = errors("kv", settled)
    assert len(result.votes("kv", settled)) >= 30
    assert middle <= 0.003
    assert most <= 0.02
    assert all(abs(each.share) <= 0.01 for vote in result.votes("kv", settled) for each in vote.scores)
    assert errors("kv", lambda each: not settled(each))[0] <= 0.03


def test_constants_hold_for_models_they_were_not_fitted_on(script: Any, result: Any) -> None:
    pairs = {how: row.split(" | ")[3] for row in script.text.unseen_rows(result) for how in [row.split(" | ")[2]]}
    assert float(pairs["unseen"].removesuffix(" %")) <= 0.3  # the last rows are those of KV memory
    again = [each for each in result.refits.values() if each.peak is not None and each.non_torch is not None]
    assert len(again) >= 35


@pytest.mark.parametrize("quantity", TOLD)
def test_the_pool_follows_from_the_logged_memory(quantity: str, result: Any) -> None:
    assert len(result.votes(quantity)) >= 25
    assert all(vote.within for vote in result.votes(quantity))


def test_bands_hold_and_are_narrow_where_version_and_flags_are_known(script: Any, result: Any) -> None:
    found = result.votes("kv", script.gathered.known)
    assert sum(vote.within for vote in found) >= 0.9 * len(found)
    assert median(vote.width for vote in found) <= 0.015


@pytest.mark.parametrize(("withheld", "most"), [("version", 0.08), ("`max_num_seqs`", 0.08), ("both", 0.08)])
def test_bands_hold_where_something_is_withheld(withheld: str, most: float, script: Any, result: Any) -> None:
    found = script.gathered.votes(result.blind[withheld])
    assert len(found) >= 35
    assert sum(vote.within for vote in found) >= 0.9 * len(found)
    assert 0.015 < median(vote.width for vote in found) <= most


def test_every_run_is_scored_or_listed(result: Any) -> None:
    named = {each.id for each in result.scores} | {each.id for each in result.unscored}
    assert named == {run["id"] for run in result.runs}
    assert all(each.reason for each in result.unscored)


def test_the_worst_rows_have_a_reason(script: Any, result: Any) -> None:
    found = script.text.worst(result)
    assert len(found) == script.why.WORST
    assert [each.id for each in found if (each.id, each.quantity) not in script.why.REASONS] == []


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("0.19.1", "0.19.1"),
        ("v0.19.0", "0.19.0"),
        ("0.20.1rc1.dev91", "0.20.1rc1.dev91"),  # the engine reads it as a build of the main branch: rules of 0.21
        ("0.26.1rc1.dev608+gabc123", "0.26.1rc1.dev608+gabc123"),
        ("0.11.0 (V1)", "0.11.0"),
        ("0.1.dev20073+g1234567", None),
        ("latest", None),
        (None, None),
    ],
)
def test_a_version_goes_to_the_engine_whole(printed: str | None, expected: str | None) -> None:
    assert usable_version(printed) == expected
