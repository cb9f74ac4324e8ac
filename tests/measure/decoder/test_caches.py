"""What caches hold: bytes as the planner has them, rings and chunks, blocks taken, given back and used again."""

from __future__ import annotations

import pytest
import torch
from hub_models import attention, deepseek, dense, furthest, latent, prompts, spec

from kvplan.errors import InputError
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.cache.paged import BlockPool, OutOfBlocksError
from kvplan.measure.decoder.cache.static import StaticCache
from kvplan.measure.decoder.cuda_graph import GraphedDecode
from kvplan.memory.cache_groups import cache_groups
from kvplan.sharding import shard
from kvplan.specs.layers import Layer, Mlp

MLP = Mlp(intermediate_size=16)
WINDOW, CHUNK = (
    Layer(attention=attention(4, 2, window=6), mlp=MLP),
    Layer(attention=attention(4, 2, chunk=6), mlp=MLP),
)
FULL = Layer(attention=attention(4, 2), mlp=MLP)
MIXED = spec(WINDOW, FULL, CHUNK)
ELEMENTS = 2 * (8 + 8)  # of a token in a layer: 2 key-value heads, a key and a value of 8 each


@pytest.fixture(scope="module")
def decoder():
    return build_decoder(MIXED)


@pytest.mark.parametrize("kind", [ContiguousCache, StaticCache])
@pytest.mark.parametrize("prompt", [1, 5, 6, 7, 12, 13, 20])
def test_rings_and_chunks_start_anywhere(decoder, kind, prompt):
    tokens = prompts(2, 26)
    cache = kind(decoder, batch=2, capacity=26)
    found = [decoder.prefill(tokens[:, :prompt], cache)]
    found += [decoder.step(tokens[:, i], cache) for i in range(prompt, 26)]
    assert furthest(torch.stack(found, dim=1), decoder(tokens)[:, prompt - 1 :]) < 2e-5


def test_a_capacity_below_the_window(decoder):
    tokens = prompts(1, 4)
    cache = ContiguousCache(decoder, capacity=4)
    found = [decoder.step(tokens[:, i], cache) for i in range(4)]
    assert furthest(torch.stack(found, dim=1), decoder(tokens)) < 2e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reserved_live_and_wasted_bytes(dtype):
    cache = ContiguousCache(build_decoder(MIXED, dtype=dtype), batch=3, capacity=20)
    size = dtype.itemsize
    assert cache.reserved_bytes == 3 * (6 + 20 + 6) * ELEMENTS * size  # window, full, chunk
    assert cache.live_bytes == 0
    cache.pretend(10)
    assert cache.live_bytes == 3 * (6 + 10 + 6) * ELEMENTS * size
    assert cache.wasted_bytes == 3 * 10 * ELEMENTS * size


def test_bytes_are_those_of_the_planner(decoder):
    groups = cache_groups(shard(MIXED)[0])
    planned = sum(g.layers * g.elements_per_token * min(20, g.window or 20) for g in groups) * 4
    assert ContiguousCache(decoder, capacity=20).reserved_bytes == planned


@pytest.mark.parametrize("q_rank", [None, 24])
def test_a_latent_is_kept_as_the_planner_counts_it(q_rank):
    model = deepseek(latent(q_rank), router_bias=True)
    decoder = build_decoder(model)
    (group,) = cache_groups(shard(model)[0])
    token = 2 * (20 + 4) * 4  # 2 layers, rank and rotary key, in fp32: DeepSeek-V2 2024, table 1
    assert group.layers * group.elements_per_token * 4 == token
    assert ContiguousCache(decoder, batch=3, capacity=20).reserved_bytes == 3 * 20 * token
    pool = BlockPool(decoder, blocks=5, block_tokens=4)
    assert pool.pool_bytes == sum(t.nbytes for t in [*pool.keys, *pool.values]) == 20 * token


def test_a_full_cache_refuses_more(decoder):
    cache = ContiguousCache(decoder, capacity=8)
    decoder.prefill(prompts(1, 8), cache)
    with pytest.raises(InputError, match="was made for 8 tokens a session and holds 8: 1 more do not fit"):
        decoder.step(prompts(1, 1)[0], cache)


