"""Nothing hidden comes back by subtraction: an attacker who solves for the hidden counts finds more than one answer."""

from __future__ import annotations

import random
from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import linprog

from safeswap.arrays.hiding import hide_cells, hide_levels

TOLERANCES = (2, 3, 5)


def random_table(draw: random.Random) -> np.ndarray:
    shape = draw.choice([(4,), (3, 4), (2, 2), (5, 3), (2, 3, 3)])
    table = np.array([draw.choice([0, 1, 1, 2, 2, 4, 7, 30, 200]) for _ in range(int(np.prod(shape)))])
    return table.reshape(shape).astype(np.int64)


def interval(table: np.ndarray, hidden: np.ndarray, cell: tuple[int, ...]) -> tuple[float, float]:
    """The smallest and the largest count that agrees with all cells that are shown and with every total."""
    places = [tuple(int(i) for i in place) for place in np.argwhere(hidden)]
    rows, sums = [], []
    for number in range(table.ndim):
        for kept in combinations(range(table.ndim), number):
            for total in product(*(range(table.shape[axis]) for axis in kept)):
                mine = [all(place[a] == t for a, t in zip(kept, total, strict=True)) for place in places]
                rows.append([float(each) for each in mine])
                sums.append(float(sum(table[p] for p, each in zip(places, mine, strict=True) if each)))
    goal = np.array([float(place == cell) for place in places])
    low, high = (linprog(sign * goal, A_eq=rows, b_eq=sums, bounds=(0, None)) for sign in (1, -1))
    return low.fun, -high.fun if high.status == 0 else np.inf


def recovered(table: np.ndarray, hidden: np.ndarray, tolerance: int) -> int:
    """Count the small counts that the attacker knows exactly."""
    cells = [tuple(int(i) for i in cell) for cell in np.argwhere((table > 0) & (table < tolerance))]
    found = [interval(table, hidden, cell) for cell in cells]
    return sum(high - low < 1 - 1e-6 for low, high in found)


def one_case(draw: random.Random) -> tuple[int, int, bool]:
    """Small counts recovered if only they are hidden, and if others are hidden with them; whether it was refused."""
    table, tolerance = random_table(draw), draw.choice(TOLERANCES)
    small = (table > 0) & (table < tolerance)
    hidden = hide_cells([table], tolerance, hidden=np.zeros(table.shape, dtype=np.bool_))
    alone = recovered(table, small, tolerance)
    return alone, 0 if hidden is None else recovered(table, hidden, tolerance), hidden is None


def one_list(draw: random.Random) -> tuple[int, int]:
    """Rare levels, and those whose count the attacker can narrow down at all, from names, shown counts and total."""
    tolerance = draw.choice(TOLERANCES)
    counts = np.array([draw.choice([0, 1, 2, 3, 4, 5, 8, 40]) for _ in range(draw.randint(1, 6))])
    rare, hidden = hide_levels(counts, tolerance)
    if not rare.any() or not (counts >= tolerance).any() or (counts[rare] >= tolerance).any():
        return 0, 0  # nothing is named, and nothing can be taken away from the total
    left = int(counts[rare | hidden].sum())
    narrowed = 0
    for value in range(1, tolerance):
        others, least = int(rare.sum()) - 1, tolerance * int(hidden.sum())
        most = np.inf if hidden.any() else others * (tolerance - 1)
        narrowed += not value + others + least <= left <= value + others * (tolerance - 1) + most
    return int(rare.sum()), narrowed


@pytest.mark.parametrize("seed", range(6))
def test_no_small_count_of_a_table_is_known_from_the_others_and_the_totals(seed):
    draw = random.Random(seed)
    cases = [one_case(draw) for _ in range(15)]
    assert sum(alone for alone, _, _ in cases) > 0  # the attack works where only small counts are hidden
    assert sum(after for _, after, _ in cases) == 0
    assert sum(refused for _, _, refused in cases) < len(cases) / 2


def test_in_a_list_any_rare_level_may_have_any_count_below_the_tolerance():
    draw = random.Random(1)
    found = [one_list(draw) for _ in range(2000)]
    assert sum(rare for rare, _ in found) > 500
    assert sum(narrowed for _, narrowed in found) == 0


def test_a_table_without_small_counts_is_shown_whole():
    hidden = hide_cells([np.array([[5, 9], [7, 0]])], 3, hidden=np.zeros((2, 2), dtype=np.bool_))
    assert hidden is not None
    assert not hidden.any()


def test_a_table_in_which_nothing_can_protect_a_small_count_is_refused():
    assert hide_cells([np.array([[1], [9]])], 3, hidden=np.zeros((2, 1), dtype=np.bool_)) is None
