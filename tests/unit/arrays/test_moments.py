"""Exact sums, compared with those of the standard library."""

from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays.moments import exact_sum


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_a_sum_is_that_of_fsum_to_the_last_bit(values, seed):
    rng = np.random.default_rng(seed)
    many = np.concatenate(
        [values, -rng.choice(values, 6_000), rng.choice(values, 6_000), np.ldexp(1.5, [-1074, -1060])]
    )
    rng.shuffle(many)
    assert exact_sum(many) == fsum(many.tolist())


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_values_that_are_not_finite_follow_the_rules_of_fsum(odd):
    values = np.ones(20_000)
    values[7] = odd
    assert np.array_equal(exact_sum(values), fsum(values.tolist()), equal_nan=True)


def test_a_sum_beyond_all_doubles_is_refused():
    with pytest.raises(OverflowError):
        exact_sum(np.full(20_000, 1e308))
