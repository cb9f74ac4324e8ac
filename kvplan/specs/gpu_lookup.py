"""What people write after --gpu: a name, eight of them, a MIG slice, a file, or this machine's own card."""

from __future__ import annotations

import re
from pathlib import Path

from kvplan.errors import InputError
from kvplan.records import Record
from kvplan.specs import zoo
from kvplan.specs.gpu import GpuSpec, load_gpu_file
from kvplan.specs.scalars import shown

MAX_GPUS = 65_536
_COUNTED = re.compile(r"([0-9]+)[xX](.*)", re.DOTALL)


class GpuChoice(Record):
    """A GPU and how many of it; the count is None where the text has none."""

    gpu: GpuSpec
    count: int | None


def parse_gpu(text: str) -> GpuChoice:
    """The GPU of a text such as h100-sxm, 8xh100-sxm, h100-sxm:1g.10gb, my-gpu.yaml or local.

    Raises InputError, SpecError for a file, and for `local` NoDeviceError or MissingPackageError.
    """
    text = text.strip()
    counted = _COUNTED.fullmatch(text)
    if not counted:
        return GpuChoice(gpu=_one_gpu(text), count=None)
    digits, name = counted.groups()
    count = int(digits[:7])  # enough to know that it is too many
    if count < 1:
        raise InputError(f"'{shown(text)}' is no GPU at all; the count starts at 1")
    if count > MAX_GPUS or len(digits) > 7:
        raise InputError(f"'{shown(text)}': {shown(digits)} GPUs are more than {MAX_GPUS}, the most kvplan plans for")
    if not name.strip():
        raise InputError(f"'{shown(text)}' has a count but no GPU; write for example {digits}xh100-sxm")
    return GpuChoice(gpu=_one_gpu(name.strip()), count=count)


def _one_gpu(text: str) -> GpuSpec:
    """One GPU by name, slice, file or `local`; raises as `parse_gpu` does."""
    if zoo.is_path(text):
        return load_gpu_file(Path(text))
    name, colon, profile = text.rpartition(":")
    if not colon:
        return _whole_gpu(text)
    return _whole_gpu(name).slice(profile)


def _whole_gpu(name: str) -> GpuSpec:
    if not name:
        raise InputError("no GPU is named; write for example --gpu h100-sxm, and see `kvplan gpus`")
    if name == "local":
        from kvplan.specs.local_gpu import local_gpu  # loads NVML's bindings

        return local_gpu()
    return load_gpu_file(Path(name) if zoo.is_path(name) else zoo.find("gpus", name))
