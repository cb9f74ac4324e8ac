"""--num-gpu-blocks-override: so many blocks in place of those that the memory leaves.

vllm/v1/core/kv_cache_utils.py, may_override_num_blocks and get_kv_cache_configs (0.22): the number of every worker,
whose tensors then have a page for each block.
"""

import pytest

from kvplan import estimate
from kvplan.cli.main import main
from kvplan.errors import InputError
from kvplan.evidence.launch import parse_launch
from kvplan.evidence.launched import launched
from kvplan.planning.grid import sweep

SHARED = {"engine": "vllm", "engine_version": "0.22", "context": 2048}


def given(model, gpu, blocks, **options):
    return estimate(model, gpu, **{**SHARED, "flags": {"num_gpu_blocks": blocks}, **options})


@pytest.mark.parametrize(
    ("model", "blocks", "length", "tokens", "concurrency"),
    [
        ("opt-125m", 1, 2048, 16, "0.01"),  # vllm-project/vllm issue 27181: --num_gpu_blocks_override=1
        ("qwen3-0.6b", 43, 640, 688, "1.07"),  # a log: 43 blocks of 16 tokens; 43 / ceil(640 / 16)
    ],
)
def test_as_logs_print_it(model, blocks, length, tokens, concurrency):
    found = given(model, "h100-sxm", blocks, context=length, engine_version="0.20").to_dict()["engine_detail"]
    assert (found["num_blocks"], found["reported_tokens"]) == (blocks, tokens)
    assert f"{found['max_concurrency']:.2f}" == concurrency


def test_the_memory_of_a_pool_by_hand():
    """opt-125m: 16 tokens x 12 layers x 12 heads x 64 x 2 (K and V) x 2 bytes = 589,824 bytes a block."""
    found = given("opt-125m", "h100-sxm", 1000)
    kv = found.budget.kv
    assert (kv.bytes, kv.low, kv.high) == (589_824_000, None, None)
    assert (kv.formula, kv.terms) == ("blocks * block_bytes", {"blocks": 1000, "block_bytes": 589_824})
    row = found.to_dict()
    assert row["kv_budget_bytes"] == 589_824_000
    assert row["max_sessions"] == 1000 // 128  # 2048 / 16 blocks each
    held = row["weights_bytes"] + row["overhead_bytes"] + row["kv_budget_bytes"] + row["unrequested_bytes"]
    assert held == row["gpu_memory_bytes"]


def test_every_stage_and_every_rank_has_the_number():
    """Llama-3.1-8B: 32 layers x 8 heads x 128 x 2 x 2 bytes x 16 tokens = 2 MiB a block, half of it on each of two."""
    for split in ({"tp": 1, "pp": 2}, {"tp": 2, "pp": 1}):
        found = given("llama-3.1-8b", "2xh100-sxm", 1000, **split)
        assert [budget.kv.bytes for budget in found.budgets] == [1000 * 2**20] * split["pp"]
        shown = found.to_dict()["engine_detail"]
        assert (shown["num_blocks"], shown["reported_tokens"]) == (1000, 16_000)


def test_a_block_of_grouped_layers_is_a_page_in_each_tensor():
    """Gemma-3-27B: groups of 10 layers, 16 heads x 128 x 2 x 2 bytes x 16 tokens each: 1,310,720 bytes x 2."""
    found = given("gemma-3-27b", "h100-sxm", 2000)
    assert found.to_dict()["engine_detail"]["num_blocks"] == 2000
    assert found.kv_budget_bytes == 2000 * 10 * 16 * 16 * 128 * 2 * 2


def test_it_replaces_a_given_memory_too():
    found = given("opt-125m", None, 500, kv_budget="10GiB")
    assert found.kv_budget_bytes == 500 * 589_824
    assert found.to_dict()["engine_detail"]["num_blocks"] == 500


