"""Attention pairs in closed form against plain counting, and the seed's costs of generating."""

from __future__ import annotations

import pytest

from kvplan.loading import load_model
from kvplan.sharding import shard
from kvplan.speed.pairs import naive_pairs, prefill_pairs, token_pairs
from kvplan.speed.work import cached_generation, decode_operations, naive_generation, prefill_operations


def counted(position, window, chunk):
    """Keys a query sees, by looking at every earlier position."""
    query = position - 1
    return sum(
        1
        for key in range(position)
        if (not window or query - key < window) and (not chunk or key // chunk == query // chunk)
    )


@pytest.mark.parametrize(("window", "chunk"), [(None, None), (1, None), (5, None), (None, 1), (None, 7)])
def test_closed_forms_count_every_pair(window, chunk):
    for tokens in range(1, 40):
        each = [counted(position, window, chunk) for position in range(1, tokens + 1)]
        assert token_pairs(tokens, window, chunk) == each[-1]
        assert prefill_pairs(tokens, window, chunk) == sum(each)
        assert naive_pairs(tokens, window, chunk) == sum(sum(each[:length]) for length in range(1, tokens + 1))


def mistral():
    return shard(load_model("mistral-7b"))[0]


def test_decode_step_by_hand():
    # Two operations a parameter and token: 32 layers x (q, o 4096 x 4096; k, v 1024 x 4096; three 14336 x 4096)
    layer = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096
    found = decode_operations(mistral(), 4096)
    assert found.projections == 2 * 32 * layer == 13_958_643_712
    assert found.head == 2 * 32768 * 4096
    # scores and weighted sums: 2 x 2 x 32 heads x 128 x 4096 keys x 32 layers
    assert found.attention == 4 * 32 * 128 * 4096 * 32 == 2_147_483_648


def test_one_step_grows_with_the_length():
    # G3: O(d^2) + O(t d): only attention changes, in proportion to t
    short, long = decode_operations(mistral(), 1000), decode_operations(mistral(), 3000)
    assert short.projections == long.projections
    assert long.attention == 3 * short.attention


def test_doubling_the_context_quadruples_prefill_scores():
    # G4: n(n + 1) / 2 pairs: four times, less the diagonal: 4 - 2 / (n + 1)
    short, long = (prefill_operations(mistral(), n).attention for n in (4096, 8192))
    assert long / short == pytest.approx(4 - 2 / 4097, rel=1e-12)


def test_cached_generation_is_quadratic_and_naive_cubic():
    # G1: naive attention sums t^2, projections t; G2: with a cache attention sums t, projections are linear
    rank = mistral()
    cached = [cached_generation(rank, n) for n in (50_000, 100_000)]
    naive = [naive_generation(rank, n) for n in (50_000, 100_000)]
    assert cached[1].projections == 2 * cached[0].projections
    assert cached[1].attention / cached[0].attention == pytest.approx(4, rel=1e-4)
    assert naive[1].projections / naive[0].projections == pytest.approx(4, rel=1e-4)
    assert naive[1].attention / naive[0].attention == pytest.approx(8, rel=1e-4)


def test_generations_are_the_sums_of_their_steps():
    for name in ("mistral-7b-v0.1", "deepseek-v2-lite", "qwen3.5-0.8b", "llama-4-scout"):
        rank = shard(load_model(name))[0]
        steps = [decode_operations(rank, t).total for t in range(1, 60)]
        assert cached_generation(rank, 59).total == sum(steps)
        # prefill computes one head, as each naive step does
        assert naive_generation(rank, 59).total == sum(prefill_operations(rank, t).total for t in range(1, 60))


def test_sparse_attention_scores_all_and_attends_to_the_best():
    # deepseek-v3.2 at 8192: 61 layers x 2 x (128 heads x (576 + 512) x 2048 kept + 64 x 128 indexer x 8192)
    found = decode_operations(shard(load_model("deepseek-v3.2"))[0], 8192)
    assert found.attention == 61 * 2 * (128 * (576 + 512) * 2048 + 64 * 128 * 8192)
