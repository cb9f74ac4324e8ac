"""This machine's first GPU, asked of its driver through NVML.

NVML lists every card of the machine: CUDA_VISIBLE_DEVICES does not hide any from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kvplan.errors import InputError, MissingPackageError, NoDeviceError
from kvplan.specs import zoo
from kvplan.specs.gpu import GpuSpec, load_gpu_file
from kvplan.units import MIB

SAME_MEMORY = 0.12  # ECC takes 6 % off; the 12 GB card of a name that also has 10 GB is 20 % more
_ELSE = "name a GPU instead, for example --gpu h100-sxm"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAnswer:
    """What the driver says of its first device; None where it does not say."""

    name: str
    memory_mib: int | None
    driver_version: str | None
    mig_enabled: bool
    count: int


def local_gpu() -> GpuSpec:
    """The first GPU of this machine: memory from the driver, the rest from the zoo where the name is known there.

    Raises MissingPackageError without nvidia-ml-py, NoDeviceError without a usable device, InputError in MIG mode.
    """
    answer = ask_driver()
    known = _from_zoo(answer)
    if answer.mig_enabled:
        raise InputError(_name_the_slice(answer, known))
    if answer.memory_mib is None:
        raise NoDeviceError(_shares_memory(answer, known))
    source = f"NVML, driver {answer.driver_version or 'of unknown version'}"
    if known is None:
        name = re.sub(r"[^a-z0-9]+", "-", answer.name.lower()).strip("-") or "local"
        return GpuSpec(name=name, vendor="NVIDIA", reported_memory_mib=answer.memory_mib, source=(source,))
    as_listed = answer.memory_mib == known.reported_memory_mib  # else the runtime's figure is of another set-up (ECC)
    return replace(
        known,
        reported_memory_mib=answer.memory_mib,
        runtime_memory_gib=known.runtime_memory_gib if as_listed else None,
        source=(source, *known.source),
    )


def ask_driver() -> DriverAnswer:
    """Name, memory, driver and MIG mode of the first device; raises as `local_gpu` does."""
    try:
        import pynvml
    except ImportError:
        message = "--gpu local asks the NVIDIA driver through nvidia-ml-py; install it: pip install 'kvplan[measure]'"
        raise MissingPackageError(f"{message}, or pip install nvidia-ml-py alone") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoDeviceError(_no_driver(pynvml, error)) from None
    try:
        return _first_device(pynvml)
    except pynvml.NVMLError as error:
        raise NoDeviceError(f"the NVIDIA driver does not answer ({error}); {_ELSE}") from None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _first_device(nvml: Any) -> DriverAnswer:
    count = int(nvml.nvmlDeviceGetCount())
    if count == 0:
        raise NoDeviceError(f"the NVIDIA driver lists no GPU on this machine; {_ELSE}")
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    mig = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    return DriverAnswer(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_mib=_memory_mib(nvml, handle),
        driver_version=_text(_ask(nvml, nvml.nvmlSystemGetDriverVersion)) or None,
        mig_enabled=mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE,
        count=count,
    )


def _memory_mib(nvml: Any, handle: Any) -> int | None:
    """All of the device's memory; drivers before 510 know only the first form of the question."""
    memory = _ask(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    memory = memory or _ask(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return int(memory.total) // MIB or None if memory else None


def _ask(nvml: Any, question: Callable[..., Any], *of: Any) -> Any:
    """The answer, or None where the board or the driver does not know the question."""
    try:
        return question(*of)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLError_ArgumentVersionMismatch):
        return None


def _text(answer: str | bytes | None) -> str:
    """NVML's bindings gave bytes up to release 11."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer or ""


def _from_zoo(answer: DriverAnswer) -> GpuSpec | None:
    """The zoo's GPU of the driver's name, unless its memory says that it is another one."""
    name = zoo.lookup("gpus", answer.name) or zoo.lookup("gpus", f"NVIDIA {answer.name}")  # drivers before 470
    if name is None:
        return None
    gpu = load_gpu_file(zoo.find("gpus", name))
    if answer.memory_mib is None or gpu.unified_memory:
        return gpu
    listed = gpu.memory_bytes().bytes
    return gpu if abs(answer.memory_mib * MIB - listed) <= SAME_MEMORY * listed else None


def _no_driver(nvml: Any, error: Exception) -> str:
    if isinstance(error, nvml.NVMLError_LibraryNotFound):
        return f"no NVIDIA driver on this machine (libnvidia-ml.so.1 is not there); {_ELSE}"
    if isinstance(error, nvml.NVMLError_DriverNotLoaded):
        return f"the NVIDIA driver is not loaded on this machine; load it, or {_ELSE}"
    return f"NVML does not start ({error}); {_ELSE}"


def _name_the_slice(answer: DriverAnswer, known: GpuSpec | None) -> str:
    if known is None or not known.mig:
        return f"{answer.name} is split into MIG slices; write a GPU file with the memory of yours and give that"
    slices = ", ".join(known.mig)
    return f"{answer.name} is split into MIG slices; name yours: --gpu {known.name}:SLICE, with SLICE one of {slices}"


def _shares_memory(answer: DriverAnswer, known: GpuSpec | None) -> str:
    use = "write a GPU file with its memory" if known is None else f"use --gpu {known.name} with --kv-budget"
    return f"{answer.name} shares its memory with the CPU and the driver gives no figure; {use}"
