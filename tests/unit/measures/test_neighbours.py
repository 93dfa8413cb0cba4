"""Counts and nearest neighbours are what a comparison with every single point gives, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import compiled
from safeswap.arrays.kd_tree import LEAF, build
from safeswap.measures.plot.neighbours import count_within, find_nearest


def squares(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    total = np.zeros((len(y), len(x)))
    for j in range(y.shape[1]):
        total += (y[:, None, j] - x[None, :, j]) ** 2
    return total


@st.composite
def points(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clouds, lattices full of ties, and heaps of equal points."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sides = draw(st.integers(1, 4))
    shape = draw(st.sampled_from(["cloud", "lattice", "heap"]))
    x, y = (
        {
            "cloud": lambda n: rng.lognormal(size=(n, sides)),
            "lattice": lambda n: rng.integers(0, 5, (n, sides)).astype(float),
            "heap": lambda n: np.repeat(rng.normal(size=(1, sides)), n, axis=0),
        }[shape](draw(st.integers(1, 5 * LEAF)))
        for _ in range(2)
    )
    return x, y, rng.choice([0.0, 0.5, 1.0, 2.0, np.inf], len(y))


@given(points())
def test_counts_are_those_of_comparing_every_pair(tried):
    x, y, radii = tried
    expected = (squares(y, x) < (radii**2)[:, None]).sum(axis=1)
    assert count_within(build(x), y, radii).tolist() == expected.tolist()


@given(points())
def test_the_nearest_is_that_of_comparing_every_pair_ties_counted(tried):
    x, y, _ = tried
    distances = squares(y, x)
    rows, least, ties = find_nearest(build(x), y)
    assert rows.tolist() == distances.argmin(axis=1).tolist()
    assert least.tolist() == distances.min(axis=1).tolist()
    assert ties.tolist() == (distances == distances.min(axis=1)[:, None]).sum(axis=1).tolist()


def test_a_radius_per_record_is_that_record_s_own():
    rng = np.random.default_rng(5)
    x = rng.lognormal(size=(3000, 2))
    y = x * rng.lognormal(sigma=0.1, size=x.shape)
    radii = 0.3 * np.linalg.norm(y, axis=1)
    expected = (squares(y, x) < (radii**2)[:, None]).sum(axis=1)
    assert expected.max() > 4 * LEAF
    assert (count_within(build(x), y, radii) == expected).all()


@pytest.mark.parametrize("number", [1, 2, 8])
def test_the_number_of_threads_plays_no_part(number, monkeypatch):
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(500, 3)), rng.normal(size=(700, 3))
    tree, radii = build(x), rng.random(700)
    expected = count_within(tree, y, radii), *find_nearest(tree, y)
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 10)
    monkeypatch.setattr(compiled, "_most_threads", lambda: number)
    found = count_within(tree, y, radii), *find_nearest(tree, y)
    assert all((one == other).all() for one, other in zip(found, expected, strict=True))


def test_no_points_and_no_queries_are_no_trouble():
    nothing, some = np.empty((0, 2)), np.ones((3, 2))
    assert count_within(build(nothing), some, np.ones(3)).tolist() == [0, 0, 0]
    assert find_nearest(build(nothing), some)[0].tolist() == [-1, -1, -1]
    assert count_within(build(some), nothing, np.empty(0)).tolist() == []
    assert find_nearest(build(some), nothing)[0].tolist() == []


def test_every_point_is_in_the_tree_once_and_within_its_boxes():
    points = np.random.default_rng(7).normal(size=(1000, 3))
    tree = build(points)
    assert sorted(tree.rows.tolist()) == list(range(1000))
    assert (tree.points == points[tree.rows]).all()
    leaves = range(len(tree.starts) // 2, len(tree.starts))
    assert sum(int(tree.ends[leaf] - tree.starts[leaf]) for leaf in leaves) == 1000
    for node in range(len(tree.starts)):
        run = tree.points[tree.starts[node] : tree.ends[node]]
        assert (run.min(axis=0) == tree.low[node]).all()
        assert (run.max(axis=0) == tree.high[node]).all()
