"""What a calculator gets wrong about vLLM: each figure is from a log, an issue, or vLLM's rules worked by hand."""

import pytest

from kvplan import estimate
from kvplan.errors import InputError

GIB = 2**30


def row(model, gpu=None, **options):
    return estimate(model, gpu, engine="vllm", **options).to_dict()


def test_starcoder2_3b_windows_are_charged_with_the_tokens_in_flight():
    """ceil((4096 - 1 + 8192) / 16) + 1 = 769 blocks, of 2,198,512 / 16 = 137,407."""
    budget = 2_198_512 * 30 * 2 * 2 * 128 * 2
    found = row("starcoder2-3b", kv_budget=budget, context=16384, max_batched_tokens=8192, engine_version="0.22")
    assert found["engine_detail"]["blocks_per_session"] == 769
    assert found["engine_detail"]["num_blocks"] == 137_407
    assert round(found["engine_detail"]["max_concurrency"], 2) == 178.68
    assert found["max_sessions"] == 178


def test_gemma_3_27b_admits_13_conversations_of_8k_where_58_would_be_live():
    found = row("gemma-3-27b", kv_budget="60GiB", context="8k", max_batched_tokens=8192)
    assert found["max_sessions"] == 13
    assert 60 * GIB // found["kv_bytes_per_session_logical"] == 58
    assert found["engine_detail"]["steady_sessions"] > 50


def test_gemma_3_27b_windowed_layers_are_charged_window_less_one_plus_batched_tokens():
    found = row("gemma-3-27b", kv_budget="60GiB", context="128k", max_batched_tokens=8192, engine_version="0.22")
    window = next(line for line in found["ledger"] if line["name"] == "session/window")
    assert window["terms"]["charged_tokens"] == 1024 - 1 + 8192
    twice = row("gemma-3-27b", kv_budget="60GiB", context="128k", max_batched_tokens=8192, engine_version="0.26")
    window = next(line for line in twice["ledger"] if line["name"] == "session/window")
    assert window["terms"]["charged_tokens"] == 1024 - 1 + 2 * 8192  # async scheduling, #47728


def test_fp8_cache_on_a_hybrid_is_not_twice_the_capacity():
    """State bytes stay and the block doubles: 528 to 1,056 tokens for Qwen3.5-9B."""
    options = {"kv_budget": "20GiB", "context": 262144, "engine_version": "0.19"}
    plain, small = (row("qwen3.5-9b", kv_dtype=dtype, **options) for dtype in ("bf16", "fp8"))
    assert plain["engine_detail"]["block_tokens"] == 528
    assert small["engine_detail"]["block_tokens"] == 1056
    assert 1.7 < small["engine_detail"]["max_concurrency"] / plain["engine_detail"]["max_concurrency"] < 2


@pytest.mark.parametrize(
    ("model", "kv_dtype", "block"),
    [
        ("qwen3.5-4b", "bf16", 528),
        ("qwen3.5-27b", "bf16", 784),
        ("qwen3.5-27b", "fp8", 1568),
        ("qwen3.5-35b-a3b", "bf16", 1056),
        ("qwen3.5-35b-a3b", "fp8", 2096),
        ("granite-4.0-h-small", "bf16", 528),
        ("nemotron-3-nano", "fp8", 4176),
    ],
)
def test_the_block_of_a_hybrid(model, kv_dtype, block):
    """As the logs of each model print it."""
    found = row(model, kv_budget="20GiB", kv_dtype=kv_dtype, engine_version="0.19")
    assert found["engine_detail"]["block_tokens"] == block


def test_tensor_parallel_copies_a_latent_and_data_parallel_does_not():
    """GitHub vllm-project/vllm issue 51454: a model with one latent holds 7.7 times as much with DP 8 as with TP 8."""
    options = {"engine_version": "0.25", "context": "128k", "max_seqs": 256, "max_batched_tokens": 8192}
    by_tp = row("deepseek-v2-lite", "8xb200", tp=8, **options)
    by_dp = row("deepseek-v2-lite", "8xb200", tp=1, dp=8, ep=8, **options)
    assert by_tp["kv_bytes_per_session"] == by_dp["kv_bytes_per_session"]  # whole on every GPU
    assert by_dp["max_sessions"] / by_tp["max_sessions"] == pytest.approx(7.7, abs=0.3)
    same = {**options, "kv_budget": "60GiB"}
    together, apart = row("deepseek-v3", tp=8, **same), row("deepseek-v3", dp=8, ep=8, **same)
    assert apart["max_sessions"] == 8 * together["max_sessions"]


