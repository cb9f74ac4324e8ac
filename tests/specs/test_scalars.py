"""Oracles: JSON's numbers are YAML 1.2's, and PyYAML's own resolver is YAML 1.1."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kvplan.specs.scalars import MAX_INTEGER, classify, real_number, shown, whole_number

INTEGERS = st.integers(-MAX_INTEGER, MAX_INTEGER).map(str)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(repr)
WRITTEN = st.from_regex(r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,8})?([eE][-+]?[0-9]{1,2})?", fullmatch=True)


def yaml_1_1(text: str) -> Any:
    return yaml.safe_load(text)


@given(INTEGERS | FLOATS | WRITTEN)
@example("1e9")
@example("3.35e12")
def test_a_json_number_has_its_json_value(text: str) -> None:
    expected = json.loads(text)
    assert classify(text).type == "number"
    if expected == 0 and any(c in "123456789" for c in text.lower().split("e")[0]):
        assert real_number(text) is None  # too near 0 for a float
    else:
        assert real_number(text) == expected
        assert type(real_number(text)) is type(expected)


@given(WRITTEN | INTEGERS)
@example("1e9")
@example("2.50e1")
@example("1e-400")
def test_a_whole_number_is_exact(text: str) -> None:
    exact = Fraction(text)  # of the standard library, exact for any exponent
    if exact.denominator != 1:
        assert whole_number(text) is None
    elif abs(exact) <= MAX_INTEGER:
        assert whole_number(text) == exact
    else:
        assert abs(whole_number(text) or 0) == MAX_INTEGER + 1


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("9007199254740992", 2**53),
        ("9007199254740993", 2**53 + 1),
        ("9.007199254740993e15", 2**53 + 1),  # a float would round this to 2^53
        ("1e99999999", 2**53 + 1),
        ("-1e99999999", -(2**53) - 1),
        ("0e99999999", 0),
        ("1e-99999999", None),
        ("0.1e1", 1),
        (".5", None),
        ("5.", 5),
    ],
)
def test_whole_numbers_at_the_edges(text: str, whole: int | None) -> None:
    assert whole_number(text) == whole


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e-400", "9007199254740993"])
def test_no_float_and_no_exact_integer_holds_it(text: str) -> None:
    assert classify(text).type == "number"
    assert real_number(text) is None


# What to write, for each value on which YAML 1.1 and 1.2 differ.
UNCLEAR = [
    ("010", "write 10, or 8 if octal was meant"),
    ("-010", "write -10, or 8 if octal was meant"),
    ("00", "write 0, or 0 if octal was meant"),
    ("0x10", "write 16"),
    ("-0xff", "write -255"),
    ("0b101", "write 5"),
    ("1_000", "write 1000"),
    ("1_000.5", "write 1000.5"),
    ("1:30", "write 90 if base 60 was meant, or quote it if it is text"),
    ("-1:30", "write -90 if base 60 was meant, or quote it if it is text"),
    ("1:30.5", "quote it if it is text"),
    *[(word, "write true or false, or quote it if it is a name") for word in ("yes", "No", "ON", "off")],
    ("True", "write true"),
    ("FALSE", "write false"),
    ("2026-11-29", "quote it"),
    ("2026-11-29 10:00:00", "quote it"),
    ("2026-11-29T10:00:00Z", "quote it"),
]
# Refused as well, though PyYAML reads them as 1.2 does: other 1.1 readers do not, or the eye does not.
MISLEADING = [
    ("09", "write 9"),
    ("010.5", "write 10.5"),
    ("0o7", "write 7"),
    ("0x", "quote it if it is text"),
    ("y", "write true or false, or quote it if it is a name"),
    ("N", "write true or false, or quote it if it is a name"),
    ("=", "quote it"),
    ("<<", "quote it"),
    ("0x" + "f" * 20, "write it in decimal"),
]


@pytest.mark.parametrize(("text", "advice"), UNCLEAR + MISLEADING)
def test_what_readers_disagree_on_says_what_to_write(text: str, advice: str) -> None:
    meaning = classify(text)
    assert meaning.type == "unclear"
    assert meaning.advice == f"{text} is not the same to all YAML readers; {advice}"


@pytest.mark.parametrize("text", [text for text, _ in UNCLEAR if text not in ("True", "FALSE")])
def test_yaml_1_1_reads_them_as_something_else(text: str) -> None:
    core = json.loads(text.lstrip("-0") or "0") if text.lstrip("-").isdigit() else text
    assert yaml_1_1(text) != core or text == "00"


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", ".NaN"])
def test_only_finite_numbers(text: str) -> None:
    assert not math.isfinite(yaml_1_1(text))
    assert classify(text).advice == f"{text} is not a finite number; write one, or quote it if it is text"


@pytest.mark.parametrize("text", ["1" * 65, "0." + "1" * 1_000_000])
def test_endless_digits_are_refused(text: str) -> None:
    assert classify(text).advice == f"a number of {len(text)} characters is more than can be kept exactly"


@given(st.text("0123456789-+._:xobeEyYnN tTrRuUlLaAfFiI~=<", min_size=1, max_size=9))
@example("1.2.3")
@example("10-20")
@example("bf16")
@example("_1")
def test_text_is_text_to_yaml_1_1_as_well(text: str) -> None:
    events = _plain_scalar(text)
    if events is not None and classify(events).type == "text":
        assert yaml_1_1(text) == events


@pytest.mark.parametrize("text", ["", "~", "null", "Null"])
def test_nothing(text: str) -> None:
    assert classify(text).type == "nothing"
    assert yaml_1_1(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain", "plain"), ("x" * 61, "x" * 57 + "..."), ("a\x1b[31mb", "a\\x1b[31mb"), ("\ud800", "\\ud800")],
)
def test_shown_is_short_and_safe_for_a_terminal(text: str, expected: str) -> None:
    assert shown(text) == expected


def _plain_scalar(text: str) -> str | None:
    """The value, when the whole text is one plain scalar."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    plain = isinstance(node, yaml.ScalarNode) and node.style is None
    return str(node.value) if plain and node is not None else None
