"""Reading memory: what every kind of device can be asked, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from kvplan.errors import InputError, NoDeviceError


class Total(NamedTuple):
    """Memory to plan with, what of it was taken before the first weight, and where the figures are from."""

    bytes: int
    baseline_bytes: int
    source: str


class Observer(Protocol):
    """Memory of one device as this process sees it."""

    device: torch.device
    name: str  # the device's, for people
    driver: str | None
    slab_granule: int  # bytes; a session's slab takes whole ones

    def total(self, limit: int | None = None) -> Total:
        """What the device offers this process, or the limit that it was given."""

    def used(self) -> int:
        """Bytes that this process holds, after everything that can be given back was given back."""

    def readings(self) -> dict[str, int | None]:
        """All figures that there are, each by its name; None where the device does not say."""

    def peak_of(self, work: Callable[[], object]) -> int:
        """The most that the tensors of a piece of work took at once, beyond what was there before."""

    def synchronize(self) -> None:
        """Wait until the device has done all that it was given."""


def choose(name: str = "auto") -> torch.device:
    """CUDA, else MPS, else the CPU, or the device asked for; NoDeviceError when it is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"--device {name}: expected auto, cpu, cuda, cuda:N or mps") from None
    if device.type == "cuda":
        return _cuda(device)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise NoDeviceError("--device mps: PyTorch finds no Apple GPU here; use --device cpu")
    if device.type not in ("cpu", "mps"):
        raise InputError(f"--device {name}: expected auto, cpu, cuda, cuda:N or mps")
    return device


def _cuda(device: torch.device) -> torch.device:
    if not torch.cuda.is_available():
        built = torch.version.cuda or getattr(torch.version, "hip", None)
        why = "PyTorch finds no GPU here" if built else f"this PyTorch ({torch.__version__}) is built without CUDA"
        raise NoDeviceError(f"--device {device}: {why}; use --device cpu")
    count, index = torch.cuda.device_count(), device.index or 0
    if index >= count:
        raise NoDeviceError(f"--device {device}: this machine has {count} CUDA devices, numbered from 0")
    return torch.device("cuda", index)


def observer_of(device: torch.device) -> Observer:
    """The observer of a device; it takes the device into use, so that its own costs come before the first reading."""
    if device.type == "cuda":
        from kvplan.measure.observe_cuda import CudaObserver

        return CudaObserver(device)
    if device.type == "mps":
        from kvplan.measure.observe_mps import MpsObserver

        return MpsObserver(device)
    from kvplan.measure.observe_cpu import CpuObserver

    return CpuObserver()
