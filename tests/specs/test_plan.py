"""Plans: read strictly, everything that is wrong told with its line, and the same to the reader and to the schema."""

from __future__ import annotations

import re
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from kvplan.cli.init import STARTER
from kvplan.errors import Problem, SpecError
from kvplan.planning.axes import OPTIONS
from kvplan.planning.row import KEYS
from kvplan.specs.expectations import COLUMNS, Condition, Tolerance
from kvplan.specs.plan import Deployment, PlanText, Value, read_plan
from kvplan.specs.reader import read_text
from kvplan.specs.schema import file_schema

VALIDATOR = Draft202012Validator(file_schema("plan"))
DOCS = Path(__file__).parents[2] / "docs"

PLAN = """\
deployments:
  chat:
    model: mistral-7b
    gpu: a100-80g
    context: [4096, 32k]
    eager: true
    expect:
      max_sessions: ">= 100"
      fits: true
tolerances: {max_sessions: 2%, kv_bytes_per_session: 0}
"""


def read(text: str) -> tuple[PlanText, list[Problem]]:
    problems: list[Problem] = []
    return read_plan(read_text(text, "plan.yaml"), problems), problems


def expecting(written: str) -> tuple[tuple[Condition, ...], list[Problem]]:
    """The condition of one column, `column: condition`."""
    plan, problems = read(f"deployments:\n  a:\n    model: m\n    expect:\n      {written}\n")
    return plan.deployments["a"].expect.get(written.partition(":")[0], ()), problems


def test_a_deployment_has_every_option_and_expect_every_column() -> None:
    options = set(OPTIONS) - {"flags"}  # what a launch command says, which no plan holds
    assert {f.name for f in fields(Deployment)} == {*options, "expect"}
    assert set(COLUMNS) == set(KEYS)


def test_a_plan_keeps_lines() -> None:
    plan, problems = read(PLAN)
    assert problems == []
    chat = plan.deployments["chat"]
    assert plan.lines == {"chat": 2}
    assert chat.options == {
        "model": (Value(3, "mistral-7b"),),
        "gpu": (Value(4, "a100-80g"),),
        "context": (Value(5, "4096"), Value(5, "32k")),
        "eager": (Value(6, "true"),),
    }
    assert chat.expect["max_sessions"] == (Condition(8, "max_sessions", ">=", 100, ">= 100"),)
    assert chat.expect["fits"] == (Condition(9, "fits", "==", True, "true"),)
    assert plan.tolerances["max_sessions"] == Tolerance(Fraction(2), True, "2%")
    assert plan.tolerances["kv_bytes_per_session"].amount == 0


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("max_sessions: 115", [("==", 115, "115")]),
        ("max_sessions: '115'", [("==", 115, "115")]),
        ("max_sessions: '>=1e3'", [(">=", 1000, ">= 1e3")]),
        ("max_sessions: ['>= 100', '< 200']", [(">=", 100, ">= 100"), ("<", 200, "< 200")]),
        ("max_context_tokens: '>= 32k'", [(">=", 32_768, ">= 32k")]),
        ("max_context_tokens: '> 0'", [(">", 0, "> 0")]),
        ("kv_tokens: '!= 1M'", [("!=", 2**20, "!= 1M")]),
        ("kv_bytes_per_token: <= 140 KB", [("<=", 140_000, "<= 140 KB")]),
        ("kv_bytes_per_token: '<= 140000'", [("<=", 140_000, "<= 140000")]),
        ("kv_budget_bytes: '>= 60GiB'", [(">=", 60 * 2**30, ">= 60GiB")]),
        ("kv_budget_bytes: '>= -5'", [(">=", -5, ">= -5")]),
        ("memory_fraction: '<= 0.92'", [("<=", 0.92, "<= 0.92")]),
        ("fits: false", [("==", False, "false")]),
        ("fits: '!= true'", [("!=", True, "!= true")]),
        ("fits: == true", [("==", True, "true")]),
        ("gpu: a100-80g", [("==", "a100-80g", "a100-80g")]),
        ("gpu: == a100-80g", [("==", "a100-80g", "a100-80g")]),
        ("limited_by: '!= weights'", [("!=", "weights", "!= weights")]),
    ],
)
def test_conditions(written: str, expected: list[tuple[str, Any, str]]) -> None:
    found, problems = expecting(written)
    assert problems == []
    assert [(c.operator, c.value, c.text) for c in found] == expected


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("max_sesions: 1", "unknown column 'max_sesions'; did you mean 'max_sessions'"),
        ("zzz: 1", "unknown column 'zzz'; columns are the keys that `kvplan estimate` has in JSON"),
        ("gpu: '>= 2'", "'gpu' holds text, which is neither more nor less"),
        ("gpu: 2", "expected text, or a list of such, got number 2; quote it"),
        ("fits: '>= true'", "expected true or false, got text '>= true'"),
        ("fits: 1", "expected true or false"),
        ("max_sessions: true", "expected a comparison such as '>= 100'"),
        ("max_sessions: ''", "expected a comparison such as '>= 100'"),
        ("max_sessions: '>='", "expected a comparison such as '>= 100'"),
        ("max_sessions: '=> 5'", "expected a comparison such as '>= 100'"),
        ("max_sessions: '>= 010'", "expected a comparison such as '>= 100'"),
        ("max_sessions: '>= 8k'", "expected a comparison such as '>= 100'"),
        ("max_sessions: '>= 99999999999999999999'", "no exact number can hold it"),
        ("max_sessions: []", "got a list that is empty"),
        ("max_sessions: {floor: 1}", "got a mapping"),
        ("kv_tokens: '>= 0.3k'", "'0.3k' is not a whole, positive number of tokens"),
        ("kv_budget_bytes: '>= 60 GIB'", "unknown unit 'GIB'"),
    ],
)
def test_wrong_conditions(written: str, message: str) -> None:
    found, problems = expecting(written)
    assert found == ()
    assert len(problems) == 1
    assert problems[0].line == 5
    assert problems[0].path.startswith("deployments.a.expect")
    assert message in problems[0].message


