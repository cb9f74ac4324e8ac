"""Greedy generation, with a cache and without."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.measure.decoder.cache.base import Cache
from kvplan.measure.decoder.decoder import Decoder


def generate(decoder: Decoder, cache: Cache, tokens: Tensor, n: int) -> Tensor:
    """The `n` likeliest next tokens of prompts (B, T), one after another: (B, n)."""
    token = decoder.prefill(tokens, cache).argmax(dim=-1)
    new = [token]
    for _ in range(n - 1):
        token = decoder.step(token, cache).argmax(dim=-1)
        new.append(token)
    return torch.stack(new, dim=1)


def generate_naive(decoder: Decoder, tokens: Tensor, n: int) -> Tensor:
    """The same with the whole sequence recomputed for every token."""
    for _ in range(n):
        token = decoder(tokens)[:, -1].argmax(dim=-1)
        tokens = torch.cat((tokens, token.unsqueeze(1)), dim=1)
    return tokens[:, -n:]
