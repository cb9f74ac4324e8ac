"""What an engine is: a rule for how many bytes become cache, and a rule for how they are handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from kvplan.arithmetic import Charge
from kvplan.kv_formats import KvPair
from kvplan.memory.cache_groups import CacheGroup
from kvplan.memory.weights import StoredTensor
from kvplan.records import Record
from kvplan.schemes import Scheme
from kvplan.sharding import Rank
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.model import ModelSpec
from kvplan.units import Line


class Defaults(NamedTuple):
    """What an engine takes where the user says nothing; None where it has no such limit."""

    memory_fraction: float
    max_seqs: int | None = None
    max_batched_tokens: int | None = None
    block_size: int | None = None


class EngineOptions(Record):
    """The user's choices that an engine's rules look at, the engine's defaults filled in."""

    kv: KvPair
    state_dtype: str | None = None
    max_model_len: int
    memory_fraction: float = 1.0
    own_fraction: bool = False  # the fraction is the engine's own, not the user's
    max_seqs: int | None = None
    max_batched_tokens: int | None = None
    block_size: int | None = None
    eager: bool = False
    gpu: GpuSpec | None = None
    tp: int = 1
    pp: int = 1
    extras: frozenset[str] | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)  # choices of one engine only


class Held(NamedTuple):
    """What one GPU holds before the cache."""

    rank: Rank
    scheme: Scheme
    tensors: list[StoredTensor]
    weights: list[Line]  # as the shapes give them, then as the engine counts them
    overhead: list[Line]  # what the user set aside: a reserve, LoRA slots, a draft model


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
    layout: Any = None  # what the engine itself keeps of it, for its lines and details
    units: int | None = None  # of the pool, where they are given in place of what the memory leaves

    @property
    def given_bytes(self) -> int | None:
        """Bytes of a pool whose units are given."""
        return None if self.units is None else self.units * self.unit_bytes


class Engine(Protocol):
    """One module an engine; `name` and `version` are printed beside every figure."""

    name: str
    version: str | None
    memory_fraction: float  # requested by default
    unused: tuple[str, ...]  # options this engine's rules do not look at
    seqs_in_budget: bool  # whether max_seqs changes what is left for the cache

    def defaults(self, gpu: GpuSpec | None) -> Defaults:
        """What the engine takes where the user says nothing."""

    def length_in_budget(self, flags: Mapping[str, Any]) -> bool:
        """Whether max_model_len changes what is left for the cache, with these choices of the engine's own."""

    def memory_bytes(self, gpu: GpuSpec) -> tuple[int, str]:
        """Memory of the GPU that the rules start from, and which of its figures that is."""

    def weights(self, held: Held, options: EngineOptions) -> list[Line]:
        """The weights as this engine counts them, given the lines that follow from the shapes."""

    def parameters(self, rank: Rank, from_shapes: int) -> int:
        """Parameters as this engine counts them."""

    def budget(self, memory_bytes: int, held: Held, options: EngineOptions) -> Budget:
        """Divide the memory of one GPU."""

    def reserve(self, stages: list[list[CacheGroup]], options: EngineOptions) -> list[CachePlan]:
        """How each stage's pool is handed out; raises InputError for a kind of cache the engine does not support."""

    def other_plans(
        self, model: ModelSpec, stages: list[list[CacheGroup]], options: EngineOptions
    ) -> list[list[CachePlan]]:
        """What `reserve` might give as well where not all is known of the server; the band covers these too."""

    def session_lines(
        self, plan: CachePlan, own: list[CacheGroup], draft: list[CacheGroup], options: EngineOptions, context: int
    ) -> list[Line]:
        """The bytes of one session of `context` tokens, part by part; they add up to what the plan charges."""

    def detail(
        self, plans: Sequence[CachePlan], kv_budgets: Sequence[int], options: EngineOptions, context: int
    ) -> dict[str, Any]:
        """The engine's own figures: blocks, groups, what its log prints; empty where it has none."""

    def checked(self, model: ModelSpec, options: EngineOptions) -> bool:
        """Whether version and architecture lie inside what the evidence covers."""

    def notes(self, model: ModelSpec, options: EngineOptions) -> list[str]:
        """What the reader should know of the engine's part."""
