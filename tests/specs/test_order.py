"""The order of layers: what can be written, what is refused, and that nothing large is ever expanded."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.specs.order import MAX_DEPTH, MAX_LAYERS, parse_order


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        pytest.param("mamba", "mamba", id="one"),
        pytest.param("2 a", "a a", id="count"),
        pytest.param("a, b", "a b", id="comma"),
        pytest.param("a b", "a b", id="blank"),
        pytest.param("2 (a, b)", "a b a b", id="brackets"),
        pytest.param("2(a b)c", "a b a b c", id="without-blanks"),
        pytest.param("(a b)", "a b", id="brackets-once"),
        pytest.param("2 (2 a, b), 2 a", "a a b a a b a a", id="gemma-3"),
        pytest.param("2 (2 (m p) m a), p", "m p m p m a m p m p m a p", id="nested"),
        pytest.param("  2  a ,\n b ", "a a b", id="white-space"),
        pytest.param("global-2 local_1", "global-2 local_1", id="names"),
        pytest.param("a,", "a", id="comma-at-the-end"),
    ],
)
def test_an_order_is_read_from_left_to_right(text: str, layers: str) -> None:
    assert parse_order(text) == tuple(layers.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "the order of layers is empty", id="empty"),
        pytest.param(" , ", "the order of layers is empty", id="commas"),
        pytest.param("()", "the order of layers is empty", id="empty-brackets"),
        pytest.param("2 (a", "a bracket is not closed", id="open"),
        pytest.param("a) b", "a ')' has no '(' before it", id="closed-twice"),
        pytest.param("3", "a count must be followed by a kind of layer or by brackets", id="count-alone"),
        pytest.param("3, a", "a count must be followed by a kind of layer or by brackets", id="count-then-comma"),
        pytest.param("(a, 3)", "a count must be followed by a kind of layer or by brackets", id="count-then-bracket"),
        pytest.param("3 4 a", "two counts in a row: '3 4'", id="two-counts"),
        pytest.param("0 a", "a count of layers is from 1 to 4096", id="none"),
        pytest.param("5000 a", "a count of layers is from 1 to 4096", id="many"),
        pytest.param("9999999999999999999999 a", "a count of layers is from 1 to 4096", id="very-many"),
        pytest.param("4096 a, b", "more than 4096 layers", id="sum"),
        pytest.param("65 (64 a)", "more than 4096 layers", id="product"),
        pytest.param("3 x a*b", "'*b' is not part of an order of layers, such as '3 (a, b), a'", id="sign"),
        pytest.param("2.5 a", "'.5 a' is not part of an order of layers, such as '3 (a, b), a'", id="fraction"),
        pytest.param("-1 a", "'-1 a' is not part of an order of layers, such as '3 (a, b), a'", id="negative"),
        pytest.param("\u0663 a", "'\u0663 a' is not part of an order of layers, such as '3 (a, b), a'", id="arabic"),
        pytest.param("(" * 9 + "a" + ")" * 9, "brackets are nested more than 8 deep", id="deep"),
    ],
)
def test_what_is_no_order_is_refused_with_a_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_order(text)


def test_limits_are_reached_and_not_passed() -> None:
    assert len(parse_order(f"{MAX_LAYERS} a")) == MAX_LAYERS
    assert len(parse_order("64 (64 a)")) == MAX_LAYERS
    assert parse_order("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH) == ("a",)


@pytest.mark.parametrize(
    "text", ["4096 (4096 (4096 a))", "a," * 500_000, "(" * 500_000, "1 (" * 8 + "4096 a" + ")" * 8]
)
def test_hostile_orders_end_soon(text: str) -> None:
    start = time.perf_counter()
    try:
        assert len(parse_order(text)) <= MAX_LAYERS
    except ValueError as error:
        assert len(str(error)) < 200  # noqa: PT017 - either outcome will do
    assert time.perf_counter() - start < 2


@given(st.lists(st.tuples(st.integers(1, 20), st.sampled_from(["a", "b", "c_1"])), min_size=1, max_size=20))
def test_counts_and_names_come_back(runs: list[tuple[int, str]]) -> None:
    text = ", ".join(f"{count} {name}" for count, name in runs)
    assert parse_order(text) == tuple(name for count, name in runs for _ in range(count))
