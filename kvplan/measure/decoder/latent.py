"""Multi-head latent attention (DeepSeek-V2 2024): of a token only a latent and one rotary key are kept.

A prompt expands its latents into every head's keys and values. A decode step leaves them as they are: the expansion is
absorbed into the query on one side of the softmax and into the output on the other, so that all heads attend to one
shared key, whose first R elements are its value.

More letters: R rank of the latent, P width of the rotary key, N of a head's part without positions; D = N + P.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from kvplan.measure.decoder.attend import expanded, latent
from kvplan.measure.decoder.attention import Turn, Used
from kvplan.measure.decoder.cache.base import Cache, Kept
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.norms import RMSNorm
from kvplan.measure.decoder.numerics import Numerics
from kvplan.measure.decoder.parallel import Group
from kvplan.measure.decoder.place import Place
from kvplan.measure.decoder.rope import neighbours_apart, rotate, sharpness
from kvplan.measure.decoder.slots import Rows, Slot, column_slots, row_slots, whole
from kvplan.specs import layers as shape
from kvplan.specs.layers import Rope

INNER_EPS = 1e-6  # of both inner norms, whatever the config says of the others (modeling_deepseek.py of every release)


class LatentAttention(nn.Module):
    """MLA with or without compressed queries; on several ranks the heads are divided and the latent is on each."""

    def __init__(
        self, m: shape.Latent, hidden: int, numerics: Numerics, place: Place, group: Group, *, rope: Rope | None
    ) -> None:
        super().__init__()
        self.shape, self.group = m, group
        self.kept = Kept(1, m.kv_rank + m.rope_dim, 0)  # the value is a part of the key
        self.heads, self.kv_heads, self.head_dim = m.heads, 1, m.kv_rank + m.rope_dim  # in a decode step
        width = m.nope_dim + m.rope_dim
        inner = replace(numerics, norm_eps=INNER_EPS)
        # rows: queries or what they are compressed to, the latent, the rotary key
        self.widths = (m.q_rank or m.heads * width, m.kv_rank + m.rope_dim)
        self.down = Linear(sum(self.widths), hidden, place)
        self.q_norm = RMSNorm(m.q_rank, inner, place) if m.q_rank else None
        self.q_up = Linear(m.heads * width, m.q_rank, place) if m.q_rank else None
        self.kv_norm = RMSNorm(m.kv_rank, inner, place)
        self.kv_up = Expansion(m, place)
        self.o = Linear(hidden, m.heads * m.v_dim, place)
        self.scale = width**-0.5 * (sharpness(rope, numerics) if rope else 1.0)
        self.interleaved = numerics.interleaved
        self.layer_index = 0  # of the cache
        self.table: int | None = None  # of the rotary tables; None: no positions

    def forward(self, x: Tensor, turn: Turn) -> Tensor:
        """(B, T, M) to (B, T, M)."""
        q, kv = self.down(x).split(self.widths, dim=-1)
        if self.q_norm is not None and self.q_up is not None:
            q = self.q_up(self.q_norm(q))
        q = q.unflatten(-1, (self.heads, -1))  # (B, T, H, D)
        self._positions(q, kv.unsqueeze(2), turn)
        kv[..., : self.shape.kv_rank] = self.kv_norm(kv[..., : self.shape.kv_rank])
        out = self._decode(q, kv, turn.cache) if turn.cache and x.shape[1] == 1 else self._prompt(q, kv, turn.cache)
        return self.group.sum(self.o(out))

    def _positions(self, q: Tensor, kv: Tensor, turn: Turn) -> None:
        """Turn the last P elements of every query (B, T, H, D) and of what is kept (B, T, 1, R + P), in place."""
        if self.table is None:
            return
        n, r = self.shape.nope_dim, self.shape.kv_rank
        rotary = torch.cat((q[..., n:], kv[..., r:]), dim=2)  # (B, T, H + 1, P)
        if self.interleaved:
            rotary = neighbours_apart(rotary)
        q[..., n:], kv[..., r:] = rotate(rotary, *turn.tables[self.table]).split((self.heads, 1), dim=2)

    def _decode(self, q: Tensor, kv: Tensor, cache: Cache) -> Tensor:
        kv = kv.unsqueeze(2)  # (B, 1, 1, R + P)
        kept, _, mask = cache.extend(self.layer_index, kv, kv[..., :0])  # (B, 1, S, R + P)
        nope, rotary = q[:, 0].split((self.shape.nope_dim, self.shape.rope_dim), dim=-1)  # (B, H, N or P)
        query = torch.cat((self.kv_up.absorbed(nope), rotary), dim=-1).unsqueeze(1)  # (B, 1, H, R + P)
        return self.kv_up.restored(self.decode(query, kept, kept, mask)[:, 0]).flatten(1).unsqueeze(1)

    def decode(self, q: Tensor, keys: Tensor, _values: Tensor, mask: Tensor | None = None) -> Tensor:
        """All heads, as rows of one: (B, 1, H, R + P) to (B, 1, H, R)."""
        return latent(q, keys, self.shape.kv_rank, self.scale, mask)

    def _prompt(self, q: Tensor, kv: Tensor, cache: Cache | None) -> Tensor:
        if cache is not None:
            cache.store(self.layer_index, kv.unsqueeze(2), kv[..., None, :0])
        k, v = self._heads_of(kv)
        return self.core(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).flatten(2)

    def _heads_of(self, kv: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, T, H, D), and values as `core` takes them, of kept tokens (B, T, R + P)."""
        latents, rotary = kv.split((self.shape.kv_rank, self.shape.rope_dim), dim=-1)
        both = self.kv_up(latents)  # (B, T, H, N + V)
        shared = rotary.unsqueeze(2).expand(-1, -1, self.heads, -1)
        return torch.cat((both[..., : self.shape.nope_dim], shared), dim=-1), both[..., -self.prompt_shapes[2][1] :]

    def core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """A prompt's attention: (B, H, T, D) and values to (B, H, T, V)."""
        return expanded(q, k, v, self.shape.v_dim, self.scale)

    @property
    def prompt_shapes(self) -> tuple[tuple[int, int], ...]:
        """Heads and widths of q, k and v in `core`.

        Fast kernels want values as wide as keys. Those of a head lie behind its part of the key, so a wider view ends
        in them, and so does what comes out.
        """
        m = self.shape
        key = m.nope_dim + m.rope_dim
        return ((m.heads, key), (m.heads, key), (m.heads, min(max(key, m.v_dim), m.nope_dim + m.v_dim)))

    def used(self, batch: int) -> Iterator[Used]:
        """What a decode step multiplies by, and the size of what comes in."""
        m = self.shape
        yield self.down, (batch, self.down.columns)
        if self.q_up is not None:
            yield self.q_up, (batch, self.q_up.columns)
        yield self.kv_up.absorbed, (batch, m.heads, m.nope_dim)
        yield self.kv_up.restored, (batch, m.heads, m.kv_rank)
        yield self.o, (batch, self.o.columns)

    def slots(self, full: shape.Latent) -> Iterator[tuple[str, Slot]]:
        """Where the whole model's tensors go."""
        m, rank, size = self.shape, self.group.rank, self.group.size
        start, width = rank * full.heads // size, m.nope_dim + m.rope_dim
        q = Rows("q_proj", m.heads * width, start * width, full.heads * width)
        first = Rows("q_a_proj", m.q_rank, 0, m.q_rank) if m.q_rank else q
        yield from row_slots(self.down, [first, Rows("kv_a_proj_with_mqa", self.widths[1], 0, self.widths[1])])
        if self.q_norm is not None and self.q_up is not None:
            yield "q_a_layernorm.weight", whole(self.q_norm.weight)
            yield from row_slots(self.q_up, [q._replace(name="q_b_proj")])
        yield "kv_a_layernorm.weight", whole(self.kv_norm.weight)
        both = m.nope_dim + m.v_dim
        yield "kv_b_proj.weight", Slot(self.kv_up.weight, (full.heads * both, m.kv_rank), 0, start * both)
        yield from column_slots(self.o, "o_proj", rank, full.heads * m.v_dim)


