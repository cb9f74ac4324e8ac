"""No engine in particular: a fraction of the memory, bytes handed out one by one. Also the house's reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

from kvplan.arithmetic import Charge, at_most, ceil_div
from kvplan.engines.base import Budget, CachePlan, Defaults, EngineOptions, Held
from kvplan.memory.cache_groups import CONV_BYTES, STATE_BYTES, CacheGroup, state_bytes, token_bytes, token_formula
from kvplan.sharding import Rank
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.model import ModelSpec
from kvplan.units import Line

SOURCE = "generic: no engine's rule"


class Generic:
    """A fraction of what the card offers, less weights and overhead, is cache."""

    name = "generic"
    version: str | None = None
    memory_fraction: float = 0.90  # what serving engines took by default up to 2026
    unused: tuple[str, ...] = ("max_batched_tokens", "eager", "flags")
    seqs_in_budget = False

    def defaults(self, gpu: GpuSpec | None) -> Defaults:  # noqa: ARG002 - the protocol's
        """The fraction; nothing else is limited."""
        return Defaults(self.memory_fraction)

    def length_in_budget(self, flags: Mapping[str, Any]) -> bool:  # noqa: ARG002 - the protocol's
        """Never."""
        return False

    def memory_bytes(self, gpu: GpuSpec) -> tuple[int, str]:
        """What the runtime offers a process, else what the driver reports, else the name."""
        return gpu.memory_bytes()

    def weights(self, held: Held, options: EngineOptions) -> list[Line]:  # noqa: ARG002 - the protocol's
        """Every tensor as stored."""
        return held.weights

    def parameters(self, rank: Rank, from_shapes: int) -> int:  # noqa: ARG002 - the protocol's
        """As the shapes give them."""
        return from_shapes

    def budget(self, memory_bytes: int, held: Held, options: EngineOptions) -> Budget:
        """Requested = floor(memory * fraction); the cache gets what weights and overhead leave of it."""
        requested = floor(memory_bytes * options.memory_fraction)
        terms: dict[str, int | float] = {
            "gpu_memory_bytes": memory_bytes,
            "memory_fraction": options.memory_fraction,
            "weights_bytes": sum(line.bytes for line in held.weights),
            "overhead_bytes": sum(line.bytes for line in held.overhead),
        }
        left = requested - int(terms["weights_bytes"]) - int(terms["overhead_bytes"])
        formula = "floor(gpu_memory_bytes * memory_fraction) - weights_bytes - overhead_bytes"
        kv = Line("kv_budget", left, formula, terms, SOURCE)
        share = {key: terms[key] for key in ("gpu_memory_bytes", "memory_fraction")}
        formula = "gpu_memory_bytes - floor(gpu_memory_bytes * memory_fraction)"
        return Budget(held.overhead, kv, Line("unrequested", memory_bytes - requested, formula, share, SOURCE))

    def reserve(self, stages: list[list[CacheGroup]], options: EngineOptions) -> list[CachePlan]:
        """Live bytes, or whole blocks where a block size is given; a unit is one byte."""
        return [byte_plan(groups, options, options.block_size or 1) for groups in stages]

    def other_plans(
        self,
        model: ModelSpec,  # noqa: ARG002 - the protocol's
        stages: list[list[CacheGroup]],  # noqa: ARG002
        options: EngineOptions,  # noqa: ARG002
    ) -> list[list[CachePlan]]:
        """None: these rules are all there is."""
        return []

    def session_lines(
        self,
        plan: CachePlan,  # noqa: ARG002 - the protocol's
        own: list[CacheGroup],
        draft: list[CacheGroup],
        options: EngineOptions,
        context: int,
    ) -> list[Line]:
        """Tokens held times bytes of a token, or the state, for each group; those of a draft model last."""
        drafted = group_lines(draft, options, context)
        renamed = [line._replace(name=line.name.replace("session/", "session/draft_")) for line in drafted]
        return group_lines(own, options, context) + renamed

    def detail(
        self,
        plans: Sequence[CachePlan],  # noqa: ARG002 - the protocol's
        kv_budgets: Sequence[int],  # noqa: ARG002
        options: EngineOptions,  # noqa: ARG002
        context: int,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Nothing of its own."""
        return {}

    def checked(self, model: ModelSpec, options: EngineOptions) -> bool:  # noqa: ARG002 - the protocol's
        """Exact by definition."""
        return True

    def notes(self, model: ModelSpec, options: EngineOptions) -> list[str]:  # noqa: ARG002 - the protocol's
        """Nothing to add."""
        return []


def group_lines(groups: list[CacheGroup], options: EngineOptions, context: int) -> list[Line]:
    """Tokens held times bytes of a token, or the state, for each group."""
    return [_state_line(g, options) if g.kind == "state" else _token_line(g, options, context) for g in groups]


def byte_plan(groups: list[CacheGroup], options: EngineOptions, block: int) -> CachePlan:
    """A plan whose unit is a byte: growing groups charge their tokens in blocks, state is fixed."""
    charges = tuple(
        Charge(group.layers * block * token_bytes(group, options.kv), group.window, block)
        for group in groups
        if group.kind != "state"
    )
    fixed = sum(g.layers * state_bytes(g, options.state_dtype) for g in groups if g.kind == "state")
    return CachePlan(1, charges, fixed)


def _token_line(group: CacheGroup, options: EngineOptions, context: int) -> Line:
    block = options.block_size or 1
    per_token = token_bytes(group, options.kv)
    held = ceil_div(at_most(context, group.window), block) * block
    tokens = "context_tokens" if group.window is None else "min(context_tokens, window)"
    if block > 1:
        tokens = f"ceil({tokens} / block_size) * block_size"
    terms: dict[str, int | float] = {"layers": group.layers, "context_tokens": context}
    terms |= {"window": group.window} if group.window else {}
    terms |= {"block_size": block} if block > 1 else {}
    formula = f"layers * {tokens} * ({token_formula(group, options.kv)})"
    return Line(f"session/{group.kind}", group.layers * held * per_token, formula, terms, _widths_text(group))


def _widths_text(group: CacheGroup) -> str:
    if group.kind in ("latent", "indexer"):
        return f"{group.kind}: {group.k_width} + {group.v_width} elements a token, whole on every rank"
    return f"one K of {group.heads} x {group.k_width} and one V of {group.heads} x {group.v_width} a token"


def _state_line(group: CacheGroup, options: EngineOptions) -> Line:
    terms: dict[str, int | float] = {
        "layers": group.layers,
        "state_elements": group.state_elements,
        "state_bytes_per_value": STATE_BYTES[options.state_dtype or "bf16"],
        "conv_elements": group.conv_elements,
        "conv_bytes_per_value": CONV_BYTES,
    }
    formula = "layers * (state_elements * state_bytes_per_value + conv_elements * conv_bytes_per_value)"
    size = group.layers * state_bytes(group, options.state_dtype)
    return Line("session/state", size, formula, terms, "recurrent state, the same at every length")
