"""softmax(Q K^T / sqrt(D)) V, in the forms that are fast on a device.

In decode the G query heads of a key-value head are handed over as G rows of one head: nothing is copied, and on a CPU
in 16 bit this is many times faster than PyTorch's own `enable_gqa`. In prefill each query keeps its head and the
kernel's causal path halves the work.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa


def grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """One new token: q (B, K, G, D) against k (B, K, S, D) and v (B, K, S, V); mask is added, (B or 1, 1, 1, S)."""
    return sdpa(q, k, v, attn_mask=mask)


def explicit(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """The same as two matrix products with a softmax between."""
    weighed = scores(q, k) if mask is None else scores(q, k) + mask
    return torch.softmax(weighed, dim=-1, dtype=torch.float32).to(v.dtype) @ v


def scores(q: Tensor, k: Tensor) -> Tensor:
    """Q K^T / sqrt(D): of variance 1 where the elements of Q and K are. (..., G, D) by (..., S, D) to (..., G, S)."""
    return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5


DECODE_PATHS: dict[str, Callable[..., Tensor]] = {"grouped": grouped, "explicit": explicit}


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A prompt: q (B, H, T, D) against k (B, K, T, D) and v (B, K, T, V), each token sees itself and earlier ones."""
    if q.shape[1] == k.shape[1]:
        return sdpa(q, k, v, is_causal=True)
    if q.device.type == "cuda":
        return sdpa(q, k, v, is_causal=True, enable_gqa=True)
    return _per_kv_head(q, k, v, None)


def windowed(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Each token sees `window` tokens, itself included: blocks of queries, so that the work grows with T x window."""
    tokens = q.shape[2]
    if tokens <= window:
        return causal(q, k, v)
    return torch.cat([_window_block(q, k, v, start, window) for start in range(0, tokens, window)], dim=2)


def _window_block(q: Tensor, k: Tensor, v: Tensor, start: int, window: int) -> Tensor:
    """The queries [start, start + window) against the keys that any of them sees."""
    end, first = min(start + window, q.shape[2]), max(0, start - window + 1)
    query = torch.arange(start, end, device=q.device).unsqueeze(1)
    key = torch.arange(first, end, device=q.device)
    seen = (key <= query) & (key > query - window)  # (block, keys)
    return _per_kv_head(q[:, :, start:end], k[:, :, first:end], v[:, :, first:end], seen)


def chunked(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    """Each token sees the earlier ones of its own chunk."""
    parts = [causal(*(x[:, :, i : i + chunk] for x in (q, k, v))) for i in range(0, q.shape[2], chunk)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _per_kv_head(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    """Key-value heads moved into the batch and seen by their G queries through a stride of 0: no copies of K and V."""
    batch, heads, tokens, _ = q.shape
    kv_heads = k.shape[1]
    group = heads // kv_heads
    q = q.reshape(batch * kv_heads, group, tokens, -1)
    k, v = (x.reshape(batch * kv_heads, 1, x.shape[2], -1).expand(-1, group, -1, -1) for x in (k, v))
    out = sdpa(q, k, v, attn_mask=seen, is_causal=seen is None)
    return out.view(batch, heads, tokens, -1)
