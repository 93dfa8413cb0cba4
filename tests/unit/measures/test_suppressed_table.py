"""Intervals of suppressed cells: what anybody can work out from the margins, no more and no less."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import SafeswapError
from safeswap.measures.suppressed_table import cell_intervals, table_plot


@given(st.integers(0, 2**32 - 1))
def test_intervals_are_those_of_trying_every_table(seed):
    """A 3 × 3 table of small counts: all tables with the same margins and the same published cells."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 4, (3, 3))
    hidden = rng.random((3, 3)) < 0.5
    hidden[0, 0] = True
    found = cell_intervals(table, hidden)
    places = [tuple(place) for place in np.argwhere(hidden)]
    seen = []
    for tried in product(range(int(table.sum(axis=1).max()) + 1), repeat=min(len(places), 4)):
        if len(places) > 4:
            break
        other = table.copy()
        for place, value in zip(places, tried, strict=True):
            other[place] = value
        if (other.sum(0) == table.sum(0)).all() and (other.sum(1) == table.sum(1)).all():
            seen.append(tried)
    if seen:  # margins of a two-way table are totally unimodular: the ends are whole numbers
        assert found.low.tolist() == np.min(seen, axis=0).tolist()
        assert found.high.tolist() == np.max(seen, axis=0).tolist()
    values = table[tuple(np.argwhere(hidden).T)]
    assert (found.low <= values).all()
    assert (values <= found.high).all()


def test_one_suppressed_cell_hides_nothing():
    found = cell_intervals([[5, 3], [2, 7]], [[True, False], [False, False]])
    assert (found.low[0], found.high[0]) == (5, 5)
    assert found.disclosed.tolist() == [True]


def test_a_margin_that_is_suppressed_too_widens_the_interval():
    table, hidden = [[5, 3], [2, 7]], [[True, False], [False, False]]
    rows = {(0,): [True, False], (1,): [True, False]}
    found = cell_intervals(table, hidden, unpublished=rows)
    assert found.disclosed.tolist() == [True], "the grand total still gives it away"
    open_ended = cell_intervals(table, hidden, unpublished={**rows, (): True})
    assert open_ended.high[0] == np.inf
    assert cell_intervals(table, hidden, margins=[(0,)], unpublished={(0,): [True, False]}).high[0] == np.inf


def test_tables_of_three_ways_and_parts_that_nothing_ties_together():
    table = np.arange(1, 17, dtype=float).reshape(2, 2, 4)
    hidden = np.zeros(table.shape, dtype=bool)
    hidden[:, :, :2] = True
    found = cell_intervals(table, hidden)
    assert len(found.low) == 8
    assert not found.disclosed.any()
    apart = cell_intervals(np.ones((4, 4)), np.eye(4, dtype=bool), margins=[(0,)])
    assert apart.disclosed.all()


def test_the_plot_has_the_midpoint_in_the_place_of_the_release():
    table = [[20, 50, 10], [8, 19, 22], [17, 32, 12]]
    hidden = [[True, False, True], [False, False, False], [True, False, True]]
    plot = table_plot(table, hidden, alpha=0.3)
    found = cell_intervals(table, hidden)
    true = np.array([20, 10, 17, 12])
    assert plot.perturbation.tolist() == pytest.approx((np.abs(found.midpoint - true) / true).tolist())
    assert plot.labels.to_pylist() == ["0.0", "0.2", "2.0", "2.2"]
    z = np.abs(found.midpoint[:, None] - true) / found.midpoint[:, None]
    assert plot.across.tolist() == (z < plot.threshold).sum(axis=1).tolist()


@pytest.mark.parametrize(
    ("table", "hidden", "options", "code"),
    [
        ([[1, 2]], [[True]], {}, "bad-table"),
        ([[1.0, float("nan")]], [[True, True]], {}, "bad-table"),
        ([[-1, 2]], [[True, True]], {}, "bad-table"),
        ([[1, 2]], [[False, False]], {}, "nothing-suppressed"),
        ([[1, 2]], [[True, True]], {"margins": [(0, 1)]}, "bad-margin"),
        ([[1, 2]], [[True, True]], {"margins": [(5,)]}, "bad-margin"),
    ],
)
def test_what_makes_no_sense_is_refused(table, hidden, options, code):
    with pytest.raises(SafeswapError) as caught:
        cell_intervals(table, hidden, **options)
    assert caught.value.code == code


@pytest.mark.parametrize(("answer", "code"), [(None, "bad-table"), (np.full((2, 4), np.nan), "too-much-time")])
def test_a_time_out_is_not_told_as_a_contradiction(answer, code, monkeypatch):
    monkeypatch.setattr("safeswap.measures.suppressed_table.value_ranges", lambda *_, **__: answer)
    with pytest.raises(SafeswapError) as caught:
        cell_intervals(np.ones((2, 2)), np.ones((2, 2), dtype=bool))
    assert caught.value.code == code
