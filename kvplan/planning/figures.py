"""From a structure and numbers to figures: one estimate with ints, a grid with arrays, by the same lines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import NamedTuple

from kvplan.arithmetic import (
    NO_LIMIT,
    Number,
    at_most,
    ceil_div,
    for_each_value,
    last_token_units,
    longest_context,
    select,
    session_units,
    tokens_held,
    whole_sessions,
)
from kvplan.engines.base import CachePlan
from kvplan.planning.structure import Stage
from kvplan.units import MAX_TOKENS

LIMITS = ("weights", "context", "max_seqs", "state", "kv")  # what keeps the next session out
BANDED = ("kv_budget_bytes", "kv_tokens", "max_sessions")  # figures whose lowest and highest are told
WEIGHTS, CONTEXT, MAX_SEQS, STATE, KV = range(len(LIMITS))


class Numbers(NamedTuple):
    """What is asked of a structure; each an int, or arrays of one length."""

    own_tokens: Number  # tokens of a session that are not in the shared prefix
    sessions: Number  # sessions asked for, 1 where nothing was asked
    max_seqs: Number | None  # of a replica
    shared_prefix: int
    dp: int
    kv_given: bool  # the KV memory was given, so weights cannot be what is missing


class Figures(NamedTuple):
    """Figures of the GPU that admits the fewest sessions, then those of the deployment."""

    stage: Number  # index of that GPU's stage
    kv_budget_bytes: Number
    kv_bytes_per_token: Number
    kv_bytes_per_session: Number
    kv_bytes_per_session_logical: Number
    prefix_bytes: Number
    fixed_bytes: Number  # of a session, whatever its length
    kv_tokens: Number
    max_sessions: Number
    max_context_tokens: Number  # NO_LIMIT where memory sets none
    fits: Number
    limit: Number  # index into LIMITS


class _OfStage(NamedTuple):
    """The figures of one stage's GPU."""

    kv_budget_bytes: Number
    kv_bytes_per_token: Number
    kv_bytes_per_session: Number
    kv_bytes_per_session_logical: Number
    prefix_bytes: Number
    fixed_bytes: Number  # of a session, whatever its length
    sessions: Number
    tokens: Number  # beside the prefix


def figures(
    stages: Sequence[Stage], kv_budgets: Sequence[Number], asked: Numbers, longest: Number | None = None
) -> Figures:
    """The figures of stages whose GPUs have these budgets; `longest` where their longest conversation is known."""
    if longest is None:
        longest = longest_alone(stages, kv_budgets, asked.shared_prefix)
    taken: dict[CachePlan, Number] = {}  # units of a session by plan: stages often have the same
    found, deciding = _of_stage(stages[0], kv_budgets[0], asked, taken), 0
    for index, (stage, budget) in enumerate(zip(stages[1:], kv_budgets[1:], strict=True), 1):
        other = _of_stage(stage, budget, asked, taken)
        fewer = other.sessions < found.sessions
        tighter = (other.sessions == found.sessions) & (other.kv_budget_bytes < found.kv_budget_bytes)
        takes = fewer | tighter
        deciding = select(takes, index, deciding)
        found = _OfStage(
            *(old if new is old else select(takes, new, old) for new, old in zip(other, found, strict=True))
        )
    return _of_deployment(found, deciding, longest, asked)


def ends(
    stages: Sequence[Stage],
    least: Sequence[Number],
    most: Sequence[Number],
    asked: Numbers,
    longest: Number | None = None,
) -> tuple[Figures, Figures]:
    """The lowest and the highest figures between these budgets, under every plan that the engine might have."""
    variants = [stages] + [
        [stage._replace(plan=stage.others[index]) for stage in stages] for index in range(len(stages[0].others))
    ]
    low, high = ([figures(each, budgets, asked, longest) for each in variants] for budgets in (least, most))
    lowest = {name: reduce(at_most, [getattr(each, name) for each in low]) for name in BANDED}
    highest = {name: -reduce(at_most, [-getattr(each, name) for each in high]) for name in BANDED}
    return low[0]._replace(**lowest), high[0]._replace(**highest)