def test_a_hybrids_token_line_changes_with_0_21_and_no_memory_does():
    """gemma-4-31B on an A100: about 55,000 tokens in 0.20, several hundred thousand in 0.21."""
    options = {"kv_budget": "50GiB", "context": 262144, "max_batched_tokens": 2048}
    before, after = (row("gemma-4-31b", engine_version=version, **options) for version in ("0.20", "0.21"))
    assert before["engine_detail"]["num_blocks"] == after["engine_detail"]["num_blocks"]
    assert before["max_sessions"] == after["max_sessions"]
    assert after["engine_detail"]["reported_tokens"] > 5 * before["engine_detail"]["reported_tokens"]


def test_one_kv_head_is_the_least_a_rank_keeps():
    four, eight = (row("qwen3-235b-a22b", kv_budget="9GiB", tp=tp, context=32768) for tp in (4, 8))
    assert four["kv_bytes_per_session"] == eight["kv_bytes_per_session"]


def test_the_last_pipeline_stage_decides():
    """It samples: Llama-3.1-8B over two H100, 65.63 GiB on the last where the first has 66.54 (log of 0.19)."""
    found = estimate(
        "llama-3.1-8b",
        "2xh100-sxm",
        engine="vllm",
        engine_version="0.19",
        tp=1,
        pp=2,
        memory_fraction=0.95,
        context=8192,
    )
    first, last = (budget.kv.bytes / GIB for budget in found.budgets)
    assert found.figures.stage == 1
    assert first == pytest.approx(66.54, abs=0.05)
    assert last == pytest.approx(65.63, abs=0.2)


def test_the_sampler_peak_does_not_fall_with_tensor_parallel():
    peaks = []
    for tp in (1, 2, 4):
        found = estimate("llama-3.1-8b", f"{tp}xh100-sxm", engine="vllm", engine_version="0.19", tp=tp)
        peaks.append(next(ln.bytes for ln in found.budget.overhead if ln.name == "overhead/activation_peak"))
    assert {round(peak / GIB, 2) for peak in peaks} == {1.89}


def test_decode_context_parallel_multiplies_the_tokens_of_the_same_memory():
    """Kimi-K2 over 8 GPUs with 46.80 GiB each: 715,072 tokens, 5,721,088 with context parallel 8."""
    options = {"kv_budget": int(46.8 * GIB), "tp": 8, "engine_version": "0.11", "block_size": 16}
    plain = row("kimi-k2-thinking", **options)["engine_detail"]["reported_tokens"]
    parallel = row("kimi-k2-thinking", flags={"context_parallel": 8}, **options)["engine_detail"]["reported_tokens"]
    assert plain == pytest.approx(715_072, rel=1e-4)
    assert parallel == 8 * plain


def test_without_the_hybrid_manager_windows_are_full():
    options = {"kv_budget": "60GiB", "context": "128k"}
    apart = row("gemma-3-27b", **options)
    together = row("gemma-3-27b", flags={"hybrid_manager": False}, **options)
    assert together["engine_detail"]["num_groups"] == 1
    assert together["max_sessions"] < apart["max_sessions"]


def test_prefix_caching_keeps_two_states_of_a_request():
    options = {"kv_budget": "12GiB", "context": 1024, "engine_version": "0.22"}
    one = row("qwen3.5-4b", flags={"prefix_caching": False}, **options)["engine_detail"]
    two = row("qwen3.5-4b", flags={"prefix_caching": True}, **options)["engine_detail"]
    assert (one["blocks_per_session"], two["blocks_per_session"]) == (2 + 3, 2 + 3 * 2)


def test_sequences_limit_by_default():
    found = row("qwen3-0.6b", "h100-sxm", context=64, engine_version="0.19")
    assert (found["max_sessions"], found["limited_by"], found["max_seqs"]) == (1024, "max_seqs", 1024)
    assert row("qwen3-0.6b", "a100-80g", context=64, engine_version="0.19")["max_sessions"] == 256


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine_version": "0.91"}, "version '0.91' is not modelled"),
        ({"engine_version": "newest"}, "version 'newest' is not modelled"),
        ({"flags": {"prefix_cacheing": True}}, "did you mean 'prefix_caching'"),
        ({"flags": {"state_mode": "some"}}, "expected none, align or all"),
        ({"flags": {"context_parallel": 0}}, "at least 1"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(InputError, match=message):
        row("llama-3.1-8b", kv_budget="1GiB", **options)


@pytest.mark.parametrize("text", ["0.19", "v0.19.1", "0.19.0+cu128", "0.19.1rc1", "0.19.1.post1"])
def test_versions_as_people_write_them(text):
    assert row("llama-3.1-8b", kv_budget="1GiB", engine_version=text)["engine_version"] == "0.19"


def test_a_build_of_the_main_branch_has_the_next_rules():
    """0.20.1rc1.dev91 printed tokens as 0.21 does."""
    assert row("llama-3.1-8b", kv_budget="1GiB", engine_version="0.20.1rc1.dev91")["engine_version"] == "0.21"
