"""A contiguous cache whose decode step does the same work at every length, as a captured graph needs it."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.measure.decoder.cache.contiguous import ContiguousCache, LayerSlab
from kvplan.measure.decoder.decoder import Decoder


class StaticCache(ContiguousCache):
    """The position lies on the device, every slot is read, and a mask hides those that are not filled yet."""

    def __init__(self, decoder: Decoder, *, batch: int = 1, capacity: int) -> None:
        super().__init__(decoder, batch=batch, capacity=capacity)
        device = decoder.place.device
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.numbers = torch.arange(capacity, device=device)
        self.zero = torch.zeros((), device=device, dtype=decoder.place.dtype)
        self.minus_inf = torch.full((), -torch.inf, device=device, dtype=decoder.place.dtype)
        self.steps: dict[tuple[int, bool], tuple[Tensor, Tensor]] = {}

    def begin(self, tokens: int) -> slice | Tensor:
        """The positions of the next tokens; for a single one, slot and mask of each kind of layer as well."""
        positions = super().begin(tokens)
        if tokens > 1:
            return positions
        self.steps = {(s.slots, s.chunked): self._step(s) for s in self.layers}
        return self.position

    def _step(self, slab: LayerSlab) -> tuple[Tensor, Tensor]:
        slot = self.position % slab.slots
        last = slot if slab.chunked else self.position
        mask = torch.where(self.numbers[: slab.slots] <= last, self.zero, self.minus_inf)
        return slot, mask.view(1, 1, 1, -1)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """One more token, and all slots with the mask."""
        slab = self.layers[layer]
        slot, mask = self.steps[slab.slots, slab.chunked]
        slab.keys.index_copy_(2, slot, k.transpose(1, 2))
        slab.values.index_copy_(2, slot, v.transpose(1, 2))
        return slab.keys, slab.values, mask

    def advance(self, tokens: int) -> None:
        """Count the new tokens here and on the device."""
        super().advance(tokens)
        self.position.add_(tokens)

    def seek(self, length: int) -> None:
        """Stand at `length` tokens, here and on the device."""
        super().seek(length)
        self.position.fill_(length)
