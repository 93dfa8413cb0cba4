"""What is known of levels after one pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.methods.edit_1990.on_duckdb import Among, Nesting

PAIRS = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=15), max_size=5)


@given(batches=PAIRS)
def test_areas_that_lie_in_several_are_found(batches: list[list[tuple[int, int]]]) -> None:
    nesting = Nesting()
    for number, batch in enumerate(batches, start=1):
        coarse, fine = np.array(batch, dtype=np.uint32).reshape(-1, 2).T
        nesting.add(fine, coarse, 10 * number)
    around: dict[int, set[int]] = {}
    for outer, inner in (pair for batch in batches for pair in batch):
        around.setdefault(inner, set()).add(outer)
    assert nesting.straddling == sum(len(found) > 1 for found in around.values())


@given(wanted=st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=9), records=st.integers(0, 60))
@pytest.mark.parametrize("bounds", [[4, 4, 4], [2**31, 2**30, 4]])
def test_records_of_wanted_combinations_are_never_lost(
    bounds: list[int], wanted: list[tuple[int, ...]], records: int
) -> None:
    codes = np.random.default_rng(records).integers(0, 4, (3, records)).astype(np.uint32)
    flags = Among(bounds, np.array(wanted)).flags(list(codes))
    known = len(bounds) if bounds[0] == 4 else 2  # of more columns there are too many combinations
    expected = [tuple(row[:known]) in {each[:known] for each in wanted} for row in codes.T.tolist()]
    assert flags.tolist() == expected
