"""The structure of a scenario: what each GPU holds and how its pool is handed out, whatever the numbers are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvplan.engines.base import Budget, CachePlan, Held
from kvplan.engines.generic import byte_plan
from kvplan.errors import InputError
from kvplan.memory.cache_groups import CacheGroup, cache_groups
from kvplan.memory.lora import lora_line
from kvplan.memory.weights import StoredTensor, extra_lines, stored, weight_lines
from kvplan.planning.scenario import Scenario
from kvplan.schemes import scheme
from kvplan.sharding import Rank, shard
from kvplan.units import Line


class Stage(NamedTuple):
    """One GPU of one pipeline stage and what it holds."""

    rank: Rank
    groups: list[CacheGroup]
    draft_groups: list[CacheGroup]  # of the draft model, on the last stage
    tensors: list[StoredTensor]
    weights: list[Line]
    overhead: list[Line]  # what the user set aside; the engine's own is in the budget
    plan: CachePlan  # what the engine charges a session
    live: CachePlan  # the bytes in use, without blocks
    others: tuple[CachePlan, ...] = ()  # what the engine might charge as well, where not all is known of the server

    @property
    def weights_bytes(self) -> int:
        """Weights on this GPU."""
        return sum(line.bytes for line in self.weights)

    @property
    def overhead_bytes(self) -> int:
        """What the requested share holds beside weights and cache."""
        return sum(line.bytes for line in self.overhead)


def stages_of(scenario: Scenario) -> tuple[Stage, ...]:
    """Every stage of the scenario; raises InputError when the model cannot be divided or served so."""
    ranks = shard(scenario.model, scenario.tp, scenario.pp, scenario.ep)
    draft = _draft_rank(scenario)
    own = [cache_groups(rank) for rank in ranks]
    drafted = [cache_groups(draft) if draft and rank.holds_head else [] for rank in ranks]
    groups = [left + right for left, right in zip(own, drafted, strict=True)]
    if not all(groups):
        raise InputError(
            f"{scenario.model.name} leaves nothing in the cache of some GPU, so nothing limits its sessions"
        )
    plans = scenario.engine.reserve(groups, scenario.engine_options)
    found = tuple(
        _stage(scenario, rank, draft if rank.holds_head else None, plan, (mine, drafts))
        for rank, plan, mine, drafts in zip(ranks, plans, own, drafted, strict=True)
    )
    others = _others(plans, scenario.engine.other_plans(scenario.model, groups, scenario.engine_options))
    return tuple(stage._replace(others=tuple(each)) for stage, each in zip(found, others, strict=True))


def _others(plans: list[CachePlan], possible: list[list[CachePlan]]) -> list[list[CachePlan]]:
    """By stage the plans that charge otherwise, each once."""

    def charged(each: list[CachePlan]) -> tuple[Any, ...]:
        return tuple((plan.unit_bytes, plan.charges, plan.fixed) for plan in each)

    distinct = {charged(each): each for each in possible if charged(each) != charged(plans)}
    return [[each[index] for each in distinct.values()] for index in range(len(plans))]


def budgets_of(scenario: Scenario, stages: Sequence[Stage]) -> tuple[Budget | None, ...]:
    """How the memory of every stage's GPU is divided; None where the KV memory was given.

    Raises InputError when a given number of blocks is more than some GPU has room for.
    """
    found = [_budget_of(scenario, stage) for stage in stages]
    pools = [(stage.plan, budget) for stage, budget in zip(stages, found, strict=True) if budget]
    room = [(b.unrequested.bytes + b.kv.bytes) // plan.unit_bytes for plan, b in pools if plan.units is not None]
    asked = stages[0].plan.units
    if room and asked is not None and 0 <= min(room) < asked:
        raise InputError(f"{asked:,} blocks are more than fit beside weights and overhead: at most {min(room):,}")
    return tuple(found)


def kv_budgets_of(scenario: Scenario, stages: Sequence[Stage], budgets: Sequence[Budget | None]) -> list[int]:
    """Memory of every stage's pool."""
    return [_kv_bytes_of(scenario, stage, budget) for stage, budget in zip(stages, budgets, strict=True)]


def _budget_of(scenario: Scenario, stage: Stage) -> Budget | None:
    if scenario.kv_budget is not None or scenario.gpu is None:
        return None
    memory, _ = scenario.engine.memory_bytes(scenario.gpu)
    held = Held(stage.rank, scenario.weights, stage.tensors, stage.weights, stage.overhead)
    found = scenario.engine.budget(memory, held, scenario.engine_options)
    return found if stage.plan.units is None else _with_given_pool(found, stage.plan)


def _kv_bytes_of(scenario: Scenario, stage: Stage, budget: Budget | None) -> int:
    if budget:
        return budget.kv.bytes
    return scenario.kv_budget or 0 if stage.plan.given_bytes is None else stage.plan.given_bytes


def _with_given_pool(budget: Budget, plan: CachePlan) -> Budget:
    """A pool of a given number of blocks: what it does not take of the budget stays free."""
    terms: dict[str, int | float] = {"blocks": plan.units or 0, "block_bytes": plan.unit_bytes}
    size = plan.given_bytes or 0
    kv = Line("kv_budget", size, "blocks * block_bytes", terms, "the number of blocks that was given")
    rest: dict[str, int | float] = {
        "not_requested": budget.unrequested.bytes,
        "left_for_the_cache": budget.kv.bytes,
        "kv_budget_bytes": size,
    }
    room = budget.unrequested.bytes + budget.kv.bytes
    if room < 0:
        return budget  # not even the weights fit
    free, formula = room - size, "not_requested + left_for_the_cache - kv_budget_bytes"
    return budget._replace(kv=kv, unrequested=Line("unrequested", free, formula, rest, budget.unrequested.source))


def _stage(
    scenario: Scenario,
    rank: Rank,
    draft: Rank | None,
    plan: CachePlan,
    groups: tuple[list[CacheGroup], list[CacheGroup]],
) -> Stage:
    tensors = stored(rank, scenario.weights)
    shapes = weight_lines(tensors) + extra_lines(rank, scenario.extras)
    options = scenario.engine_options
    held = Held(rank, scenario.weights, tensors, shapes, _overhead(scenario, rank, draft))
    weights = scenario.engine.weights(held, options)
    live = byte_plan(groups[0] + groups[1], options, block=1)
    return Stage(rank, *groups, tensors, weights, held.overhead, plan, live)


def _overhead(scenario: Scenario, rank: Rank, draft: Rank | None) -> list[Line]:
    """What the user asked to keep beside weights and cache: a reserve, LoRA slots, a draft model's weights."""
    lines = []
    if scenario.reserve:
        lines.append(Line("overhead/reserve", scenario.reserve, "reserve", {"reserve": scenario.reserve}, "--reserve"))
    if scenario.lora_rank and scenario.max_loras:
        lines.append(lora_line(rank, scenario.lora_rank, scenario.max_loras))
    if draft:
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