@pytest.mark.parametrize("unquoted", [">= 100", ">100", "> 100"])
def test_an_unquoted_floor_is_told_to_be_quoted(unquoted: str) -> None:
    with pytest.raises(SpecError, match=r"plan.yaml:2: .*a value cannot start with > or \|; quote it"):
        read_text(f"a: 1\nb: {unquoted}\n", "plan.yaml")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("- a", 1, "expected a mapping, got a list"),
        ("just text", 1, "expected a mapping, got text 'just text'"),
        ("tolerances: {}", 1, "missing key 'deployments'"),
        ("deployments: {}", 1, "there is no deployment"),
        ("deployments:", 1, "expected a mapping (each value a mapping), got nothing"),
        ("deployments: [a]", 1, "got a list"),
        ("deployments: {a: {}}", 1, "missing key 'model'"),
        ("deployments: {a: 5}", 1, "expected a mapping, got number 5"),
        ("deployments:\n  a:\n    model: m\n    contxt: 1", 4, "unknown key 'contxt'; did you mean 'context'?"),
        ("deployments:\n  a:\n    model: m\n    gpu: 4090", 4, "got number 4090; quote it"),
        ("deployments:\n  a:\n    model: m\n    eager: 1", 4, "expected true or false"),
        ("deployments:\n  a:\n    model: m\n    tp: []", 4, "got a list that is empty"),
        ("deployments:\n  a:\n    model: m\n    tp: [[1]]", 4, "got a list"),
        ("deployments:\n  a:\n    model: ' '", 3, "expected text"),
        ("deployments: {a: {model: m}}\ntolerances: {zzz: 1}", 2, "unknown column 'zzz'"),
        ("deployments: {a: {model: m}}\ntolerances: {gpu: 1}", 2, "'gpu' holds no number"),
        ("deployments: {a: {model: m}}\ntolerances: {max_sessions: -1}", 2, "expected a tolerance such as 2% or 0"),
        ("deployments: {a: {model: m}}\ntolerances: {max_sessions: 2 %%}", 2, "expected a tolerance"),
        ("deployments: {a: {model: m}}\nworkload: {}", 2, "unknown key 'workload'"),
    ],
)
def test_wrong_plans(text: str, line: int, message: str) -> None:
    _, problems = read(text)
    assert [problem.line for problem in problems] == [line]
    assert message in problems[0].message


