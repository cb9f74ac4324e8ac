"""What each GPU holds."""

from __future__ import annotations

import pytest

from kvplan import estimate
from kvplan.errors import InputError
from kvplan.loading import load_model
from kvplan.memory.cache_groups import cache_groups
from kvplan.sharding import shard, stage_sizes, valid_tps


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"),
    [
        (32, 1, [32]),
        (32, 4, [8, 8, 8, 8]),
        # vLLM's get_pp_indices: the remainder goes to the stages before the last, from the back
        (61, 4, [15, 15, 16, 15]),
        (62, 4, [15, 16, 16, 15]),
        (3, 3, [1, 1, 1]),
    ],
)
def test_stage_sizes(layers, pp, sizes):
    assert stage_sizes(layers, pp) == sizes


@pytest.mark.parametrize("pp", [0, 4])
def test_more_stages_than_layers_are_refused(pp):
    with pytest.raises(InputError, match=rf"pp {pp} is not possible: the model has 3 layers, so pp is from 1 to 3"):
        stage_sizes(3, pp)


@pytest.mark.parametrize(
    ("model", "degrees"),
    [
        ("phi-4", [1, 2, 5, 10, 20, 40]),  # 40 query heads, 10 key-value heads
        ("mistral-7b", [1, 2, 4, 8, 16, 32]),  # 32 and 8
        ("falcon-7b", [1, 71]),  # 71 query heads are prime, one key-value head is copied
        ("smollm2-135m", [1, 3, 9]),  # 9 and 3
        ("deepseek-v3", [1, 2, 4, 8, 16, 32, 64, 128]),  # 128 query heads, the latent is whole
        ("qwen3.5-9b", [1, 2, 4, 8, 16]),  # 16 query heads and 4 KV heads; 16 and 32 state heads
        ("nemotron-h-8b", [1, 2, 4, 8, 16, 32]),  # 32 query heads, 128 state heads in 8 groups
    ],
)
def test_degrees_that_work_for_all_layers(model, degrees):
    assert valid_tps(load_model(model)) == degrees


def test_heads_are_divided_down_to_one_and_then_copied():
    spec = load_model("mistral-7b")  # 8 key-value heads
    heads = {tp: cache_groups(shard(spec, tp)[0])[0].heads for tp in (1, 2, 8, 16, 32)}
    assert heads == {1: 8, 2: 4, 8: 1, 16: 1, 32: 1}


def test_embedding_and_head_lie_on_the_outer_stages():
    first, middle, last = shard(load_model("mistral-7b"), pp=3)
    assert (first.holds_embedding, middle.holds_embedding, last.holds_embedding) == (True, False, False)
    assert (first.holds_head, middle.holds_head, last.holds_head) == (False, False, True)
    assert [len(rank.layers) for rank in (first, middle, last)] == [11, 11, 10]


def test_a_tied_head_is_stored_again_on_the_last_stage():
    # gemma-2b: 256,000 x 2048 x 2 B = 1,048,576,000 B once, and once more for the last of two stages
    whole = estimate("gemma-2b", kv_budget="1GiB").stage.weights_bytes
    stages = estimate("gemma-2b", kv_budget="1GiB", pp=2).stages
    assert sum(stage.weights_bytes for stage in stages) == whole + 256_000 * 2048 * 2


def test_the_fullest_stage_decides():
    # gemma-3-27b in 2 stages: 31 layers each, 5 global layers each, but the last has 26 local ones too; the budget
    # of the first is smaller by the embedding and towers; the last holds the tied head's copy and the final norm
    found = estimate("gemma-3-27b", "2xa100-40g", pp=2, tp=1)
    sessions = [
        budget.kv.bytes // sum(charge.units * min(4096, charge.limit or 4096) for charge in stage.plan.charges)
        for stage, budget in zip(found.stages, found.budgets, strict=True)
    ]
    assert len(set(sessions)) == 2
    assert found.max_sessions == min(sessions)
    assert found.stage is found.stages[sessions.index(min(sessions))]


@pytest.mark.parametrize(
    ("tp", "dp", "ep", "experts", "width"),
    [
        (1, 1, 1, 128, 768),  # qwen3-30b-a3b: 128 experts of width 768
        (4, 1, 1, 128, 192),  # without ep the width is divided
        (4, 1, 4, 32, 768),  # with ep = tp whole experts are
        (4, 1, 2, 64, 384),  # half of the experts on each pair, the pair divides their width
        (2, 4, 8, 16, 768),  # over tp x dp
    ],
)
def test_experts_are_shared_out(tp, dp, ep, experts, width):
    moe = shard(load_model("qwen3-30b-a3b"), tp, ep=ep)[0].layers[0].moe
    assert moe is not None
    assert (moe.here, moe.intermediate_size, moe.experts) == (experts, width, 128)
    assert estimate("qwen3-30b-a3b", kv_budget="1GiB", tp=tp, dp=dp, ep=ep).scenario.gpus == tp * dp


def test_the_router_keeps_the_rows_of_all_experts():
    found = estimate("qwen3-30b-a3b", kv_budget="1GiB", tp=4, ep=4)
    (router,) = [line for line in found.ledger if line.name == "weights/router"]
    assert router.bytes == 48 * 128 * 2048 * 2  # 48 layers x 128 experts x 2048 x 2 B


def test_layers_that_read_a_cache_on_another_stage_are_refused():
    with pytest.raises(InputError, match="read the cache of 'global' layers on an earlier stage"):
        shard(load_model("gemma-3n-e4b"), pp=3)  # stages of 12, 12 and 11: layers 24 to 34 all read layers 18 and 19
