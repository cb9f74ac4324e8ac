"""The two ways through a latent are one (DeepSeek-V2 2024, section 2.1.2 and appendix C)."""

from __future__ import annotations

import pytest
import torch
from hub_models import furthest, latent

from kvplan.measure.decoder import attend
from kvplan.measure.decoder.latent import Expansion
from kvplan.measure.decoder.place import Place

M = latent()  # 4 heads, rank 20, parts of 12 and 8
TOKENS, STEP = 9, 2.0**-8  # half a step of bf16


def expansion(dtype: torch.dtype = torch.float32) -> Expansion:
    """With weights of variance 1 / rank."""
    made = Expansion(M, Place(torch.device("cpu"), dtype))
    made.weight.normal_(std=M.kv_rank**-0.5, generator=torch.Generator().manual_seed(1))
    return made


def drawn(*sizes: int, seed: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def test_a_query_scores_latents_as_it_scores_its_keys() -> None:
    latents, q = drawn(1, TOKENS, M.kv_rank, seed=2), drawn(1, M.heads, M.nope_dim, seed=3)
    keys = expansion()(latents)[0, :, :, : M.nope_dim]  # (T, H, N)
    scores = torch.einsum("hn,thn->ht", q[0], keys)
    assert furthest(expansion().absorbed(q)[0] @ latents[0].t(), scores) < 1e-5


def test_weighed_latents_become_weighed_values() -> None:
    latents, weights = drawn(1, TOKENS, M.kv_rank, seed=2), drawn(M.heads, TOKENS, seed=4).softmax(dim=-1)
    values = expansion()(latents)[0, :, :, M.nope_dim :]  # (T, H, V)
    summed = (weights @ latents[0]).unsqueeze(0)  # (1, H, R)
    assert furthest(expansion().restored(summed)[0], torch.einsum("ht,thv->hv", weights, values)) < 1e-5


@pytest.mark.parametrize("rows", [1, 9])
def test_products_in_fp32_are_rounded_once(rows: int) -> None:
    wide = expansion(torch.bfloat16)
    wide.format = torch.float32
    x = drawn(1, rows, M.kv_rank, seed=5).bfloat16()
    exact = (x.double() @ wide.weight.double().t()).unflatten(-1, (M.heads, -1))
    assert wide(x).dtype == torch.bfloat16
    assert ((wide(x).double() - exact).abs() <= exact.abs() * STEP + 1e-5).all()


def test_the_products_of_other_devices_give_what_the_kernel_gives() -> None:
    width = M.kv_rank + M.rope_dim
    q, kept = drawn(2, 1, M.heads, width, seed=6), drawn(2, 1, TOKENS, width, seed=7)
    mask = torch.zeros(1, 1, 1, TOKENS)
    mask[..., -2:] = -torch.inf  # slots that are not filled yet
    found = attend.explicit(q, kept, kept[..., : M.kv_rank], mask, 0.3)
    assert found.shape == (2, 1, M.heads, M.kv_rank)
    assert furthest(attend.latent(q, kept, M.kv_rank, 0.3, mask), found) < 1e-5
