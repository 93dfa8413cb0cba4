"""Quantiles over all pairs without keeping them, and samples that do not depend on the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import compiled
from safeswap.measures.plot import neighbours


def by_hand(y: np.ndarray, x: np.ndarray, scales: np.ndarray, partners: np.ndarray) -> np.ndarray:
    """z of every pair that does not belong together."""
    found = []
    for i in range(len(y)):
        for k in range(len(x)):
            if k != partners[i]:
                square = float(((y[i] - x[k]) ** 2).sum())
                found.append(np.sqrt(square / scales[i]) if square else 0.0)
    return np.array(found)


@given(st.integers(0, 2**32 - 1), st.floats(0.001, 0.999))
def test_the_quantile_is_that_of_all_pairs(seed, share):
    rng = np.random.default_rng(seed)
    x = rng.choice([1.0, 2.0, 2.5, 7.0], (int(rng.integers(2, 30)), 2)) * rng.choice([1.0, rng.lognormal()])
    y = x * rng.lognormal(sigma=0.2, size=x.shape)
    partners = np.where(rng.random(len(y)) < 0.8, np.arange(len(y)), -1)
    scales = (y**2).sum(axis=1)
    found = neighbours.exact_quantile(y, x, scales, partners, share)
    assert found == pytest.approx(np.quantile(by_hand(y, x, scales, partners), share), rel=1e-12)


def test_threads_share_the_pairs_between_them(monkeypatch):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(80, 2))
    tried = y, x, (y**2).sum(axis=1), np.full(80, -1)
    edges = np.linspace(0, 2, 11)
    one = neighbours.exact_quantile(*tried, 0.05), neighbours.density_counts(*tried, edges).tolist()
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 10)
    monkeypatch.setattr(compiled, "_most_threads", lambda: 7)
    assert one == (neighbours.exact_quantile(*tried, 0.05), neighbours.density_counts(*tried, edges).tolist())
    z = by_hand(*tried)
    assert one[1][:-1] == np.histogram(z[z < 2], edges)[0].tolist()
    assert one[1][-1] == np.count_nonzero(z >= 2)


def test_a_zero_vector_is_near_zero_vectors_only():
    y, x = np.zeros((1, 2)), np.array([[0.0, 0.0], [3.0, 4.0]])
    squares = neighbours.matched_squares(np.repeat(y, 2, axis=0), x, np.zeros(2), np.array([0, 1]))
    assert squares.tolist() == [0.0, np.inf]


def test_sampled_pairs_do_not_belong_together_and_follow_the_population():
    rng = np.random.default_rng(4)
    x = rng.lognormal(size=(300, 2))
    y = x * rng.lognormal(sigma=0.1, size=x.shape)
    partners, scales, rows = np.arange(300), (y**2).sum(axis=1), np.arange(300)
    squares = neighbours.sampled_squares(
        y, x, scales, partners, key=bytes(32), pairs=200_000, order=rows, archive_order=rows
    )
    assert 198_800 < len(squares) < 199_800  # one pair in 300 belongs together
    exact = by_hand(y, x, scales, partners)
    for share in (0.05, 0.5):
        error = np.sqrt(share * (1 - share) / len(squares))
        below = (exact < np.quantile(np.sqrt(squares), share)).mean()
        assert abs(below - share) < 5 * error


def test_the_order_of_the_rows_plays_no_part_in_a_sample():
    rng = np.random.default_rng(5)
    x = rng.lognormal(size=(50, 1))
    turned = rng.permutation(50)
    place = np.argsort(turned)
    asked = {"key": bytes(32), "pairs": 1000}
    one = neighbours.sampled_squares(
        x, x, x[:, 0] ** 2, np.arange(50), order=np.arange(50), archive_order=np.arange(50), **asked
    )
    other = neighbours.sampled_squares(
        x[turned], x, x[turned, 0] ** 2, turned, order=place, archive_order=np.arange(50), **asked
    )
    assert one.tolist() == other.tolist()
