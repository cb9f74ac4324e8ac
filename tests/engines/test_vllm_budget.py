"""Weights and profile peaks of single models, as start-up logs of vLLM 0.17 to 0.19 on H100 print them (GiB)."""

import pytest

from kvplan import estimate
from kvplan.engines.vllm.fused import Allocation, allocations
from kvplan.loading import load_model
from kvplan.schemes import scheme
from kvplan.sharding import shard

GIB, MIB = 2**30, 2**20


def found(model, tp=1, **options):
    return estimate(model, f"{tp}xh100-sxm", engine="vllm", tp=tp, **{"engine_version": "0.19", **options})


def lines(estimated):
    return {line.name: line.bytes for line in [*estimated.stage.weights, *estimated.budget.overhead]}


@pytest.mark.parametrize(
    ("model", "tp", "logged"),
    [
        ("llama-3.1-8b", 1, 14.9888),
        ("qwen2.5-7b-instruct", 1, 14.25),
        ("phi-4", 1, 27.39),
        ("qwen2.5-72b-instruct", 2, 67.8),
        ("qwen2.5-72b", 4, 34.01),
        ("gemma-3-27b", 1, 51.45),
        ("deepseek-v2-lite", 1, 29.43),
        ("gpt-oss-20b", 1, 13.64),
        ("gpt-oss-20b", 2, 7.01),
        ("qwen3.5-9b", 1, 17.66),
    ],
)
def test_weights(model, tp, logged):
    assert found(model, tp).stage.weights_bytes / GIB == pytest.approx(logged, rel=0.001)


@pytest.mark.parametrize(
    ("model", "tp", "logged"),
    [
        ("llama-3.1-8b", 4, 1.89),
        ("llama-3.3-70b", 2, 1.96),
        ("qwen2.5-72b", 2, 2.29),
        ("phi-4", 1, 1.52),
        ("gemma-2-27b", 1, 3.66),
        ("gemma-3-4b", 1, 3.89),
        ("granite-3.1-8b", 1, 0.85),
        ("codellama-7b", 1, 0.77),
        ("mixtral-8x7b", 2, 1.22),
        ("gpt-oss-20b", 1, 2.87),
        ("deepseek-v2-lite", 1, 1.93),
        ("llama-4-scout", 4, 3.19),
    ],
)
def test_the_peak_of_the_profile_run(model, tp, logged):
    parts = lines(found(model, tp))
    peak = sum(parts.get(f"overhead/{name}", 0) for name in ("activation_peak", "expert_workspace", "vision_profile"))
    assert peak / GIB == pytest.approx(logged, abs=0.07)


def test_the_sampler_before_0_17():
    """Qwen3-14B: 5.64 GiB in 0.15, 2.23 in 0.17, same flags."""
    peaks = [lines(found("qwen3-14b", engine_version=v))["overhead/activation_peak"] / GIB for v in ("0.15", "0.17")]
    assert [round(peak, 2) for peak in peaks] == [5.64, 2.23]


@pytest.mark.parametrize(
    ("model", "tp", "size"),
    [
        ("llama-3.1-8b", 1, 32 * MIB),  # 131072 x 128 x 2
        ("gemma-3-27b", 1, 288 * MIB),  # 8 x 131072 x 128 x 2, and an eighth
        ("llama-4-scout", 8, 2560 * MIB),  # 10485760 x 128 x 2 on every rank
        ("deepseek-v2-lite", 1, 40 * MIB),  # 163840 x 64 x 4
    ],
)
def test_rotary_tables(model, tp, size):
    assert lines(found(model, tp))["weights/rotary_tables"] == size


def test_models_without_rotary_positions_have_no_table():
    assert "weights/rotary_tables" not in lines(found("bloom-7b1"))
    assert "weights/rotary_tables" not in lines(found("opt-6.7b"))


def test_mla_keeps_its_up_projection_twice():
    assert lines(found("deepseek-v2-lite"))["weights/mla_split_copy"] == 27 * 16 * 256 * 512 * 2


def test_the_vocabulary_is_padded_to_64_rows():
    """Gemma 3 has 262,208 = 64 x 4,097 rows; Granite 3.1 has 49,155, of which 49,216 are allocated."""
    assert "weights/vocabulary_padding" not in lines(found("gemma-3-27b"))
    padded = lines(found("granite-3.1-8b"))["weights/vocabulary_padding"]
    assert padded == (49_216 - 49_155) * 4096 * 2


@pytest.mark.parametrize(
    ("size", "added"),
    [
        (10 * MIB - 1, 0),  # small blocks share a segment
        (10 * MIB, 0),
        (11 * MIB, MIB),
        (11 * MIB - 1, 0),  # more than 1 MiB left over is given back
        (12 * MIB - 100, 100),
    ],
)
def test_what_the_allocator_adds(size, added):
    assert Allocation("x", size, 1).rounding == added


def test_projection_and_gate_of_a_delta_net_are_one_tensor():
    """vllm/model_executor/models/qwen3_5.py: in_proj_qkv and in_proj_z are loaded into in_proj_qkvz."""
    rank = shard(load_model("qwen3.5-9b"))[0]
    large = {each.name: each for each in allocations(rank, scheme("bf16"))}
    fused = large["state in_proj_qkvz"]
    assert (fused.bytes, fused.times) == ((2 * 2048 + 2 * 4096) * 4096 * 2, 24)
    assert not {name for name in large if name.startswith("state in_proj_")} - {fused.name, "state in_proj_ba"}


def test_fp32_doubles_steps_and_copies_the_logits_half_as_often_again():
    """Llama-3.1-8B in fp32: 29.98 GiB of weights, a peak of 2.21 GiB."""
    estimated = found("llama-3.1-8b", weights="fp32", kv_dtype="fp32")
    assert estimated.stage.weights_bytes / GIB == pytest.approx(29.98, abs=0.01)
    assert lines(estimated)["overhead/activation_peak"] / GIB == pytest.approx(2.21, abs=0.01)


def test_cards_without_nvlink_have_no_buffers_for_all_reduce():
    """Two L40S with 0.16: 20.16 GiB for the cache of Llama-3-70B in AWQ."""
    estimated = estimate(
        "TechxGenus/Meta-Llama-3-70B-Instruct-AWQ", "2xl40s", engine="vllm", engine_version="0.16", context=8192
    )
    assert estimated.kv_budget_bytes / GIB == pytest.approx(20.16, rel=0.01)
