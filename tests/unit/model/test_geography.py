"""Levels of geography: in order, and each within the one above."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dwellings import dwellings, microdata

from safeswap.arrays.geography import count_straddling
from safeswap.errors import SpecError
from safeswap.model.geography import check_nesting, geography_levels
from safeswap.model.schema import Kind


def test_levels_that_nest_pass_and_others_are_refused_with_a_count() -> None:
    data = dwellings(200)
    check_nesting(data, ("REGION", "PLACE"))
    with pytest.raises(SpecError) as caught:
        check_nesting(data, ("PLACE", "REGION"))
    assert caught.value.code == "geography-not-nested"
    assert caught.value.fields["areas"] == 4
    first: dict[str, str] = {}
    pairs = zip(data.table["REGION"].to_pylist(), data.table["PLACE"].to_pylist(), strict=True)
    others = [row for row, (region, place) in enumerate(pairs, start=1) if first.setdefault(region, place) != place]
    assert caught.value.fields["records"] == others[:5]


def test_an_unknown_area_lies_nowhere() -> None:
    kinds = {"State": Kind.GEOGRAPHY, "County": Kind.GEOGRAPHY}
    data = microdata({"State": ["n", "p", "p"], "County": ["1", None, None]}, **kinds)
    check_nesting(data, ("State", "County"))
    check_nesting(microdata({"State": ["n", "p"], "County": [None, None]}, **kinds), ("State", "County"))


def test_levels_without_a_stated_depth_keep_the_order_of_the_columns() -> None:
    assert geography_levels(dwellings(3).schema) == ("REGION", "PLACE")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_straddling_counts_areas_with_two_parents(pairs: list[tuple[int, int]]) -> None:
    fine, coarse = (np.array([p[i] for p in pairs], np.uint8) for i in (0, 1))
    expected = sum(len({c for f, c in pairs if f == area}) > 1 for area in range(5))
    assert count_straddling(fine, coarse, 5) == expected
