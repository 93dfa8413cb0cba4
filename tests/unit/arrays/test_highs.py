"""Integer programmes: the solver's answer is that of trying every whole point of the box."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from safeswap.arrays.highs import Programme, solve, value_ranges

SMALL = st.integers(-3, 3)


@st.composite
def programmes(draw: st.DrawFn) -> Programme:
    columns, rows = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    least = np.array(draw(st.lists(SMALL, min_size=columns, max_size=columns)), dtype=np.float64)
    sizes = draw(st.lists(st.integers(0, 3), min_size=columns, max_size=columns))
    entries = draw(st.lists(SMALL, min_size=rows * columns, max_size=rows * columns))
    low = np.array(draw(st.lists(SMALL, min_size=rows, max_size=rows)), dtype=np.float64)
    return Programme(
        costs=np.array(draw(st.lists(SMALL, min_size=columns, max_size=columns)), dtype=np.float64),
        least=least,
        upper=least + sizes,
        matrix=sparse.csr_array(np.array(entries, dtype=np.float64).reshape(rows, columns)),
        low=low,
        high=low + draw(st.integers(0, 4)),
        offset=float(draw(SMALL)),
    )


def cheapest(programme: Programme) -> float | None:
    """Try every point."""
    assert programme.least is not None
    sides = [range(int(a), int(b) + 1) for a, b in zip(programme.least, programme.upper, strict=True)]
    matrix = programme.matrix.toarray()
    costs = [
        programme.offset + sum(c * v for c, v in zip(programme.costs, point, strict=True))
        for point in product(*sides)
        if all(programme.low <= matrix @ np.array(point)) and all(matrix @ np.array(point) <= programme.high)
    ]
    return min(costs, default=None)


@given(programmes())
def test_the_answer_is_the_cheapest_of_all_points(programme: Programme) -> None:
    found, least = solve(programme), cheapest(programme)
    if least is None:
        assert (found.status, found.values) == ("infeasible", None)
        return
    assert found.status == "optimal"
    assert found.cost == pytest.approx(least)
    assert found.bound == pytest.approx(least)
    assert found.values is not None
    assert programme.offset + float(programme.costs @ found.values) == pytest.approx(least)


@pytest.mark.parametrize(("low", "status"), [(0.0, "optimal"), (1.0, "infeasible")])
def test_without_columns_only_the_rows_decide(low: float, status: str) -> None:
    none = np.zeros(0)
    rows = {"matrix": sparse.csr_array((1, 0)), "low": np.array([low]), "high": np.array([2.0])}
    assert solve(Programme(costs=none, upper=none, offset=7.0, **rows)).status == status


def test_a_start_that_is_partly_unknown_changes_no_answer() -> None:
    cover = Programme(
        costs=np.array([2.0, 3.0, 2.0]),
        upper=np.ones(3),
        matrix=sparse.csr_array(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])),
        low=np.ones(2),
        high=np.full(2, np.inf),
    )
    assert solve(cover, start=np.array([1.0, np.nan, 1.0])).cost == solve(cover).cost == 3.0


def test_what_the_solver_did_not_find_in_time_is_unknown_and_no_contradiction() -> None:
    rng = np.random.default_rng(7)
    matrix = sparse.csr_array((rng.random((40, 80)) < 0.3).astype(float))
    sums = matrix @ rng.random(80)
    stopped = value_ranges(matrix, sums, lower=0.0, seconds=0.0)
    assert stopped is not None
    assert np.isnan(stopped).all()
    contradiction = sparse.csr_array(np.array([[1.0, 1.0], [1.0, 1.0]]))
    assert value_ranges(contradiction, np.array([3.0, 4.0]), lower=0.0) is None
