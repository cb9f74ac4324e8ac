"""The inverses of an estimate: the longest context at which sessions fit, and the fewest GPUs that hold them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvplan.arithmetic import NO_LIMIT
from kvplan.errors import InputError
from kvplan.planning.estimate import Estimate, estimate_scenario, numbers
from kvplan.planning.figures import figures
from kvplan.planning.scenario import DEFAULT_CONTEXT, Scenario, make_scenario
from kvplan.planning.structure import kv_budgets_of
from kvplan.records import Record
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.model import ModelSpec
from kvplan.units import MAX_TOKENS


class Solution(Record):
    """An answer and the estimate at it; where there is no answer, the estimate that shows why."""

    answer: int | None  # None with an estimate that fits: memory sets no limit
    estimate: Estimate
    sentence: str
    reasons: tuple[str, ...] = ()  # why this answer and no other

    @property
    def fits(self) -> bool:
        """Whether there is an answer."""
        return self.estimate.fits

    @property
    def notes(self) -> list[str]:
        """The reasons, then what is to be known of the estimate."""
        return [*self.reasons, *self.estimate.notes]

    def to_dict(self) -> dict[str, Any]:
        """The row of the estimate, with the answer in front."""
        return {"answer": self.answer, **self.estimate.to_dict()}


def solve_context(model: str | Path | ModelSpec, gpu: str | GpuSpec | None = None, **options: Any) -> Solution:
    """The longest context at which `sessions` (default 1) fit; the other options are those of `estimate`."""
    if options.pop("context", None) is not None:
        raise InputError("--context is what is solved for; leave it out, or ask `estimate` whether it fits")
    prefix = make_scenario(model, gpu, **{**options, "context": MAX_TOKENS, "max_model_len": None}).shared_prefix
    base = make_scenario(model, gpu, **options, context=prefix + 1)
    ceiling = MAX_TOKENS if options.get("max_model_len") is None else base.max_model_len

    def at(context: int) -> Estimate:
        length = context if options.get("max_model_len") is None else base.max_model_len
        return estimate_scenario(replace(base, context=context, max_model_len=length))

    shortest = at(prefix + 1)
    if not shortest.fits:
        return Solution(answer=None, estimate=shortest, sentence=f"No context is short enough: {_missing(shortest)}")
    answer = _longest(shortest, at, ceiling)
    if answer == MAX_TOKENS and shortest.max_context_tokens is None:
        return _without_limit(at, max(base.model.max_context or DEFAULT_CONTEXT, prefix + 1))
    found = at(answer)
    sentence = f"The longest context at which {_conversations(found.scenario)} fit is {answer:,} tokens"
    return Solution(
        answer=answer, estimate=found, sentence=_singular(sentence, found), reasons=_bounds(answer, ceiling)
    )


def _longest(shortest: Estimate, at: Callable[[int], Estimate], ceiling: int) -> int:
    """The last context that fits, on the structure of the shortest where that is the same at every context."""
    s = shortest.scenario
    kv_budgets = kv_budgets_of(s, shortest.stages, shortest.budgets)

    def fits(context: int) -> bool:
        asked = numbers(s)._replace(own_tokens=context - s.shared_prefix)
        return bool(figures(shortest.stages, kv_budgets, asked, longest=NO_LIMIT).fits)

    def fits_anew(context: int) -> bool:
        try:
            return at(context).fits
        except InputError:  # an engine may refuse a length
            return False

    found = last_that(fits, s.context, ceiling)
    if fits_anew(found) and (found == ceiling or not fits_anew(found + 1)):
        return found
    return last_that(fits_anew, s.context, ceiling)  # budgets and plans change with the length that is configured


def last_that(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last number from `low`, which holds, to `high` that holds, where none does after one that does not."""
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _without_limit(at: Callable[[int], Estimate], context: int) -> Solution:
    found = at(context)
    sentence = f"Memory sets no limit: {_conversations(found.scenario)} of any length fit"
    reason = "its layers keep only windows and states, which do not grow with the context"
    return Solution(answer=None, estimate=found, sentence=_singular(sentence, found), reasons=(reason,))


def _bounds(answer: int, ceiling: int) -> tuple[str, ...]:
    if answer < ceiling:
        return ()
    if ceiling < MAX_TOKENS:
        return (f"--max-model-len allows no more than {ceiling:,} tokens",)
    return (f"{MAX_TOKENS:,} tokens are the most kvplan plans for",)


def _conversations(s: Scenario) -> str:
    count = s.sessions or 1
    return f"{count:,} conversation" + ("s" if count > 1 else "")


def _singular(sentence: str, e: Estimate) -> str:
    return sentence if (e.scenario.sessions or 1) > 1 else sentence.replace(" fit", " fits", 1)


def _missing(e: Estimate) -> str:
    from kvplan.planning.advice import advice  # words are made only for those who need them

    return advice(e)[0]
