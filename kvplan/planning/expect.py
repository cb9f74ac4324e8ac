"""Conditions of a plan against the figures of a scenario, and why a figure is what it is."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kvplan.units import Line

if TYPE_CHECKING:
    from kvplan.planning.estimate import Estimate
    from kvplan.specs.expectations import Condition

UNLIMITED: Final = float("inf")  # what no limit counts as; only max_context_tokens knows one
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_FROM_POOL = ("max_sessions", "fits")
_FROM_BUDGET = ("kv_budget_bytes", "kv_tokens", "max_context_tokens")


class Derivation(NamedTuple):
    """The line of the ledger, or the sum of some, that a figure comes from."""

    name: str
    formula: str
    terms: dict[str, int | float]


def comparable(column: str, value: Any) -> Any:
    """The figure with no limit as the largest of all; None is unknown."""
    return UNLIMITED if value is None and column == "max_context_tokens" else value


def holds(condition: Condition, value: Any) -> bool:
    """Whether a figure passes; one that is unknown passes nothing but !=."""
    found = comparable(condition.column, value)
    if found is None:
        return condition.operator == "!="
    return _COMPARE[condition.operator](found, condition.value)


def derivation(e: Estimate, column: str) -> Derivation | None:
    """Where a figure of the deciding GPU comes from; None for what was given or looked up."""
    if column in ("weights_bytes", "overhead_bytes"):
        kind = f"{column.removesuffix('_bytes')}/"
        terms: dict[str, int | float] = {
            line.name.removeprefix(kind): line.bytes for line in e.ledger if line.name.startswith(kind)
        }
        return Derivation(column, " + ".join(terms), terms) if terms else None
    if column == "unrequested_bytes" or column in _FROM_BUDGET:
        if e.budget is None:
            return None
        return _of_line(e.budget.unrequested if column == "unrequested_bytes" else e.budget.kv)
    from kvplan.planning.derivations import counts  # only those who fail ask

    wanted = "max_sessions" if column in _FROM_POOL else column
    found = next((count for count in counts(e) if count.name == wanted), None)
    return Derivation(found.name, found.formula, found.terms) if found else None


def _of_line(line: Line) -> Derivation:
    return Derivation(line.name, line.formula, line.terms)
