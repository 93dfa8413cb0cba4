"""The frontier and the area it dominates, against their definitions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeswap.model.study import find_undominated, hypervolume

# Few distinct values, so that points tie and coincide.
FIGURES = st.one_of(st.integers(0, 5).map(float), st.just(float("nan")))
POINTS = st.lists(st.tuples(FIGURES, FIGURES), max_size=30)


def arrays(points: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(points, dtype=np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


@given(POINTS)
def test_undominated_is_as_defined(points):
    risk, distortion = arrays(points)
    expected = [
        not np.isnan(r + d) and not any(a <= r and b <= d and (a < r or b < d) for a, b in points) for r, d in points
    ]
    assert find_undominated(risk, distortion).tolist() == expected


@given(POINTS)
def test_every_point_is_on_the_frontier_or_dominated_by_it(points):
    risk, distortion = arrays(points)
    best = find_undominated(risk, distortion)
    for r, d in zip(risk, distortion, strict=True):
        if not np.isnan(r + d):
            assert ((risk[best] <= r) & (distortion[best] <= d)).any()


@given(POINTS)
def test_hypervolume_counts_the_dominated_unit_squares(points):
    risk, distortion = arrays(points)
    corners = [(y, x) for y in range(6) for x in range(6)]
    dominated = sum(bool(((risk <= y) & (distortion <= x)).any()) for y, x in corners)
    assert hypervolume(risk, distortion, (6.0, 6.0)) == dominated


@given(POINTS, POINTS)
def test_more_points_never_dominate_less(points, further):
    small, large = arrays(points), arrays(points + further)
    assert hypervolume(*small, (5.5, 5.5)) <= hypervolume(*large, (5.5, 5.5)) + 1e-12


def test_points_beyond_the_reference_add_nothing():
    assert hypervolume(np.array([2.0]), np.array([0.0]), (1.0, 1.0)) == 0.0
