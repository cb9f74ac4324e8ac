"""A GPU as facts with a source: its memory by three measures, bandwidth, rates, and the MIG slices it splits into."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.errors import InputError, Problem, did_you_mean
from kvplan.records import Record
from kvplan.specs.fields import boolean, choice, integer, key, list_of, mapping_of, number, one_or_more, section, text
from kvplan.specs.reader import Node, decode, load, read_file
from kvplan.units import GB, GIB, MIB

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")
LINKS = ("nvlink", "nvlink-bridge", "infinity-fabric", "ethernet", "ici", "neuronlink")

_SIZE = number(above=0, maximum=1_000_000)  # GB or GiB, up to a petabyte: products stay finite and below 2^53
_RATE = number(above=0, maximum=1_000_000_000)
_COUNT = integer(1, 1_000_000_000)
_TRUST = choice("high", "medium", "low")
_FRACTION = r"([1-9]\d{0,3})/([1-9]\d{0,3})"  # patterns of slices, which most starts do without
_LABEL = r"\d+g\.(\d+)gb(?:\+.+)?"  # 1g.10gb+me: the nameplate


class GpuMemory(NamedTuple):
    """Bytes to plan with, and whose figure they are: runtime, reported or nominal."""

    bytes: int
    source: str


class Interconnect(Record):
    """The links between GPUs of one machine or pod, PCIe aside."""

    kind: str = key(choice(*LINKS), "kind of link")
    gb_per_s: float | None = key(_RATE, "GB/s of one GPU, all links together", default=None)
    counted: str | None = key(choice("both directions", "one direction"), "what the figure counts", default=None)


class MigSlice(Record):
    """A part of a GPU that works as a GPU of its own."""

    reported_memory_mib: int | None = key(_COUNT, "memory by the driver, MiB", default=None)
    runtime_memory_gib: float | None = key(_SIZE, "memory a process is offered, GiB", default=None)
    memory_fraction: str = key(text(), "share of memory and bandwidth, such as 1/8")
    sm_count: int | None = key(_COUNT, "streaming multiprocessors", default=None)
    sm_fraction: str = key(text(), "share of the multiprocessors by name, such as 1/7")
    max_instances: int = key(_COUNT, "how many of these one GPU holds")

    def __post_init__(self) -> None:
        share("memory_fraction", self.memory_fraction)
        share("sm_fraction", self.sm_fraction)


def share(name: str, fraction: str) -> tuple[int, int]:
    """Numerator and denominator of a fraction such as 1/8; ValueError unless it is above 0 and at most 1."""
    found = re.fullmatch(_FRACTION, fraction)
    if not found or int(found[1]) > int(found[2]):
        raise ValueError(f"{name}: expected a fraction such as 1/8, got '{fraction}'")
    return int(found[1]), int(found[2])


class GpuSpec(Record):
    """A GPU file. What is not known is None; a program that needs it says so.

    With `unified_memory` CPU and GPU share the memory: how much of it to plan with is the user's to say.
    """

    name: str = key(text(), "the file's name")
    aliases: tuple[str, ...] = key(one_or_more(text()), "other names", default=())
    driver_names: tuple[str, ...] = key(one_or_more(text()), "what the driver calls it", default=())
    vendor: str | None = key(text(), "who makes it", default=None)
    memory_type: str | None = key(text(), "kind of memory, such as HBM3", default=None)
    nominal_memory_gb: float | None = key(_SIZE, "memory on paper, GB (10^9 bytes)", default=None)
    memory_options_gb: tuple[float, ...] = key(
        list_of(_SIZE), "sizes it is sold with where there are several, GB", default=()
    )
    reported_memory_mib: int | None = key(_COUNT, "memory by the driver, MiB (nvidia-smi)", default=None)
    runtime_memory_gib: float | None = key(
        _SIZE, "memory the runtime offers a process, GiB (torch total), the least that was seen", default=None
    )
    unified_memory: bool = key(boolean(), "CPU and GPU share the memory", default=False)
    bandwidth_gb_per_s: float | None = key(_RATE, "memory bandwidth, GB/s", default=None)
    dense_tflops: dict[str, float] = key(
        mapping_of(_RATE), f"peak without sparsity, 10^12 operations/s, of {', '.join(DTYPES)}", default=dict
    )
    l2_cache_mb: float | None = key(_SIZE, "L2 cache, MB", default=None)
    sm_count: int | None = key(_COUNT, "streaming multiprocessors or compute units", default=None)
    compute_capability: str | None = key(text(), 'what kernels are built for, quoted: "9.0", gfx942', default=None)
    tdp_w: float | None = key(_RATE, "power limit, W", default=None)
    interconnect: Interconnect | None = key(section(Interconnect), "links to other GPUs", default=None)
    pcie_gen: int | None = key(_COUNT, "PCIe generation", default=None)
    source: tuple[str, ...] = key(one_or_more(text()), "where the figures are from", default=())
    confidence: str | None = key(_TRUST, "trust in the figures", default=None)
    notes: str | None = key(text(), "what a reader should know", default=None)
    mig_confidence: str | None = key(_TRUST, "trust in the slices (default: confidence)", default=None)
    mig: dict[str, MigSlice] = key(mapping_of(section(MigSlice)), "MIG slices by name, such as 1g.10gb", default=dict)

    def __post_init__(self) -> None:
        for dtype in self.dense_tflops:
            if dtype not in DTYPES:
                raise ValueError(f"dense_tflops: unknown type '{dtype}'; expected {', '.join(DTYPES)}")
        runtime, reported = self.runtime_memory_gib, self.reported_memory_mib
        if runtime and reported and runtime * GIB > reported * MIB:
            raise ValueError(
                f"runtime_memory_gib ({runtime}) is more than reported_memory_mib ({reported}, "
                f"{reported * MIB / GIB:.2f} GiB); is one of them in GB?"
            )
        if not (runtime or reported or self.nominal_memory_gb or self.memory_options_gb):
            raise ValueError("no memory: give nominal_memory_gb, reported_memory_mib or runtime_memory_gib")

    def memory_bytes(self) -> GpuMemory:
        """Bytes to plan with: the runtime's figure, else the driver's, else the nominal one; InputError if none."""
        if self.runtime_memory_gib is not None:
            return GpuMemory(int(self.runtime_memory_gib * GIB), "runtime")
        if self.reported_memory_mib is not None:
            return GpuMemory(self.reported_memory_mib * MIB, "reported")
        return GpuMemory(self.nominal_memory_bytes, "nominal")

    @property
    def nominal_memory_bytes(self) -> int:
        """Bytes on paper, in decimal GB; InputError for a GPU that is sold with several sizes, or has no nameplate."""
        if self.nominal_memory_gb is not None:
            return int(self.nominal_memory_gb * GB)
        if self.memory_options_gb:
            *some, last = (f"{size:g}" for size in self.memory_options_gb)
            sizes = f"{', '.join(some)} or {last}" if some else last
            raise InputError(f"{self.name} is sold with {sizes} GB; say how much of it with --kv-budget")
        raise InputError(f"the nominal memory of {self.name} is not known; write a GPU file with nominal_memory_gb")

    def slice(self, profile: str) -> GpuSpec:
        """A MIG slice as a GPU of its own, memory and bandwidth by its share; InputError lists the slices."""
        part = self.mig.get(profile)
        if part is None:
            raise InputError(self._no_slice(profile))
        memory, of_memory = share("memory_fraction", part.memory_fraction)
        sms, of_sms = share("sm_fraction", part.sm_fraction)
        if part.sm_count and self.sm_count:  # the count is exact, the name's seventh is not: 16 of 132
            sms, of_sms = part.sm_count, self.sm_count
        label = re.fullmatch(_LABEL, profile)
        bandwidth, l2 = self.bandwidth_gb_per_s, self.l2_cache_mb
        return GpuSpec(
            name=f"{self.name}:{profile}",
            vendor=self.vendor,
            memory_type=self.memory_type,
            nominal_memory_gb=int(label[1]) if label else _scaled(self.nominal_memory_gb, memory, of_memory),
            reported_memory_mib=part.reported_memory_mib,
            runtime_memory_gib=part.runtime_memory_gib,
            unified_memory=self.unified_memory,
            bandwidth_gb_per_s=_scaled(bandwidth, memory, of_memory),
            dense_tflops={dtype: rate * sms / of_sms for dtype, rate in self.dense_tflops.items()},
            l2_cache_mb=_scaled(l2, memory, of_memory),
            sm_count=part.sm_count,
            compute_capability=self.compute_capability,
            pcie_gen=self.pcie_gen,
            source=self.source,
            confidence=self.mig_confidence or self.confidence,
            notes=self.notes,
        )

    def _no_slice(self, profile: str) -> str:
        if not self.mig:
            return f"{self.name} has no MIG slices; write --gpu {self.name}"
        near = did_you_mean(profile[:60], self.mig) or ";"
        return f"{self.name} has no slice '{profile[:60]}'{near} its slices: {', '.join(self.mig)}"

    def to_dict(self) -> dict[str, Any]:
        """The keys that are known, as a file would have them."""
        return _known(self)


def load_gpu_file(path: Path) -> GpuSpec:
    """The GPU that a file describes; SpecError tells every problem of it."""
    return load(GpuSpec, read_file(path, _check), str(path))


def _check(node: Node, problems: list[Problem]) -> object:
    return decode(GpuSpec, node, problems)


def _scaled(value: float | None, part: int, whole: int) -> float | None:
    return None if value is None else value * part / whole


def _known(spec: GpuSpec | Interconnect | MigSlice) -> dict[str, Any]:
    found = {f.name: getattr(spec, f.name) for f in fields(spec)}
    return {name: _plain(value) for name, value in found.items() if value not in (None, (), {}, False)}


def _plain(value: Any) -> Any:
    if isinstance(value, Interconnect | MigSlice):
        return _known(value)
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return list(value) if isinstance(value, tuple) else value
