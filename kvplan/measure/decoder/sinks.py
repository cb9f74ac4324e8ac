"""Attention sinks (gpt-oss 2025): a learned logit in each head's softmax, with no value behind it.

The sink takes its share of the weights, so the result is that of plain attention times the share that is left,
L / (L + exp(sink)) with L the sum of exp(scores): the sigmoid of log L - sink. Kernels give log L beside their result.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.measure.decoder.attend import scores

QUERIES = 256  # whose scores are held at once


def sunk(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *, sinks: Tensor, is_causal: bool = False
) -> Tensor:
    """`scaled_dot_product_attention` with sinks, which are broadcast over the axes of q (..., T, D) but the last."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill_(~attn_mask, -torch.inf)
    if q.device.type == "cpu" and q.shape[-1] == v.shape[-1]:
        out, log_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, is_causal=is_causal, attn_mask=attn_mask
        )
    else:
        starts = range(0, q.shape[-2], QUERIES)
        blocks = [_block(q, k, v, attn_mask, start, is_causal=is_causal) for start in starts]
        out, log_sums = (torch.cat(parts, dim=-2) for parts in zip(*blocks, strict=True))
        log_sums = log_sums.squeeze(-1)
    return out.mul_(torch.sigmoid(log_sums - sinks).to(out.dtype).unsqueeze(-1))


def _block(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, start: int, *, is_causal: bool
) -> tuple[Tensor, Tensor]:
    """Results of some of the queries (..., block, V) and log L of each (..., block, 1), as two matrix products."""
    end = min(start + QUERIES, q.shape[-2])
    weighed = scores(q[..., start:end, :], k).float()  # (..., block, S)
    if is_causal:
        later = torch.arange(k.shape[-2], device=q.device) > torch.arange(start, end, device=q.device).unsqueeze(1)
        weighed.masked_fill_(later, -torch.inf)
    elif mask is not None:
        weighed += mask if mask.shape[-2] == 1 else mask[..., start:end, :]
    return torch.softmax(weighed, dim=-1).to(v.dtype) @ v, weighed.logsumexp(dim=-1, keepdim=True)
