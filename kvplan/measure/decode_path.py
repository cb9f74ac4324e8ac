"""Which form of attention a decode step takes: tried on this device, for each kind of layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from kvplan.measure.decoder.attend import DECODE_PATHS
from kvplan.measure.decoder.attention import Attention
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.place import Place
from kvplan.measure.decoder.winner import winner
from kvplan.units import MIB

TRIAL_BYTES = 128 * MIB  # of keys and values, at most
TRIAL_ROUNDS = 5
FIRST = "grouped"


class Kind(NamedTuple):
    """What the time of a layer's attention depends on."""

    kv_heads: int
    group: int
    head_dim: int
    v_head_dim: int
    slots: int

    def tensors(self, batch: int, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, K, G, D), k (B, K, S, D) and v (B, K, S, V); less of a cache that would not fit a trial."""
        token = self.kv_heads * (self.head_dim + self.v_head_dim) * place.dtype.itemsize
        slots = max(1, min(self.slots, TRIAL_BYTES // token))
        batch = max(1, min(batch, TRIAL_BYTES // (token * slots)))
        sizes = ((self.group, self.head_dim), (slots, self.head_dim), (slots, self.v_head_dim))
        q, k, v = (torch.ones(batch, self.kv_heads, *size, device=place.device, dtype=place.dtype) for size in sizes)
        return q, k, v


def choose_paths(
    decoder: Decoder, batches: Sequence[int], context: int, synchronize: Callable[[], None] = lambda: None
) -> tuple[str, ...]:
    """Give every plain attention layer its fastest form at this context, all batches alike; which ones were taken."""
    chosen: dict[Kind, str] = {}
    for a in _plain(decoder):
        kind = Kind(a.kv_heads, a.heads // a.kv_heads, a.head_dim, a.v_head_dim, a.kept.slots(context))
        if kind not in chosen:
            chosen[kind] = fastest(kind, batches, decoder.place, synchronize)
        a.decode = DECODE_PATHS[chosen[kind]]
    return tuple(sorted(set(chosen.values())))


def use_path(decoder: Decoder, name: str) -> None:
    """Give every plain attention layer this form."""
    for attention in _plain(decoder):
        attention.decode = DECODE_PATHS[name]


def _plain(decoder: Decoder) -> list[Attention]:
    """Layers without sinks or latents, whose forms are their own."""
    found = [block.attention for block in decoder.layers]
    return [each for each in found if isinstance(each, Attention) and not each.shape.sinks]


def fastest(kind: Kind, batches: Sequence[int], place: Place, synchronize: Callable[[], None]) -> str:
    """The form whose mean time over the batches is least."""
    seconds = [trial_seconds(kind.tensors(batch, place), synchronize) for batch in batches]
    return winner({name: [each[name] for each in seconds] for name in DECODE_PATHS}, FIRST)


@torch.inference_mode()
def trial_seconds(tensors: tuple[Tensor, Tensor, Tensor], synchronize: Callable[[], None]) -> dict[str, float]:
    """The best of some rounds of each form, in turn; where the device has a mask, with one."""
    q, k, v = tensors
    mask = None if q.device.type == "cpu" else torch.zeros(1, 1, 1, k.shape[2], device=q.device, dtype=q.dtype)
    best = dict.fromkeys(DECODE_PATHS, float("inf"))
    for _ in range(TRIAL_ROUNDS + 1):  # the first is a warm-up
        for name, path in DECODE_PATHS.items():
            synchronize()
            start = perf_counter()
            path(q, k, v, mask)
            synchronize()
            best[name] = min(best[name], perf_counter() - start)
    return best
