"""A plan checked: every scenario computed once, against what is expected of it and against a baseline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kvplan.errors import InputError, SpecError, did_you_mean
from kvplan.planning.baseline import Baseline, Scenario, gone, moves, scenario_of
from kvplan.planning.estimate import Estimate, estimate_scenario
from kvplan.planning.expect import Derivation, derivation, holds
from kvplan.planning.plan import MAX_SCENARIOS, LoadedPlan, PlannedDeployment, chosen, in_plan_words
from kvplan.planning.scenario import make_scenario
from kvplan.specs.nodes import join, report

Row = dict[str, Any]
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Computed(NamedTuple):
    """One scenario of a deployment, with its row."""

    deployment: PlannedDeployment
    label: str  # the values of its lists, "" where there are none
    estimate: Estimate
    row: Row

    @property
    def key(self) -> tuple[str, str]:
        """What a baseline knows it by."""
        return self.deployment.name, self.label


class Scenarios(NamedTuple):
    """All scenarios that can be, and notes about them."""

    computed: list[Computed]
    notes: list[str]

    @property
    def figures(self) -> dict[tuple[str, str], Scenario]:
        """What a baseline keeps."""
        return {each.key: scenario_of(each.row) for each in self.computed}


def select(plan: LoadedPlan, only: Sequence[str]) -> list[PlannedDeployment]:
    """The deployments of these names, all where none is named; InputError for an unknown one."""
    names = [each.name for each in plan.deployments]
    for name in only:
        if name not in names:
            hint = did_you_mean(name[:60], names) or ";"
            raise InputError(f"--only: {plan.source} has no deployment '{name}'{hint} it has {', '.join(names)}")
    return [each for each in plan.deployments if not only or each.name in only]


def compute(plan: LoadedPlan, deployments: Sequence[PlannedDeployment]) -> Scenarios:
    """Every combination of every deployment; SpecError with the lines of those that cannot be, and of the plan.

    A deployment that expects nothing is there for other commands too: what cannot be is left out of it, with a note.
    """
    problems = list(plan.problems)
    computed: list[Computed] = []
    notes: list[str] = []
    for deployment in filter(plan.is_good, deployments):
        path = join("deployments", deployment.name)
        if len(deployment) > MAX_SCENARIOS:
            said = f"{len(deployment):,} combinations are more than {MAX_SCENARIOS:,}; shorten the lists"
            report(problems, deployment.line, path, said)
            continue
        done, refused = _tried(plan, deployment)
        computed += done
        notes += [f"{deployment.name}: {note}" for each in done for note in each.estimate.notes]
        for message, label in refused.items():
            said = f"{message} ({label})" if label else message
            if deployment.conditions or not done:
                report(problems, deployment.line_of(message), path, said)
            else:
                notes.append(f"{deployment.name}: left out: {said}")
    if problems:
        raise SpecError(plan.source, problems)
    return Scenarios(computed, _told_once(in_plan_words(note) for note in notes))


def _told_once(notes: Iterable[str]) -> list[str]:
    """The notes, those that differ in their numbers alone as the first of them."""
    alike: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        alike.setdefault(_NUMBER.sub("#", note), []).append(note)
    return [f"{first} (and {len(more)} more such)" if more else first for first, *more in alike.values()]


def _tried(plan: LoadedPlan, deployment: PlannedDeployment) -> tuple[list[Computed], dict[str, str]]:
    """What could be computed, and each reason why something could not with the first scenario it was met in."""
    done: list[Computed] = []
    refused: dict[str, str] = {}
    for label, options in deployment.scenarios():
        try:
            estimate = estimate_scenario(make_scenario(**chosen(plan, options)))
        except InputError as error:
            refused.setdefault(in_plan_words(str(error)), label)
        else:
            done.append(Computed(deployment, label, estimate, estimate.to_dict()))
    return done, refused


def expectation_rows(computed: Sequence[Computed]) -> list[Row]:
    """One row for each condition of each scenario."""
    return [_expectation(each, condition) for each in computed for condition in each.deployment.conditions]


def _expectation(each: Computed, condition: Any) -> Row:
    found = each.row[condition.column]
    ok = holds(condition, found)
    why = None if ok else derivation(each.estimate, condition.column)
    name, formula, terms = why or Derivation("", "", {})
    return {
        "check": "expect",
        **_place(each.key, condition.column),
        "wanted": condition.text,
        "found": found,
        "ok": ok,
        "line": condition.line,
        "limited_by": None if ok else each.row["limited_by"],
        "ledger_line": name or None,
        "formula": formula or None,
        "terms": terms or None,
    }


def baseline_rows(plan: LoadedPlan, scenarios: Scenarios, baseline: Baseline, only: Sequence[str]) -> list[Row]:
    """One row for each figure compared, and one for each scenario that is new or gone."""
    rows: list[Row] = []
    now = scenarios.figures
    for each in scenarios.computed:
        before = baseline.scenarios.get(each.key)
        if before is None:
            rows.append(_presence(each.key, "new", each.deployment.line))
            continue
        for move in moves(before, now[each.key], plan.tolerances):
            rows.append(
                {"check": "baseline", **_place(each.key, move.column), **move._asdict(), "line": each.deployment.line}
            )
    missing = [key for key in gone(baseline, now) if not only or key[0] in only]
    return rows + [_presence(key, "gone", None) for key in missing]


def _place(key: tuple[str, str], column: str | None) -> Row:
    return {"deployment": key[0], "scenario": key[1], "column": column}


def _presence(key: tuple[str, str], verdict: str, line: int | None) -> Row:
    empty: Mapping[str, None] = dict.fromkeys(("before", "now", "change", "change_percent", "tolerance"))
    rest: Mapping[str, None] = dict.fromkeys(("ledger_line", "ledger_change_bytes"))
    return {
        "check": "baseline",
        **_place(key, None),
        **empty,
        "verdict": verdict,
        "ok": verdict != "gone",
        **rest,
        "line": line,
    }
