"""JUnit XML that Jenkins and GitLab can read, whatever the names are."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema
from hypothesis import given
from hypothesis import strategies as st

from kvplan.report.junit import junit_text
from report.checks import ALL, HOSTILE, expected, moved, passed, presence, same

SCHEMA = xmlschema.XMLSchema(Path(__file__).parents[1] / "data" / "junit.xsd")


def read(rows: list[dict[str, Any]], plan: str = "plan.yaml") -> ElementTree.Element:
    """The document as another program reads it, from bytes and by the schema."""
    data = junit_text(rows, plan=plan).encode("utf-8")
    SCHEMA.validate(data.decode("utf-8"))
    return ElementTree.fromstring(data)


def test_the_document_in_full() -> None:
    assert junit_text([passed(), expected(scenario="context=8192"), same()], plan="plan.yaml") == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<testsuites name="kvplan check" tests="3" failures="1" errors="0">\n'
        '  <testsuite name="chat" tests="3" failures="1" errors="0">\n'
        '    <testcase classname="chat" name="max_sessions &gt;= 100" />\n'
        '    <testcase classname="chat" name="max_sessions &gt;= 200 (context=8192)">\n'
        '      <failure message="max_sessions is 115, wanted &gt;= 200; limited by KV memory: the next conversation'
        ' would not find room" type="expect">plan.yaml:7: max_sessions is 115, wanted &gt;= 200; limited by KV memory:'
        " the next conversation would not find room\n"
        "max_sessions = dp * max(0, (kv_budget_bytes - prefix_bytes) // kv_bytes_per_session)\n"
        "             = 1 * max(0, (61_991_951_728 - 0) // 536_870_912)</failure>\n"
        "    </testcase>\n"
        '    <testcase classname="chat" name="max_sessions against the baseline" />\n'
        "  </testsuite>\n"
        "</testsuites>\n"
    )


def test_every_kind_of_check_is_a_case() -> None:
    root = read([*ALL, expected(deployment="code")])
    assert [(s.get("name"), s.get("tests"), s.get("failures")) for s in root] == [
        ("chat", "7", "3"),
        ("code", "1", "1"),
    ]
    assert root.get("failures") == "4"
    outcomes = [[part.tag for part in case] for case in root[0]]
    assert outcomes == [["failure"], [], ["failure"], ["system-out"], [], ["system-out"], ["failure"]]
    baseline = root[0][2][0]
    assert baseline.get("message") == (
        "max_sessions: 115 before, 57 now (-50.43%), worse, beyond 2%; most of it from session/full +512.00 MiB"
    )


@pytest.mark.parametrize(
    "row",
    [
        expected(deployment=HOSTILE, scenario=f"gpu={HOSTILE}"),
        expected(column="gpu", wanted=HOSTILE, found=HOSTILE),
        moved(column="model", before=HOSTILE, now=HOSTILE + "2", change=None, change_percent=None),
        moved(ledger_line=HOSTILE),
        presence("gone", deployment=HOSTILE, scenario=HOSTILE),
    ],
)
def test_hostile_names(row: dict[str, Any]) -> None:
    root = read([row], plan=f"{HOSTILE}.yaml")
    assert [case.tag for case in root[0]] == ["testcase"]
    assert "\x00" not in junit_text([row], plan="p")


def test_names_are_kept_as_far_as_xml_can_hold_them() -> None:
    root = read([passed(deployment="a <b> & \"c\" 'd' \u00e9 \U0001f600 \x07\ud800")])
    assert root[0].get("name") == "a <b> & \"c\" 'd' \u00e9 \U0001f600 \ufffd\ufffd"


@given(st.text(st.characters(codec=None), min_size=1), st.text(st.characters(codec=None)))
def test_any_text_is_valid_xml(name: str, scenario: str) -> None:
    ElementTree.fromstring(junit_text([expected(deployment=name, scenario=scenario)], plan=name).encode("utf-8"))


def test_no_checks_are_a_document_too() -> None:
    assert read([]).get("tests") == "0"
