"""Cells are counted as a sort would count them, whatever the way chosen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeswap.arrays import cells, compiled, sparse

Columns = list[npt.NDArray[Any]]


@st.composite
def coded_columns(draw: st.DrawFn, *, sides: int = 1) -> tuple[list[Columns], list[int]]:
    """Columns of random width and cardinality, up to products far beyond 64 bits."""
    cardinalities = draw(
        st.lists(st.sampled_from([1, 2, 3, 7, 255, 256, 257, 65_536, 2**31, 2**40]), min_size=1, max_size=7)
    )
    records = draw(st.integers(0, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([2, 5, 2**40]))  # few values that repeat, or many
    files = [
        [rng.integers(0, min(c, spread), records).astype(np.min_scalar_type(c - 1)) for c in cardinalities]
        for _ in range(sides)
    ]
    return files, cardinalities


def rows(columns: Columns) -> list[tuple[int, ...]]:
    return list(zip(*(c.tolist() for c in columns), strict=True))


@given(coded_columns())
def test_packing_tells_cells_apart_and_keeps_their_order(case: tuple[list[Columns], list[int]]) -> None:
    (columns,), cardinalities = case
    codes, number = cells.pack(columns, cardinalities)
    by_code = sorted(set(zip(codes.tolist(), rows(columns), strict=True)))
    assert len({code for code, _ in by_code}) == len({row for _, row in by_code}) == len(by_code)
    assert [row for _, row in by_code] == sorted(row for _, row in by_code)
    assert all(code < number for code, _ in by_code)


@given(coded_columns())
def test_cell_counts_are_those_of_a_sort(case: tuple[list[Columns], list[int]]) -> None:
    (columns,), cardinalities = case
    counted = cells.count_cells(columns, cardinalities)
    expected, expected_counts = np.unique(cells.pack(columns, cardinalities)[0], return_counts=True)
    np.testing.assert_array_equal(counted.codes, expected)
    np.testing.assert_array_equal(counted.counts, expected_counts)


@given(coded_columns())
def test_each_record_gets_the_count_of_its_cell(case: tuple[list[Columns], list[int]]) -> None:
    (columns,), cardinalities = case
    mine = rows(columns)
    assert cells.record_cell_counts(columns, cardinalities).tolist() == [mine.count(row) for row in mine]


@given(coded_columns(sides=2))
def test_joint_counts_align_the_cells_of_both_files(case: tuple[list[Columns], list[int]]) -> None:
    (before, after), cardinalities = case
    joint = cells.count_cells_jointly(before, after, cardinalities)
    pairs = {row: (rows(before).count(row), rows(after).count(row)) for row in {*rows(before), *rows(after)}}
    assert list(zip(joint.before.tolist(), joint.after.tolist(), strict=True)) == [pairs[row] for row in sorted(pairs)]
    assert (np.diff(joint.codes.astype(object)) > 0).all()


@given(coded_columns(sides=2), st.integers(0, 2**32 - 1))
def test_changed_cells_hold_all_that_differs(case: tuple[list[Columns], list[int]], seed: int) -> None:
    (before, other), cardinalities = case
    moved = np.random.default_rng(seed).random(before[0].size) < 0.3
    after = [np.where(moved, new, old) for old, new in zip(before, other, strict=True)]
    whole = cells.count_cells_jointly(before, after, cardinalities)
    part = cells.count_changed_cells(before, after, cardinalities)
    assert part.before.sum() == part.after.sum() == before[0].size
    assert part.before[-1] == part.after[-1]
    gaps = whole.before != whole.after
    changed = part.before != part.after
    np.testing.assert_array_equal(whole.before[gaps], part.before[changed])
    np.testing.assert_array_equal(whole.after[gaps], part.after[changed])
    masses = np.arange(1.0, before[0].size + 1)  # whole numbers: their sums are exact
    sums = cells.sum_changed_cells(before, after, cardinalities, masses, part)
    moving = {row for old, new in zip(rows(before), rows(after), strict=True) if old != new for row in (old, new)}
    for side, found in ((before, sums.before), (after, sums.after)):
        by_row = dict.fromkeys(sorted(moving), 0.0)
        for row, mass in zip(rows(side), masses.tolist(), strict=True):
            if row in by_row:
                by_row[row] += mass
        assert found.tolist() == [*by_row.values(), masses.sum() - sum(by_row.values())]


@given(st.integers(0, 2**32 - 1), st.integers(0, 3000), st.sampled_from([1, 3, 500, 2**63]))
def test_hashing_agrees_with_sorting(seed: int, records: int, values: int) -> None:
    codes = np.random.default_rng(seed).integers(0, values, records, dtype=np.uint64)
    expected, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    found, found_counts = sparse.count_distinct(codes)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found_counts, counts)
    np.testing.assert_array_equal(sparse.count_occurrences(codes), counts[inverse])
    codes_of_both, first, second = sparse.count_joint(codes, codes[: records // 2])
    np.testing.assert_array_equal(codes_of_both, expected)
    np.testing.assert_array_equal(first, counts)
    np.testing.assert_array_equal(second, np.bincount(inverse[: records // 2], minlength=expected.size))
    rank, number = sparse.rank_codes(codes)
    np.testing.assert_array_equal(rank, inverse)
    assert number == expected.size


@pytest.mark.parametrize("cardinality", [40, 2**50], ids=["dense", "sparse"])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch, cardinality: int, count: int) -> None:
    monkeypatch.setattr(compiled, "_most_threads", lambda: count)
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 1 << 10)
    rng = np.random.default_rng(7)
    column = (rng.random(50_000) ** 4 * 40).astype(np.uint64) * (cardinality // 40)
    values, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
    assert len(compiled.split_runs(column.size)) == count
    np.testing.assert_array_equal(cells.record_cell_counts([column], [cardinality + 1]), counts[inverse])
    np.testing.assert_array_equal(cells.count_cells([column], [cardinality + 1]).codes, values)
    np.testing.assert_array_equal(sparse.rank_codes(column)[0], inverse)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_one_cell_that_holds_nearly_all_records_is_counted_like_any_other(seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 2**62, 40_000, dtype=np.uint64)
    codes[:39_000] = codes[0]
    assert sparse.count_occurrences(codes)[0] == 39_000


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.int8])
def test_any_integer_type_is_taken(dtype: type) -> None:
    column = np.array([0, 2, 2, 1], dtype=dtype)
    assert cells.record_cell_counts([column, column[::-1]], [3, 3]).tolist() == [1, 2, 2, 1]
    assert cells.count_cells([column], [3]).counts.tolist() == [1, 1, 2]


def test_a_code_outside_its_cardinality_is_refused() -> None:
    with pytest.raises(ValueError, match="not below its cardinality"):
        cells.record_cell_counts([np.array([0, 3], np.uint8)], [3])
    with pytest.raises(ValueError, match="not below its cardinality"):
        cells.record_cell_counts([np.array([0, -1])], [3])


def test_columns_that_do_not_fit_together_are_refused() -> None:
    column = np.zeros(3, np.uint8)
    for columns, cardinalities in [([], []), ([column], [1, 1]), ([column, column[:2]], [1, 1])]:
        with pytest.raises(ValueError, match="all of one length"):
            cells.pack(columns, cardinalities)


@pytest.mark.parametrize("cardinality", [60, 2**50], ids=["dense", "sparse"])
def test_kernels_may_be_called_from_many_threads_at_once(cardinality: int) -> None:
    files = [np.random.default_rng(seed).integers(0, cardinality, 300_000, dtype=np.uint64) % 50 for seed in range(6)]
    expected = [np.bincount(codes.astype(np.int64))[codes] for codes in files]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda codes: cells.record_cell_counts([codes], [cardinality]), files))
    for mine, plain in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, plain)


@pytest.mark.parametrize("straddling", [None, 17, 139_999])
def test_nested_areas_are_counted_as_any_other_cells(straddling: int | None) -> None:
    rng = np.random.default_rng(1990)
    parent = rng.integers(0, 900, 5_000).astype(np.uint16)
    block = rng.integers(0, 4_990, 140_000).astype(np.uint16)  # some blocks are empty
    columns = [(parent % 30).astype(np.uint8)[block], parent[block], block]
    if straddling is not None:
        columns[1][straddling] = (columns[1][straddling] + 30) % 900
    counted = cells.count_cells(columns, [30, 900, 5_000])
    expected, times = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    np.testing.assert_array_equal(np.stack(np.unravel_index(counted.codes, (30, 900, 5_000)), axis=1), expected)
    np.testing.assert_array_equal(counted.counts, times)


def test_a_nested_area_outside_its_cardinality_is_refused() -> None:
    block = np.repeat(np.arange(1_000, dtype=np.uint16), 200)
    with pytest.raises(ValueError, match="not below"):
        cells.count_cells([block, block, block], [1_000, 1_000, 999])


@pytest.mark.parametrize("records", [3 * 2**20, 3 * 2**20 + 1, 3 * 2**20 + 3])
@pytest.mark.parametrize("number", [2, 1_024, 1_025])
def test_few_cells_are_counted_exactly(records: int, number: int) -> None:
    codes = (np.random.default_rng(records).random(records) ** 9 * number).astype(np.uint16)
    np.testing.assert_array_equal(cells.count_dense(codes, number), np.bincount(codes, minlength=number))


@pytest.mark.parametrize("compiled", [True, False])
def test_no_records_have_no_cells(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    monkeypatch.setattr(cells, "is_worth_compiling", lambda _: compiled)
    none = np.empty(0, np.uint8)
    assert [cells.count_dense(none, number).tolist() for number in (0, 2)] == [[], [0, 0]]
