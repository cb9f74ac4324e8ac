"""One slab of memory a session, reserved whole at the start.

Layers with a window keep a ring of that many tokens: the newest overwrites the oldest. Order does not matter to
attention, since keys carry their positions. Layers in chunks start again at their first slot with every chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kvplan.errors import InputError
from kvplan.measure.decoder.cache.base import Kept
from kvplan.measure.decoder.decoder import Decoder


class LayerSlab(NamedTuple):
    """A layer's part of the slabs of all sessions: (B, K, slots, D) and (B, K, slots, V), tokens of a head together."""

    keys: Tensor
    values: Tensor
    slots: int
    chunked: bool

    def filled(self, length: int) -> int:
        """Slots that the token after `length` others may read, its own included."""
        return length % self.slots + 1 if self.chunked else min(length + 1, self.slots)


class ContiguousCache:
    """Sessions of equal length; `reserved_bytes` are touched at birth, so that they are resident."""

    def __init__(self, decoder: Decoder, *, batch: int = 1, capacity: int) -> None:
        decoder.reserve_positions(capacity)
        self.kept, self.batch, self.capacity, self.length = decoder.kept, batch, capacity, 0
        elements = sum(kept.elements * kept.slots(capacity) for kept in self.kept)
        self.slab = torch.zeros(batch, elements, device=decoder.place.device, dtype=decoder.place.dtype)
        self.layers = _layers(self.slab, self.kept, capacity)

    @property
    def reserved_bytes(self) -> int:
        """Bytes of all slabs."""
        return int(self.slab.nbytes)

    @property
    def live_bytes(self) -> int:
        """Bytes of the tokens that are kept."""
        elements = sum(kept.elements * kept.live(self.length) for kept in self.kept) if self.length else 0
        return int(self.batch * elements * self.slab.element_size())

    @property
    def wasted_bytes(self) -> int:
        """Reserved and not (yet) used."""
        return self.reserved_bytes - self.live_bytes

    def seek(self, length: int) -> None:
        """Stand at `length` tokens, whatever lies there; 0 forgets the conversations. The memory stays reserved."""
        self.length = length

    def pretend(self, length: int, seed: int = 0) -> None:
        """Stand at `length` tokens with random contents: a decode step there without its prompt's prefill."""
        generator = torch.Generator(self.slab.device).manual_seed(seed)
        self.slab.normal_(generator=generator)
        self.seek(length)

    def check_room(self, tokens: int) -> None:
        """Raise InputError when so many more tokens do not fit."""
        if self.length + tokens > self.capacity:
            raise InputError(
                f"the cache was made for {self.capacity} tokens a session and holds {self.length}: "
                f"{tokens} more do not fit"
            )

    def begin(self, tokens: int) -> slice | Tensor:
        """The positions of the next tokens."""
        self.check_room(tokens)
        if tokens > 1 and self.length:
            raise ValueError("a prompt is stored in an empty cache; seek(0), or add tokens one by one")
        return slice(self.length, self.length + tokens)

    def store(self, layer: int, k: Tensor, v: Tensor) -> None:
        """The part of a prompt that the layer still reads later."""
        slab, tokens = self.layers[layer], k.shape[1]
        first = tokens - tokens % slab.slots if slab.chunked else max(0, tokens - slab.slots)
        shift = first % slab.slots
        for kept, new in ((slab.keys, k), (slab.values, v)):
            rows = new[:, first:].transpose(1, 2)  # (B, K, tokens - first, D)
            room = slab.slots - shift  # slots before the ring starts again
            kept[:, :, shift : shift + rows.shape[2]] = rows[:, :, :room]
            kept[:, :, : max(0, rows.shape[2] - room)] = rows[:, :, room:]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """One more token, and all that it sees."""
        slab = self.layers[layer]
        slot, filled = self.length % slab.slots, slab.filled(self.length)
        slab.keys.select(2, slot).copy_(k.select(1, 0))
        slab.values.select(2, slot).copy_(v.select(1, 0))
        return slab.keys.narrow(2, 0, filled), slab.values.narrow(2, 0, filled), None

    def advance(self, tokens: int) -> None:
        """Count the new tokens."""
        self.length += tokens


def _layers(slab: Tensor, kept: tuple[Kept, ...], capacity: int) -> list[LayerSlab]:
    """Views of each session's slab: the first layer's keys, its values, the second layer's keys, ..."""
    layers, start = [], 0
    for layer in kept:
        slots, parts = layer.slots(capacity), []
        for width in (layer.k_width, layer.v_width):
            size = layer.heads * slots * width
            parts.append(slab[:, start : start + size].unflatten(1, (layer.heads, slots, width)))
            start += size
        layers.append(LayerSlab(parts[0], parts[1], slots, layer.chunk is not None))
    return layers
