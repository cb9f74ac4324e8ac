"""A sink as a share that is left, against a softmax over one logit more (modeling_gpt_oss.py of transformers)."""

from __future__ import annotations

import pytest
import torch
from hub_models import furthest
from torch import Tensor

from kvplan.measure.decoder import sinks
from kvplan.measure.decoder.sinks import sunk

N, G, T, D = 6, 2, 40, 8
LATER = torch.ones(T, T).triu(1).bool()


def drawn(*sizes: int, seed: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def defined(q: Tensor, k: Tensor, v: Tensor, logits: Tensor) -> Tensor:
    """Causal, with the sinks as a last column that is dropped after the softmax."""
    weighed = (q @ k.transpose(-1, -2) / D**0.5).masked_fill(LATER, -torch.inf)
    column = logits.unsqueeze(-1).expand(-1, -1, T, 1)
    return torch.cat((weighed, column), dim=-1).softmax(dim=-1)[..., :-1] @ v


@pytest.mark.parametrize("width", [D, 12])  # another width than the keys' is two products, as on other devices
@pytest.mark.parametrize("how", ["causal", "boolean mask", "added mask"])
def test_the_share_that_is_left(width: int, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "QUERIES", 7)
    q, k, v = drawn(N, G, T, D, seed=1), drawn(N, G, T, D, seed=2), drawn(N, G, T, width, seed=3)
    logits = 2 * drawn(N, G, 1, seed=4)
    added = torch.zeros(T, T).masked_fill(LATER, -torch.inf)
    mask = {"causal": None, "boolean mask": ~LATER, "added mask": added}[how]
    assert furthest(sunk(q, k, v, mask, sinks=logits, is_causal=mask is None), defined(q, k, v, logits)) < 5e-6


@pytest.mark.parametrize("width", [D, 12])
def test_a_sink_far_above_every_score_leaves_nothing(width: int) -> None:
    q, k, v = drawn(N, G, T, D, seed=1), drawn(N, G, T, D, seed=2), drawn(N, G, T, width, seed=3)
    assert sunk(q, k, v, sinks=torch.full((G, 1), 100.0)).abs().max() < 1e-30  # exp(-100) = 4e-44, of sums to e^7
