"""Memory on a CPU: resident pages once the heap is trimmed, and the allocator's own events.

Freed blocks stay in the C library's heap and are used again, so a naive reading of the resident set is off by up to
three quarters. Blocks above MMAP_THRESHOLD are mapped one by one and given back when freed; the rest is trimmed before
every reading. Pages of files (libraries, mapped checkpoints) are left out: they are not this process's own.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch.nn import functional

from kvplan.measure.observe import Total
from kvplan.units import KIB

M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1  # malloc.h
MMAP_THRESHOLD = 64 * KIB  # while memory is observed
TIMED_THRESHOLD = 32 * 1024 * KIB  # while time is measured: what glibc itself grows to, the most it accepts
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


class CpuObserver:
    """This process's own resident memory."""

    driver: str | None = None
    slab_granule = PAGE

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.name = cpu_name()
        prefer_maps()
        warm_up()

    def total(self, limit: int | None = None) -> Total:
        """What is free and what this process holds already; a limit counts addresses, touched or not (RLIMIT_DATA)."""
        if limit is not None:
            return Total(limit, limited_bytes(), "--memory-limit, which counts writable addresses")
        used = self.used()
        return Total(available_bytes() + used, used, "memory that is free now, and what this process holds")

    def used(self) -> int:
        """Anonymous pages, in memory or swapped out; all resident ones where the system does not tell them apart."""
        settle()
        found = rollup()
        if "Anonymous" in found:
            return found["Anonymous"] + found.get("Swap", 0)
        return _resident_by_ps()

    def readings(self) -> dict[str, int | None]:
        """Pages of its own, the resident set, and the addresses that a memory limit counts."""
        settle()
        found, status = rollup(), _status()
        return {
            "own": self.used(),
            "resident": found.get("Rss"),
            "resident_peak": status.get("VmHWM"),
            "writable_addresses": status.get("VmData"),
        }

    def peak_of(self, work: Callable[[], object]) -> int:
        """By the allocator's events, which are the same in every run; the resident set hardly moves."""
        return allocator_peak(work)

    def synchronize(self) -> None:
        """A CPU is always done."""


def warm_up() -> None:
    """Library code, thread stacks and scratch memory that first use brings, before the baseline is read."""
    x = torch.ones(64, 64)
    functional.linear(x, x)
    functional.rms_norm(functional.silu(x), (64,))
    functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True)
    allocator_peak(lambda: x + x)


def prefer_maps() -> None:
    """Blocks of more than 64 KiB in maps of their own (glibc only)."""
    _mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)


def prefer_heap() -> None:
    """Blocks used again as they come free: mapping fresh pages would cost time in every step."""
    _mallopt(M_MMAP_THRESHOLD, TIMED_THRESHOLD)
    _mallopt(M_TRIM_THRESHOLD, 2**30)


def _mallopt(parameter: int, value: int) -> None:
    if _LIBC is not None and hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(parameter, value)


def settle() -> None:
    """Give back all that is not in use."""
    gc.collect()
    if _LIBC is not None and hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def rollup() -> dict[str, int]:
    """Bytes by the names of /proc/self/smaps_rollup; empty where there is none."""
    return _sizes("/proc/self/smaps_rollup")


def _status() -> dict[str, int]:
    return _sizes("/proc/self/status")


def _sizes(path: str) -> dict[str, int]:
    try:
        lines = Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    parts = [line.split() for line in lines]
    return {p[0].rstrip(":"): int(p[1]) * KIB for p in parts if len(p) == 3 and p[2] == "kB"}


def limited_bytes() -> int:
    """What RLIMIT_DATA counts: private writable addresses, resident or not."""
    settle()
    return writable_bytes()


def writable_bytes() -> int:
    """The same before anything is given back; 0 where the system does not say."""
    return _status().get("VmData", 0)


def available_bytes() -> int:
    """Memory that could be taken without swapping: the system's estimate, or what the container still allows."""
    found = _sizes("/proc/meminfo").get("MemAvailable")
    if found is None:
        pages = os.sysconf("SC_PHYS_PAGES") * PAGE
        return int(pages)
    left = _container_left()
    return found if left is None else min(found, left)


def _container_left() -> int | None:
    """Of control groups, version 2 then 1."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            return max(0, int(Path(limit).read_text("ascii")) - int(Path(used).read_text("ascii")))
    return None


def _resident_by_ps() -> int:
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=False)
    return int(done.stdout.strip() or 0) * KIB


def cpu_name() -> str:
    """The processor's name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def allocator_peak(work: Callable[[], object]) -> int:
    """The highest sum of what PyTorch's allocator handed out and took back while `work` ran."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with _silent_stderr(), torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        work()
    with tempfile.TemporaryDirectory(prefix="kvplan-") as folder:
        path = Path(folder) / "trace.json"
        with _silent_stderr():
            profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text("utf-8"))["traceEvents"]
    changes = sorted((e for e in events if e.get("name") == "[memory]"), key=lambda event: float(event["ts"]))
    held = peak = 0
    for change in changes:
        held += int(change["args"]["Bytes"])
        peak = max(peak, held)
    return peak


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """The profiler's library writes lines of its own to descriptor 2."""
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
