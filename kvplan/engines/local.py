"""This machine running kvplan's own decoder: all memory beside weights, activations and what came before is cache."""

from __future__ import annotations

from kvplan.arithmetic import ceil_div
from kvplan.engines.base import Budget, EngineOptions, Held
from kvplan.engines.generic import Generic, group_lines
from kvplan.memory.cache_groups import CacheGroup
from kvplan.units import Line

SOURCE = "local: kvplan's own decoder, one slab a session"


class Local(Generic):
    """No fraction is taken off: what the machine offers, less baseline, weights and activations, is cache."""

    name = "local"
    memory_fraction: float = 1.0

    def __init__(self, slab_granule: int = 1) -> None:
        self.slab_granule = slab_granule  # bytes: the system hands out whole pages, CUDA's allocator whole 2 MiB

    def budget(self, memory_bytes: int, held: Held, options: EngineOptions) -> Budget:  # noqa: ARG002 - the protocol's
        """The cache gets what weights and overhead leave of the memory."""
        terms: dict[str, int | float] = {
            "memory_bytes": memory_bytes,
            "weights_bytes": sum(line.bytes for line in held.weights),
            "overhead_bytes": sum(line.bytes for line in held.overhead),
        }
        left = memory_bytes - int(terms["weights_bytes"]) - int(terms["overhead_bytes"])
        kv = Line("kv_budget", left, "memory_bytes - weights_bytes - overhead_bytes", terms, SOURCE)
        return Budget(held.overhead, kv, Line("unrequested", 0, "0", {}, SOURCE))

    def slab_line(self, groups: list[CacheGroup], options: EngineOptions, context: int) -> Line:
        """What one session of this capacity takes: its slab, up to whole granules."""
        lines = group_lines(groups, options, context)
        terms: dict[str, int | float] = {
            "session_bytes": sum(line.bytes for line in lines),
            "granule": self.slab_granule,
        }
        size = ceil_div(int(terms["session_bytes"]), self.slab_granule) * self.slab_granule
        return Line("session/slab", size, "ceil(session_bytes / granule) * granule", terms, SOURCE)
