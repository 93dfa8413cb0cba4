"""Cells counted part by part are the cells counted at once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.engines import spilled_cells
from safeswap.engines.spilled_cells import (
    ComparedCells,
    CutCells,
    SpilledCells,
    column_keys,
    flag_changed,
    record_words,
)
from safeswap.errors import OutputError


def words_of(cells: Any) -> Any:
    """Random words, always the same ones for the same number of a cell."""
    return record_words([pa.array(np.asarray(cells, dtype=np.int64))], column_keys(bytes(32), 1))


def by_hand(batches: list[tuple[Any, Any, Any]]) -> list[tuple[int, ...]]:
    before: Counter[int] = Counter()
    after: Counter[int] = Counter()
    stayed: Counter[int] = Counter()
    for old, touched, new in batches:
        before.update(old.tolist())
        stayed.update(old[~touched].tolist())
        after.update([*old[~touched].tolist(), *new.tolist()])
    kinds: Counter[tuple[int, int]] = Counter()
    untouched: Counter[tuple[int, int]] = Counter()
    for cell in before | after:
        kind = before[cell], after[cell]
        kinds[kind] += 1
        untouched[kind] += stayed[cell]
    return sorted((*kind, untouched[kind], number) for kind, number in kinds.items())


def batches_of(seed: int, *, cells: int, number: int = 6) -> list[tuple[Any, Any, Any]]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(number):
        # Cells near zero are those of most records, so that some are large and many are not.
        old = (cells * random.random(random.integers(0, 400)) ** 3).astype(np.int64)
        touched = random.random(len(old)) < 0.2
        made.append((old, touched, random.integers(0, cells, touched.sum())))
    return made


@given(seed=st.integers(0, 1000), cells=st.sampled_from([1, 5, 100, 100_000]), held=st.sampled_from([1, 70, 10**6]))
def test_however_little_is_held_the_counts_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cells: int, held: int
) -> None:
    folder = tmp_path_factory.mktemp("cells")
    batches = batches_of(seed, cells=cells)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(spilled_cells, "_HELD", held)
        changed.setattr(spilled_cells, "_PART", 16)
        changed.setattr(spilled_cells, "_AT_ONCE", 8)
        counted = SpilledCells(folder, records=1000)
        for old, touched, new in batches[: 2 if held == 1 else None]:
            counted.add(words_of(old), touched, words_of(new))
        found = [tuple(kind) for kind in counted.kinds().tolist()]
    assert found == by_hand(batches[: 2 if held == 1 else None])
    assert list(folder.iterdir()) == []


@given(seed=st.integers(0, 1000), step=st.sampled_from([1, 7, 100, 10_000]))
def test_a_file_in_parts_is_counted_as_a_whole(seed: int, step: int) -> None:
    """Cells of a thousand records each lie within a part; the parts are no multiples of the batches."""
    random = np.random.default_rng(seed)
    cuts = np.unique([0, *random.integers(1, 3000, random.integers(0, 9)), 3000])
    part = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    old, new = (part * 10 + random.integers(0, 10, 3000) for _ in range(2))
    touched = random.random(3000) < 0.3
    counted = CutCells(cuts)
    for start in range(0, 3000, step):
        some = slice(start, start + step)
        counted.add(words_of(old[some]), touched[some], words_of(new[some][touched[some]]))
    assert [tuple(kind) for kind in counted.kinds().tolist()] == by_hand([(old, touched, new[touched])])


def test_a_cell_that_holds_nearly_everybody_takes_no_more_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_cells, "_AT_ONCE", 1)
    monkeypatch.setattr(spilled_cells, "_HELD", 1 << 12)
    monkeypatch.setattr(spilled_cells, "_PART", 1 << 6)
    counted = SpilledCells(tmp_path, records=100_000)
    old = np.r_[0, np.ones(100_000, dtype=np.int64)]
    counted.add(words_of(old), np.zeros(len(old), dtype=np.bool_), words_of([]))
    largest = max(len(table._names) for table in counted._parts())
    assert largest < 1000
    assert counted.kinds().tolist() == [[1, 1, 1, 1], [100_000, 100_000, 100_000, 1]]


def test_what_is_spilt_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_cells, "_AT_ONCE", 1)
    monkeypatch.setattr(spilled_cells, "_HELD", 10)
    counted = SpilledCells(tmp_path, records=100)
    counted.add(words_of(range(100)), np.zeros(100, dtype=np.bool_), words_of([]))
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]


def test_no_room_for_spilling_is_said_without_a_trace(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
import numpy as np
from safeswap.engines.spilled_cells import SpilledCells
from safeswap.errors import OutputError
cells = SpilledCells(Path(sys.argv[1]), records=10**8)
words = np.random.default_rng(1).integers(0, 2**64, (1 << 20, 2), np.uint64, endpoint=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    for turn in range(4):
        cells.add(words + np.uint64(turn), np.zeros(len(words), dtype=np.bool_), words[:0])
except OutputError as error:
    print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["disk-full"], done.stderr


def test_a_disk_that_fails_is_not_called_full(tmp_path: Path) -> None:
    cells = SpilledCells(tmp_path / "nowhere", records=4)
    cells._number = 1
    with pytest.raises(OutputError) as caught:
        cells._spill()
    assert caught.value.code == "write-failed"


def test_equal_values_in_two_columns_do_not_cancel_out() -> None:
    numbers = pa.array([1, 2, 1, None], pa.int64())
    others = pa.array([1, 2, 2, None], pa.int64())
    words = record_words([numbers, others], column_keys(bytes(32), 2))
    assert len({tuple(each) for each in words.tolist()}) == 4


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.uint8(), pa.uint64(), pa.string(), pa.float64()], ids=str)
def test_a_value_has_the_same_words_however_it_is_stored(kind: pa.DataType) -> None:
    values = pa.array([3, None, 100, 3, 0], pa.int64()).cast(kind)
    keys = column_keys(bytes(32), 1)
    words = record_words([values], keys).tolist()
    assert words == record_words([values.dictionary_encode()], keys).tolist()
    assert words[0] == words[3]
    assert len({tuple(each) for each in words}) == 4
    whole = values.drop_null()
    assert record_words([whole], keys).tolist() == [words[i] for i in (0, 2, 3, 4)]


def census_of(random: np.random.Generator, records: int, levels: int) -> pa.Table:
    """Columns of every form in which values come, with missing ones; ``area`` is sorted, ``note`` forms no cells."""
    number, word = (random.integers(0, levels, records) for _ in range(2))
    gone = random.random(records) < 0.1
    return pa.table(
        {
            "area": pa.array(np.sort(random.integers(0, levels, records)) * 10**12),
            "size": pa.array(random.integers(-2, 3, records), pa.int8()),
            "number": pa.array(number, pa.int32(), mask=gone),
            "word": pa.array([f"w{i}" for i in word], mask=gone).dictionary_encode(),
            "text": pa.array([str(i) for i in number]),
            "share": pa.array(word / 7),
            "note": pa.array(random.random(records)),
        }
    )


@pytest.mark.parametrize("levels", [1, 3, 10_000])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("width", [1, 6])
def test_compared_cells_are_those_of_counting_everything_twice(
    tmp_path: Path, levels: int, share: float, width: int
) -> None:
    random = np.random.default_rng([levels, width])
    before, other = census_of(random, 3_000, levels), census_of(random, 3_000, levels)
    names, changed = before.column_names[:width], ["size", "word", "number", "area", "note"]
    touched = random.random(3_000) < share
    taken = {name: pc.if_else(pa.array(touched), other[name], before[name]) for name in changed}
    after = pa.table({name: taken.get(name, before[name]) for name in before.column_names})
    rows = [[tuple(row.values()) for row in side.select(names).to_pylist()] for side in (before, after)]
    cells = ComparedCells(tmp_path, names, records=3_000)
    for start in range(0, 3_000, 700):
        mine, theirs, flags = before[start : start + 700], after[start : start + 700], touched[start : start + 700]
        columns = {name: theirs[name].combine_chunks().filter(pa.array(flags)) for name in changed}
        cells.add(mine.combine_chunks().to_batches()[0], flags, columns)
    found = cells.tally(limit=4)

    was, now = (Counter(side) for side in rows)
    kinds = Counter((was[cell], now[cell]) for cell in was | now if was[cell] != now[cell])
    joint = zip(found.joint.before.tolist(), found.joint.after.tolist(), found.joint.alike.tolist(), strict=True)
    rest = sum(count for cell, count in was.items() if now[cell] == count)
    assert sorted(joint) == sorted([*((*kind, number) for kind, number in kinds.items()), (rest, rest, 1)])
    assert found.joint.net_change == (was - now).total()
    for size in range(1, 5):
        assert found.small_cells[size] == sum(count == size for count in now.values())
        assert found.small_untouched[size] == sum(
            now[cell] == size and not flag for cell, flag in zip(rows[1], touched, strict=True)
        )
    assert cells.untouched == np.count_nonzero(~touched)
    assert cells.moved == sum(old != new for old, new in zip(*rows, strict=True))
    assert cells.differ == {name for name in changed if before[name].to_pylist() != after[name].to_pylist()}


def test_records_are_flagged_where_any_column_changed() -> None:
    before = pa.record_batch({"a": [1, None, 3, 4], "b": ["x", "y", None, "z"]})
    after = {"a": pa.array([1, None, None, 4]), "b": pa.array(["x", "y", None, "w"]).dictionary_encode()}
    assert flag_changed(before, after).tolist() == [False, False, True, True]
    assert flag_changed(before, {}).tolist() == [False] * 4
