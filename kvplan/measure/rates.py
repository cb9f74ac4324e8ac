"""What this device reaches at its best, measured in the same run: a stream copy and a large matrix product."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch

from kvplan.units import MIB

COPY_BYTES = {"cpu": 128 * MIB, "mps": 256 * MIB, "cuda": 2048 * MIB}  # many times the last-level cache
PRODUCT_SIZE = {"cpu": 256, "mps": 1024, "cuda": 4096}  # to start from
LARGEST_PRODUCT = 16384
LONG_ENOUGH_S = 0.1  # of one product
COPIES, PRODUCTS = 9, 5


class Peaks(NamedTuple):
    """Rates that the shares are of."""

    copy_bytes_per_s: float  # read and written bytes together
    product_flops_per_s: float  # in the decoder's own format


def time_calls(call: Callable[[], object], repeats: int, synchronize: Callable[[], None]) -> list[float]:
    """Seconds of each call, after one that is not counted."""
    call()
    samples = []
    for _ in range(repeats):
        synchronize()
        start = perf_counter()
        call()
        synchronize()
        samples.append(perf_counter() - start)
    return samples


def measure_peaks(device: torch.device, dtype: torch.dtype, synchronize: Callable[[], None]) -> Peaks:
    """Medians of a few runs of both."""
    return Peaks(_copy_rate(device, synchronize), _product_rate(device, dtype, synchronize))


def _copy_rate(device: torch.device, synchronize: Callable[[], None]) -> float:
    size = COPY_BYTES[device.type]
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / median(time_calls(lambda: target.copy_(source), COPIES, synchronize))


def _product_rate(device: torch.device, dtype: torch.dtype, synchronize: Callable[[], None]) -> float:
    """The size grows until a product takes long enough to be timed."""
    size, best = PRODUCT_SIZE[device.type], 0.0
    while True:
        a, b = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
        seconds = median(time_calls(lambda: torch.mm(a, b), PRODUCTS, synchronize))  # noqa: B023 - called at once
        best = max(best, 2 * size**3 / seconds)
        if seconds >= LONG_ENOUGH_S or size >= LARGEST_PRODUCT:
            return best
        size *= 2
