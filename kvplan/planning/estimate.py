"""The estimate: weights, cache and sessions of one scenario, as a ledger whose every line has its formula."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvplan.arithmetic import MAX_UNITS, NO_LIMIT
from kvplan.engines.base import Budget
from kvplan.errors import InputError
from kvplan.memory.parameters import active_parameters, parameters
from kvplan.planning.figures import LIMITS, Figures, Numbers, ends, figures, shortfall_bytes
from kvplan.planning.scenario import Scenario, make_scenario
from kvplan.planning.structure import Stage, budgets_of, kv_budgets_of, stages_of
from kvplan.records import Record
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.model import ModelSpec
from kvplan.units import Line


class Estimate(Record):
    """The figures of a scenario; per-GPU figures are those of the GPU that admits the fewest sessions."""

    scenario: Scenario
    stages: tuple[Stage, ...]
    budgets: tuple[Budget | None, ...]  # of each stage; None where the KV memory was given
    figures: Figures
    kv_low: Figures | None = None  # where budgets have a band: with the least and the most for the cache
    kv_high: Figures | None = None

    @property
    def stage(self) -> Stage:
        """The stage that admits the fewest sessions."""
        return self.stages[self.figures.stage]

    @property
    def budget(self) -> Budget | None:
        """How that stage's memory is divided."""
        return self.budgets[self.figures.stage]

    @property
    def kv_budget_bytes(self) -> int:
        """Memory for the cache on the GPU; negative when the weights do not fit."""
        return int(self.figures.kv_budget_bytes)

    @property
    def kv_bytes_per_token(self) -> int:
        """What the last token of the context added."""
        return int(self.figures.kv_bytes_per_token)

    @property
    def kv_bytes_per_session(self) -> int:
        """What the engine reserves for one conversation on the GPU."""
        return int(self.figures.kv_bytes_per_session)

    @property
    def kv_bytes_per_session_logical(self) -> int:
        """The live bytes of one conversation on the GPU."""
        return int(self.figures.kv_bytes_per_session_logical)

    @property
    def prefix_bytes(self) -> int:
        """The shared prefix, stored once in each replica."""
        return int(self.figures.prefix_bytes)

    @property
    def kv_tokens(self) -> int:
        """Tokens that the pools of the deployment hold at this context."""
        return int(self.figures.kv_tokens)

    @property
    def max_sessions(self) -> int:
        """Sessions of the whole deployment."""
        return int(self.figures.max_sessions)

    @property
    def max_context_tokens(self) -> int | None:
        """The longest conversation that the memory holds alone; None where memory sets no limit."""
        longest = int(self.figures.max_context_tokens)
        return None if longest == NO_LIMIT else longest

    @property
    def fits(self) -> bool:
        """Whether the asked sessions (or one) fit."""
        return bool(self.figures.fits)

    @property
    def limited_by(self) -> str:
        """weights | context | max_seqs | state | kv: what keeps the next session out."""
        return LIMITS[self.figures.limit]

    @property
    def shortfall_bytes(self) -> int:
        """Bytes missing on the GPU for the asked sessions (0 when its memory holds them)."""
        return int(shortfall_bytes(self.figures, numbers(self.scenario)))

    @property
    def parameters(self) -> int:
        """Parameters of the model as the engine counts them."""
        return self.scenario.engine.parameters(self.stage.rank, parameters(self.scenario.model))

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes through."""
        return min(self.parameters, active_parameters(self.scenario.model))

    @property
    def session_lines(self) -> list[Line]:
        """The bytes of one session, group by group."""
        s, stage = self.scenario, self.stage
        return s.engine.session_lines(stage.plan, stage.groups, stage.draft_groups, s.engine_options, s.own_tokens)

    @property
    def ledger(self) -> list[Line]:
        """Lines of the GPU's memory, then those of one session."""
        whole = [self.budget.kv, self.budget.unrequested] if self.budget else []
        overhead = self.budget.overhead if self.budget else self.stage.overhead
        return [*self.stage.weights, *overhead, *whole, *self.session_lines]

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
    stages = stages_of(scenario)
    budgets = budgets_of(scenario, stages)
    kv_budgets = [checked_bytes(size) for size in kv_budgets_of(scenario, stages, budgets)]
    asked = numbers(scenario)
    least, most = kv_ends(budgets)
    low, high = ends(stages, least, most, asked) if least and most else (None, None)
    found = figures(stages, kv_budgets, asked)
    return Estimate(scenario=scenario, stages=stages, budgets=budgets, figures=found, kv_low=low, kv_high=high)


def kv_ends(budgets: Sequence[Budget | None]) -> tuple[list[int] | None, list[int] | None]:
    """The least and the most that each stage may have for its cache; None where that is exact or given."""
    known = [budget.kv for budget in budgets if budget]
    if not known or all(line.low is None for line in known):
        return None, None
    lows = [checked_bytes(line.bytes if line.low is None else line.low) for line in known]
    return lows, [checked_bytes(line.bytes if line.high is None else line.high) for line in known]


def numbers(scenario: Scenario) -> Numbers:
    """What the scenario asks of its structure."""
    return Numbers(
        own_tokens=scenario.own_tokens,
        sessions=scenario.sessions or 1,
        max_seqs=scenario.engine_options.max_seqs,
        shared_prefix=scenario.shared_prefix,
        dp=scenario.dp,
        kv_given=scenario.kv_budget is not None,
    )


def checked_bytes(size: int) -> int:
    """The size, refused beyond the domain in which arrays are exact."""
    if abs(size) > MAX_UNITS:
        raise InputError(f"{size} bytes on one GPU are more than {MAX_UNITS} (2^50), the most kvplan plans for")
    return size
