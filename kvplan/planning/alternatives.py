"""What-ifs: lists of values for several options, every combination beside the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from kvplan.errors import InputError
from kvplan.planning.axes import given_inputs
from kvplan.planning.estimate import Estimate, estimate_scenario
from kvplan.planning.scenario import make_scenario

MAX_ALTERNATIVES = 1000  # a table to read; a grid is for sweep


class Refused(Exception):  # noqa: N818 - an outcome that becomes a row, not an error that stops the run
    """A combination that cannot be: its options and the reason."""

    def __init__(self, options: Mapping[str, Any], reason: str) -> None:
        self.options, self.reason = dict(options), reason
        super().__init__(reason)

    @property
    def inputs(self) -> dict[str, Any]:
        """The options that were given, under the keys of a row."""
        return given_inputs(self.options)


def combinations(lists: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Options of every combination, the last list changing fastest; the first is the base."""
    total = 1
    for values in lists.values():
        total *= len(values)
    if total > MAX_ALTERNATIVES:
        raise InputError(f"{total} combinations are more than {MAX_ALTERNATIVES}; shorten the lists")
    for values in product(*lists.values()):
        yield {**fixed, **dict(zip(lists, values, strict=True))}


def estimates(lists: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]) -> list[Estimate | Refused]:
    """An estimate for each combination; one that cannot be is a Refused, unless there is only one."""
    options = list(combinations(lists, fixed))
    if len(options) == 1:
        return [estimate_scenario(make_scenario(**options[0]))]
    return [_tried(each) for each in options]


def _tried(options: dict[str, Any]) -> Estimate | Refused:
    try:
        return estimate_scenario(make_scenario(**options))
    except InputError as error:
        return Refused(options, str(error))
