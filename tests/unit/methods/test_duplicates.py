"""Names that repeat are found, however they are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.methods.edit_1990.spec import has_duplicates

NUMBERS = st.integers(0, 30) | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(NUMBERS, max_size=40))
def test_numbers_that_repeat_are_found(numbers):
    assert has_duplicates(np.array(numbers, np.int64)) == (len(set(numbers)) < len(numbers))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1) | st.integers(0, 3)), max_size=40))
def test_blocks_that_repeat_are_found(blocks):
    names = np.array(blocks, np.uint64).reshape(-1, 2)
    assert has_duplicates(names) == (len(set(blocks)) < len(blocks))


@pytest.mark.parametrize("step", [1, 2**40])
def test_one_repeated_name_among_many_is_found(step):
    numbers = np.random.default_rng(1).permutation(50_000) * step
    assert not has_duplicates(numbers)
    numbers[17] = numbers[-1]
    assert has_duplicates(numbers)
