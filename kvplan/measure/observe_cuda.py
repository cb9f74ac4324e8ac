"""Memory on a CUDA device: what PyTorch's allocator handed out and keeps, and what the driver sees."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from kvplan.measure import nvml
from kvplan.measure.observe import Total

SEGMENT = 2 * 1024 * 1024  # the caching allocator asks the driver for whole 2 MiB (c10/cuda/CUDACachingAllocator.h)


class CudaObserver:
    """One CUDA device."""

    slab_granule = SEGMENT

    def __init__(self, device: torch.device) -> None:
        self.device = device
        torch.cuda.set_device(device)
        properties = torch.cuda.get_device_properties(device)
        self.name: str = properties.name
        self.nvml, self.nvml_reason = nvml.find(_uuid(properties), device.index or 0)
        self.driver = self.nvml.driver if self.nvml else None
        self._warm_up()
        self.baseline = self.readings()

    def _warm_up(self) -> None:
        """The context, and the workspaces that libraries take at first use."""
        x = torch.ones(64, 64, device=self.device, dtype=torch.bfloat16)
        torch.mm(x, x)
        self.synchronize()

    def total(self, limit: int | None = None) -> Total:
        """All of the device, less context, other processes and what PyTorch already keeps; or a limit on the latter."""
        self._settle()
        if limit is not None:
            return Total(
                limit, int(torch.cuda.memory_reserved(self.device)), "--memory-limit, which counts PyTorch's own"
            )
        free, total = torch.cuda.mem_get_info(self.device)
        return Total(int(total), int(total - free), "the CUDA runtime's total; taken before: context, other processes")

    def used(self) -> int:
        """Bytes of living tensors, as the allocator rounds them (to 512)."""
        self._settle()
        return int(torch.cuda.memory_allocated(self.device))

    def readings(self) -> dict[str, int | None]:
        """Allocated, reserved and peak by PyTorch; the device's and this process's share by the driver."""
        self._settle()
        memory = self.nvml.memory() if self.nvml else None
        return {
            "allocated": int(torch.cuda.memory_allocated(self.device)),
            "reserved": int(torch.cuda.memory_reserved(self.device)),
            "allocated_peak": int(torch.cuda.max_memory_allocated(self.device)),
            "device_used": memory.used if memory else None,
            "device_reserved_by_driver": memory.reserved if memory else None,
            "process": self.nvml.process_bytes() if self.nvml else None,
        }

    def peak_of(self, work: Callable[[], object]) -> int:
        """By the allocator's own high-water mark."""
        before = self.used()
        torch.cuda.reset_peak_memory_stats(self.device)
        work()
        self.synchronize()
        return int(torch.cuda.max_memory_allocated(self.device)) - before

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.device)

    def _settle(self) -> None:
        self.synchronize()
        gc.collect()
        torch.cuda.empty_cache()


def _uuid(properties: object) -> str | None:
    """PyTorch gives it since 2.4."""
    found = getattr(properties, "uuid", None)
    return None if found is None else str(found)
