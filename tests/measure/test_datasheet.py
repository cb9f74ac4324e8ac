"""The bound that a GPU's datasheet sets."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from kvplan.measure.datasheet import datasheet_of
from kvplan.measure.step_model import Work


def test_a_step_is_bound_by_memory_and_a_prompt_by_arithmetic() -> None:
    found = datasheet_of("NVIDIA H100 80GB HBM3", "bf16")  # NVIDIA's datasheet: 3.35 TB/s, 989.4 dense TFLOPS in bf16
    assert found is not None
    assert found.gpu == "h100-sxm"
    # Llama-3.1-8B at batch 1: 15.01 GB of weights read, 1 GB of cache, 15 GFLOP; 16.01 / 3350 s = 4.779 ms
    assert found.seconds(Work(15_010_000_000, 1_000_000_000, 15_000_000_000)) == pytest.approx(4.779e-3, rel=1e-3)
    # 8192 tokens of 15 GFLOP: 122.88 / 989.4 s = 124.2 ms
    assert found.seconds(Work(15_010_000_000, 0, 122_880_000_000_000)) == pytest.approx(0.1242, rel=1e-3)


def test_unknown_devices_have_no_bound() -> None:
    assert datasheet_of("A card that nobody sells", "bf16") is None
