"""Scores from touched records against the same measures of the whole masked table."""

from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeswap.arrays import cells, divergence, order, two_way
from safeswap.arrays import two_way as touched
from safeswap.studies import candidates

DENSE = (3, 2, 4)
SPARSE = (300, 40, 7, 2)  # 168,000 possible cells: more than have a place each


def labels_of(records: int, sizes: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = np.uint8 if max(sizes) <= 256 else np.uint16
    return np.stack([np.minimum(rng.geometric(2 / size, records) - 1, size - 1) for size in sizes], axis=1).astype(kind)


def columns(labels: np.ndarray) -> list[np.ndarray]:
    return [np.ascontiguousarray(labels[:, a]) for a in range(labels.shape[1])]


def swap_by_hand(labels: np.ndarray, pairs: np.ndarray, swapped: tuple[int, ...]) -> np.ndarray:
    after = labels.copy()
    for a, b in pairs:
        for s in swapped:
            after[a, s], after[b, s] = labels[b, s], labels[a, s]
    return after


def table(labels: np.ndarray, attributes: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
    chosen = tuple(sizes[a] for a in attributes)
    code = np.ravel_multi_index(tuple(labels[:, a].astype(np.int64) for a in attributes), chosen)
    return np.bincount(code, minlength=prod(chosen))


def scored(labels: np.ndarray, sizes: tuple[int, ...], swapped: tuple[int, ...], numbers: list[int], n=(3,)):
    base = candidates.count_baseline(columns(labels), sizes, n)
    chosen = np.array(swapped, dtype=np.int64)
    order, numbered = touched.gather(labels, np.arange(len(labels)), base.strides)
    pairs = touched.first_pairs(
        order, np.zeros(0, np.uint32), 1, chosen, False, np.zeros(0, np.int64), numbers[-1], True
    )
    numbers = [number for number in numbers if number <= len(pairs)]
    old, new = touched.moves(order, numbered, pairs, chosen, base.strides)
    done = candidates.Touched(order, pairs, chosen, old, new)
    tables = base.tables.that_change(chosen)
    return base, pairs, *candidates.score(base, done, np.array(numbers), tables)


@given(
    records=st.integers(2, 120),
    seed=st.integers(0, 10_000),
    every=st.booleans(),
    differ=st.booleans(),
    stratified=st.booleans(),
    by_stratum=st.booleans(),
    wanted=st.integers(0, 70),
)
def test_pairs_are_those_of_the_reference_walk(*, records, seed, every, differ, stratified, by_stratum, wanted):
    labels = labels_of(records, (3, 2, 4, 2), seed)
    strata = labels[:, 3].astype(np.uint32) if stratified else np.zeros(0, np.uint32)
    swapped = (0, 2)
    coordinates = [labels[:, s] for s in swapped] if every else [cells.pack([labels[:, 0], labels[:, 2]], [3, 4])[0]]
    coordinates += [labels[:, 1]] if differ else []
    expected, _, _ = order.walk(strata, 2, np.stack(coordinates, axis=1).astype(np.uint32), wanted, by_stratum)
    differing = np.array([1] if differ else [], dtype=np.int64)
    found = touched.first_pairs(labels, strata, 2, np.array(swapped), every, differing, wanted, by_stratum)
    assert found.tolist() == expected.tolist()


@settings(max_examples=40)
@given(
    sizes=st.sampled_from([DENSE, SPARSE]),
    records=st.integers(40, 400),
    seed=st.integers(0, 10_000),
    several=st.booleans(),
)
def test_scores_of_cells_are_those_of_the_masked_table(sizes, records, seed, several):
    labels = labels_of(records, sizes, seed)
    swapped = (0, 2) if several else (1,)
    numbers = [0, records // 20, records // 8]
    _, pairs, scores, _ = scored(labels, sizes, swapped, numbers, n=(2, 5))
    every = tuple(range(len(sizes)))
    before = table(labels, every, sizes)
    for row, k in zip(scores, numbers, strict=False):  # fewer rows where there were too few pairs
        after_labels = swap_by_hand(labels, pairs[:k], swapped)
        after = table(after_labels, every, sizes)
        assert row[0] == pytest.approx(divergence.hellinger(before, after), abs=1e-12)
        assert row[1] == pytest.approx(divergence.total_variation(before, after), abs=1e-12)
        assert row[2] == pytest.approx(divergence.entropy_change(before, after), abs=1e-12)
        assert row[3] == (after_labels != labels).any(axis=1).sum() / records
        untouched = np.ones(records, dtype=bool)
        untouched[pairs[:k].ravel()] = False
        sizes_after = after[np.ravel_multi_index(tuple(after_labels.T.astype(np.int64)), sizes)]
        for column, n in ((4, 2), (5, 5)):
            assert row[column] == (sizes_after[untouched] < n).sum() / untouched.sum()


@settings(max_examples=30)
@given(sizes=st.sampled_from([DENSE, SPARSE]), seed=st.integers(0, 10_000), several=st.booleans())
def test_two_way_tables_are_those_of_the_masked_file(sizes, seed, several):
    labels = labels_of(300, sizes, seed)
    swapped = (0, 2) if several else (1,)
    base, pairs, _, tables = scored(labels, sizes, swapped, [30])
    if len(pairs) < 30:
        return
    after_labels = swap_by_hand(labels, pairs, swapped)
    assert base.tables.attributes.tolist() == [list(pair) for pair in combinations(range(len(sizes)), 2)]
    for t, (a, b) in enumerate(combinations(range(len(sizes)), 2)):
        before, after = table(labels, (a, b), sizes), table(after_labels, (a, b), sizes)
        rows, cols = np.divmod(np.arange(len(before)), sizes[b])
        expected = [
            divergence.hellinger(before, after),
            divergence.total_variation(before, after),
            divergence.entropy_change(before, after),
            divergence.cramers_v(rows, cols, before) - divergence.cramers_v(rows, cols, after),
            divergence.contingency_c(rows, cols, before) - divergence.contingency_c(rows, cols, after),
        ]
        assert tables[0, t] == pytest.approx(expected, abs=1e-10)


def test_a_table_that_becomes_independent_loses_all_its_association():
    # (A, B) perfectly associated; exchanging B in half of the pairs makes every cell equal.
    labels = np.array([[0, 0], [1, 1]] * 4, dtype=np.uint8)
    _, _, _, tables = scored(labels, (2, 2), (1,), [2])
    assert tables[0, 0, 3:].tolist() == [1.0, np.sqrt(0.5)]


def test_cells_that_share_a_slot_of_the_hash_table_are_told_apart():
    codes = np.arange(0, 1 << 22, 1 << 6, dtype=np.int64)
    slots, counts = candidates.make_hash_table(codes, codes + 1)
    old, new, before, _ = candidates.localise(codes[::-1].copy(), codes.copy(), slots, counts)
    assert before[old].tolist() == (codes[::-1] + 1).tolist()
    assert before[new].tolist() == (codes + 1).tolist()


def test_a_cell_that_was_empty_has_count_zero_before():
    slots, counts = candidates.make_hash_table(np.array([5, 9]), np.array([2, 3]))
    _, new, before, seen = candidates.localise(np.array([5]), np.array([7]), slots, counts)
    assert before[new].tolist() == [0]
    assert seen.tolist() == [0, -1]


def test_too_large_tables_are_not_kept_and_nothing_else_suffers():
    sizes = (2000, 1000, 2)
    labels = np.random.default_rng(1).integers(0, sizes, size=(500, 3)).astype(np.uint16)
    base, _, scores, tables = scored(labels, sizes, (2,), [20])
    assert sizes[0] * sizes[1] > two_way.MOST_PLACES
    assert len(base.tables) == 0
    assert tables.shape == (1, 0, 5)
    assert scores[0, 1] > 0


def test_more_pairs_than_there_are_are_refused():
    labels = labels_of(50, DENSE, 3)
    base = candidates.count_baseline(columns(labels), DENSE)
    none = candidates.Touched(
        labels, np.zeros((0, 2), np.int64), np.array([0]), np.zeros(0, np.int64), np.zeros(0, np.int64)
    )
    with pytest.raises(ValueError, match="more pairs requested than there are"):
        candidates.score(base, none, np.array([1]), np.array([0]))


def test_without_any_pair_the_figures_are_those_of_the_file():
    labels = labels_of(200, DENSE, 3)
    _, _, scores, tables = scored(labels, DENSE, (0,), [0])
    counts = table(labels, (0, 1, 2), DENSE)
    assert scores[0].tolist() == [0, 0, 0, 0, counts[counts < 3].sum() / 200]
    assert not tables.any()
