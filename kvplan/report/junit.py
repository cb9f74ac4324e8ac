"""A check as JUnit XML: a suite for each deployment, a case for each check, failures with their derivation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kvplan.report import check_words as words
from kvplan.report.words import Row

# What XML 1.0 has no way to write, not even escaped; a carriage return would be read as another line end.
_ILLEGAL = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(rows: Sequence[Row], *, plan: str) -> str:
    """The document; the same rows give the same bytes, so there are no times in it."""
    root = Element("testsuites", {"name": "kvplan check", **_counts(rows)})
    for name in dict.fromkeys(row["deployment"] for row in rows):
        mine = [row for row in rows if row["deployment"] == name]
        suite = SubElement(root, "testsuite", {"name": _legal(name), **_counts(mine)})
        for row in mine:
            _case(suite, row, plan)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _counts(rows: Sequence[Row]) -> dict[str, str]:
    return {"tests": str(len(rows)), "failures": str(len(words.failed(rows))), "errors": "0"}


def _case(suite: Element, row: Row, plan: str) -> None:
    scenario = f" ({row['scenario']})" if row["scenario"] else ""
    name = _legal(f"{words.title(row)}{scenario}")
    case = SubElement(suite, "testcase", {"classname": _legal(row["deployment"]), "name": name})
    if not row["ok"]:
        message = _legal(words.sentence(row))
        failure = SubElement(case, "failure", {"message": message, "type": row["check"]})
        failure.text = _legal("\n".join([f"{words.location(row, plan)}: {message}", *words.derived(row)]))
    elif row["check"] == "baseline" and row["verdict"] != "same":
        SubElement(case, "system-out").text = _legal(words.sentence(row))


def _legal(text: str) -> str:
    """The text with a replacement character for each that no XML document can hold."""
    return _ILLEGAL.sub("\ufffd", text)
