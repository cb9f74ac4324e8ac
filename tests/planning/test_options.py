"""Choices beside the model and the GPU, each with arithmetic by hand."""

from __future__ import annotations

import pytest

from kvplan import estimate, load_gpu, load_model
from kvplan.errors import InputError

GIB = 2**30


def line(found, name):
    (one,) = [each for each in found.ledger if each.name == name]
    return one


@pytest.mark.parametrize(
    ("gpu", "options", "degrees"),
    [
        ("a100-80g", {}, (1, 1, 1)),
        ("8xa100-80g", {}, (8, 1, 1)),  # not given: tp first
        ("8xa100-80g", {"tp": 4}, (4, 1, 2)),  # then replicas
        ("8xa100-80g", {"dp": 2}, (4, 1, 2)),
        ("8xa100-80g", {"tp": 2, "dp": 2}, (2, 2, 2)),
        ("8xa100-80g", {"tp": 2, "pp": 2, "dp": 2}, (2, 2, 2)),
        ("a100-80g", {"tp": 8}, (8, 1, 1)),  # a single name with --tp 8 means eight
    ],
)
def test_the_count_of_gpus_is_completed(gpu, options, degrees):
    s = estimate("mistral-7b", gpu, **options).scenario
    assert (s.tp, s.pp, s.dp) == degrees


def test_replicas_multiply_sessions_and_tokens():
    one, four = estimate("mistral-7b", "a100-80g"), estimate("mistral-7b", "a100-80g", dp=4)
    assert (four.max_sessions, four.kv_tokens) == (4 * one.max_sessions, 4 * one.kv_tokens)


def test_max_seqs_limits_each_replica():
    found = estimate("mistral-7b", "a100-80g", max_seqs=10, dp=2)
    assert (found.max_sessions, found.limited_by) == (20, "max_seqs")


def test_a_reserve_is_taken_off_inside_the_fraction():
    plain, less = (estimate("mistral-7b", "a100-80g", reserve=r) for r in (None, "2GiB"))
    assert plain.kv_budget_bytes - less.kv_budget_bytes == 2 * GIB
    assert line(less, "overhead/reserve").bytes == 2 * GIB


def test_a_kv_budget_needs_no_gpu():
    row = estimate("mistral-7b", kv_budget="60GiB").to_dict()
    assert row["max_sessions"] == 120  # 60 GiB / 512 MiB
    assert all(row[key] is None for key in ("gpu", "gpu_memory_bytes", "unrequested_bytes", "memory_fraction"))


def test_blocks_round_a_session_up():
    # 100 tokens in blocks of 64 are 2 blocks: 128 x 131,072 B reserved, 100 x 131,072 B live
    found = estimate("mistral-7b", kv_budget="1GiB", context=100, block_size=64)
    assert found.kv_bytes_per_session == 128 * 131_072
    assert found.kv_bytes_per_session_logical == 100 * 131_072
    assert found.max_sessions == GIB // (128 * 131_072)


def test_a_shared_prefix_is_stored_once():
    # 1000 of 4096 tokens are shared: 131,072,000 B once; a session adds 3096 x 131,072 B
    found = estimate("mistral-7b", kv_budget="60GiB", shared_prefix=1000)
    assert found.prefix_bytes == 131_072_000
    assert found.kv_bytes_per_session == 3096 * 131_072
    assert found.max_sessions == (60 * GIB - 131_072_000) // (3096 * 131_072) == 158
    # the longest conversation alone uses the whole budget, shared or not
    assert found.max_context_tokens == estimate("mistral-7b", kv_budget="60GiB").max_context_tokens


def test_a_draft_model_adds_its_weights_and_its_cache():
    # smollm2-135m drafts for smollm2-360m (same tokens): 134,515,008 x 2 B; 30 x 2 x 3 x 64 x 2 = 23,040 B a token
    plain = estimate("smollm2-360m", "t4")
    found = estimate("smollm2-360m", "t4", draft_model="smollm2-135m")
    assert line(found, "overhead/draft_model").bytes == 2 * 134_515_008
    assert found.kv_bytes_per_token - plain.kv_bytes_per_token == 23_040
    with pytest.raises(InputError, match="a draft must use the same tokens"):
        estimate("mistral-7b", "a100-80g", draft_model="smollm2-135m")


