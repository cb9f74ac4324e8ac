"""The estimate: weights, cache and sessions of one scenario, as a ledger whose every line has its formula."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.arithmetic import longest_context, session_units, tokens_held, whole_sessions
from kvplan.engines.base import Budget, CachePlan
from kvplan.engines.generic import byte_plan
from kvplan.errors import InputError
from kvplan.memory.cache_groups import CacheGroup, cache_groups
from kvplan.memory.lora import lora_line
from kvplan.memory.parameters import active_parameters, parameters
from kvplan.memory.weights import StoredTensor, extra_lines, stored, weight_lines
from kvplan.planning.scenario import Scenario, make_scenario
from kvplan.records import Record
from kvplan.sharding import Rank, shard
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.model import ModelSpec
from kvplan.units import MAX_TOKENS, Line


class Stage(NamedTuple):
    """One GPU of one pipeline stage and what it holds."""

    rank: Rank
    tensors: list[StoredTensor]
    weights: list[Line]
    overhead: list[Line]
    budget: Budget | None  # None where the KV memory was given
    kv_budget_bytes: int
    plan: CachePlan  # what the engine charges a session
    live: CachePlan  # the bytes in use, without blocks

    @property
    def weights_bytes(self) -> int:
        """Weights on this GPU."""
        return sum(line.bytes for line in self.weights)

    @property
    def overhead_bytes(self) -> int:
        """What the requested share holds beside weights and cache."""
        return sum(line.bytes for line in self.overhead)


class Estimate(Record):
    """The figures of a scenario; per-GPU figures are those of the GPU that admits the fewest sessions."""

    scenario: Scenario
    stages: tuple[Stage, ...]
    deciding: int  # index of that GPU's stage

    @property
    def stage(self) -> Stage:
        """The stage that admits the fewest sessions."""
        return self.stages[self.deciding]

    @cached_property
    def session_units(self) -> int:
        """Units of the pool that one session takes beside the shared prefix."""
        plan = self.stage.plan
        units: int = session_units(plan.charges, plan.fixed, self.scenario.own_tokens)
        return units

    @property
    def kv_bytes_per_session(self) -> int:
        """What the engine reserves for one conversation on the GPU."""
        return self.session_units * self.stage.plan.unit_bytes

    @property
    def kv_bytes_per_session_logical(self) -> int:
        """The live bytes of one conversation on the GPU."""
        return self._live(self.scenario.own_tokens)

    @property
    def kv_bytes_per_token(self) -> int:
        """What the last token of the context added."""
        return self._live(self.scenario.own_tokens) - self._live(self.scenario.own_tokens - 1)

    def _live(self, tokens: int) -> int:
        live = self.stage.live
        units: int = session_units(live.charges, live.fixed, tokens)
        return units

    @cached_property
    def prefix_bytes(self) -> int:
        """The shared prefix, stored once in each replica."""
        return _prefix_units(self.scenario, self.stage.plan) * self.stage.plan.unit_bytes

    @property
    def pool_units(self) -> int:
        """Units of the pool that sessions can take."""
        return _pool_units(self.scenario, self.stage)

    @property
    def sessions_by_memory(self) -> int:
        """Sessions that the memory of one replica holds."""
        return _sessions(self.scenario, self.stage)

    @property
    def max_sessions(self) -> int:
        """Sessions of the whole deployment."""
        per_replica = self.sessions_by_memory
        if self.scenario.max_seqs is not None:
            per_replica = min(per_replica, self.scenario.max_seqs)
        return per_replica * self.scenario.dp

    @property
    def kv_tokens(self) -> int:
        """Tokens that the pools of the deployment hold at this context."""
        s = self.scenario
        held: int = tokens_held(self.pool_units, self.session_units, s.own_tokens)
        return (held + (s.shared_prefix if self.sessions_by_memory else 0)) * s.dp

    @cached_property
    def max_context_tokens(self) -> int | None:
        """The longest conversation that the memory holds alone; None where memory sets no limit."""
        lengths = [
            longest_context(st.plan.charges, st.plan.fixed, _pool_units(self.scenario, st), MAX_TOKENS)
            for st in self.stages
        ]
        limits = [length for length in lengths if length is not None]
        if not limits:
            return None
        longest = min(limits)
        return longest + self.scenario.shared_prefix if longest else 0

    @property
    def fits(self) -> bool:
        """Whether the asked sessions (or one) fit."""
        return self.max_sessions >= (self.scenario.sessions or 1)

    @property
    def limited_by(self) -> str:
        """weights | context | max_seqs | state | kv: what keeps the next session out."""
        if self.scenario.kv_budget is None and self.stage.kv_budget_bytes <= 0:
            return "weights"
        by_memory = self.sessions_by_memory
        if by_memory == 0:
            return "context"
        if self.scenario.max_seqs is not None and self.scenario.max_seqs < by_memory:
            return "max_seqs"
        return "state" if 2 * self.stage.plan.fixed > self.session_units else "kv"

    @property
    def shortfall_bytes(self) -> int:
        """Bytes missing on the GPU for the asked sessions (0 when they fit, or when max_seqs is what limits)."""
        wanted = -(-(self.scenario.sessions or 1) // self.scenario.dp)
        return max(0, wanted * self.kv_bytes_per_session + self.prefix_bytes - self.stage.kv_budget_bytes)

    @property
    def memory_fraction(self) -> float | None:
        """The share of the memory that is requested; None where the KV memory was given."""
        if self.stage.budget is None:
            return None
        fraction = self.scenario.memory_fraction
        return self.scenario.engine.memory_fraction if fraction is None else fraction

    @cached_property
    def parameters(self) -> int:
        """Parameters of the model as the engine counts them."""
        return self.scenario.engine.parameters(self.stage.rank, parameters(self.scenario.model))

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token passes through."""
        return active_parameters(self.scenario.model)

    @property
    def ledger(self) -> list[Line]:
        """Lines of the GPU's memory, then those of one session."""
        stage = self.stage
        whole = [stage.budget.kv, stage.budget.unrequested] if stage.budget else []
        return [*stage.weights, *stage.overhead, *whole, *stage.plan.lines]

    @property
    def notes(self) -> list[str]:
        """What the reader should know beside the figures."""
        from kvplan.planning.notes import notes  # words are made only for those who print them

        return notes(self)

    def to_dict(self) -> dict[str, Any]:
        """The row of the command-line contract, raw base units."""
        from kvplan.planning.row import row

        return row(self)


