"""What an engine is: a rule for how many bytes become cache, and a rule for how they are handed out."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kvplan.arithmetic import Charge
from kvplan.kv_formats import KvPair
from kvplan.memory.cache_groups import CacheGroup
from kvplan.records import Record
from kvplan.schemes import Scheme
from kvplan.sharding import Rank
from kvplan.specs.gpu import GpuSpec
from kvplan.units import Line


class EngineOptions(Record):
    """The user's choices that an engine's rules look at."""

    kv: KvPair
    state_dtype: str | None = None
    max_model_len: int
    memory_fraction: float | None = None  # None: the engine's default
    max_seqs: int | None = None
    max_batched_tokens: int | None = None
    block_size: int | None = None
    eager: bool = False


class Budget(NamedTuple):
    """How the memory of one GPU is divided; lines add up to the memory."""

    overhead: list[Line]  # inside the requested share, beside weights and cache
    kv: Line  # what is left for the cache; negative when the weights do not fit
    unrequested: Line


class CachePlan(NamedTuple):
    """How one stage's pool is handed out: a pool is `unit_bytes` times as many units as the budget holds."""

    unit_bytes: int
    charges: tuple[Charge, ...]
    fixed: int  # units of a session that do not depend on its tokens


class Engine(Protocol):
    """One module an engine; `name` and `version` are printed beside every figure."""

    name: str
    version: str | None
    memory_fraction: float  # requested by default
    unused: tuple[str, ...]  # options this engine's rules do not look at

    def memory_bytes(self, gpu: GpuSpec) -> tuple[int, str]:
        """Memory of the GPU that the rules start from, and which of its figures that is."""

    def weights(self, rank: Rank, scheme: Scheme, shapes: list[Line]) -> list[Line]:
        """The weights as this engine counts them, given the lines that follow from the shapes."""

    def parameters(self, rank: Rank, from_shapes: int) -> int:
        """Parameters as this engine counts them."""

    def budget(self, memory_bytes: int, weights: list[Line], overhead: list[Line], options: EngineOptions) -> Budget:
        """Divide the memory of one GPU."""

    def reserve(self, stages: list[list[CacheGroup]], options: EngineOptions) -> list[CachePlan]:
        """How each stage's pool is handed out; raises InputError for a kind of cache the engine does not support."""

    def session_lines(self, groups: list[CacheGroup], options: EngineOptions, context: int) -> list[Line]:
        """The bytes of one session of `context` tokens, group by group; they add up to what the plan charges."""