def test_lora_slots_are_divided_with_their_projections():
    # llama-3.1-8b, rank 16, tp 2: q, k, v, gate, up keep 4096 inputs and half the outputs; o, down half the inputs:
    # 16 x ((4096 + 2048) + 2 (4096 + 512) + (2048 + 4096) + 2 (4096 + 7168) + (7168 + 4096)) x 32 layers
    each = 16 * ((4096 + 2048) + 2 * (4096 + 512) + (2048 + 4096) + 3 * (4096 + 7168)) * 32
    found = estimate("llama-3.1-8b", "a100-80g", tp=2, lora_rank=16, max_loras=4)
    assert line(found, "overhead/lora_slots").bytes == 4 * each * 2


def test_state_is_charged_whatever_the_length():
    # qwen3.5-9b: 24 layers x (32 x 128 x 128 x 4 B + 3 x 8192 x 2 B) = 51,511,296 B (config.json: fp32 state)
    found = estimate("qwen3.5-9b", kv_budget="1GiB", context=1)
    assert line(found, "session/state").bytes == 24 * (32 * 128 * 128 * 4 + 3 * 8192 * 2) == 51_511_296
    assert found.limited_by == "state"


def test_extras_are_served_unless_left_out():
    # gemma-3-27b: SigLIP 416,866,032 and projector 6,194,304 parameters in 16 bit
    served, text = (estimate("gemma-3-27b", "a100-80g", extras=e).stage.weights_bytes for e in (None, "none"))
    assert served - text == 2 * (416_866_032 + 6_194_304)
    # prediction layers are loaded only when asked for
    default, asked = (estimate("deepseek-v3", "h200-sxm", extras=e).stage.weights_bytes for e in (None, "mtp"))
    assert asked - default == 2 * 11_610_068_224


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ep": 2, "tp": 2}, "mistral-7b has no experts to share out"),
        ({"ep": 3, "tp": 2}, "--ep 3 must divide tp x dp, which is 2"),
        ({"shared_prefix": 4096}, "must be below --context 4096"),
        ({"max_model_len": 100}, "--max-model-len 100 is below --context 4096"),
        ({"max_loras": 2}, "--max-loras needs --lora-rank"),
        ({"context": 2**33}, "more than 4,294,967,296 tokens"),
        ({"context": 0}, "--context: expected a whole number of at least 1, got 0"),
        ({"memory_fraction": "0.9"}, "--memory-fraction: expected a number above 0 and at most 1, got '0.9'"),
        ({"memory_fraction": 0}, "--memory-fraction: expected a number above 0 and at most 1, got 0"),
        ({"engine": "vlm"}, "unknown engine 'vlm'"),
        ({"engine_version": "1"}, "engine 'generic' has no versions"),
        ({"extras": "tower"}, "mistral-7b has no extra 'tower'"),
        ({"reserve": "2"}, "--reserve: '2' has no unit"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        estimate("mistral-7b", "a100-80g", **options)


def test_shared_memory_needs_the_users_limit():
    with pytest.raises(InputError, match="dgx-spark shares its memory with the CPU, so say how much of it to use"):
        estimate("mistral-7b", "dgx-spark")
    assert estimate("mistral-7b", "dgx-spark", memory_fraction=0.5).fits
    assert estimate("mistral-7b", "dgx-spark", reserve="16GiB").fits


def test_specs_can_be_given_instead_of_names():
    found = estimate(load_model("mistral-7b"), load_gpu("a100-80g"))
    assert found.to_dict() == estimate("mistral-7b", "a100-80g").to_dict()


def test_a_context_beyond_the_model_needs_scaling():
    (note,) = estimate("mistral-7b", "a100-80g", context="64k").notes
    assert (
        note
        == "context 65536 is above mistral-7b's maximum of 32768: it needs rope scaling by a factor of 2 from 32768"
    )
