"""What GitHub reads: commands that no name can break, and a summary in Markdown."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvplan.errors import Problem
from kvplan.report.check_table import check_markdown
from kvplan.report.github import MAX_SUMMARY_BYTES, github_summary, github_text, problem_text
from report.checks import ALL, HOSTILE, better, expected, moved, passed, presence, same

COMMAND = re.compile(r"::(error|notice) file=([^,:]*)(?:,line=(\d+))?,title=([^,:]*)::(.*)")


def unescaped(text: str) -> str:
    """As the runner reads it: %25 last."""
    for mark, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(mark, character)
    return text


def commands(rows: list[dict[str, Any]], plan: str = "plan.yaml") -> list[tuple[str, ...]]:
    *lines, last = github_text(rows, plan=plan).splitlines()
    assert not last.startswith("::")
    found = [COMMAND.fullmatch(line) for line in lines]
    assert all(found), lines
    return [tuple(unescaped(part or "") for part in match.groups()) for match in found if match]


def test_a_command_in_full() -> None:
    row = expected(deployment="a,b: c", scenario="context=8192, tp=2")
    assert github_text([row], plan="infra/plan.yaml") == (
        "::error file=infra/plan.yaml,line=7,title=a%2Cb%3A c (context=8192%2C tp=2)%3A max_sessions >= 200::"
        "max_sessions is 115, wanted >= 200; limited by KV memory: the next conversation would not find room%0A"
        "max_sessions = dp * max(0, (kv_budget_bytes - prefix_bytes) // kv_bytes_per_session)%0A"
        "             = 1 * max(0, (61_991_951_728 - 0) // 536_870_912)\n"
        "FAILED: 1 of 1 check\n"
    )


def test_failures_are_errors_and_other_news_are_notices() -> None:
    found = [(level, line, title) for level, _, line, title, _ in commands(ALL)]
    assert found == [
        ("error", "7", "chat: max_sessions >= 200"),
        ("error", "2", "chat: max_sessions against the baseline"),
        ("notice", "2", "chat: kv_tokens against the baseline"),
        ("notice", "2", "chat (context=8192): scenario against the baseline"),
        ("error", "", "chat (context=8192): scenario against the baseline"),
    ]
    assert commands([passed(), same(), moved(verdict="within", ok=True)]) == []


def test_what_is_wrong_with_the_plan_is_an_error_at_its_line() -> None:
    problems = [Problem(3, "deployments.a", "unknown key 'x, y'"), Problem(None, "", "the file is empty")]
    assert problem_text(problems, plan="plan.yaml") == (
        "::error file=plan.yaml,line=3,title=kvplan check::deployments.a: unknown key 'x, y'\n"
        "::error file=plan.yaml,title=kvplan check::the file is empty\n"
    )


def test_percent_signs_are_read_back() -> None:
    ((*_, message),) = commands([moved()])
    assert "(-50.43%), worse, beyond 2%" in message


@pytest.mark.parametrize(
    "row",
    [
        expected(deployment=HOSTILE, scenario=HOSTILE),
        expected(column="gpu", wanted=HOSTILE, found=HOSTILE),
        moved(ledger_line=HOSTILE),
        presence("gone", deployment=HOSTILE),
    ],
)
def test_no_name_makes_a_command_of_its_own(row: dict[str, Any]) -> None:
    ((level, *_),) = commands([row], plan=f"{HOSTILE}.yaml")
    assert level == "error"
    assert github_text([row], plan="p").encode("utf-8").isascii()


def test_the_summary_has_the_tables() -> None:
    text = github_summary(ALL, plan="plan.yaml", baseline="b.json (kvplan 0.1.0)")
    assert text.startswith(
        "## kvplan check\n\n**FAILED: 3 of 7 checks**\n\n```text\nplan.yaml:7: chat: max_sessions is 115"
    )
    assert r"| chat | max\_sessions \>= 200 | 115 | FAILED |" in text
    assert "| chat |  | max_sessions | 115 | 57 | -50.43% | worse, beyond 2% | session/full +512.00 MiB |" in text
    assert "| chat | context=8192 |  |  |  |  | gone |  |" in text
    assert text.endswith("1 figure as before, against `b.json (kvplan 0.1.0)`\n\n")


def test_hostile_names_stay_in_their_cells() -> None:
    rows = [expected(deployment=HOSTILE, column="gpu", wanted=HOSTILE, found=HOSTILE), better(deployment=HOSTILE)]
    text = check_markdown(rows, plan=HOSTILE, baseline=HOSTILE)
    assert text.count("```") == 2
    assert "<b>" not in re.sub(r"```text\n.*?\n```\n|`[^`\n]*`\n", "", text, flags=re.DOTALL)
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len(tables) == 6
    assert all(len(re.findall(r"(?<!\\)\|", line)) in (5, 8) for line in tables)


def test_a_long_summary_ends_early() -> None:
    text = github_summary([expected(deployment="é" * 1000)] * 600, plan="plan.yaml")
    assert MAX_SUMMARY_BYTES - 10_000 < len(text.encode()) < 2**20
    assert text.endswith("\n\nThe rest is left out here; see the log of the step.\n")
