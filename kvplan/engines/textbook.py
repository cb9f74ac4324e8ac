"""The whiteboard: nominal gigabytes of the card less ten percent less nominal parameters, decimal throughout."""

from __future__ import annotations

from math import ceil

from kvplan.engines.base import EngineOptions, Held
from kvplan.engines.generic import Generic
from kvplan.errors import InputError
from kvplan.sharding import Rank
from kvplan.specs.gpu import GpuSpec
from kvplan.units import Line

SOURCE = "textbook: the numbers in the names"


class Textbook(Generic):
    """Generic, with the numbers people write on a whiteboard; parameters keep their nominal count whatever is asked."""

    name = "textbook"
    unused = (*Generic.unused, "extras", "ep")

    def memory_bytes(self, gpu: GpuSpec) -> tuple[int, str]:
        """The number on the box, in decimal gigabytes."""
        return gpu.nominal_memory_bytes, "nominal"

    def weights(self, held: Held, options: EngineOptions) -> list[Line]:  # noqa: ARG002 - the protocol's
        """Nominal parameters times nominal bytes, divided evenly."""
        rank, scheme = held.rank, held.scheme
        gpus = rank.tp * rank.stages
        terms: dict[str, int | float] = {
            "nominal_parameters": self.parameters(rank, 0),
            "bytes_per_parameter": scheme.nominal_bytes,
            "gpus": gpus,
        }
        size = ceil(terms["nominal_parameters"] * scheme.nominal_bytes / gpus)
        return [Line("weights/nominal", size, "ceil(nominal_parameters * bytes_per_parameter / gpus)", terms, SOURCE)]

    def parameters(self, rank: Rank, from_shapes: int) -> int:  # noqa: ARG002 - the protocol's
        """The number in the model's name."""
        if rank.model.nominal_parameters is None:
            raise InputError(
                f"{rank.model.name} has no nominal_parameters, which the textbook rule needs; "
                "add the key to its file or use --engine generic"
            )
        return rank.model.nominal_parameters
