"""`kvplan measure` as it is run: a process of its own, whose memory is read before anything else was in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

MIB = 1024**2
SMALL = """
name: small
hidden_size: 256
vocab_size: 24000
tied: TIED
layers: 4
layer:
  attention: {heads: 8, kv_heads: 4, head_dim: 32}
  mlp: {intermediate_size: 1024}
"""
QUICK = ("--threads", "1", "--repeats", "3", "--time-budget", "30s", "--device", "cpu")


def model_file(folder: Path, tied: bool = False) -> str:
    path = folder / "small.yaml"
    path.write_text(SMALL.replace("TIED", str(tied).lower()))
    return str(path)


def measure(*options: str, check: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvplan", "measure", *QUICK, *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == check, done.stderr
    return done


def rows_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def one(rows: list[dict[str, Any]], quantity: str, **at: int) -> dict[str, Any]:
    (found,) = [r for r in rows if r["quantity"] == quantity and all(r[key] == value for key, value in at.items())]
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """One run with everything that is asked for besides."""
    folder = tmp_path_factory.mktemp("run")
    options = ("--model", model_file(folder), "--dtype", "fp32", "--batch", "1,3", "--context", "256,1k,2k")
    more = ("--fill", "--memory-limit", "900MiB", "--mixed-lengths", "40,300,7", "--compare-naive")
    return rows_of(measure(*options, *more, "--tolerance", "5%", "--format", "json"))


def test_weights_and_cache_within_one_percent(run: list[dict[str, Any]]) -> None:
    # 2 x 24000 x 256, and 4 x (256 x 512 + 256 x 256 + 3 x 256 x 1024 + 2 x 256) + 256 parameters, 4 bytes each
    weights = one(run, "weights")
    assert weights["predicted"] == 4 * (2 * 24000 * 256 + 4 * (256 * 768 + 3 * 256 * 1024 + 512) + 256)
    assert weights["observed"] == pytest.approx(weights["predicted"], rel=0.01)
    cache = one(run, "kv_cache")
    assert cache["predicted"] == 3 * 4 * 2 * 4 * 32 * 2048 * 4  # sessions, layers, K and V, heads, width, tokens, bytes
    assert cache["observed"] == pytest.approx(cache["predicted"], rel=0.01)


def test_activations_within_five_percent(run: list[dict[str, Any]]) -> None:
    found = one(run, "activations")
    assert found["observed"] == pytest.approx(found["predicted"], rel=0.05)
    assert found["within"] is True


def test_filled_to_the_session_predicted(run: list[dict[str, Any]]) -> None:
    found = one(run, "sessions")
    assert abs(found["observed"] - found["predicted"]) <= max(1, 0.01 * found["predicted"])
    assert "can't allocate memory" in found["refusal"]


def test_the_ledger_adds_up(run: list[dict[str, Any]]) -> None:
    assert one(run, "memory")["observed"] == 900 * MIB
    left = one(run, "kv_budget")["predicted"]
    assert 0 < left < 900 * MIB - one(run, "weights")["predicted"] - one(run, "baseline")["observed"]


def test_every_point_has_its_prediction_and_samples(run: list[dict[str, Any]]) -> None:
    for batch in (1, 3):
        for context in (256, 1024, 2048):
            step = one(run, "decode_step", batch=batch, context_tokens=context)
            assert step["predicted"] > 0
            assert len(step["samples"]) == 3
            assert step["operations"] > 0
            assert step["share_of_copy"] > 0
            rate = one(run, "decode_rate", batch=batch, context_tokens=context)
            assert rate["observed"] == pytest.approx(batch / step["observed"])
    assert one(run, "ttft", context_tokens=256)["basis"] == "formula"


def test_bytes_of_a_step(run: list[dict[str, Any]]) -> None:
    step = one(run, "decode_step", batch=3, context_tokens=1024)
    read = one(run, "weights")["predicted"] - 4 * 24000 * 256  # the embedding is looked up, not streamed
    assert step["bytes_moved"] == read + 3 * 4 * 2 * 4 * 32 * 1024 * 4


def test_the_error_after_calibration_is_reported(run: list[dict[str, Any]]) -> None:
    found = one(run, "calibrated_step_error")
    assert len(found["errors"]) == 4  # six points, two of them fitted
    assert found["observed"] >= 0
    fitted = [r for r in run if r["quantity"] == "decode_step_calibrated"]
    assert [r["basis"] for r in fitted] == ["fitted on these points", "extrapolated", "fitted on these points"] + [
        "extrapolated"
    ] * 3
    assert [r["error"] for r in fitted if r["basis"] == "extrapolated"] == pytest.approx(found["errors"])
    for row in fitted[0], fitted[2]:  # a line through two points meets both
        assert row["predicted"] == pytest.approx(row["observed"])


def test_unequal_lengths_in_both_caches(run: list[dict[str, Any]]) -> None:
    token = 4 * 2 * 4 * 32 * 4
    assert one(run, "contiguous_reserved")["observed"] == 3 * 300 * token
    assert one(run, "contiguous_live")["observed"] == 347 * token
    assert one(run, "paged_reserved")["observed"] == (48 + 304 + 16) * token
    assert one(run, "paged_wasted")["observed"] == (8 + 4 + 9) * token
    assert one(run, "mixed_logit_difference")["within"] is True


def test_operations_with_and_without_a_cache_are_those_counted(run: list[dict[str, Any]]) -> None:
    """G1 and G2: cubic without a cache, quadratic with one."""
    counted = [r for r in run if r["quantity"].endswith("operations")]
    assert len(counted) >= 8
    for found in counted:
        assert found["observed"] == pytest.approx(found["predicted"], rel=0.01)
    for quantity, power in (("naive_attention_power", 3), ("cached_attention_power", 2)):
        found = one(run, quantity)
        assert found["observed"] == pytest.approx(found["predicted"])
        assert power - 0.2 < found["observed"] <= power  # the lower powers in n(n+1)(n+2) fade as n grows


def test_the_run_is_recorded(run: list[dict[str, Any]]) -> None:
    for found in run:
        assert list(found)[:9] == [
            "quantity", "unit", "predicted", "predicted_low", "predicted_high", "observed", "error", "within", "basis",
        ]  # fmt: skip
        about = found["run"]
        assert about["device"] == "cpu"
        assert about["dtype"] == "fp32"
        assert about["threads"] == 1
        assert about["options"]["batches"] == [1, 3]
        assert {"date", "torch", "commit", "driver", "device_name"} <= set(about)


def test_fewer_layers_are_said_and_extrapolated(tmp_path: Path) -> None:
    options = ("--model", model_file(tmp_path), "--layers", "2", "--batch", "1", "--context", "128")
    done = measure(*options, "--format", "json")
    assert "note: --layers 2" in done.stderr
    rows = rows_of(done)
    assert one(rows, "decode_step_whole_model")["basis"] == "extrapolated"
    assert one(rows, "weights_whole_model")["predicted"] > one(rows, "weights")["predicted"]
    assert "left" in done.stderr  # progress


def test_a_missed_memory_prediction_exits_1(tmp_path: Path) -> None:
    options = ("--model", model_file(tmp_path), "--layers", "1", "--batch", "1", "--context", "64")
    done = measure(*options, "--tolerance", "0%", check=1)
    assert "NO" in done.stdout
    assert "weights" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--device", "cuda"), 3, "error: --device cuda: "),
        (("--device", "npu"), 2, "expected auto, cpu, cuda, cuda:N or mps"),
        (("--memory-limit", "10MiB"), 2, "is below what the process takes before the first weight"),
        (("--memory-limit", "400MiB", "--context", "1M"), 2, "give a shorter --context"),
        (("--layers", "9"), 2, "has 4 layers"),
        (("--fill",), 2, "--fill on a CPU needs --memory-limit"),
        (("--tp", "2"), 2, "torchrun --nproc-per-node 2 -m kvplan measure --tp 2"),
        (("--checkpoint", "/no/such"), 2, "no such folder"),
    ],
)
def test_what_cannot_be_run_is_a_sentence(tmp_path: Path, options: tuple[str, ...], code: int, message: str) -> None:
    import torch

    if options == ("--device", "cuda") and torch.cuda.is_available():
        pytest.skip("there is one")
    done = measure("--model", model_file(tmp_path), *options, check=code)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_of_which_not_one_layer_fits(tmp_path: Path) -> None:
    done = measure("--model", "llama-3.1-405b", "--memory-limit", "1GiB", check=2)
    assert "one layer of llama-3.1-405b does not fit" in done.stderr


def test_a_killed_run_leaves_a_valid_file(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    command = [sys.executable, "-m", "kvplan", "measure", *QUICK, "--model", model_file(tmp_path)]
    process = subprocess.Popen([*command, "--output", str(target)], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while time.monotonic() < end and not (target.exists() and len(json.loads(target.read_text())) > 2):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert {"weights", "baseline"} <= {row["quantity"] for row in json.loads(target.read_text())}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".kvplan")]


@pytest.mark.parametrize(("heads", "share"), [(4, 2), (1, 1)])
def test_two_ranks_share_a_model(tmp_path: Path, heads: int, share: int) -> None:
    """Key-value heads divided, or copied where there are fewer heads than ranks."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.replace("TIED", "false").replace("kv_heads: 4", f"kv_heads: {heads}"))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "kvplan"]
    options = ["--model", str(path), "--tp", "2", "--batch", "2", "--context", "256", "--dtype", "fp32"]
    done = subprocess.run(
        [*command, "measure", *QUICK, *options, "--format", "json"],
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = rows_of(done)
    weights, cache = one(rows, "weights"), one(rows, "kv_cache")
    assert len(weights["observed_by_rank"]) == 2
    assert cache["predicted"] == 2 * 4 * 2 * (heads // share) * 32 * 256 * 4
    for observed in (*weights["observed_by_rank"],):
        assert observed == pytest.approx(weights["predicted"], rel=0.02)
    assert one(rows, "logit_difference")["within"] is True
