"""The device script runs from end to end: here on the CPU, with a tiny shape."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "device" / "run.sh"


def test_a_dry_run_writes_every_result(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", str(SCRIPT), "--dry-run", str(tmp_path)],
        capture_output=True, text=True, timeout=400, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "device.json").read_text())
    logits = [row for row in rows if row["quantity"].startswith("logits_")]
    assert len(logits) == 8 * 3  # models, ways of running them
    assert all(row["within"] for row in logits)
    quantities = {row["quantity"] for row in rows}
    assert {"weights", "kv_cache", "activations", "sessions", "ttft", "decode_step", "transformers_step"} <= quantities
    assert {row["batch"] for row in rows if row["quantity"] == "decode_step"} == {1, 2, 4}
    with (tmp_path / "device.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert "| decode_step | 1 | 32 |" in (tmp_path / "device.md").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 3
    assert "PyTorch finds no CUDA device here" in done.stderr
