"""What this device reaches at its best, measured in the same run: a stream copy and a large matrix product."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch

from kvplan.measure.decoder.layouts import LAYOUTS, filled, possible
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.place import Place
from kvplan.units import MIB

COPY_BYTES = {"cpu": 128 * MIB, "mps": 256 * MIB, "cuda": 2048 * MIB}  # many times the last-level cache
PRODUCT_SIZE = {"cpu": 256, "mps": 1024, "cuda": 4096}  # to start from
LARGEST_PRODUCT = 16384
LONG_ENOUGH_S = 0.1  # of one product
COPIES, PRODUCTS = 9, 5
SLOW_HALF = 3.0  # times as slow as fp32: half the bytes of a step do not make up for such prompts


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
    """The median of a few copies, and the best product."""
    return Peaks(_copy_rate(device, synchronize), _product_rate(device, dtype, synchronize))


def quick_dtype(device: torch.device, synchronize: Callable[[], None]) -> str:
    """bf16, or fp32 on CPUs that multiply 16 bit many times slower in every order of the matrices."""
    if device.type != "cpu":
        return "bf16"
    half, single = (_fastest_product(Place(device, d), synchronize)[0] for d in (torch.bfloat16, torch.float32))
    return "fp32" if half > SLOW_HALF * single else "bf16"


def _fastest_product(place: Place, synchronize: Callable[[], None]) -> tuple[float, str]:
    """Seconds of a small product in the fastest order of its weights, and the order."""
    size = PRODUCT_SIZE[place.device.type]
    return min((_product_s(place, name, size, synchronize), name) for name in possible(place))


@torch.inference_mode()
def _product_s(place: Place, layout: str, size: int, synchronize: Callable[[], None]) -> float:
    """The best of some products of two square matrices, as the decoder multiplies: steady where others run too."""
    x = torch.ones(size, size, device=place.device, dtype=place.dtype)
    linear = filled(Linear(size, size, place), torch.ones(()))
    LAYOUTS[layout].arrange(linear, size)
    return min(time_calls(lambda: linear(x), PRODUCTS, synchronize))


def _copy_rate(device: torch.device, synchronize: Callable[[], None]) -> float:
    size = COPY_BYTES[device.type]
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / median(time_calls(lambda: target.copy_(source), COPIES, synchronize))


def _product_rate(device: torch.device, dtype: torch.dtype, synchronize: Callable[[], None]) -> float:
    """The size grows until a product takes long enough to be timed."""
    place = Place(device, dtype)
    size, best = PRODUCT_SIZE[device.type], 0.0
    _, layout = _fastest_product(place, synchronize)
    while True:
        seconds = _product_s(place, layout, size, synchronize)
        best = max(best, 2 * size**3 / seconds)
        if seconds >= LONG_ENOUGH_S or size >= LARGEST_PRODUCT:
            return best
        size *= 2
