"""Changes of cells: those of counting all records before and after."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import cells
from safeswap.arrays.integer_codes import IntegerCodes
from safeswap.on_disk import counted_cells as cell_changes_module
from safeswap.on_disk.counted_cells import cell_changes


@pytest.mark.parametrize(
    ("records", "possible"), [(1, 1), (500, 40), (500, 10**6), (70_000, 3 * 10**5), (70_000, 10**15)]
)
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_changes_are_those_of_counting_everything_twice(records: int, possible: int, share: float) -> None:
    draw = np.random.default_rng(records + possible % 1000)
    before = (draw.integers(0, possible, records) // draw.integers(1, 9, records)).astype(np.uint64)
    rows = np.flatnonzero(draw.random(records) < share)
    now = before[rows].copy()
    some = draw.random(len(rows)) < 0.6
    now[some] = draw.integers(0, possible, int(some.sum()))
    after = before.copy()
    after[rows] = now
    found = cell_changes(before, possible, rows, now, 5)

    by_hand = cells.count_cells_jointly if cells.is_dense(possible, records) else cells.count_changed_cells
    expected = by_hand([before], [after], [possible])
    for name in ("codes", "before", "after"):
        assert getattr(found.joint, name).tolist() == getattr(expected, name).tolist()
    size = cells.record_cell_counts([after], [possible])
    took_no_part = np.ones(records, dtype=np.bool_)
    took_no_part[rows] = False
    for small in range(1, 5):
        assert found.cells[small] * small == np.count_nonzero(size == small)
        assert found.untouched[small] == np.count_nonzero((size == small) & took_no_part)


@pytest.mark.parametrize("possible", [10**6, 10**9 + 7, 10**15])
def test_a_file_in_the_order_of_its_cells_is_counted_alike(possible: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(possible % 1000)
    areas = np.sort(draw.integers(0, possible // 1000, 70_000))
    before = (areas * 1000 + draw.integers(0, 4, 70_000) * 333).astype(np.uint64)
    rows = np.flatnonzero(draw.random(70_000) < 0.1)
    now = np.where(draw.random(len(rows)) < 0.5, before[rows], before[draw.permutation(rows)])
    assert cell_changes_module._find_order(before, possible, 1000) is not None
    in_order = cell_changes(before, possible, rows, now, 4, inner=1000)
    monkeypatch.setattr(cell_changes_module, "_find_order", lambda _codes, _possible, _inner: None)
    spread = cell_changes(before, possible, rows, now, 4)
    for name in ("codes", "before", "after"):
        assert getattr(in_order.joint, name).tolist() == getattr(spread.joint, name).tolist()
    assert in_order.cells.tolist() == spread.cells.tolist()
    assert in_order.untouched.tolist() == spread.untouched.tolist()


def test_records_of_one_leading_value_are_spread() -> None:
    """In order they are, and would still be a single partition."""
    codes = np.sort(np.random.default_rng(1).integers(0, 1000, 300_000).astype(np.uint64))
    assert cell_changes_module._find_order(codes, 10**15, 1) is None
    assert cell_changes(codes, 10**15, np.array([0]), codes[:1], 3).joint.before.tolist() == [300_000]


def test_the_table_of_a_partition_grows() -> None:
    codes = np.arange(60_000, dtype=np.uint64) * np.uint64(10**9)
    found = cell_changes(codes, 10**15, np.array([3]), np.array([7], np.uint64), 3)
    assert found.joint.before.tolist() == [0, 1, 59_999]
    assert (found.cells[1], found.untouched[1]) == (60_000, 59_999)


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=30), max_size=5))
def test_integers_are_numbered_in_order_of_appearance(batches: list[list[int]]) -> None:
    numbers = IntegerCodes()
    codes = [numbers.code(np.array(batch, np.int64)).tolist() for batch in batches]
    levels = list(dict.fromkeys(value for batch in batches for value in batch))
    assert numbers.levels.tolist() == levels
    assert codes == [[levels.index(value) for value in batch] for batch in batches]


def test_many_integers_outgrow_the_first_table() -> None:
    values = np.random.default_rng(1).permutation(np.repeat(np.arange(50_000) * 7919, 2)).astype(np.int32)
    numbers = IntegerCodes()
    codes = numbers.code(values)
    assert (numbers.levels[codes] == values).all()
    assert len(numbers.levels) == 50_000


@pytest.mark.parametrize("turn", [0, 1, 9_000, 20_000])
def test_integers_that_ascend_up_to_some_point_are_numbered_alike(turn: int) -> None:
    values = np.sort(np.random.default_rng(turn).integers(-(10**6), 10**6, 20_000))
    values[turn:] = values[turn:][::-1]
    numbers = IntegerCodes()
    codes = np.concatenate([numbers.code(part) for part in np.array_split(values, 7)])
    assert numbers.levels.tolist() == list(dict.fromkeys(values.tolist()))
    assert (numbers.levels[codes] == values).all()
