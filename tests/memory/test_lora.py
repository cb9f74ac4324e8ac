"""Slots for LoRA adapters on models that have all, some or none of the usual seven projections."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.loading import load_model
from kvplan.memory.lora import lora_line
from kvplan.planning.estimate import estimate
from kvplan.sharding import shard


@pytest.mark.parametrize(
    ("model", "inputs_and_outputs", "names"),
    [
        # 32 layers; hidden 4096, keys and values 1024, MLP 14336
        pytest.param(
            "llama-3.1-8b", 32 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)),
            "q, k, v, o, gate, up and down", id="all",
        ),
        # 12 layers; hidden 768, MLP 3072 without a gate
        pytest.param("gpt2", 12 * (4 * (768 + 768) + 2 * (768 + 3072)), "q, k, v, o, up and down", id="no-gate"),
        # 48 layers; hidden 2048, queries 4096, keys and values 512, all MLPs are experts
        pytest.param(
            "qwen3-30b-a3b", 48 * (2 * (2048 + 4096) + 2 * (2048 + 512)), "q, k, v and o", id="attention-only"
        ),
    ],
)  # fmt: skip
def test_slots_are_for_the_projections_that_are_there(model: str, inputs_and_outputs: int, names: str) -> None:
    line = lora_line(shard(load_model(model))[0], lora_rank=16, max_loras=3)
    assert line.bytes == 3 * 16 * inputs_and_outputs * 2
    assert line.source == f"rank 16 on {names} (Hu et al. 2021)"


@pytest.mark.parametrize("model", ["falcon-mamba-7b", "mamba2-2.7b"])
def test_a_model_with_nothing_to_adapt_is_refused(model: str) -> None:
    with pytest.raises(InputError, match=f"--lora-rank: {model} has none of the projections"):
        estimate(model, "a100-80g", lora_rank=16)


@pytest.mark.parametrize(
    ("model", "note"),
    [
        ("llama-3.1-8b", None),
        ("qwen3-30b-a3b", "LoRA slots do not count adapters on experts"),
        ("jamba-v0.1", "LoRA slots do not count adapters on experts and state layers"),
        (
            "deepseek-v2-lite",
            "LoRA slots do not count adapters on experts and the low-rank projections of latent attention",
        ),
    ],
)
def test_what_is_not_counted_is_noted(model: str, note: str | None) -> None:
    notes = estimate(model, "h200", lora_rank=16).notes
    assert [said for said in notes if "LoRA" in said] == ([note] if note else [])
    assert not any("LoRA" in said for said in estimate(model, "h200").notes)