def test_a_prompt_needs_an_empty_cache(decoder):
    cache = ContiguousCache(decoder, capacity=20)
    decoder.prefill(prompts(1, 4), cache)
    with pytest.raises(ValueError, match="empty cache"):
        decoder.prefill(prompts(1, 4), cache)
    cache.seek(0)
    assert furthest(decoder.prefill(prompts(1, 4), cache), decoder(prompts(1, 4))[:, -1]) < 2e-5


def test_a_pretended_context_decodes_to_numbers(decoder):
    cache = StaticCache(decoder, batch=2, capacity=20)
    cache.pretend(17)
    assert decoder.step(prompts(2, 1)[:, 0], cache).isfinite().all()
    assert cache.length == int(cache.position) == 18


def test_sessions_of_unequal_length_share_a_pool(decoder):
    pool = BlockPool(decoder, blocks=16, block_tokens=4)
    tokens, lengths = prompts(3, 18), (3, 9, 14)
    sessions = [pool.open() for _ in lengths]
    for session, row, length in zip(sessions, tokens, lengths, strict=True):
        decoder.prefill(row[None, :length], pool.batch([session]))
    together = pool.batch(sessions)
    for i in range(4):
        new = torch.stack([row[length + i] for row, length in zip(tokens, lengths, strict=True)])
        logits = decoder.step(new, together)
    for row, length, found in zip(tokens, lengths, logits, strict=True):
        assert furthest(found, decoder(row[None, : length + 4])[0, -1]) < 2e-5


def test_paging_wastes_the_ends_of_blocks_only(decoder):
    pool = BlockPool(decoder, blocks=16, block_tokens=4)
    token = 3 * ELEMENTS * 4  # 3 layers in fp32; a window does not free blocks here
    for length in (3, 9):
        decoder.prefill(prompts(1, length), pool.batch([pool.open()]))
    assert pool.pool_bytes == 16 * 4 * token
    assert pool.reserved_bytes == (4 + 12) * token  # 1 block and 3
    assert pool.live_bytes == 12 * token
    assert pool.wasted_bytes == 4 * token


def test_blocks_are_given_back_and_used_again(decoder):
    pool = BlockPool(decoder, blocks=4, block_tokens=4)
    first, second = pool.open(), pool.open()
    decoder.prefill(prompts(1, 8), pool.batch([first]))
    decoder.prefill(prompts(1, 5), pool.batch([second]))
    assert not pool.free
    held = list(pool.tables[first])
    pool.close(first)
    third = pool.open()
    tokens = prompts(1, 8, seed=9)
    found = decoder.prefill(tokens, pool.batch([third]))
    assert pool.tables[third] == held
    assert furthest(found, decoder(tokens)[:, -1]) < 2e-5


def test_a_pool_without_free_blocks_leaves_sessions_as_they_are(decoder):
    pool = BlockPool(decoder, blocks=3, block_tokens=4)
    sessions = [pool.open(), pool.open()]
    decoder.prefill(prompts(2, 4), pool.batch(sessions))
    with pytest.raises(OutOfBlocksError, match="2 more blocks of 4 tokens are needed and 1 of 3 are free"):
        decoder.step(prompts(2, 1)[:, 0], pool.batch(sessions))
    assert [len(pool.tables[s]) for s in sessions] == [1, 1]
    pool.close(sessions[0])
    assert decoder.step(prompts(1, 1)[:, 0], pool.batch(sessions[1:])).isfinite().all()


def test_no_graph_without_cuda(decoder):
    tokens = prompts(2, 3)
    cache = StaticCache(decoder, batch=2, capacity=3)
    graphed = GraphedDecode(decoder, cache)
    assert graphed.refused == "graphs are captured on CUDA devices only"
    found = [graphed.step(tokens[:, i]) for i in range(3)]
    assert furthest(torch.stack(found, dim=1), decoder(tokens)) < 2e-5


def test_equal_layers_of_a_dense_model_have_equal_caches():
    decoder = build_decoder(dense(attention(6, 3)))
    assert decoder.kept[0] == decoder.kept[1]
    assert decoder.kept[0].elements == 3 * (8 + 8)