class Expansion(nn.Module):
    """Latents to every head's keys and values, and the two halves of that matrix as a decode step uses them.

    It lies by rows whatever the other matrices do, since it is multiplied from both sides. Where those are multiplied
    in fp32 because the CPU is slow in 16 bit, so is this one.
    """

    def __init__(self, m: shape.Latent, place: Place) -> None:
        super().__init__()
        self.heads, self.nope_dim = m.heads, m.nope_dim
        self.weight = place.empty(m.heads * (m.nope_dim + m.v_dim), m.kv_rank)
        self.format = place.dtype  # of the products

    def forward(self, latents: Tensor) -> Tensor:
        """(B, T, R) to (B, T, H, N + V)."""
        both = nn.functional.linear(latents.to(self.format), self.weight.to(self.format))
        return both.to(latents.dtype).unflatten(-1, (self.heads, -1))

    def absorbed(self, q: Tensor) -> Tensor:
        """What a head's query asks of its keys, asked of the latent: (B, H, N) to (B, H, R)."""
        return self._each_head(q, self._by_head()[:, : self.nope_dim])

    def restored(self, attended: Tensor) -> Tensor:
        """A weighted sum of latents as that of the head's values: (B, H, R) to (B, H, V)."""
        return self._each_head(attended, self._by_head()[:, self.nope_dim :].transpose(1, 2))

    def _by_head(self) -> Tensor:
        return self.weight.unflatten(0, (self.heads, -1))  # (H, N + V, R)

    def _each_head(self, x: Tensor, matrices: Tensor) -> Tensor:
        product = torch.bmm(x.transpose(0, 1).to(self.format), matrices.to(self.format))
        return product.transpose(0, 1).to(x.dtype)
