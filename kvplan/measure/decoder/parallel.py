"""Tensor parallelism (Shoeybi et al. 2019): outputs of one projection divided, inputs of the next, then a sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from kvplan.measure.decoder.decoder import Decoder


class Group:
    """The ranks that hold one model together; alone, nothing is communicated."""

    def __init__(self, rank: int = 0, size: int = 1, process_group: Any = None) -> None:
        self.rank, self.size, self.process_group = rank, size, process_group

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all ranks, on every rank."""
        if self.size > 1:
            torch.distributed.all_reduce(x, group=self.process_group)
        return x

    def join(self, x: Tensor) -> Tensor:
        """The ranks' parts of the last axis side by side, on every rank."""
        if self.size == 1:
            return x
        parts = [torch.empty_like(x) for _ in range(self.size)]
        torch.distributed.all_gather(parts, x.contiguous(), group=self.process_group)
        return torch.cat(parts, dim=-1)


ALONE = Group()


def copy_weights(source: Decoder, part: Decoder) -> None:
    """Fill a rank's decoder from the whole model's."""
    whole = dict(source.slots())
    for name, slot in part.slots():
        slot.fill(whole[name].target)
