"""Areas that are cut out of areas, and the check that areas are nested."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays.geography import divide_areas, find_groups_in_one_area, find_parents


@given(st.lists(st.integers(1, 500), min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 2**60), st.data())
def test_areas_add_up_and_none_is_empty(sizes, roots, seed, data):
    parts = [data.draw(st.integers(1, size)) for size in sizes]
    found = divide_areas(np.array(sizes), np.array(parts), roots, seed)
    assert found.min() >= 1
    ends = np.cumsum(parts)
    assert [int(part.sum()) for part in np.split(found, ends[:-1])] == sizes


def test_more_roots_make_areas_more_alike():
    spread = [divide_areas(np.array([10**6]), np.array([500]), roots, 1).std() for roots in (1, 2, 3, 4)]
    assert spread == sorted(spread, reverse=True)


@pytest.mark.parametrize("threads", [1, 4])
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=40))
def test_areas_in_two_areas_are_found(threads, lying):
    import safeswap.arrays.compiled as module

    fine, coarse = (np.array([pair[i] for pair in lying], np.uint8) for i in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WORTH_A_THREAD", 5)
        patch.setattr(module, "_most_threads", lambda: threads)
        found = find_parents(fine, coarse, 5)
    known = {area: {c for f, c in lying if f == area} for area in range(5)}
    if any(len(around) > 1 for around in known.values()):
        assert found is None
    else:
        assert found.tolist() == [next(iter(known[area]), -1) for area in range(5)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_groups_in_one_area_are_found(lying):
    groups, areas = (np.array([pair[i] for pair in lying], np.uint8) for i in (0, 1))
    expected = [row for row, (g, _) in enumerate(lying) if len({a for other, a in lying if other == g}) == 1]
    assert find_groups_in_one_area(groups, areas, 4).tolist() == expected