def test_a_sweep_has_the_same_figures():
    grid = sweep("opt-125m", "h100-sxm", **{**SHARED, "context": [512, 2048], "flags": {"num_gpu_blocks": 256}})
    rows = list(grid.rows())
    assert [row["kv_budget_bytes"] for row in rows] == [256 * 589_824] * 2
    assert [row["max_sessions"] for row in rows] == [256 // 32, 256 // 128]


def test_more_than_the_requested_share_leaves_is_said_and_more_than_the_card_has_is_refused():
    plain = estimate("opt-125m", "h100-sxm", **SHARED)
    most = plain.kv_budget_bytes // 589_824
    assert not any("more than the requested" in note for note in given("opt-125m", "h100-sxm", most).notes)
    assert any("more than the requested" in note for note in given("opt-125m", "h100-sxm", most + 1).notes)
    free = (plain.kv_budget_bytes + plain.budget.unrequested.bytes) // 589_824
    assert given("opt-125m", "h100-sxm", free).budget.unrequested.bytes < 589_824
    with pytest.raises(InputError, match=rf"1,000,000 blocks are more than fit .*: at most {free:,}"):
        given("opt-125m", "h100-sxm", 1_000_000)


def test_the_check_of_the_longest_request_looks_at_it_from_0_21_on():
    """#41069: before, the server starts and never schedules a request that needs more blocks."""
    starts = {
        version: given("opt-125m", "h100-sxm", 1, engine_version=version).to_dict()["engine_detail"]["starts"]
        for version in ("0.20", "0.21")
    }
    assert starts == {"0.20": True, "0.21": False}


def test_of_several_stages_the_tightest_counts():
    """One Llama-3.1-8B on two L4 of 22 GiB: the last stage has the head beside its 16 layers, so less is left there."""
    options = {"engine_version": "0.20", "context": "1k", "pp": 2}
    plain = estimate("llama-3.1-8b", "l4", **{**SHARED, **options})
    block = 16 * 16 * 2 * 8 * 128 * 2  # tokens, layers of a stage, keys and values, heads, width, bytes
    left, room = ([getattr(b, n).bytes for b in plain.budgets] for n in ("kv", "unrequested"))
    most = min(a + b for a, b in zip(left, room, strict=True)) // block
    assert given("llama-3.1-8b", "l4", most, **options).budget.unrequested.bytes >= 0
    with pytest.raises(InputError, match=f"at most {most:,}"):
        given("llama-3.1-8b", "l4", most + 1, **options)
    over = given("llama-3.1-8b", "l4", min(left) // block + 1, **options)
    assert any("more than the requested memory leaves" in note for note in over.notes)


def test_blocks_beside_weights_that_do_not_fit():
    """70.55 billion parameters in 16 bit are 131.4 GiB: that is what is said, not how many blocks there is room for."""
    found = given("llama-3.3-70b", "l4", 10)
    assert (found.fits, found.limited_by) == (False, "weights")


def test_0_8_ignores_it():
    """#19503: the log says that the number is overridden, and goes on with the other."""
    plain = estimate("opt-125m", "h100-sxm", **{**SHARED, "engine_version": "0.8"})
    assert given("opt-125m", "h100-sxm", 100, engine_version="0.8").kv_budget_bytes == plain.kv_budget_bytes
    old_engine = {"num_gpu_blocks": 100, "v1": False}  # V0, llm_engine.py: _initialize_kv_caches
    assert given("opt-125m", "h100-sxm", 0, engine_version="0.8", flags=old_engine).kv_budget_bytes == 100 * 589_824


@pytest.mark.parametrize("blocks", [0, -1, True, "7"])
def test_it_is_a_whole_number(blocks):
    with pytest.raises(InputError, match="num_gpu_blocks: expected a whole number of at least 1"):
        given("opt-125m", "h100-sxm", blocks)


@pytest.mark.parametrize("flag", ["--num-gpu-blocks-override 300", "--num_gpu_blocks_override=300"])
def test_a_command_line(flag):
    found = launched(parse_launch(f"vllm serve facebook/opt-125m {flag}"))
    assert found.flags == {"num_gpu_blocks": 300}


def test_a_plan_for_a_command_line(capsys):
    command = "vllm serve facebook/opt-125m --num-gpu-blocks-override 300"
    assert main(["estimate", "--launch", command, "--gpu", "h100-sxm"]) == 0
    shown = capsys.readouterr()
    assert "these flags decide the memory: --num-gpu-blocks-override 300" in shown.err
    assert "the cache has the 300 blocks that were given" in shown.out


def test_flags_tell_the_oldest_version():
    """--performance-mode is new in 0.17.0 (#34936); several flags count as the latest of them."""
    flags = "--ssl-ciphers HIGH --performance-mode throughput"
    found = launched(parse_launch(f"vllm serve meta-llama/Llama-3.1-8B-Instruct {flags}"))
    assert found.flags == {"since": "0.17"}
