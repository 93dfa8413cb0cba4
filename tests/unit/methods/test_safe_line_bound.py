"""The bound from lines solved exactly: never above the best table that trying all finds, and above the weaker bound."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeswap.arrays.table_lines import line_ids, line_sums, list_largest_margins
from safeswap.methods.safe.bounds import Domain, line_bound, lower_bound


def least_change(counts, *, low, high, zero_ok, weights, ids):
    """By trying every value of every cell; infinite where no table is safe."""
    values = [
        [*([0] if zero else []), *range(bottom, top + 1)] for bottom, top, zero in zip(low, high, zero_ok, strict=True)
    ]
    lines = int(ids.max()) + 1
    best, totals = np.inf, line_sums(counts, ids, lines)
    for cells in product(*values):
        x = np.array(cells)
        cost = float(weights @ np.abs(x - counts))
        if cost < best and np.array_equal(line_sums(x, ids, lines), totals):
            best = cost
    return best


@st.composite
def tiny_tables(draw):
    shape = draw(st.sampled_from([(2, 2), (2, 3), (2, 2, 2)]))
    size = int(np.prod(shape))
    numbers = st.lists(st.integers(0, 7 if size == 4 else 3), min_size=size, max_size=size)
    counts = np.array(draw(numbers), dtype=np.int64)
    weights = np.array(draw(st.lists(st.sampled_from([1.0, 0.5, 3.0]), min_size=size, max_size=size)))
    zero_ok = np.array(draw(st.lists(st.sampled_from([True, True, True, False]), min_size=size, max_size=size)))
    tolerance = draw(st.integers(2, 4))
    high = np.minimum(counts + draw(st.integers(1, 9 if size == 4 else 4)), tolerance + 2 if size > 4 else 20)
    return shape, counts, np.full(size, tolerance), high, zero_ok | (high < tolerance), weights


@settings(max_examples=60)
@given(tiny_tables(), st.sampled_from([(6, 96), (1, 96), (1, 2), (0, 1)]))
def test_the_bound_is_never_above_the_best_table(table, window):
    """Also where few values and sums are followed, so that most tables go beyond them."""
    shape, counts, low, high, zero_ok, weights = table
    ids, _ = line_ids(shape, list_largest_margins(len(shape)))
    domain = {"low": low, "high": high, "zero_ok": zero_ok, "weights": weights, "ids": ids}
    best = least_change(counts, **domain)
    assert line_bound(counts, Domain(**domain), steps_away=window[0], reach=window[1]) <= best + 1e-9


def thirds(shape, seed):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 1 / 3, rng.integers(1, 5, shape), rng.integers(5, 60, shape)).ravel()


@pytest.mark.parametrize("shape", [(8, 8, 8), (6, 5, 4, 3)])
def test_the_bound_is_above_the_one_from_single_cells(shape):
    counts = thirds(shape, 2)
    ids, lines = line_ids(shape, list_largest_margins(len(shape)))
    size = counts.size
    domain = {
        "low": np.full(size, 5),
        "high": line_sums(counts, ids, lines)[ids].min(axis=0),
        "zero_ok": np.ones(size, dtype=np.bool_),
        "weights": np.ones(size),
        "ids": ids,
    }
    weaker = lower_bound(counts, Domain(**domain), lines=lines, tolerance=5, steps=1500).value
    assert line_bound(counts, Domain(**domain)) > weaker


def test_a_single_line_is_solved():
    counts = np.array([1, 4, 2, 9, 30])
    ids, _ = line_ids((5,), [()])
    domain = {"low": np.full(5, 5), "high": np.full(5, 46), "zero_ok": np.ones(5, dtype=np.bool_)}
    assert line_bound(counts, Domain(**domain, weights=np.ones(5), ids=ids)) == pytest.approx(6)


def test_no_lines_no_bound():
    ids = np.zeros((0, 2), dtype=np.int32)
    domain = {"low": np.full(2, 3), "high": np.full(2, 9), "zero_ok": np.ones(2, dtype=np.bool_)}
    assert line_bound(np.array([1, 4]), Domain(**domain, weights=np.ones(2), ids=ids)) == 0.0
