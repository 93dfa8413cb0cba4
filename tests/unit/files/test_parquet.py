"""Parquet and Arrow: exact, with dictionaries taken over, and nothing kept but values and types."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, parquet

from safeswap.files.parquet import open_parquet
from safeswap.files.read import read
from safeswap.files.write import write, write_parquet
from safeswap.model.microdata import code_column

COLUMNS = {
    "text": st.none() | st.text(max_size=4),
    "float": st.none() | st.floats(),
    "int": st.none() | st.integers(-(2**63), 2**63 - 1),
    "bool": st.none() | st.booleans(),
    "bytes": st.none() | st.binary(max_size=3),
}
TYPES = {"text": pa.string(), "float": pa.float64(), "int": pa.int64(), "bool": pa.bool_(), "bytes": pa.binary()}


def bits(values: list[object]) -> list[object]:
    return [struct.pack("d", v) if isinstance(v, float) else v for v in values]


@given(data=st.data(), rows=st.integers(1, 10))
def test_every_value_survives_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: int
) -> None:
    table = pa.table(
        {
            name: pa.array(data.draw(st.lists(values, min_size=rows, max_size=rows)), TYPES[name])
            for name, values in COLUMNS.items()
        }
    )
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    write_parquet(table, path)
    again = read(path).table
    for name in COLUMNS:
        assert bits(again[name].to_pylist()) == bits(table[name].to_pylist())


def test_categories_are_taken_over_and_identifiers_stay_text(tmp_path: Path) -> None:
    table = pa.table({"id": [f"{i:09d}" for i in range(50_000)], "Sex": ["F", "M"] * 25_000})
    for writer in (parquet.write_table, lambda t, p: parquet.write_table(t, p, row_group_size=7_000)):
        writer(table, tmp_path / "a.parquet")
        found = read(tmp_path / "a.parquet", identifier="id").table
        assert pa.types.is_string(found.schema.field("id").type)
        assert pa.types.is_dictionary(found.schema.field("Sex").type)
        assert found["Sex"].to_pylist() == table["Sex"].to_pylist()
        assert len({tuple(chunk.dictionary.to_pylist()) for chunk in found["Sex"].chunks}) == 1


def test_a_column_called_with_a_dot_is_read(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a.b": ["x"] * 100}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").table["a.b"].to_pylist() == ["x"] * 100


@pytest.mark.parametrize("suffix", ["feather", "arrow", "arrows"])
def test_arrow_files_are_read(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"a": pa.array(["x", None, "y"]).dictionary_encode(), "b": [1, 2, 3]}, metadata={"k": "v"})
    path = tmp_path / f"a.{suffix}"
    if suffix == "feather":
        feather.write_feather(table, path, compression="zstd")
    else:
        make = pa.ipc.new_file if suffix == "arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table)
    found = read(path).table
    assert found.to_pydict() == table.to_pydict()
    assert found.schema.metadata is None


def test_what_is_written_holds_no_unused_category_and_no_metadata(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 0], pa.int8()), ["a", "CANARY", "c"])
    table = pa.table({"x": column}, metadata={"pandas": "CANARY"})
    write_parquet(table, tmp_path / "a.parquet", compression="none")
    assert b"CANARY" not in (tmp_path / "a.parquet").read_bytes()
    assert read(tmp_path / "a.parquet").table["x"].to_pylist() == ["a", "c", None, "a"]


def test_the_suffix_decides_what_is_written(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y"], "b": ["1", "2"]})
    for suffix in ("csv", "tsv", "parquet", "dta", "sav", "zsav"):
        write(table, tmp_path / f"a.{suffix}")
        assert read(tmp_path / f"a.{suffix}").table.to_pydict() == table.to_pydict()


def test_levels_and_codes_do_not_depend_on_how_the_file_is_cut_into_groups(tmp_path: Path) -> None:
    table = pa.table({"x": ["b", "a", "c", "a", "b", "d"] * 50})
    found = []
    for size in (7, 300):
        parquet.write_table(table, tmp_path / f"{size}.parquet", row_group_size=size)
        coded = code_column(read(tmp_path / f"{size}.parquet").table["x"])
        found.append((coded.codes.tolist(), coded.levels.to_pylist()))
    assert found[0] == found[1]


def test_files_with_few_levels_each_may_have_many_together(tmp_path: Path) -> None:
    parts = [[f"{part}-{number % 100}" for number in range(2_000)] for part in range(3)]
    for number, texts in enumerate(parts):
        parquet.write_table(pa.table({"town": texts}), tmp_path / f"part-{number}.parquet")
    found = open_parquet(tmp_path).table(["town"]).column("town")
    assert pa.types.is_dictionary(found.type)
    assert found.to_pylist() == [text for texts in parts for text in texts]


@pytest.mark.parametrize("levels", [127, 128, 129, 300])
def test_text_whose_levels_are_few_in_every_group_and_many_in_all_is_read(tmp_path: Path, levels: int) -> None:
    values = [f"area {i}" for i in range(levels)] * 2
    parquet.write_table(pa.table({"x": values}), tmp_path / "a.parquet", row_group_size=60)
    files = open_parquet(tmp_path / "a.parquet")
    assert files.table(["x"])["x"].to_pylist() == values


@pytest.mark.parametrize("rows", [1, 4, 9, 1000])
def test_batches_over_few_row_groups_at_a_time_are_the_whole_file(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safeswap.files.parquet.BATCH", 5)
    table = pa.table({"number": range(40), "text": [f"t{i % 7}" for i in range(40)]})
    sizes = [3, 0, 1, 12, 0, 2, 2, 2, 18, 0]
    with parquet.ParquetWriter(tmp_path / "x.parquet", table.schema) as writer:
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            writer.write_table(table.slice(end - size, size))
    batches = list(open_parquet(tmp_path / "x.parquet").batches(["text", "number"], rows=rows))
    found = pa.Table.from_batches([batch for _, batch in batches])
    assert found.column("number").to_pylist() == list(range(40))
    assert found.column("text").to_pylist() == table.column("text").to_pylist()
    assert [start for start, _ in batches] == np.cumsum([0, *(batch.num_rows for _, batch in batches)])[:-1].tolist()
    assert max(batch.num_rows for _, batch in batches) <= rows
