"""Blocks of tokens, handed out as conversations grow and taken back when they end (Kwon et al. 2023).

Its job is memory and correctness: a step gathers a session's blocks into one tensor, which costs time that a paged
kernel would not need. One block table serves all layers, so layers with a window keep every token here; the window
only hides the older ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kvplan.arithmetic import ceil_div
from kvplan.errors import InputError
from kvplan.measure.decoder.decoder import Decoder


class OutOfBlocksError(InputError):
    """The pool has no free block left; sessions that end give theirs back."""


class BlockPool:
    """The memory of all sessions: `blocks` blocks of `block_tokens` tokens in every layer."""

    def __init__(self, decoder: Decoder, *, blocks: int, block_tokens: int = 16) -> None:
        self.decoder, self.kept, self.place, self.block_tokens = decoder, decoder.kept, decoder.place, block_tokens
        self.keys = [self._layer(blocks, k.heads, k.k_width) for k in self.kept]
        self.values = [self._layer(blocks, k.heads, k.v_width) for k in self.kept]
        self.free = list(reversed(range(blocks)))  # the block given back last is used first
        self.blocks = blocks
        self.tables: dict[int, list[int]] = {}
        self.lengths: dict[int, int] = {}
        self.token_bytes = sum(k.elements for k in self.kept) * self.place.dtype.itemsize
        self._opened = 0

    def _layer(self, blocks: int, heads: int, width: int) -> Tensor:
        size = (blocks, heads, self.block_tokens, width)  # (N, K, tokens, D)
        return torch.zeros(size, device=self.place.device, dtype=self.place.dtype)

    @property
    def pool_bytes(self) -> int:
        """Bytes of all blocks, used or free."""
        return self.blocks * self.block_tokens * self.token_bytes

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the blocks that sessions hold."""
        return sum(map(len, self.tables.values())) * self.block_tokens * self.token_bytes

    @property
    def live_bytes(self) -> int:
        """Bytes of the sessions' tokens."""
        return sum(self.lengths.values()) * self.token_bytes

    @property
    def wasted_bytes(self) -> int:
        """Held and empty: the ends of the sessions' last blocks."""
        return self.reserved_bytes - self.live_bytes

    def open(self) -> int:
        """A new, empty session; its number."""
        session, self._opened = self._opened, self._opened + 1
        self.tables[session], self.lengths[session] = [], 0
        return session

    def close(self, session: int) -> None:
        """The session ends and its blocks are free."""
        self.free.extend(reversed(self.tables.pop(session)))
        del self.lengths[session]

    def grow(self, sessions: Sequence[int], tokens: int) -> None:
        """Blocks for so many more tokens of each session; all get theirs, or OutOfBlocksError and none does."""
        missing = {s: ceil_div(self.lengths[s] + tokens, self.block_tokens) - len(self.tables[s]) for s in sessions}
        needed = sum(missing.values())
        if needed > len(self.free):
            raise OutOfBlocksError(
                f"{needed} more blocks of {self.block_tokens} tokens are needed and {len(self.free)} of "
                f"{self.blocks} are free"
            )
        for session, count in missing.items():
            self.tables[session].extend(self.free.pop() for _ in range(count))

    def batch(self, sessions: Sequence[int]) -> PagedCache:
        """These sessions as the cache of one pass after another."""
        return PagedCache(self, tuple(sessions))


class PagedCache:
    """Some sessions of a pool, decoded together; their lengths may differ."""

    def __init__(self, pool: BlockPool, sessions: tuple[int, ...]) -> None:
        self.pool, self.sessions = pool, sessions
        self.table = self.positions = torch.empty(0)
        self.masks: dict[tuple[int | None, int | None], Tensor] = {}

    def begin(self, tokens: int) -> slice | Tensor:
        """Take the blocks of the next tokens; their positions."""
        pool = self.pool
        lengths = [pool.lengths[s] for s in self.sessions]
        if tokens > 1 and any(lengths):
            raise ValueError("a prompt is stored in an empty session; open a new one, or add tokens one by one")
        pool.grow(self.sessions, tokens)
        tables = [pool.tables[s] for s in self.sessions]
        longest = max(map(len, tables))
        pool.decoder.reserve_positions(1 << (longest * pool.block_tokens - 1).bit_length())  # grows seldom
        device = pool.place.device
        self.table = torch.tensor([t + [0] * (longest - len(t)) for t in tables], device=device)  # (B, blocks)
        self.positions = torch.tensor(lengths, device=device).unsqueeze(1) + torch.arange(tokens, device=device)
        self.masks = {(k.window, k.chunk): self._mask(k.window, k.chunk) for k in pool.kept} if tokens == 1 else {}
        return slice(0, tokens) if tokens > 1 else self.positions  # (B, 1)

    def _mask(self, window: int | None, chunk: int | None) -> Tensor:
        """0 where a session's token is seen and -inf elsewhere, (B, 1, 1, S)."""
        slot = torch.arange(self.table.shape[1] * self.pool.block_tokens, device=self.table.device)
        seen = slot <= self.positions  # (B, S)
        if window:
            seen &= slot > self.positions - window
        if chunk:
            seen &= slot >= self.positions // chunk * chunk
        mask = torch.zeros(seen.shape, device=seen.device, dtype=self.pool.place.dtype)
        return mask.masked_fill_(~seen, -torch.inf)[:, None, None]

    def store(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Tokens to their places in the blocks."""
        size = self.pool.block_tokens
        block = self.table.gather(1, self.positions // size)  # (B, T)
        offset = self.positions % size
        self.pool.keys[layer][block, :, offset] = k  # (B, T, K, D)
        self.pool.values[layer][block, :, offset] = v

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """One more token of each session, and copies of their blocks in order."""
        self.store(layer, k, v)
        kept = self.pool.kept[layer]
        keys, values = self._gather(self.pool.keys[layer]), self._gather(self.pool.values[layer])
        return keys, values, self.masks[kept.window, kept.chunk]

    def _gather(self, blocks: Tensor) -> Tensor:
        return blocks[self.table].transpose(1, 2).flatten(2, 3)  # (B, blocks, K, tokens, D) -> (B, K, S, D)

    def advance(self, tokens: int) -> None:
        """Count the new tokens."""
        for session in self.sessions:
            self.pool.lengths[session] += tokens
