"""The policy line: its ends, its bend, and who is under it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import SpecError
from safeswap.measures.plot.values import Policy


@given(st.floats(0.01, 2), st.floats(1, 50), st.floats(-3, 3))
def test_the_line_joins_its_two_ends_and_falls(r, k, curvature):
    line = Policy(r=r, k=k, curvature=curvature).line(np.linspace(0, k, 50))
    assert line[0] == pytest.approx(r)
    assert line[-1] == 0
    assert (np.diff(line) <= 0).all()


def test_a_bend_towards_the_origin_asks_for_less_and_away_from_it_for_more():
    x = np.linspace(0.5, 14.5, 29)
    weak, straight, strong = (Policy(curvature=c).line(x) for c in (1, 0, -1))
    assert (weak < straight).all()
    assert (straight < strong).all()
    assert straight == pytest.approx(0.15 * (1 - x / 15))


def test_on_the_line_is_safe_and_just_under_it_is_not():
    policy = Policy(r=0.15, k=15)
    at = policy.line(np.array([6.0]))
    assert not policy.unsafe(np.array([6.0]), at)[0]
    assert policy.unsafe(np.array([6.0]), at - 1e-9)[0]
    assert not policy.unsafe(np.array([15.0, 0.0]), np.array([0.0, 0.15])).any()


def test_without_r_the_line_is_vertical():
    policy = Policy(r=None, k=3)
    assert policy.unsafe(np.array([2.0, 2.9, 3.0]), np.array([1.0, 0.0, 0.0])).tolist() == [True, True, False]
    assert "frequency" in policy.sentence


def test_what_has_no_place_is_neither_safe_nor_unsafe():
    assert not Policy().unsafe(np.array([np.nan, 1.0]), np.array([0.0, np.nan])).any()


@pytest.mark.parametrize("bad", [{"r": 0}, {"r": float("nan")}, {"k": 0}, {"k": float("inf")}, {"curvature": 9}])
def test_a_policy_that_makes_no_sense_is_refused(bad):
    with pytest.raises(SpecError) as caught:
        Policy(**bad)
    assert caught.value.code == "bad-policy"
