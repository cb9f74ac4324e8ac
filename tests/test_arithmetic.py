"""The functions on numbers: the same for ints and arrays, to large values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.arithmetic import (
    MAX_UNITS,
    NO_LIMIT,
    Charge,
    at_most,
    ceil_div,
    last_token_units,
    longest_context,
    session_units,
    tokens_held,
    whole_sessions,
)

tokens = st.integers(1, 2**32)
units = st.integers(1, 2**50)
charges = st.lists(
    st.builds(
        Charge,
        units=st.integers(1, 2**29),
        limit=st.none() | st.integers(1, 2**20),
        block=st.sampled_from([1, 16, 64, 784]),
        extra=st.integers(0, 3),
    ),
    max_size=3,
)


@pytest.mark.parametrize(
    ("count", "size", "pieces"),
    [(0, 16, 0), (1, 16, 1), (16, 16, 1), (17, 16, 2), (2**53, 16, 2**49)],
)
def test_ceil_div(count, size, pieces):
    assert ceil_div(count, size) == pieces


def test_session_units_by_hand():
    # full: 2 units a block of 16: ceil(100/16) = 7 blocks: 14; window 40 and a block more: (3 + 1) x 3 = 12; fixed 5
    assert session_units([Charge(2, None, 16), Charge(3, 40, 16, 1)], 5, 100) == 31


@given(st.lists(tokens, min_size=1, max_size=20), charges, st.integers(0, 2**40))
def test_arrays_agree_with_scalars(contexts, charges, fixed):
    together = session_units(charges, fixed, np.array(contexts))
    assert together.tolist() == [session_units(charges, fixed, c) for c in contexts]
    assert np.asarray(at_most(np.array(contexts), 4096)).tolist() == [min(c, 4096) for c in contexts]


@given(st.lists(st.tuples(st.integers(-(2**50), 2**50), units), min_size=1, max_size=20))
def test_sessions_agree_with_plain_division(pairs):
    pools, each = np.array([p for p, _ in pairs]), np.array([u for _, u in pairs])
    expected = [max(0, pool) // unit for pool, unit in pairs]
    assert whole_sessions(pools, each).tolist() == expected
    assert [whole_sessions(pool, unit) for pool, unit in pairs] == expected


@given(charges, tokens)
def test_the_last_token_adds_the_difference(charges, context):
    live = [charge._replace(block=1, extra=0) for charge in charges]
    difference = session_units(live, 0, context) - session_units(live, 0, context - 1)
    assert last_token_units(live, context) == difference
    assert last_token_units(live, np.array([context])).tolist() == [difference]


@given(st.integers(0, 2**50), units, tokens)
def test_tokens_held_is_the_floor_of_the_quotient(pool, unit, context):
    exact = pool * context // unit
    assert tokens_held(pool, unit, context) == exact
    if exact < 2**63:
        assert tokens_held(np.array([pool]), np.array([unit]), np.array([context])).tolist() == [exact]


@given(charges, st.integers(0, 2**30), st.integers(0, 2**45))
def test_longest_context_is_the_inverse(charges, fixed, pool):
    longest = longest_context(charges, fixed, pool, 2**32)
    if longest == NO_LIMIT:
        assert all(charge.limit for charge in charges)
        assert session_units(charges, fixed, 2**32) <= pool
        return
    assert longest == 0 or session_units(charges, fixed, longest) <= pool
    assert longest == 2**32 or session_units(charges, fixed, longest + 1) > pool


@given(st.integers(1, 2**26), st.integers(1, 2**26), st.integers(-1, 1))
def test_quotients_of_arrays_are_exact_beside_whole_ones(times, unit, off):
    """Doubles divide for arrays: what is one below a multiple must not be rounded up to it."""
    pool = min(times * unit + off, MAX_UNITS)
    assert whole_sessions(np.array([pool]), np.array([unit])).tolist() == [pool // unit]
    assert whole_sessions(pool, np.array([2**62 - 1])).tolist() == [0]