def test_what_can_be_read_of_a_wrong_plan_is_there_to_be_checked() -> None:
    plan, problems = read("deployments:\n  a: {model: m, tpp: 1, gpu: g}\n  b: 5\n  c: {gpu: h}\n")
    assert [problem.line for problem in problems] == [2, 3, 4]
    assert {name: each.options for name, each in plan.deployments.items()} == {
        "a": {"model": (Value(2, "m"),), "gpu": (Value(2, "g"),)},
        "b": {},
        "c": {"gpu": (Value(4, "h"),)},
    }


@pytest.mark.parametrize(
    ("tolerance", "before", "now", "allowed"),
    [
        ("2%", 100, 98, True),
        ("2%", 100, 102, True),
        ("2%", 100, 97, False),
        ("0.1%", 3, 3, True),
        ("1GiB", 5 * 2**30, 4 * 2**30, True),
        ("1GiB", 5 * 2**30, 4 * 2**30 - 1, False),
        ("2%", -100, -102, True),
    ],
)
def test_tolerances(tolerance: str, before: int, now: int, allowed: bool) -> None:
    plan, problems = read(f"deployments: {{a: {{model: m}}}}\ntolerances: {{kv_budget_bytes: {tolerance}}}")
    assert problems == []
    assert plan.tolerances["kv_budget_bytes"].allows(before, now) is allowed


def shown_plans() -> list[str]:
    """The starter and the plans of the documents, the wrong one aside."""
    text = (DOCS / "check.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(# (?!wrong)[\w-]+\.yaml\n.*?)```", text, flags=re.DOTALL)
    return [STARTER, *blocks]


def test_the_schema_takes_the_plans_that_are_shown() -> None:
    Draft202012Validator.check_schema(file_schema("plan"))
    plans = shown_plans()
    assert len(plans) >= 3
    for plan in plans:
        VALIDATOR.validate(yaml.safe_load(plan))
        assert read(plan)[1] == []


@pytest.mark.parametrize(
    "deployment",
    [
        {"model": "m"}, {}, {"model": 5}, {"model": []}, {"model": ["a", "b"]}, {"model": "m", "tp": 0.5},
        {"model": "m", "context": "32k"}, {"model": "m", "context": [1, "2k"]}, {"model": "m", "eager": "true"},
        {"model": "m", "eager": True}, {"model": "m", "unknown": 1}, {"model": "m", "memory_fraction": 0.9},
        {"model": "m", "expect": {}}, {"model": "m", "expect": []}, {"model": "m", "expect": {"zzz": 1}},
        {"model": "m", "expect": {"fits": True}}, {"model": "m", "expect": {"fits": 1}},
        {"model": "m", "expect": {"fits": ">= true"}}, {"model": "m", "expect": {"gpu": ">= x"}},
        {"model": "m", "expect": {"gpu": "x"}}, {"model": "m", "expect": {"gpu": "!= x"}},
        {"model": "m", "expect": {"max_sessions": ">= 5"}}, {"model": "m", "expect": {"max_sessions": True}},
        {"model": "m", "expect": {"max_sessions": [">= 5", 6]}}, {"model": "m", "expect": {"max_sessions": "=> 5"}},
        {"model": "m", "expect": {"max_sessions": []}},
    ],
)  # fmt: skip
def test_the_reader_takes_what_the_schema_takes(deployment: dict[str, Any]) -> None:
    document = {"deployments": {"a": deployment}}
    problems = read(yaml.safe_dump(document))[1]
    # Numbers are judged together with what they mean, after this step.
    numbers_only = deployment.get("tp") == 0.5
    assert (problems == []) == (VALIDATOR.is_valid(document) or numbers_only)
