"""What the layers ask of a cache."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Kept(NamedTuple):
    """What one layer keeps of a token, and of how many tokens; a latent is a key that is its own value, v_width 0."""

    heads: int
    k_width: int
    v_width: int
    window: int | None = None
    chunk: int | None = None

    @property
    def elements(self) -> int:
        """Elements of one token."""
        return self.heads * (self.k_width + self.v_width)

    def slots(self, capacity: int) -> int:
        """Tokens to keep of a conversation of `capacity` tokens."""
        return min(capacity, self.window or self.chunk or capacity)

    def live(self, tokens: int) -> int:
        """Tokens of a conversation of `tokens` that count as kept: min(c, window), as the planner has it."""
        return self.slots(tokens)


class Cache(Protocol):
    """A batch of conversations. A pass is: `begin`, `store` or `extend` in every layer, `advance`."""

    def begin(self, tokens: int) -> slice | Tensor:
        """Make room for so many new tokens a session; their positions."""

    def store(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Keep a prompt's k (B, T, K, D) and v (B, T, K, V)."""

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keep one token's k and v; all kept keys (B, K, S, D), values (B, K, S, V) and what to add to the scores."""

    def advance(self, tokens: int) -> None:
        """The new tokens are now part of the conversations."""
