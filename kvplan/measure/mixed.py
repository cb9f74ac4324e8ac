"""Sessions of unequal length in both caches: what is reserved, live and wasted, beside the planner's figures."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kvplan.arithmetic import ceil_div
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.cache.paged import BlockPool
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.ledger import cache_bytes
from kvplan.measure.rows import Row, row
from kvplan.measure.setting import Setting

BLOCK_TOKENS = 16
SAME_LOGITS = {"fp32": 1e-4, "fp16": 0.1, "bf16": 0.5}  # of logits around 1; both caches give the same sums in fp32


def mixed_rows(s: Setting, decoder: Decoder) -> Iterator[Row]:
    """One slab of the longest length a session against blocks; each session's last token is decoded with both."""
    lengths = list(s.options.mixed_lengths)
    s.progress.begin(f"sessions of {', '.join(map(str, lengths))} tokens in both caches")
    prompts = _prompts(decoder, lengths)
    capacity = max(lengths)
    slabs = [ContiguousCache(decoder, batch=1, capacity=capacity) for _ in lengths]
    blocks = sum(ceil_div(length, BLOCK_TOKENS) for length in lengths)
    pool = BlockPool(decoder, blocks=blocks, block_tokens=BLOCK_TOKENS)
    difference = _run(decoder, prompts, slabs, pool)
    whole, live = cache_bytes(s.rank, s.dtype, capacity), [cache_bytes(s.rank, s.dtype, n) for n in lengths]
    yield from _rows("contiguous", len(lengths) * whole, sum(live), slabs)
    token = pool.token_bytes  # windowed layers keep every token in blocks
    held = [ceil_div(n, BLOCK_TOKENS) * BLOCK_TOKENS * token for n in lengths]
    yield from _rows("paged", sum(held), sum(lengths) * token, [pool])
    limit = SAME_LOGITS[s.dtype]
    note = "largest difference between the logits of both caches"
    yield row("mixed_logit_difference", "1", predicted=0, observed=difference, low=0, high=limit, note=note)


def _prompts(decoder: Decoder, lengths: list[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    size = decoder.model.vocab_size
    return [torch.randint(0, size, (1, n), generator=generator).to(decoder.place.device) for n in lengths]


def _run(decoder: Decoder, prompts: list[torch.Tensor], slabs: list[ContiguousCache], pool: BlockPool) -> float:
    """All but the last token as a prompt, session by session; then one step: together in blocks, alone in slabs."""
    sessions, alone = [], []
    for prompt, slab in zip(prompts, slabs, strict=True):
        sessions.append(pool.open())
        decoder.prefill(prompt[:, :-1], pool.batch(sessions[-1:]))
        decoder.prefill(prompt[:, :-1], slab)
        alone.append(decoder.step(prompt[:, -1], slab))
    last = torch.cat([prompt[:, -1] for prompt in prompts])
    together = decoder.step(last, pool.batch(sessions))
    return float((torch.cat(alone) - together).abs().max())


def _rows(kind: str, reserved: int, live: int, caches: list[ContiguousCache] | list[BlockPool]) -> Iterator[Row]:
    for what, predicted in (("reserved", reserved), ("live", live), ("wasted", reserved - live)):
        observed = sum(getattr(cache, f"{what}_bytes") for cache in caches)
        yield row(f"{kind}_{what}", "bytes", predicted=predicted, observed=observed, tolerance=0.0, memory=True)
