"""Columns that nothing was done to are copied from a Parquet file as they stand, and read once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safeswap.files.formats import Limits, Stored, reading_alike, state_of
from safeswap.files.read import read
from safeswap.files.rewrite import find_copied, same_chunks
from safeswap.files.write import write
from safeswap.model.columns import same_memory
from safeswap.model.microdata import Microdata

ROWS = 60_000


def table(seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    numbers = rng.choice([0.0, -0.0, 1.5, np.nan, 7.25], ROWS)
    return pa.table(
        {
            "id": [f"P{number:06d}" for number in range(ROWS)],
            "sex": pa.array(rng.choice(["f", "m", 'say "x"', None], ROWS)),
            "pay": pa.array(numbers, mask=rng.random(ROWS) < 0.1),
            "age": rng.integers(0, 90, ROWS).astype(np.int16),
            "race": pa.array(rng.choice(["a", "b", "c", None], ROWS)),
            "empty": pa.array([None] * ROWS, pa.string()),
        }
    )


def write_with_pyarrow(data: pa.Table, path: Path) -> None:
    told = data.replace_schema_metadata({"made by": "secret"})
    pq.write_table(told, path, row_group_size=25_000, compression="zstd", write_page_index=True)


def write_with_polars(data: pa.Table, path: Path) -> None:
    pl.DataFrame(pl.from_arrow(data)).write_parquet(path, row_group_size=20_000)


WRITERS = (write_with_pyarrow, write_with_polars)


def with_other_races(data: Microdata) -> Microdata:
    races = data.table["race"].combine_chunks().take(pa.array(np.random.default_rng(2).permutation(len(data))))
    return data.with_columns({"race": pa.chunked_array([races])}, {})


def as_plain(data: pa.Table) -> list[object]:
    return [repr(column.to_pylist()) for column in data.columns]


@pytest.mark.parametrize("maker", WRITERS)
def test_a_written_file_has_the_values_and_the_untouched_bytes(maker, tmp_path: Path) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    maker(table(), source)
    data = read(source, identifier="id")
    other = with_other_races(data)
    write(other, target)
    untouched = [name for name in data.attributes if name != "race"]
    assert same_chunks(source, target, untouched if maker is write_with_pyarrow else ["age"])
    assert not same_chunks(source, target, ["race"])
    assert as_plain(pq.read_table(target)) == as_plain(other.table)
    assert pl.read_parquet(target).equals(pl.DataFrame(pl.from_arrow(other.table)), null_equal=True)
    assert b"secret" not in target.read_bytes()
    again = tmp_path / "c.parquet"
    write(other.table, again)
    ours, plain = pq.ParquetFile(target), pq.ParquetFile(again)
    assert ours.schema_arrow.equals(plain.schema_arrow)
    assert ours.metadata.num_rows == ROWS
    assert ours.metadata.created_by == plain.metadata.created_by


@pytest.mark.parametrize("maker", WRITERS)
def test_only_columns_that_differ_are_decoded(maker, tmp_path: Path) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    maker(table(), source)
    write(with_other_races(read(source, identifier="id")), target)
    alone = read(target, identifier="id")
    with reading_alike():
        before, after = (read(path, identifier="id") for path in (source, target))
    assert after.table.equals(alone.table) or as_plain(after.table) == as_plain(alone.table)
    assert after.table.schema.equals(alone.table.schema)
    shared = [name for name in before.attributes if same_memory(before.table[name], after.table[name])]
    assert "race" not in shared
    assert "age" in shared
    if maker is write_with_pyarrow:
        assert shared == [name for name in before.attributes if name != "race"]


def test_without_any_change_the_whole_file_is_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_with_pyarrow(table(), source)
    data = read(source, identifier="id")
    write(data, target)
    assert same_chunks(source, target, data.attributes)
    assert as_plain(pq.read_table(target)) == as_plain(table())


def test_categories_that_no_record_has_are_not_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    codes = pa.array(np.arange(ROWS) % 2)
    listed = pa.DictionaryArray.from_arrays(codes, pa.array(["f", "m", "unspeakable"]))
    pq.write_table(pa.table({"sex": listed, "age": np.arange(ROWS)}), source)
    write(read(source), target)
    assert b"unspeakable" in source.read_bytes()
    assert b"unspeakable" not in target.read_bytes()
    assert same_chunks(source, target, ["age"])


def test_a_file_that_was_modified_is_not_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_with_pyarrow(table(), source)
    data = read(source, identifier="id")
    write_with_pyarrow(table(seed=5), source)
    write(data, target)
    assert as_plain(pq.read_table(target)) == as_plain(table())


@pytest.mark.parametrize(
    "other",
    [
        {"row_group_size": 26_000},
        {"compression": "snappy"},
        {"use_dictionary": False},
        {"data_page_size": 1_000},
    ],
)
def test_files_stored_otherwise_are_decoded(other: dict[str, object], tmp_path: Path) -> None:
    one, two = tmp_path / "a.parquet", tmp_path / "b.parquet"
    usual = {"row_group_size": 25_000, "compression": "zstd"}
    pq.write_table(table(), one, **usual)
    pq.write_table(table(), two, **{**usual, **other})
    with reading_alike():
        before, after = (read(path, identifier="id") for path in (one, two))
    assert as_plain(before.table) == as_plain(after.table)
    assert not same_memory(before.table["id"], after.table["id"])


def test_the_same_bytes_of_another_type_are_decoded(tmp_path: Path) -> None:
    """Days and numbers, or texts and bytes, are stored alike."""
    one, two = tmp_path / "a.parquet", tmp_path / "b.parquet"
    days = np.arange(ROWS, dtype=np.int32)
    pq.write_table(pa.table({"day": pa.array(days), "n": days}), one)
    pq.write_table(pa.table({"day": pa.array(days).cast(pa.date32()), "n": days}), two)
    known = Stored(one, state_of(one), pq.read_table(one))
    assert list(find_copied(two, [known])) == ["n"]
    assert str(read(two).table.schema.field("day").type) == "date32[day]"


def test_a_changed_byte_is_seen_and_a_damaged_file_refused_as_ever(tmp_path: Path) -> None:
    one, two = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_with_pyarrow(table(), one)
    content = bytearray(one.read_bytes())
    place = pq.ParquetFile(one).metadata.row_group(1).column(3).data_page_offset + 40
    content[place] ^= 1
    two.write_bytes(content)
    known = Stored(one, state_of(one), pq.read_table(one))
    assert "age" not in find_copied(two, [known])
    two.write_bytes(content[: len(content) // 2])
    assert find_copied(two, [known]) == {}


def test_an_earlier_file_that_was_modified_is_not_relied_on(tmp_path: Path) -> None:
    one, two = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for path in (one, two):
        write_with_pyarrow(table(), path)
    known = Stored(one, state_of(one), pq.read_table(one))
    assert set(find_copied(two, [known])) == set(table().column_names)
    os.utime(one, ns=(1, 1))
    assert find_copied(two, [known]) == {}


def test_limits_hold_for_a_file_that_is_copied(tmp_path: Path) -> None:
    from safeswap.errors import InputError

    one, two = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for path in (one, two):
        write_with_pyarrow(table(), path)
    with reading_alike():
        read(one, identifier="id")
        with pytest.raises(InputError, match="limit"):
            read(two, identifier="id", limits=Limits(max_records=10))
