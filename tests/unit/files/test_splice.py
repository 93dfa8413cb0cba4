"""Columns copied between Parquet files as they stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.files.parquet_bytes import BINARY, I64, LIST, STRUCT, footer_bytes, parse, serialise
from safeswap.files.rewrite import CannotSplice, same_chunks, splice

ROWS = 5_000


def table() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "id": rng.permutation(ROWS),
            'say "no"; it\'s': pa.array(rng.choice(["a", "b", None], ROWS)),
            "small": rng.integers(0, 5, ROWS).astype(np.int8),
            "real": rng.normal(size=ROWS),
        }
    )


def write_with_pyarrow(data: pa.Table, path: Path) -> None:
    pq.write_table(data, path, row_group_size=1_300, write_page_index=True, compression="zstd")


def write_with_polars(data: pa.Table, path: Path) -> None:
    pl.DataFrame(pl.from_arrow(data)).write_parquet(path, row_group_size=1_300)


def write_with_duckdb(data: pa.Table, path: Path) -> None:
    import duckdb

    duckdb.sql("select * from data").write_parquet(str(path), row_group_size=2_048)


WRITERS = (write_with_pyarrow, write_with_polars, write_with_duckdb)


def reversed_small(source: Path, path: Path) -> None:
    with pq.ParquetFile(source) as file:
        fields = pa.schema([file.schema_arrow.field("small")])
        with pq.ParquetWriter(path, fields) as writer:
            for group in range(file.num_row_groups):
                part = file.read_row_group(group, columns=["small"])
                column = pa.table({"small": part["small"].combine_chunks().to_numpy()[::-1].copy()}, schema=fields)
                writer.write_table(column, row_group_size=part.num_rows)


@pytest.mark.parametrize("write", WRITERS)
def test_files_of_every_writer_are_read_alike_by_every_reader(write, tmp_path: Path) -> None:
    source, fresh, target = (tmp_path / name for name in ("a.parquet", "b.parquet", "c.parquet"))
    write(table(), source)
    reversed_small(source, fresh)
    splice(source, fresh, target, {"small"})
    before, after = pq.read_table(source), pq.read_table(target)
    assert [name for name in before.column_names if not before[name].equals(after[name])] == ["small"]
    assert after["small"].equals(pq.read_table(fresh)["small"])
    assert pl.read_parquet(target).to_arrow()["small"].to_pylist() == after["small"].to_pylist()
    import duckdb

    assert duckdb.sql(f"select sum(small), sum(id) from '{target}'").fetchall() == [
        (sum(after["small"].to_pylist()), sum(after["id"].to_pylist()))
    ]


@pytest.mark.parametrize("write", WRITERS)
def test_untouched_columns_keep_their_bytes_and_a_changed_byte_is_seen(write, tmp_path: Path) -> None:
    source, fresh, target = (tmp_path / name for name in ("a.parquet", "b.parquet", "c.parquet"))
    write(table(), source)
    reversed_small(source, fresh)
    splice(source, fresh, target, {"small"})
    others = [name for name in table().column_names if name != "small"]
    assert same_chunks(source, target, others)
    assert not same_chunks(source, target, ["small"])
    content = bytearray(target.read_bytes())
    content[200] ^= 1
    target.write_bytes(content)
    assert not same_chunks(source, target, others)


@pytest.mark.parametrize("write", WRITERS)
def test_a_footer_survives_being_read_and_written(write, tmp_path: Path) -> None:
    write(table(), tmp_path / "a.parquet")
    footer = footer_bytes(tmp_path / "a.parquet")
    assert parse(serialise(parse(footer))) == parse(footer)


def test_columns_of_another_type_or_other_row_groups_are_refused(tmp_path: Path) -> None:
    source, fresh, target = (tmp_path / name for name in ("a.parquet", "b.parquet", "c.parquet"))
    write_with_pyarrow(table(), source)
    pq.write_table(pa.table({"small": pa.array([1] * ROWS, pa.int16())}), fresh, row_group_size=1_300)
    with pytest.raises(CannotSplice, match="declared"):
        splice(source, fresh, target, {"small"})
    pq.write_table(pa.table({"small": pa.array([1] * ROWS, pa.int8())}), fresh, row_group_size=1_000)
    with pytest.raises(CannotSplice, match="row groups"):
        splice(source, fresh, target, {"small"})


@given(st.binary(max_size=200))
def test_bytes_that_are_no_structure_are_refused_or_read_but_never_crash(data: bytes) -> None:
    try:
        tree = parse(data)
    except ValueError:
        return
    assert parse(serialise(tree)) == tree


def test_long_lists_large_numbers_and_far_fields_survive() -> None:
    tree = {
        1: (I64, -(2**63)),
        40: (LIST, (BINARY, [b"x" * n for n in range(40)])),
        41: (STRUCT, {1: (I64, 2**63 - 1), 2: (1, None), 3: (2, None)}),
    }
    assert parse(serialise(tree)) == tree


def test_a_structure_that_is_too_deep_is_refused() -> None:
    with pytest.raises(ValueError, match="deep"):
        parse(b"\x1c" * 1_000)
