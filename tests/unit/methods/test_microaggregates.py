"""MDAV through a tree gives the groups of MDAV by the book; runs have the least sum of squares there is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.methods.numeric.microaggregation import best_runs, mdav


def by_the_book(points: np.ndarray, k: int) -> list[int]:
    """Domingo-Ferrer & Torra 2005, with a list of what is left."""
    left = list(range(len(points)))
    groups = [-1] * len(points)
    number = 0

    def furthest(from_point: np.ndarray) -> int:
        return left[int(np.argmax(((points[left] - from_point) ** 2).sum(axis=1)))]

    def gather(pivot: int) -> None:
        nonlocal left, number
        distances = ((points[left] - points[pivot]) ** 2).sum(axis=1)
        for i in [left[j] for j in np.argsort(distances, kind="stable")[:k]]:
            groups[i] = number
            left.remove(i)
        number += 1

    while len(left) >= 2 * k:
        three = len(left) >= 3 * k
        pivot = furthest(points[left].mean(axis=0))
        gather(pivot)
        if three:
            gather(furthest(points[pivot]))
    return [number if group < 0 else group for group in groups]


@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_groups_are_those_of_mdav_by_the_book(seed, k):
    rng = np.random.default_rng(seed)
    # Whole numbers: sums are exact, and the centre does not depend on the order of adding.
    points = rng.integers(0, 2 ** int(rng.integers(2, 20)), (int(rng.integers(1, 120)), int(rng.integers(1, 4))))
    groups, number = mdav(points.astype(float), k)
    assert groups.tolist() == (by_the_book(points.astype(float), k) if len(points) >= 2 * k else [0] * len(points))
    assert np.bincount(groups).min() >= min(k, len(points))
    assert np.bincount(groups).max() < 2 * k
    assert number == groups.max() + 1


def within(points: np.ndarray, groups: np.ndarray) -> float:
    return sum(((points[groups == g] - points[groups == g].mean(axis=0)) ** 2).sum() for g in np.unique(groups))


def test_k_of_one_leaves_every_record_alone():
    assert mdav(np.ones((4, 2)), 1)[0].tolist() == [0, 1, 2, 3]
    assert best_runs(np.arange(3.0), 1)[0].tolist() == [0, 1, 2]


def partitions(number: int, k: int):
    if number == 0:
        yield []
    for size in range(k, number + 1):
        for rest in partitions(number - size, k):
            yield [size, *rest]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=11).map(sorted), st.integers(2, 4))
def test_runs_have_the_least_sum_of_squares_of_all(values, k):
    ordered = np.array(values, dtype=float)
    groups, number = best_runs(ordered, k)
    assert groups.max() + 1 == number
    assert all(step in (0, 1) for step in np.diff(groups))
    assert np.bincount(groups).min() >= min(k, len(values))
    if len(values) >= k:
        least = min(
            sum(((ordered[a:b] - ordered[a:b].mean()) ** 2).sum() for a, b in pairwise(np.cumsum([0, *sizes])))
            for sizes in partitions(len(values), k)
        )
        assert within(ordered[:, None], groups) == pytest.approx(least, abs=1e-9)
