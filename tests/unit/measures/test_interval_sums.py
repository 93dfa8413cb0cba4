"""Bounds from sums: never wrong, and never looser with all sums together than with one at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeswap.measures.table_check import find_unknowns, sharpen_intervals, tighten


@given(st.lists(st.integers(0, 9), min_size=12, max_size=12), st.lists(st.booleans(), min_size=12, max_size=12))
def test_the_truth_stays_within_the_bounds(cells, shown):
    counts = np.array(cells).reshape(3, 4)
    known = np.array(shown).reshape(3, 4)
    arrays = [counts, counts.sum(axis=1), counts.sum(axis=0), np.asarray(counts.sum())]
    lower = [np.where(known, counts, 0), *(each.copy() for each in arrays[1:])]
    upper = [np.where(known, counts, 99), *(each.copy() for each in arrays[1:])]
    sums = [(0, 1, 1), (0, 2, 0), (1, 3, 0), (2, 3, 0)]
    tighten(lower, upper, sums)
    rough = [each.copy() for each in (lower[0], upper[0])]
    wanted, _ = find_unknowns(lower, upper)
    if wanted.size:
        sharpen_intervals(lower, upper, sums, wanted, true=arrays)
    assert (lower[0] <= counts).all()
    assert (upper[0] >= counts).all()
    assert (lower[0] >= rough[0]).all()
    assert (upper[0] <= rough[1]).all()
