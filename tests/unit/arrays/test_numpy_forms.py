"""Small files are masked without compiling: the NumPy form of a function gives what its compiled form gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import (
    cells,
    combinations,
    keyed,
    matching,
    order,
    sparse,
)
from safeswap.arrays.compiled import SMALL, SMALL_FOR_NUMBA, Budget, Kernel, is_worth_compiling

seeds = st.integers(0, 2**32 - 1)


def as_values(found: Any) -> Any:
    """Return plain values with their types, to compare results of any shape."""
    if isinstance(found, np.ndarray):
        return str(found.dtype), found.shape, found.tolist()
    if hasattr(found, "__dataclass_fields__"):
        return [as_values(getattr(found, name)) for name in found.__dataclass_fields__]
    return [as_values(each) for each in found] if isinstance(found, tuple | list) else found


def assert_alike(work: Callable[[], Any]) -> None:
    with patch.object(Budget, "left", -1):
        compiled = as_values(work())
    with patch.object(Budget, "left", 1 << 30):
        assert as_values(work()) == compiled


@given(seeds, st.integers(0, 300), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_cells_are_packed_and_counted_alike(seed: int, records: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    before, after = ([rng.integers(0, size, records, dtype=np.uint8) for size in sizes] for _ in range(2))
    ranks = [rng.permutation(size).astype(np.uint8) for size in sizes]
    assert_alike(lambda: cells.pack(before, sizes))
    assert_alike(lambda: cells.pack(before, sizes, ranks))
    assert_alike(lambda: cells.count_cells(before, sizes))
    assert_alike(lambda: cells.record_cell_counts(before, sizes))
    assert_alike(lambda: cells.count_cells_jointly(before, after, sizes))
    assert_alike(lambda: cells.count_changed_cells(before, after, sizes))
    masses, counted = rng.random(len(before[0])), cells.count_changed_cells(before, after, sizes)
    assert_alike(lambda: cells.sum_changed_cells(before, after, sizes, masses, counted))


def test_a_code_outside_its_cardinality_is_refused_by_both() -> None:
    columns = [np.array([0, 3], np.uint8), np.array([0, 1], np.uint8)]
    for left in (-1, 1 << 30):
        with patch.object(Budget, "left", left):
            with pytest.raises(ValueError, match="not below its cardinality"):
                cells.pack(columns, [3, 2])
            with pytest.raises(ValueError, match="not below its cardinality"):
                cells.pack(columns, [4, 2], [np.arange(3, dtype=np.uint8)[::-1], np.arange(2, dtype=np.uint8)])


@given(seeds, st.integers(0, 300), st.sampled_from([3, 2**40]))
def test_codes_are_grouped_alike(seed: int, records: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    codes, others = (rng.integers(0, most, records).astype(np.uint64) for _ in range(2))
    wanted, skipped = np.unique(others)[::-1].copy(), rng.random(records) < 0.3
    assert_alike(lambda: sparse.count_distinct(codes))
    assert_alike(lambda: sparse.count_joint(codes, others))
    assert_alike(lambda: sparse.count_occurrences(codes))
    assert_alike(lambda: sparse.rank_codes(codes))
    assert_alike(lambda: sparse.tally_among(codes, skipped, wanted))


@given(seeds, st.integers(0, 300), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.booleans())
def test_small_cells_are_found_alike(seed: int, records: int, sizes: list[int], is_weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, size, records).astype(np.uint8) for size in sizes]
    weights = rng.choice([0.0, 0.5, 1.1, 3.0], records) if is_weighted else None
    tolerance = rng.choice([1.0, 2.0, 5.5])

    def work() -> Any:
        found = combinations.group_records(columns, sizes, [size - 1 for size in sizes], weights)
        small = [
            combinations.find_small_cells(found, keys, tolerance, skip_blank=is_skipped)
            for keys in ([0], [*range(len(sizes))])
            for is_skipped in (False, True)
        ]
        return found, small, combinations.cell_ranks(found, [0])

    assert_alike(work)


@given(seeds, st.integers(0, 300))
def test_records_are_sorted_alike(seed: int, records: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 50, records).astype(np.uint16)
    rows = rng.permutation(records).astype(np.uint32)
    assert_alike(lambda: order.sort_rows(codes, 50))
    assert_alike(lambda: order.sort_rows(codes, 50, rows))


@given(seeds, st.booleans())
def test_draws_are_sorted_alike_where_some_are_equal(seed: int, has_ties: bool) -> None:
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, 40 if has_ties else 2**63, 200).astype(np.uint64)
    full = np.stack([draws, rng.permutation(200).astype(np.uint64)], axis=1)
    with patch.object(order, "_PART", 10):
        assert_alike(lambda: order.sort_by_draw(np.arange(200), draws, lambda rows: full[rows]))


@given(seeds, st.integers(0, 60), st.integers(0, 4), st.integers(0, 60), st.booleans())
def test_records_are_paired_alike(seed: int, records: int, strata: int, wanted: int, by_stratum: bool) -> None:
    rng = np.random.default_rng(seed)
    of = rng.integers(0, strata, records).astype(np.uint32) if strata else np.zeros(0, np.uint32)
    coordinates = rng.integers(0, rng.integers(1, 5), (records, 2)).astype(np.uint32)
    assert_alike(lambda: order.walk(of, strata, coordinates, wanted, by_stratum))


@given(seeds)
def test_values_are_exchanged_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, pairs = rng.random(30), rng.integers(0, 30, (20, 2))  # records may occur in several pairs

    def exchange() -> Any:
        copy = values.copy()
        order.exchange(copy, pairs)
        return copy

    assert_alike(exchange)


@given(seeds, st.integers(0, 3), st.integers(1, 3), st.booleans())
def test_expected_pairs_are_alike_to_the_last_bit(seed: int, strata: int, columns: int, by_stratum: bool) -> None:
    rng = np.random.default_rng(seed)
    classes = rng.choice([40, 900])  # of few classes every pair is compared
    of = np.sort(rng.integers(0, strata + 1, classes))
    coordinates, counts = rng.integers(0, 5, (classes, columns)), rng.integers(0, 1000, classes)
    assert_alike(lambda: matching.pairs_per_record(of, coordinates, counts, by_stratum=by_stratum))


def test_much_work_is_compiled_at_once_and_little_work_when_it_adds_up() -> None:
    with patch.object(Budget, "left", SMALL), patch.object(Kernel, "is_numba_loaded", new=True):
        assert is_worth_compiling(SMALL_FOR_NUMBA)
        assert not is_worth_compiling(SMALL_FOR_NUMBA - 1)
    with patch.object(Budget, "left", SMALL), patch.object(Kernel, "is_numba_loaded", new=False):
        assert is_worth_compiling(SMALL)
        assert not is_worth_compiling(SMALL - 1)
        assert is_worth_compiling(2)


texts = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.integers(-(2**64), 2**64).map(lambda number: str(number).encode()),
        st.sampled_from([b"0", b"-0", b"007", b"-", b"", b"-9223372036854775808", b"9223372036854775808"]),
    ),
    max_size=12,
)


@given(texts, st.binary(max_size=3))
def test_texts_become_the_same_blocks(chosen: list[bytes], before: bytes) -> None:
    offsets = np.cumsum([len(before), *map(len, chosen)]).astype(np.int64)
    data = np.frombuffer(before + b"".join(chosen) + b"7", dtype=np.uint8)
    assert_alike(lambda: keyed.text_blocks(offsets, data, bytes(range(32))))
