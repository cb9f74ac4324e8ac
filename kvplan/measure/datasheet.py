"""What the maker says of this GPU: a bound that no step and no prompt can beat."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.measure.step_model import Work
from kvplan.specs import zoo
from kvplan.specs.gpu import load_gpu_file
from kvplan.units import GB


class Datasheet(NamedTuple):
    """Rates on paper; None where the GPU's file does not have them."""

    gpu: str
    bytes_per_s: float | None
    flops_per_s: float | None  # dense, of the decoder's format

    def seconds(self, work: Work) -> float:
        """The longer of moving the bytes and computing the operations; the roofline (Williams et al. 2009)."""
        moving = work.bytes / self.bytes_per_s if self.bytes_per_s else 0.0
        computing = work.operations / self.flops_per_s if self.flops_per_s else 0.0
        return max(moving, computing)


def datasheet_of(device_name: str, dtype: str) -> Datasheet | None:
    """By the name that the driver gives; None for devices that the zoo does not know."""
    name = zoo.lookup("gpus", device_name)
    if name is None:
        return None
    gpu = load_gpu_file(zoo.find("gpus", name))
    tflops = gpu.dense_tflops.get(dtype)
    bandwidth = gpu.bandwidth_gb_per_s and gpu.bandwidth_gb_per_s * GB
    return Datasheet(gpu.name, bandwidth, tflops and tflops * 1e12)
