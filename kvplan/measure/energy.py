"""Power, clocks and energy while steps run on and on, where a driver can be asked."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from kvplan.measure.nvml import Device, Watch
from kvplan.measure.rows import Row, row
from kvplan.measure.setting import Setting
from kvplan.measure.steps import Decoding

WATCHED_S = 1.0  # the driver averages power; shorter runs say little
MEANS = ("power_w", "utilisation_percent", "sm_clock_mhz", "memory_clock_mhz")


def energy_row(s: Setting, decoding: Decoding, context: int) -> Iterator[Row]:
    """Energy of one token of one session; None where the device does not say."""
    device: Device | None = getattr(s.observer, "nvml", None)
    if device is None or s.group.size > 1:
        return
    step, count = decoding.step_at(context, 1), 0
    with Watch(device) as watch:
        end = perf_counter() + WATCHED_S
        while perf_counter() < end:
            step()
            s.observer.synchronize()  # else steps queue up without end
            count += 1
    energy = watch.energy_j
    each = None if energy is None else energy / (count * decoding.batch)
    more: dict[str, Any] = {name: watch.mean(name) for name in MEANS} | {
        "temperature_c": watch.highest("temperature_c")
    }
    yield row("energy_per_token", "J", observed=each, batch=decoding.batch, context_tokens=context, **more)
