"""Divergences keep their bounds and agree with the formulas written down a second time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from safeswap.arrays import divergence

Counts = npt.NDArray[Any]
TINY = 1e-12

pairs = st.integers(1, 12).flatmap(
    lambda cells: st.tuples(*[hnp.arrays(np.int64, cells, elements=st.integers(0, 50)) for _ in range(2)])
)
tables = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: hnp.arrays(np.int64, shape, elements=st.integers(0, 40))
)


def cells_of(table: Counts) -> tuple[Counts, Counts, Counts]:
    rows, columns = np.nonzero(table)
    return rows, columns, table[rows, columns]


def shares(counts: Counts) -> list[float]:
    return [count / int(counts.sum()) for count in counts.tolist()]


@given(pairs)
def test_distances_lie_between_0_and_1_and_do_not_know_which_came_first(pair: tuple[Counts, Counts]) -> None:
    for distance in (divergence.hellinger, divergence.total_variation, divergence.wasserstein_ranks):
        there, back = distance(*pair), distance(*reversed(pair))
        assert 0 <= there <= 1
        assert there == pytest.approx(back, abs=TINY)


@given(pairs)
def test_distances_are_zero_exactly_for_equal_shares(pair: tuple[Counts, Counts]) -> None:
    before, after = pair
    assume(before.sum() and after.sum())
    same = bool((before * after.sum() == after * before.sum()).all())
    for distance in (divergence.hellinger, divergence.total_variation, divergence.wasserstein_ranks):
        assert (distance(before, after) < 1e-7) == same
        assert distance(before, before) == 0


@given(pairs)
def test_the_formulas_of_the_paper(pair: tuple[Counts, Counts]) -> None:
    before, after = pair
    assume(before.sum() and after.sum())
    f, g = shares(before), shares(after)
    squares = sum((math.sqrt(p) - math.sqrt(q)) ** 2 for p, q in zip(f, g, strict=True))
    assert divergence.hellinger(before, after) == pytest.approx(math.sqrt(squares / 2), abs=TINY)
    gaps = sum(abs(p - q) for p, q in zip(f, g, strict=True))
    assert divergence.total_variation(before, after) == pytest.approx(gaps / 2, abs=TINY)
    entropies = [-sum(p * math.log(p) for p in side if p) for side in (f, g)]
    assert divergence.entropy(before) == pytest.approx(entropies[0], abs=TINY)
    assert divergence.entropy_change(before, after) == pytest.approx(entropies[1] - entropies[0], abs=1e-10)


@given(pairs)
def test_hellinger_and_total_variation_bound_each_other(pair: tuple[Counts, Counts]) -> None:
    h, tv = divergence.hellinger(*pair), divergence.total_variation(*pair)
    assert h**2 <= tv + TINY
    assert tv <= h * math.sqrt(2) + TINY


@given(tables)
def test_association_agrees_with_the_textbook(table: Counts) -> None:
    held = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    total, steps = int(held.sum()), min(held.shape, default=0) - 1
    if steps < 1:
        assert divergence.cramers_v(*cells_of(table)) == divergence.contingency_c(*cells_of(table)) == 0
        return
    expected = np.outer(held.sum(axis=1), held.sum(axis=0)) / total
    chi_square = float(((held - expected) ** 2 / expected).sum())
    assert divergence.cramers_v(*cells_of(table)) ** 2 == pytest.approx(chi_square / total / steps, abs=TINY)
    c = divergence.contingency_c(*cells_of(table))
    assert c**2 == pytest.approx(chi_square / (chi_square + total), abs=TINY)
    assert 0 <= c < 1


@given(tables)
def test_empty_cells_may_be_listed_or_not(table: Counts) -> None:
    rows, columns = np.indices(table.shape).reshape(2, -1)
    for measure in (divergence.cramers_v, divergence.contingency_c):
        assert measure(rows, columns, table.ravel()) == pytest.approx(measure(*cells_of(table)), abs=1e-7)


@given(tables)
def test_association_does_not_know_rows_from_columns(table: Counts) -> None:
    rows, columns, counts = cells_of(table)
    assert divergence.cramers_v(rows, columns, counts) == pytest.approx(
        divergence.cramers_v(columns, rows, counts), abs=TINY
    )


@given(st.lists(st.integers(1, 30), min_size=2, max_size=5), st.lists(st.integers(1, 30), min_size=2, max_size=5))
def test_independent_attributes_have_no_association(rows: list[int], columns: list[int]) -> None:
    table = np.outer(rows, columns)
    assert divergence.cramers_v(*cells_of(table)) == pytest.approx(0, abs=1e-7)
    assert divergence.contingency_c(*cells_of(table)) == pytest.approx(0, abs=1e-7)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=6))
def test_an_attribute_is_perfectly_associated_with_itself(counts: list[int]) -> None:
    assert divergence.cramers_v(*cells_of(np.diag(counts))) == pytest.approx(1)


@given(pairs)
def test_the_rank_distance_is_the_cost_of_the_cheapest_transport(pair: tuple[Counts, Counts]) -> None:
    before, after = pair
    assume(before.sum() and after.sum() and before.size > 1)
    # On a line the cheapest transport pairs the records in order.
    first = np.repeat(np.arange(before.size), before * int(after.sum()))
    second = np.repeat(np.arange(after.size), after * int(before.sum()))
    cost = np.abs(first - second).mean() / (before.size - 1)
    assert divergence.wasserstein_ranks(before, after) == pytest.approx(cost, abs=TINY)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 5))
def test_the_conditional_distance_is_the_weighted_mean_of_plain_ones(seed: int, groups: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = rng.integers(0, 6, (2, groups, levels))
    assume(before.sum() and after.sum())
    cells = rng.permutation(groups * levels)  # in any order
    given_, ranks = np.divmod(cells, levels)
    found = divergence.conditional_wasserstein(
        given_, ranks, before.ravel()[cells], after.ravel()[cells], levels=levels
    )
    weights = (before.sum(axis=1) / before.sum() + after.sum(axis=1) / after.sum()) / 2
    plain = [divergence.wasserstein_ranks(before[i], after[i]) for i in range(groups)]
    assert found == pytest.approx(float(weights @ np.array(plain)), abs=TINY)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 5))
def test_dissimilarity_within_areas_is_that_of_each_area(seed: int, areas: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = rng.integers(0, 4, (2, areas, levels))
    area = np.repeat(np.arange(areas), levels)
    distances, weights = divergence.dissimilarity_within(area, before.ravel(), after.ravel())
    expected = [divergence.total_variation(before[i], after[i]) for i in range(areas)]
    np.testing.assert_allclose(distances, expected, atol=TINY)
    if before.sum() and after.sum():
        assert weights.sum() == pytest.approx(1)


def test_an_empty_table_is_as_far_as_can_be_from_one_that_holds_records() -> None:
    nothing, something = np.zeros(2, np.int64), np.array([1, 2])
    for distance in (divergence.hellinger, divergence.total_variation, divergence.wasserstein_ranks):
        assert distance(nothing, something) == distance(something, nothing) == 1
        assert distance(nothing, nothing) == 0


def test_far_moves_weigh_more_than_near_ones() -> None:
    before, near, far = np.array([0, 0]), np.array([1, 0]), np.array([4, 0])
    moves = [divergence.ordinal_displacement(before, after, levels=5).mean() for after in (near, far)]
    assert moves == [0.125, 0.5]


def test_swapping_within_a_table_shows_in_the_conditional_distance_and_not_in_the_margin() -> None:
    before, after = np.array([[4, 0], [0, 4]]), np.array([[3, 1], [1, 3]])
    given_, ranks = np.indices(before.shape).reshape(2, -1)
    assert divergence.wasserstein_ranks(before.sum(axis=0), after.sum(axis=0)) == 0
    found = divergence.conditional_wasserstein(given_, ranks, before.ravel(), after.ravel(), levels=2)
    assert found == 0.25
