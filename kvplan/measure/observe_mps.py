"""Memory on an Apple GPU, which shares it with the CPU."""

from __future__ import annotations

import gc
import platform
from collections.abc import Callable

import torch

from kvplan.measure.observe import Total
from kvplan.measure.observe_cpu import PAGE, allocator_peak


class MpsObserver:
    """The one Apple GPU."""

    driver: str | None = None
    slab_granule = PAGE

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.name = f"Apple GPU ({platform.machine()})"
        torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
        self.synchronize()

    def total(self, limit: int | None = None) -> Total:
        """What Metal recommends one process to take, or a smaller figure."""
        source = "recommended by Metal" if limit is None else "--memory-limit"
        whole = int(torch.mps.recommended_max_memory()) if limit is None else limit
        return Total(whole, int(torch.mps.driver_allocated_memory()), source)

    def used(self) -> int:
        """Bytes of living tensors."""
        self.synchronize()
        gc.collect()
        torch.mps.empty_cache()
        return int(torch.mps.current_allocated_memory())

    def readings(self) -> dict[str, int | None]:
        """Tensors, and all that Metal holds for this process."""
        return {"allocated": self.used(), "driver_allocated": int(torch.mps.driver_allocated_memory())}

    def peak_of(self, work: Callable[[], object]) -> int:
        """By the profiler's memory events."""
        return allocator_peak(work)

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.mps.synchronize()
