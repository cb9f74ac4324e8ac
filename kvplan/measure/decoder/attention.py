"""The attention block: one fused projection, norms and rotary positions of queries and keys, a cache, and a gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kvplan.measure.decoder.attend import DECODE_PATHS, causal, chunked, windowed
from kvplan.measure.decoder.cache.base import Cache, Kept
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.norms import QKNorm
from kvplan.measure.decoder.numerics import Numerics
from kvplan.measure.decoder.parallel import Group
from kvplan.measure.decoder.place import Place
from kvplan.measure.decoder.rope import rotate
from kvplan.measure.decoder.sinks import sunk
from kvplan.measure.decoder.slots import Rows, Slot, column_slots, row_slots, whole
from kvplan.specs import layers as shape

Used = tuple[Callable[[Tensor], Tensor], tuple[int, ...]]  # a product, and the size of what comes in


class Turn(NamedTuple):
    """What a pass over the layers shares: cos and sin by table, and the cache (None: everything is recomputed)."""

    tables: list[tuple[Tensor, Tensor]]
    cache: Cache | None


class Attention(nn.Module):
    """MHA, GQA and MQA, full, windowed or in chunks."""

    def __init__(self, a: shape.Attention, hidden: int, numerics: Numerics, place: Place, group: Group) -> None:
        super().__init__()
        self.shape, self.group = a, group
        self.kept = Kept(a.kv_heads, a.head_dim, a.v_head_dim, a.window, a.chunk)
        self.heads, self.kv_heads, self.head_dim, self.v_head_dim = a.heads, a.kv_heads, a.head_dim, a.v_head_dim
        gate_width = a.heads * a.head_dim if a.output_gate else 0
        # rows: queries and keys (next to each other, so that they are rotated together), values, gate
        self.widths = ((a.heads + a.kv_heads) * a.head_dim, a.kv_heads * a.v_head_dim, gate_width)
        self.qkv = Linear(sum(self.widths), hidden, place, bias=a.qkv_bias)
        self.qk_norm = QKNorm(a, numerics, place) if a.qk_norm else None
        self.o = Linear(hidden, a.heads * a.v_head_dim, place, bias=a.out_bias)
        self.layer_index = 0  # of the cache
        self.table: int | None = None  # of the rotary tables; None: no positions
        self.sinks = place.empty(a.heads) if a.sinks else None
        self.decode = DECODE_PATHS["grouped"]
        if self.sinks is not None:
            self.decode = partial(sunk, sinks=self.sinks.view(a.kv_heads, -1))  # (K, G)

    def forward(self, x: Tensor, turn: Turn) -> Tensor:
        """(B, T, M) to (B, T, M)."""
        qk, v, gate = self.qkv(x).split(self.widths, dim=-1)
        q, k, v = self.heads_of(qk, v, turn)
        out = self._decode(q, k, v, turn.cache) if turn.cache and x.shape[1] == 1 else self._prompt(q, k, v, turn.cache)
        if self.shape.output_gate:
            out = out * torch.sigmoid(gate)
        return self.group.sum(self.o(out))

    def heads_of(self, qk: Tensor, v: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, T, H, D) and keys (B, T, K, D) with their positions, values (B, T, K, V)."""
        batch, tokens, _ = qk.shape
        qk = qk.view(batch, tokens, -1, self.head_dim)  # (B, T, H + K, D)
        v = v.view(batch, tokens, -1, self.v_head_dim)
        if self.qk_norm is not None:
            qk = self.qk_norm(qk)
        if self.table is not None:
            qk = rotate(qk, *turn.tables[self.table])
        q, k = qk.split((self.heads, self.kv_heads), dim=2)
        return q, k, v

    def _decode(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache) -> Tensor:
        batch = q.shape[0]
        keys, values, mask = cache.extend(self.layer_index, k, v)  # (B, K, S, D), (B, K, S, V)
        grouped = q.reshape(batch, self.kv_heads, -1, self.head_dim)  # (B, K, G, D)
        return self.decode(grouped, keys, values, mask).reshape(batch, 1, -1)

    def _prompt(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache | None) -> Tensor:
        if cache is not None:
            cache.store(self.layer_index, k, v)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, H or K, T, D or V)
        return self.core(q, k, v).transpose(1, 2).flatten(2)  # (B, T, H V)

    def core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """A prompt's attention: (B, H, T, D), (B, K, T, D) and (B, K, T, V) to (B, H, T, V)."""
        kernel = None
        if self.sinks is not None:  # of each session's key-value heads, as the batch's are put in a row
            kernel = partial(sunk, sinks=self.sinks.view(self.kv_heads, -1, 1).repeat(q.shape[0], 1, 1))
        if self.shape.window:
            return windowed(q, k, v, self.shape.window, kernel)
        return chunked(q, k, v, self.shape.chunk, kernel) if self.shape.chunk else causal(q, k, v, kernel)

    @property
    def prompt_shapes(self) -> tuple[tuple[int, int], ...]:
        """Heads and widths of q, k and v in `core`."""
        return ((self.heads, self.head_dim), (self.kv_heads, self.head_dim), (self.kv_heads, self.v_head_dim))

    def used(self, batch: int) -> Iterator[Used]:
        """What a decode step multiplies by, and the size of what comes in."""
        yield from ((linear, (batch, linear.columns)) for linear in (self.qkv, self.o))

    def slots(self, full: shape.Attention) -> Iterator[tuple[str, Slot]]:
        """Where the whole model's tensors go; ranks beyond the key-value heads hold copies of them."""
        a, rank, size = self.shape, self.group.rank, self.group.size
        q_start, kv_start = rank * full.heads // size, rank * full.kv_heads // size
        q = Rows("q_proj", a.heads * a.head_dim, q_start * a.head_dim, full.heads * a.head_dim)
        k = Rows("k_proj", a.kv_heads * a.head_dim, kv_start * a.head_dim, full.kv_heads * a.head_dim)
        v = Rows("v_proj", a.kv_heads * a.v_head_dim, kv_start * a.v_head_dim, full.kv_heads * a.v_head_dim)
        gate = [q._replace(name="gate_proj", bias=False)] if a.output_gate else []
        yield from row_slots(self.qkv, [q, k, v, *gate])
        yield from column_slots(self.o, "o_proj", rank, full.heads * a.v_head_dim)
        if self.sinks is not None:
            yield "sinks", Slot(self.sinks, (full.heads,), 0, q_start)
        if self.qk_norm is None:
            return
        for name, weight, start, heads in (
            ("q_norm", self.qk_norm.q_weight, q_start, full.heads),
            ("k_norm", self.qk_norm.k_weight, kv_start, full.kv_heads),
        ):
            divided = a.qk_norm == "each"
            slot = Slot(weight, (heads * a.head_dim,), 0, start * a.head_dim) if divided else whole(weight)
            yield f"{name}.weight", slot
