"""Pairs near in rank: disjoint, within the window, of different values, and drawn evenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hand_made import GivenWords

from safeswap.methods.numeric import rank_swap
from safeswap.methods.numeric.rank_swap import order_records


def pairs_within(values: np.ndarray, draws: np.ndarray, window: int) -> np.ndarray:
    """Pairs of positions: the rows are those of the values, in their order."""
    keys = np.unique(values, return_inverse=True)[1].astype(np.uint64)
    halves = (draws >> np.uint64(32)).astype(np.uint32)
    return rank_swap.pairs_within(keys, np.arange(len(values), dtype=np.uint32), halves, window)


def by_hand(values: list[float], draws: list[int], window: int) -> list[list[int]]:
    """The rule on a list, one place after the other."""
    free = set(range(len(values)))
    pairs = []
    for i in range(len(values)):
        above = [j for j in range(i + 1, min(len(values), i + window + 1)) if j in free and values[j] != values[i]]
        if i in free and above:
            partner = above[((draws[i] >> 32) * len(above)) >> 32]
            free -= {i, partner}
            pairs.append([i, partner])
    return pairs


@given(
    st.lists(st.integers(0, 12), max_size=60).map(sorted),
    st.integers(0, 70),
    st.integers(0, 2**32 - 1),
)
def test_pairs_are_those_of_the_rule_on_a_list(values, window, seed):
    draws = np.random.default_rng(seed).integers(0, 2**64, len(values), dtype=np.uint64)
    found = pairs_within(np.array(values, dtype=float), draws, window).tolist()
    assert found == by_hand(values, [int(d) for d in draws], window)


VALUES = {
    "whole": [-1.0, 0.0, 3.0],
    "one_decimal": [-1.0, 0.0, 2.5, 1e9],
    "bits": [-1 / 3, 0.0, -0.0, 2 / 3, 1e300, -1e300, 5e-324],
    "large": [2.0**53, 2.0**53 + 2, -(2.0**60)],
}


@given(
    st.sampled_from(sorted(VALUES)).flatmap(lambda name: st.lists(st.sampled_from(VALUES[name]), max_size=150)),
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 2**64]),
)
def test_equal_values_stand_in_the_order_of_their_draws(values, seed, most):
    words = np.random.default_rng(seed).integers(0, most, (len(values), 2), dtype=np.uint64)
    words[:, 1] = np.random.default_rng(seed).permutation(len(values))
    order = order_records([np.array(values)], GivenWords(words)).tolist()
    assert order == sorted(range(len(values)), key=lambda i: (values[i], int(words[i, 0]), int(words[i, 1])))


@given(
    st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=4),
    st.integers(1, 150),
    st.integers(0, 2**32 - 1),
)
def test_several_columns_are_sorted_one_after_the_other(kinds, number, seed):
    rng = np.random.default_rng(seed)
    columns = [rng.choice(VALUES[kind], number) for kind in kinds]
    words = rng.integers(0, 2, (number, 2), dtype=np.uint64)
    rows = [(*(float(column[i]) for column in columns), *map(int, words[i])) for i in range(number)]
    assert order_records(columns, GivenWords(words)).tolist() == sorted(range(number), key=rows.__getitem__)


@pytest.mark.parametrize("most", [2, 3, 64, 4096])
@pytest.mark.parametrize("span", [0, 40, 62])
def test_ties_are_sorted_part_by_part_also_where_one_is_longer_than_a_part(monkeypatch, most, span):
    monkeypatch.setattr(rank_swap, "_MOST_TIED", most)
    rng = np.random.default_rng(most + span)
    keys = rng.integers(0, 5, 3_000, dtype=np.uint64) ** np.uint64(4) << np.uint64(max(0, span - 10))
    keys += rng.integers(0, 2, 3_000, dtype=np.uint64)
    words = rng.integers(0, 2**64, (3_000, 2), dtype=np.uint64)
    words[:1_500, 0] >>= np.uint64(60)  # equal draws: the second words decide
    order = np.empty(len(keys), dtype=np.int64)
    ordered = rank_swap._sort_keys(keys.copy(), GivenWords(words), order)
    expected = np.lexsort((words[:, 1], words[:, 0], keys))
    assert order.tolist() == expected.tolist()
    assert ordered.tolist() == keys[expected].tolist()


@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.booleans(), st.integers(0, 2**32 - 1))
def test_keys_are_equal_where_values_are(values, are_rounded, seed):
    numbers = np.array([*values, *values[::2]]).round(1) if are_rounded else np.array([*values, *values[::2]])
    words = np.random.default_rng(seed).integers(0, 2**64, (len(numbers), 2), dtype=np.uint64)
    order, keys, _ = rank_swap.rank_values(numbers.copy(), GivenWords(words))
    assert ((keys[1:] == keys[:-1]) == (numbers[order][1:] == numbers[order][:-1])).all()


def test_every_place_of_the_window_is_drawn_as_often():
    rng = np.random.default_rng(8)
    values = np.arange(12.0)
    partners = [pairs_within(values, rng.integers(0, 2**64, 12, dtype=np.uint64), 5)[0, 1] for _ in range(5000)]
    counts = np.bincount(partners, minlength=12)
    assert counts[:1].sum() == counts[6:].sum() == 0
    assert abs(counts[1:6] - 1000).max() < 5 * np.sqrt(800)


def test_nearly_everybody_finds_a_partner():
    rng = np.random.default_rng(9)
    pairs = pairs_within(np.sort(rng.lognormal(size=10_000)), rng.integers(0, 2**64, 10_000, dtype=np.uint64), 500)
    assert len(pairs) > 4_990
    assert len(np.unique(pairs)) == pairs.size
    assert (pairs[:, 1] - pairs[:, 0]).max() <= 500
