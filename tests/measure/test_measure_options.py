"""The command line's texts, checked before PyTorch is loaded: these tests need no PyTorch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kvplan.cli.main import main
from kvplan.errors import InputError
from kvplan.measure.options import parse
from kvplan.measure.rows import failed, row
from kvplan.report.growing import GrowingResult


def test_texts_become_numbers() -> None:
    options = parse(
        {
            "model": "m",
            "batch": "8,1",
            "context": "2k,512",
            "memory_limit": "2GiB",
            "time_budget": "90s",
            "tolerance": "2%",
            "mixed_lengths": "100,7",
        }
    )
    assert (options.batches, options.contexts) == ((1, 8), (512, 2048))
    assert (options.memory_limit, options.time_budget_s, options.tolerance) == (2**31, 90.0, 0.02)
    assert options.mixed_lengths == (100, 7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch": "1,x"}, "--batch: expected a whole number of at least 1, got 'x'"),
        ({"batch": "0"}, "--batch: expected a whole number"),
        ({"context": "12q"}, "--context: '12q' is not a number of tokens"),
        ({"memory_limit": "8"}, "--memory-limit: '8' has no unit"),
        ({"time_budget": "soon"}, "--time-budget: 'soon' is not a duration; write for example 90s or 3m"),
        ({"time_budget": "0s"}, "--time-budget: '0s' is not a duration"),
        ({"tolerance": "tight"}, "--tolerance: 'tight' is not a tolerance; write for example 2% or 0.02"),
        ({"dtype": "fp8"}, "--dtype fp8: expected one of auto, fp32, bf16, fp16"),
        ({"prompt": "hello"}, "--prompt needs --checkpoint"),
        ({"tp": "2", "fill": True}, "--tp goes with --batch, --context and --layers only"),
        ({"mixed_lengths": "1,5"}, "--mixed-lengths: a session has at least 2 tokens"),
    ],
)
def test_mistakes_are_told(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match="^" + message.replace("(", r"\(").replace("+", r"\+")):
        parse({"model": "m", **given})


def test_without_torch_the_install_command_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("kvplan.measure.needs.find_spec", lambda name: None if name == "torch" else real(name))
    assert main(["measure", "--model", "llama-3.2-1b"]) == 3
    assert "pip install 'kvplan[measure]'" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--model", "llama-3.2-1b", "--output", "/no/such/folder/x.json"]) == 2
    assert "there is no folder /no/such/folder" in capsys.readouterr().err


def test_error_and_within() -> None:
    assert row("weights", "bytes", predicted=101, observed=100, tolerance=0.02)["error"] == pytest.approx(0.01)
    assert row("weights", "bytes", predicted=101, observed=100, tolerance=0.02)["within"] is True
    assert row("sessions", "sessions", predicted=10, observed=12, low=9, high=11)["within"] is False
    only_observed = row("baseline", "bytes", observed=100)
    assert (only_observed["error"], only_observed["within"], only_observed["basis"]) == (None, None, None)


def test_only_memory_predictions_fail_a_run() -> None:
    missed = row("weights", "bytes", predicted=2, observed=1, tolerance=0.1, memory=True)
    slow = row("decode_step", "s", predicted=2, observed=1, tolerance=0.1)
    assert failed([missed, slow]) == [missed]


def test_the_file_is_whole_after_every_row(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("before")
    result = GrowingResult(path, lambda rows: ",".join(str(r["n"]) for r in rows))
    assert path.read_text() == "before"
    for n, expected in ((1, "1"), (2, "1,2")):
        result.add({"n": n})
        assert path.read_text() == expected
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]
