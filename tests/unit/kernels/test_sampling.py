"""Samples by keyed draw."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import keyed
from safeswap.arrays.sampling import RESERVED_FROM, draw_limit, draw_sample

KEY = bytes(range(32))
IDENTITY = np.arange(200_000)


def test_a_sample_has_about_its_rate_in_every_stratum():
    strata = (IDENTITY % 4).astype(np.uint8)
    dense = np.array([False, True, False, True])
    drawn = draw_sample(IDENTITY, KEY, rate=0.01, strata=strata, is_dense=dense, dense_rate=0.2)
    shares = np.bincount(strata[drawn.rows], minlength=4) / 50_000
    assert np.abs(shares[[0, 2]] - 0.01).max() < 5 * np.sqrt(0.01 * 0.99 / 50_000)
    assert np.abs(shares[[1, 3]] - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 50_000)


def test_a_record_is_sampled_by_its_own_draw_alone():
    draws = keyed.draws(keyed.integer_blocks(IDENTITY), KEY)
    drawn = draw_sample(IDENTITY, KEY, rate=0.05)
    assert set(drawn.rows.tolist()) == set(np.flatnonzero(draws < draw_limit(0.05)).tolist())
    assert (drawn.draws == draws[drawn.rows]).all()
    some = draw_sample(IDENTITY[1000:3000], KEY, rate=0.05)
    assert set((some.rows + 1000).tolist()) == {row for row in drawn.rows.tolist() if 1000 <= row < 3000}


def test_sample_and_reserve_are_in_order_and_do_not_meet():
    drawn = draw_sample(IDENTITY, KEY, rate=0.99)
    assert (drawn.draws[1:] > drawn.draws[:-1]).all()
    assert (drawn.reserve_draws[1:] < drawn.reserve_draws[:-1]).all()
    assert (drawn.reserve_draws >= RESERVED_FROM).all()
    assert not set(drawn.rows.tolist()) & set(drawn.reserve.tolist())


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_larger_rate_takes_all_that_a_smaller_one_takes(one, other):
    low, high = sorted([one, other])
    few, many = (set(draw_sample(IDENTITY[:500], KEY, rate=rate).rows.tolist()) for rate in (low, high))
    assert few <= many


def test_none_and_all_can_be_sampled():
    assert len(draw_sample(IDENTITY, KEY, rate=0.0).rows) == 0
    assert len(draw_sample(IDENTITY, KEY, rate=1.0).rows) == len(IDENTITY)
    assert len(draw_sample(np.zeros(0, np.int64), KEY, rate=0.5).rows) == 0
