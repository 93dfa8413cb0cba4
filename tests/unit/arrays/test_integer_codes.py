"""Integers are numbered in order of appearance, batch by batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays.integer_codes import IntegerCodes


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=30), max_size=5))
def test_integers_are_numbered_in_order_of_appearance(batches: list[list[int]]) -> None:
    numbers = IntegerCodes()
    codes = [numbers.code(np.array(batch, np.int64)).tolist() for batch in batches]
    levels = list(dict.fromkeys(value for batch in batches for value in batch))
    assert numbers.levels.tolist() == levels
    assert codes == [[levels.index(value) for value in batch] for batch in batches]


def test_many_integers_outgrow_the_first_table() -> None:
    values = np.random.default_rng(1).permutation(np.repeat(np.arange(50_000) * 7919, 2)).astype(np.int32)
    numbers = IntegerCodes()
    codes = numbers.code(values)
    assert (numbers.levels[codes] == values).all()
    assert len(numbers.levels) == 50_000


@pytest.mark.parametrize("turn", [0, 1, 9_000, 20_000])
def test_integers_that_ascend_up_to_some_point_are_numbered_alike(turn: int) -> None:
    values = np.sort(np.random.default_rng(turn).integers(-(10**6), 10**6, 20_000))
    values[turn:] = values[turn:][::-1]
    numbers = IntegerCodes()
    codes = np.concatenate([numbers.code(part) for part in np.array_split(values, 7)])
    assert numbers.levels.tolist() == list(dict.fromkeys(values.tolist()))
    assert (numbers.levels[codes] == values).all()


@given(st.lists(st.integers(-9, 9)), st.lists(st.integers(-12, 12)), st.booleans(), st.integers(0, 40))
def test_known_integers_are_counted_whatever_their_order(
    known: list[int], asked: list[int], ascend: bool, most: int
) -> None:
    """Levels that ascend are looked up without a hash."""
    numbers = IntegerCodes(np.array(sorted(known) if ascend else known, np.int64), most=most)
    levels = numbers.levels.tolist()
    counts = np.zeros(len(levels), np.int32)
    numbers.count(np.array(asked, np.int64), counts)
    assert counts.tolist() == [asked.count(level) for level in levels]
    assert numbers.take_levels().tolist() == levels


def test_levels_taken_are_those_numbered_whatever_room_was_made() -> None:
    values = np.random.default_rng(3).permutation(30_000)
    for most in (0, 1_000, 30_000, 10**7):
        numbers = IntegerCodes(most=most)
        codes = numbers.code(values)
        assert (numbers.take_levels()[codes] == values).all()
