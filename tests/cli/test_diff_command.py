"""kvplan diff: the differences of two models, one by one, whose costs add up."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli.main import main
from kvplan.loading import load_model
from kvplan.planning.diff import COSTS, costs, model_diff


def diff(a: str, b: str, gpu: str | None = None) -> list[dict[str, Any]]:
    return model_diff(load_model(a), load_model(b), gpu)


def test_each_difference_has_its_price() -> None:
    *rows, total = diff("mistral-7b", "llama-3.1-8b")
    found = {row["field"]: row for row in rows}
    assert list(found) == ["vocab_size", "max_context", "rope"]
    # embedding and head grow by 128,256 - 32,768 rows of 4,096
    assert found["vocab_size"]["parameters"] == 2 * (128256 - 32768) * 4096
    assert found["vocab_size"]["weights_bytes"] == 2 * found["vocab_size"]["parameters"]
    assert (found["vocab_size"]["a"], found["vocab_size"]["b"]) == (32768, 128256)
    assert total["parameters"] == 8_030_261_248 - 7_248_023_552  # published totals


def test_heads_cost_cache() -> None:
    found = {row["field"]: row for row in diff("qwen3-30b-a3b", "mixtral-8x7b")}
    assert found["attention.kv_heads"]["kv_bytes_per_token"] == 48 * (8 - 4) * 2 * 128 * 2
    assert found["moe.active"]["parameters"] == 0
    assert found["layers"]["kv_bytes_per_token"] == -16 * 8 * 2 * 128 * 2


def test_formats_cost_bytes_and_no_parameters(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "model_zoo" / "models" / "phi-4.yaml").read_text()
    (tmp_path / "phi-fp8.yaml").write_text(text.replace("hidden_size:", "weights: fp8\nhidden_size:", 1))
    (row, total) = diff("phi-4", str(tmp_path / "phi-fp8.yaml"))
    assert (row["field"], row["a"], row["b"], row["parameters"]) == ("weights", "bf16", "fp8", 0)
    assert row["weights_bytes"] == total["weights_bytes"] < 0


PAIRS = list(
    pairwise(
        ("llama-3.1-8b", "gemma-3-4b", "gemma-3-27b", "gpt-oss-20b", "deepseek-v3", "mamba-2.8b", "falcon-h1-1.5b",
         "granite-4.0-h-tiny", "qwen3-next-80b-a3b", "gemma-3n-e2b", "gpt2", "opt-6.7b", "llama-4-scout", "kimi-linear",
         "nemotron-nano-9b-v2", "llama-3.3-nemotron-super-49b", "minimax-text-01", "llama-3.1-8b"),
    )
)  # fmt: skip


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_costs_add_up_whatever_the_models(a: str, b: str) -> None:
    *rows, total = diff(a, b)
    before, after = costs(load_model(a)), costs(load_model(b))
    for name in COSTS[:3]:
        assert sum(row[name] for row in rows) == total[name] == after[name] - before[name]  # type: ignore[operator]


def test_alike_models_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "phi-4", "phi-4"]) == 0
    assert capsys.readouterr().out == "phi-4 and phi-4 are alike in shape and formats\n"


def test_sessions_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "mistral-7b", "llama-3.1-8b", "--gpu", "a100-80g", "--context", "8k", "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[-1]["field"] == "in all"
    assert rows[-1]["sessions"] == sum(row["sessions"] for row in rows[:-1]) < 0
    assert main(["diff", "mistral-7b", "llama-3.1-8b", "--gpu", "a100-80g"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == [
        "field",
        "mistral-7b",
        "llama-3.1-8b",
        "parameters",
        "weights",
        "KV",
        "a",
        "token",
        "sessions",
    ]
    assert table[-1].startswith("in all")


def test_mistakes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "mistral-7b", "mistral-7"]) == 2
    assert "write one of" in capsys.readouterr().err
    assert main(["diff", "mistral-7b", "phi-4", "--gpu", "h100"]) == 2
    assert "'h100' is not exact" in capsys.readouterr().err
