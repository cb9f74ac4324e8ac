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


def explicit(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """The same as two matrix products with a softmax between."""
    weighed = scores(q, k, scale) if mask is None else scores(q, k, scale) + mask
    return torch.softmax(weighed, dim=-1, dtype=torch.float32).to(v.dtype) @ v


def scores(q: Tensor, k: Tensor, scale: float | None = None) -> Tensor:
    """Q K^T / sqrt(D): of variance 1 where the elements of Q and K are. (..., G, D) by (..., S, D) to (..., G, S)."""
    return q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)


def latent(q: Tensor, kept: Tensor, rank: int, scale: float, mask: Tensor | None = None) -> Tensor:
    """One new token of MLA: q (B, 1, H, R + P) against kept (B, 1, S, R + P), of which the first R are the values.

    A CPU's kernel wants values as wide as keys: P sums too many cost less than a copy. Those of other devices do not
    take keys so wide.
    """
    if q.device.type == "cpu":
        return sdpa(q, kept, kept, attn_mask=mask, scale=scale)[..., :rank]
    return explicit(q, kept, kept[..., :rank], mask, scale)


Kernel = Callable[..., Tensor]  # with the arguments of scaled_dot_product_attention
DECODE_PATHS: dict[str, Callable[..., Tensor]] = {"grouped": grouped, "explicit": explicit}


def causal(q: Tensor, k: Tensor, v: Tensor, kernel: Kernel | None = None) -> Tensor:
    """A prompt: q (B, H, T, D) against k (B, K, T, D) and v (B, K, T, V), each token sees itself and earlier ones."""
    if kernel is None and q.shape[1] == k.shape[1]:
        return sdpa(q, k, v, is_causal=True)
    if kernel is None and q.device.type == "cuda":
        return sdpa(q, k, v, is_causal=True, enable_gqa=True)
    return _per_kv_head(q, k, v, None, kernel)


def expanded(q: Tensor, k: Tensor, v: Tensor, v_dim: int, scale: float) -> Tensor:
    """A prompt of MLA: q and k (B, H, T, D), and v whose last `v_dim` elements are the values."""
    return sdpa(q, k, v, is_causal=True, scale=scale)[..., -v_dim:]


def windowed(q: Tensor, k: Tensor, v: Tensor, window: int, kernel: Kernel | None = None) -> Tensor:
    """Each token sees `window` tokens, itself included: blocks of queries, so that the work grows with T x window."""
    tokens = q.shape[2]
    if tokens <= window:
        return causal(q, k, v, kernel)
    blocks = (_window_block(start, tokens, window, q.device) for start in range(0, tokens, window))
    return torch.cat([_per_kv_head(q[:, :, i], k[:, :, j], v[:, :, j], seen, kernel) for i, j, seen in blocks], dim=2)


def _window_block(start: int, tokens: int, window: int, device: torch.device) -> tuple[slice, slice, Tensor]:
    """The queries [start, start + window), the keys that any of them sees, and which see which."""
    end, first = min(start + window, tokens), max(0, start - window + 1)
    query = torch.arange(start, end, device=device).unsqueeze(1)
    key = torch.arange(first, end, device=device)
    seen = (key <= query) & (key > query - window)  # (block, keys)
    return slice(start, end), slice(first, end), seen


def chunked(q: Tensor, k: Tensor, v: Tensor, chunk: int, kernel: Kernel | None = None) -> Tensor:
    """Each token sees the earlier ones of its own chunk."""
    cuts = [slice(i, i + chunk) for i in range(0, q.shape[2], chunk)]
    parts = [causal(q[:, :, cut], k[:, :, cut], v[:, :, cut], kernel) for cut in cuts]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _per_kv_head(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, kernel: Kernel | None) -> Tensor:
    """Key-value heads moved into the batch and seen by their G queries through a stride of 0: no copies of K and V."""
    batch, heads, tokens, _ = q.shape
    kv_heads = k.shape[1]
    group = heads // kv_heads
    q = q.reshape(batch * kv_heads, group, tokens, -1)
    k, v = (x.reshape(batch * kv_heads, 1, x.shape[2], -1).expand(-1, group, -1, -1) for x in (k, v))
    out = (kernel or sdpa)(q, k, v, attn_mask=seen, is_causal=seen is None)
    return out.view(batch, heads, tokens, -1)