def _of_stage(stage: Stage, kv_budget_bytes: Number, asked: Numbers, taken: dict[CachePlan, Number]) -> _OfStage:
    plan, live, unit_bytes = stage.plan, stage.live, stage.plan.unit_bytes
    for each in (plan, live):
        if each not in taken:
            taken[each] = session_units(each.charges, each.fixed, asked.own_tokens)
    units, live_bytes = taken[plan], taken[live]
    prefix = session_units(plan.charges, plan.fixed, asked.shared_prefix) if asked.shared_prefix else 0
    pool = kv_budget_bytes // unit_bytes - prefix
    sessions, tokens = _capacity(plan, pool, units, asked.own_tokens)
    return _OfStage(
        kv_budget_bytes=kv_budget_bytes,
        kv_bytes_per_token=_last_token_bytes(live, asked.own_tokens),
        kv_bytes_per_session=units if unit_bytes == 1 else units * unit_bytes,
        kv_bytes_per_session_logical=live_bytes,
        prefix_bytes=prefix * unit_bytes,
        fixed_bytes=plan.fixed * unit_bytes,
        sessions=sessions,
        tokens=tokens,
    )


def _capacity(plan: CachePlan, pool: Number, units: Number, tokens: Number) -> tuple[Number, Number]:
    """Whole sessions and tokens that the pool holds.

    Where a session is nothing but tokens of one size the pool holds the same tokens at every length:
    floor(pool * tokens / (unit * tokens)) = floor(pool / unit), and floor(that / tokens) are the sessions.
    """
    if plan.fixed or any(charge.limit or charge.block > 1 or charge.extra for charge in plan.charges):
        sessions = whole_sessions(pool, units)
        return sessions, tokens_held(pool, units, tokens, sessions)
    held = whole_sessions(pool, sum(charge.units for charge in plan.charges))
    return whole_sessions(held, tokens), held


def _last_token_bytes(live: CachePlan, own_tokens: Number) -> Number:
    """One number for all rows where no group of layers has a window."""
    if any(charge.limit for charge in live.charges):
        return last_token_units(live.charges, own_tokens)
    return sum(charge.units for charge in live.charges)


def longest_alone(stages: Sequence[Stage], kv_budgets: Sequence[Number], shared_prefix: int) -> Number:
    """The longest conversation that the memory of every stage holds alone."""
    found: Number = NO_LIMIT
    for stage, budget in zip(stages, kv_budgets, strict=True):
        length = for_each_value(partial(_alone, stage.plan, shared_prefix), budget)
        shorter = (length != NO_LIMIT) & ((found == NO_LIMIT) | (length < found))
        found = select(shorter, length, found)
    return found


def _alone(plan: CachePlan, shared_prefix: int, kv_budget_bytes: int) -> int:
    prefix = session_units(plan.charges, plan.fixed, shared_prefix) if shared_prefix else 0
    own = longest_context(plan.charges, plan.fixed, kv_budget_bytes // plan.unit_bytes - prefix, MAX_TOKENS)
    return own + shared_prefix if own > 0 else own


def _of_deployment(found: _OfStage, deciding: Number, longest: Number, asked: Numbers) -> Figures:
    sessions, tokens = at_most(found.sessions, asked.max_seqs), found.tokens
    if asked.shared_prefix:
        tokens = tokens + asked.shared_prefix * (found.sessions > 0)
    if asked.dp > 1:
        sessions, tokens = sessions * asked.dp, tokens * asked.dp
    return Figures(
        stage=deciding,
        kv_budget_bytes=found.kv_budget_bytes,
        kv_bytes_per_token=found.kv_bytes_per_token,
        kv_bytes_per_session=found.kv_bytes_per_session,
        kv_bytes_per_session_logical=found.kv_bytes_per_session_logical,
        prefix_bytes=found.prefix_bytes,
        fixed_bytes=found.fixed_bytes,
        kv_tokens=tokens,
        max_sessions=sessions,
        max_context_tokens=longest,
        fits=sessions >= asked.sessions,
        limit=_limit(found, asked),
    )


def _limit(found: _OfStage, asked: Numbers) -> Number:
    """What keeps the next session out; the later rules win."""
    limit = select(2 * found.fixed_bytes > found.kv_bytes_per_session, STATE, KV)
    if asked.max_seqs is not None:
        limit = select(asked.max_seqs < found.sessions, MAX_SEQS, limit)
    limit = select(found.sessions == 0, CONTEXT, limit)
    return limit if asked.kv_given else select(found.kv_budget_bytes <= 0, WEIGHTS, limit)


def shortfall_bytes(found: Figures, asked: Numbers) -> Number:
    """Bytes missing on the GPU for the sessions asked for; 0 when its memory holds them."""
    wanted = ceil_div(asked.sessions, asked.dp)
    missing = wanted * found.kv_bytes_per_session + found.prefix_bytes - found.kv_budget_bytes
    return missing - at_most(missing, 0)
