"""What the NVIDIA driver says of one device while something runs on it, through NVML.

"Not supported" is a normal answer: it is None here and '-' in a table. So are a driver too old for the question and
one that wants more rights. A device that is lost, or no driver at all, is said once, as a reason.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from statistics import fmean
from time import perf_counter
from typing import Any, NamedTuple

MILLI = 1e-3  # NVML gives milliwatts and millijoules
PERIOD_S = 0.1  # the driver itself averages power over 25 to 100 ms


class Memory(NamedTuple):
    """Bytes of the whole device; `used` is without what the driver reserves, which has its own figure where known."""

    total: int
    used: int
    free: int
    reserved: int | None


class Sample(NamedTuple):
    """One look at the device; None is what it does not say."""

    used_bytes: int | None = None
    process_bytes: int | None = None
    utilisation_percent: int | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None


class Device:
    """One GPU or MIG slice. A slice has its own memory; power, clocks and temperature are the whole card's."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle
        parent = self._ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
        self.is_slice = parent is not None
        self.card = parent if parent is not None else handle

    @property
    def name(self) -> str | None:
        """The device's name."""
        return _text(self._ask("nvmlDeviceGetName", self.handle))

    @property
    def driver(self) -> str | None:
        """The driver's version."""
        return _text(self._ask("nvmlSystemGetDriverVersion"))

    def memory(self) -> Memory | None:
        """By the second form of the question (reserved apart), else by the first; None where shared with a CPU."""
        v2 = self._ask("nvmlDeviceGetMemoryInfo", self.handle, version=getattr(self.nvml, "nvmlMemory_v2", None))
        found = v2 or self._ask("nvmlDeviceGetMemoryInfo", self.handle)
        if found is None or not found.total:
            return None
        reserved = int(found.reserved) if hasattr(found, "reserved") else None
        return Memory(int(found.total), int(found.used), int(found.free), reserved)

    def process_bytes(self, pid: int | None = None) -> int | None:
        """Memory of one process, this one by default; None in containers that hide processes from each other."""
        running = self._ask("nvmlDeviceGetComputeRunningProcesses", self.handle) or []
        wanted = os.getpid() if pid is None else pid
        return next((int(p.usedGpuMemory) for p in running if p.pid == wanted and p.usedGpuMemory), None)

    def energy_j(self) -> float | None:
        """Energy since the driver was loaded; Volta and newer."""
        found = self._ask("nvmlDeviceGetTotalEnergyConsumption", self.card)
        return None if found is None else found * MILLI

    def sample(self) -> Sample:
        """All of it at this moment."""
        nvml, memory = self.nvml, self.memory()
        rates = self._ask("nvmlDeviceGetUtilizationRates", self.handle)
        power = self._ask("nvmlDeviceGetPowerUsage", self.card)
        return Sample(
            used_bytes=memory.used if memory else None,
            process_bytes=self.process_bytes(),
            utilisation_percent=None if rates is None else int(rates.gpu),
            power_w=None if power is None else power * MILLI,
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", self.card, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", self.card, nvml.NVML_CLOCK_MEM),
            temperature_c=self._ask("nvmlDeviceGetTemperature", self.card, nvml.NVML_TEMPERATURE_GPU),
        )

    def _ask(self, question: str, *of: Any, **more: Any) -> Any:
        """The answer, or None where board, driver, bindings or rights do not give one."""
        try:
            return getattr(self.nvml, question)(*of, **more)
        except (AttributeError, self.nvml.NVMLError):
            return None


class Found(NamedTuple):
    """A device, or why there is none."""

    device: Device | None
    reason: str | None


def find(uuid: str | None = None, index: int = 0) -> Found:
    """The device of this UUID (CUDA_VISIBLE_DEVICES hides none from NVML, so a number alone may be another), or number.

    The caller ends with `close`.
    """
    try:
        import pynvml as nvml
    except ImportError:
        return Found(None, "nvidia-ml-py is not installed; pip install nvidia-ml-py")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Found(None, _no_driver(nvml, error))
    try:
        return Found(Device(nvml, _handle(nvml, uuid, index)), None)
    except nvml.NVMLError as error:
        close()
        which = f"of UUID {uuid}" if uuid else f"number {index}"
        return Found(None, f"the NVIDIA driver does not give device {which}: {error}")


def close() -> None:
    """Done with the driver."""
    import pynvml as nvml

    with suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


def _handle(nvml: Any, uuid: str | None, index: int) -> Any:
    if uuid is None:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument):
        if uuid.startswith(("GPU-", "MIG-")):
            raise
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")  # PyTorch leaves the prefix out


def _no_driver(nvml: Any, error: Exception) -> str:
    if isinstance(error, nvml.NVMLError_LibraryNotFound):
        return "no NVIDIA driver on this machine (libnvidia-ml.so.1 is not there)"
    if isinstance(error, nvml.NVMLError_DriverNotLoaded):
        return "the NVIDIA driver is not loaded"
    if isinstance(error, nvml.NVMLError_NoPermission):
        return "no permission to ask the NVIDIA driver; run as a user who may"
    return f"NVML does not start: {error}"


def _text(answer: str | bytes | None) -> str | None:
    """NVML's bindings gave bytes up to release 11."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


class Watch:
    """Samples in the background while the block runs; afterwards means, maxima and energy of it."""

    def __init__(self, device: Device | None, period_s: float = PERIOD_S) -> None:
        self.device, self.period_s = device, period_s
        self.samples: list[Sample] = []
        self.seconds = 0.0
        self._counter: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvplan-nvml", daemon=True)

    def __enter__(self) -> Watch:
        if self.device is not None:
            self._counter = self.device.energy_j()
            self._thread.start()
        self._start = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = perf_counter() - self._start
        if self.device is None:
            return
        self._stop.set()
        self._thread.join()
        end = self.device.energy_j()
        started = self._counter
        self._counter = None if end is None or started is None else end - started

    def _run(self) -> None:
        assert self.device is not None
        while True:
            self.samples.append(self.device.sample())
            if self._stop.wait(self.period_s):
                return

    def mean(self, what: str) -> float | None:
        """The mean of a figure over the samples that have it."""
        return self._reduce(what, fmean)

    def highest(self, what: str) -> float | None:
        """The largest value of a figure."""
        return self._reduce(what, max)

    def _reduce(self, what: str, how: Callable[[list[float]], float]) -> float | None:
        values = [value for sample in self.samples if (value := getattr(sample, what)) is not None]
        return how(values) if values else None

    @property
    def energy_j(self) -> float | None:
        """By the driver's own counter where it moved (it is updated a few times a second), else mean power x time."""
        if self._counter:
            return self._counter
        power = self.mean("power_w")
        return None if power is None else power * self.seconds
