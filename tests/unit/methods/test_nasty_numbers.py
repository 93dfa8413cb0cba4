"""Ranks, rank pairs and univariate groups by brute force: infinities, signed zeros, ties, denormals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hand_made import GivenWords

from safeswap.arrays.order import sort_uniform
from safeswap.methods.numeric.microaggregation import best_runs
from safeswap.methods.numeric.rank_swap import order_records, pairs_within, rank_values

NASTY = (np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1.8e308 / 2, -1e300, 1.0, 1.0 + 2**-52, -7.25, 0.1)
SMALL = (0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1.0, 1.0 + 2**-52, 1.5, -7.25, 0.1)
some_nasty = st.lists(st.sampled_from(NASTY), min_size=1, max_size=40).map(np.array)
seeds = st.integers(0, 2**32 - 1)


def draw_words(seed: int, number: int) -> np.ndarray:
    """Draw two words a record, with ties in the first."""
    words = np.random.default_rng(seed).integers(0, 2**64 - 1, (number, 2), dtype=np.uint64, endpoint=True)
    words[:, 0] %= np.uint64(5)
    return words << np.uint64(40) | words >> np.uint64(24)


@given(some_nasty, seeds)
def test_ranks_are_those_of_a_sort_by_all_keys(values, seed):
    words = draw_words(seed, len(values))
    order, keys, draws = rank_values(values.copy(), GivenWords(words))
    assert draws.tolist() == (words[order, 1] >> np.uint64(32)).tolist()
    assert order.tolist() == np.lexsort((words[:, 1], words[:, 0], values)).tolist()
    assert (np.diff(keys.astype(object)) > 0).tolist() == [bool(a < b) for a, b in pairwise(values[order])]


@given(some_nasty, seeds)
def test_records_are_ordered_by_several_columns(values, seed):
    words = draw_words(seed, len(values))
    other = np.random.default_rng(seed).choice(NASTY, len(values))
    expected = np.lexsort((words[:, 1], words[:, 0], other, values))
    assert order_records([values, other], GivenWords(words)).tolist() == expected.tolist()


def pair_by_hand(values: np.ndarray, order: list[int], words: np.ndarray, window: int) -> list[list[int]]:
    free, pairs = set(range(len(order))), []
    for i in range(len(order)):
        if i not in free:
            continue
        free.discard(i)
        reach = range(i + 1, min(len(order), i + window + 1))
        able = [j for j in reach if j in free and values[order[j]] != values[order[i]]]
        if able:
            j = able[(int(words[order[i], 1]) >> 32) * len(able) >> 32]
            free.discard(j)
            pairs.append([order[i], order[j]])
    return pairs


@given(some_nasty, seeds, st.integers(1, 45))
def test_pairs_are_those_of_a_search_of_the_whole_window(values, seed, window):
    words = draw_words(seed, len(values))
    order, keys, draws = rank_values(values.copy(), GivenWords(words))
    expected = pair_by_hand(values, order.tolist(), words, window)
    assert pairs_within(keys, order, draws, window).tolist() == expected


def cut(number: int, k: int):
    if number == 0:
        yield []
    for size in range(k, number + 1):
        for rest in cut(number - size, k):
            yield [size, *rest]


@given(st.lists(st.sampled_from(SMALL), min_size=2, max_size=10).map(sorted), st.integers(2, 4))
def test_univariate_groups_have_the_least_sum_of_squares(values, k):
    ordered = np.array(values)
    groups, number = best_runs(ordered, k)
    assert np.bincount(groups).min() >= min(k, len(values))
    assert number == groups.max() + 1

    def spread(sizes: list[int]) -> float:
        parts = [ordered[a:b] for a, b in pairwise(np.cumsum([0, *sizes]))]
        return float(sum(((part - part.mean()) ** 2).sum() for part in parts))

    if len(values) >= k:
        least = min(map(spread, cut(len(values), k)))
        assert spread(np.bincount(groups).tolist()) == pytest.approx(least, rel=1e-9, abs=1e-12)


@given(some_nasty)
def test_bits_of_nasty_numbers_are_sorted_though_they_are_not_uniform(values):
    words = values.view(np.uint64)
    rows, met = sort_uniform(np.arange(len(words)), words)
    assert words[rows].tolist() == sorted(words.tolist())
    assert met == (len(set(words.tolist())) < len(words))
