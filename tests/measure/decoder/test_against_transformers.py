"""fp32 logits against transformers with the same weights: recomputed, prefilled, step by step, in every cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hub_models import CASES, furthest, hub_model, loaded, prompts

from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.cache.paged import BlockPool
from kvplan.measure.decoder.cache.static import StaticCache
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.generate import generate, generate_naive
from kvplan.measure.decoder.mlp import clamped_swiglu

BATCH, PROMPT, TOTAL = 2, 24, 40  # longer than mistral's window of 7, which then wraps three times
TOLERANCE = 5e-5  # transformers against itself, with and without a cache: 2e-6 to 2e-5


def paged(decoder: Decoder) -> Any:
    pool = BlockPool(decoder, blocks=20, block_tokens=5)
    return pool.batch([pool.open() for _ in range(BATCH)])


CACHES: dict[str, Callable[[Decoder], Any]] = {
    "contiguous": lambda decoder: ContiguousCache(decoder, batch=BATCH, capacity=TOTAL),
    "static": lambda decoder: StaticCache(decoder, batch=BATCH, capacity=TOTAL),
    "paged": paged,
}


@torch.inference_mode()
def expected(name: str) -> torch.Tensor:
    logits: torch.Tensor = hub_model(name)(prompts(BATCH, TOTAL), use_cache=False).logits
    return logits


@pytest.mark.parametrize("name", CASES)
def test_recomputed_logits(name):
    assert furthest(loaded(name)(prompts(BATCH, TOTAL)), expected(name)) < TOLERANCE


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("name", CASES)
def test_prefill_and_steps(name, kind):
    decoder, tokens, logits = loaded(name), prompts(BATCH, TOTAL), expected(name)
    cache = CACHES[kind](decoder)
    found = [decoder.prefill(tokens[:, :PROMPT], cache, every=True)]
    found += [decoder.step(tokens[:, i], cache).unsqueeze(1) for i in range(PROMPT, TOTAL)]
    assert furthest(torch.cat(found, dim=1), logits) < TOLERANCE


def test_the_logits_are_not_small():
    assert expected("llama-mha").abs().max() > 1  # so that the tolerance means something


def test_the_clamped_gate_of_gpt_oss_beyond_its_bounds():
    theirs = hub_model("gpt-oss").model.layers[0].mlp.experts
    gate, up = 20 * torch.randn(2, 5, 40, generator=torch.Generator().manual_seed(4))  # bounds: 7 and -7
    together = torch.stack((gate, up), dim=-1).flatten(-2)
    assert furthest(clamped_swiglu(gate, up), theirs._apply_gate(together)) < 1e-5


@pytest.mark.parametrize("name", ["llama-gqa-llama3", "mistral-window", "qwen3-norms"])
def test_an_explicit_softmax_gives_the_same(name):
    from kvplan.measure.decoder.attend import DECODE_PATHS

    decoder = build_decoder(CASES[name].model, seed=2)
    tokens = prompts(BATCH, 20)
    for block in decoder.layers:
        block.attention.decode = DECODE_PATHS["explicit"]
    cache = ContiguousCache(decoder, batch=BATCH, capacity=20)
    for i in range(20):  # from the first token on, without a prefill
        last = decoder.step(tokens[:, i], cache)
    assert furthest(last, decoder(tokens)[:, -1]) < TOLERANCE


@pytest.mark.parametrize("kind", CACHES)
def test_generation_is_that_of_transformers(kind):
    tokens = prompts(BATCH, PROMPT)
    with torch.inference_mode():
        theirs = hub_model("llama-odd-heads").generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=10, do_sample=False, eos_token_id=None
        )[:, PROMPT:]
    decoder = loaded("llama-odd-heads")
    assert generate(decoder, CACHES[kind](decoder), tokens, 10).tolist() == theirs.tolist()
    assert generate_naive(decoder, tokens, 10).tolist() == theirs.tolist()