def estimate(model: str | Path | ModelSpec, gpu: str | GpuSpec | None = None, **options: Any) -> Estimate:
    """How many conversations of a model fit on a GPU, and why.

    Options have the command line's names with underscores (see `make_scenario`): context, sessions, weights,
    kv_dtype, attention, engine, tp, pp, dp, ... Raises InputError or SpecError with a sentence for the user.
    """
    return estimate_scenario(make_scenario(model, gpu, **options))


def estimate_scenario(scenario: Scenario) -> Estimate:
    """The estimate of a checked scenario."""
    ranks = shard(scenario.model, scenario.tp, scenario.pp, scenario.ep)
    draft = _draft_rank(scenario)
    groups = [cache_groups(rank) + (cache_groups(draft) if draft and rank.holds_head else []) for rank in ranks]
    options = scenario.engine_options(scenario.own_tokens)
    plans = scenario.engine.reserve(groups, options)
    stages = tuple(
        _stage(scenario, rank, draft if rank.holds_head else None, plan, own)
        for rank, plan, own in zip(ranks, plans, groups, strict=True)
    )
    deciding = min(range(len(stages)), key=lambda i: (_sessions(scenario, stages[i]), stages[i].kv_budget_bytes))
    return Estimate(scenario=scenario, stages=stages, deciding=deciding)


def _stage(
    scenario: Scenario, rank: Rank, draft: Rank | None, plan: CachePlan, groups: list[CacheGroup]
) -> Stage:
    tensors = stored(rank, scenario.weights)
    shapes = weight_lines(tensors) + extra_lines(rank, scenario.extras)
    weights = scenario.engine.weights(rank, scenario.weights, shapes)
    overhead = _overhead(scenario, rank, draft)
    live = byte_plan(groups, scenario.engine_options(scenario.own_tokens), block=1)
    if scenario.kv_budget is not None or scenario.gpu is None:
        return Stage(rank, tensors, weights, overhead, None, scenario.kv_budget or 0, plan, live)
    memory, _ = scenario.engine.memory_bytes(scenario.gpu)
    options = scenario.engine_options(scenario.own_tokens)
    budget = scenario.engine.budget(memory, weights, overhead, options)
    return Stage(rank, tensors, weights, budget.overhead, budget, budget.kv.bytes, plan, live)


def _overhead(scenario: Scenario, rank: Rank, draft: Rank | None) -> list[Line]:
    """What the user asked to keep beside weights and cache: a reserve, LoRA slots, a draft model's weights."""
    lines = []
    if scenario.reserve:
        lines.append(Line("overhead/reserve", scenario.reserve, "reserve", {"reserve": scenario.reserve}, "--reserve"))
    if scenario.lora_rank and scenario.max_loras:
        lines.append(lora_line(rank, scenario.lora_rank, scenario.max_loras))
    if draft:
        from kvplan.schemes import scheme

        terms: dict[str, int | float] = {
            f"draft_{line.name.removeprefix('weights/')}": line.bytes
            for line in weight_lines(stored(draft, scheme(draft.model.weights)))
        }
        size = int(sum(terms.values()))
        lines.append(Line("overhead/draft_model", size, " + ".join(terms), terms, f"weights of {draft.model.name}"))
    return lines


def _draft_rank(scenario: Scenario) -> Rank | None:
    """The draft model's part of a GPU: divided by the same tp, on the last stage."""
    if scenario.draft_model is None:
        return None
    if scenario.draft_model.vocab_size != scenario.model.vocab_size:
        raise InputError(
            f"--draft-model: {scenario.draft_model.name} has a vocabulary of {scenario.draft_model.vocab_size}, "
            f"{scenario.model.name} of {scenario.model.vocab_size}; a draft must use the same tokens"
        )
    return shard(scenario.draft_model, scenario.tp)[0]


def _prefix_units(scenario: Scenario, plan: CachePlan) -> int:
    if not scenario.shared_prefix:
        return 0
    units: int = session_units(plan.charges, plan.fixed, scenario.shared_prefix)
    return units


def _pool_units(scenario: Scenario, stage: Stage) -> int:
    return stage.plan.pool_units(stage.kv_budget_bytes) - _prefix_units(scenario, stage.plan)


def _sessions(scenario: Scenario, stage: Stage) -> int:
    units = session_units(stage.plan.charges, stage.plan.fixed, scenario.own_tokens)
    sessions: int = whole_sessions(_pool_units(scenario, stage), units)
    return sessions
