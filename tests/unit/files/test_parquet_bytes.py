"""Small files that would grow: refused by their footers and page headers, and honest ones are not."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest
from pyarrow import parquet

import safeswap
from safeswap import workflow
from safeswap.errors import InputError
from safeswap.files.formats import Limits
from safeswap.files.parquet import open_parquet, read_parquet
from safeswap.files.parquet_bytes import measure, parse, serialise
from safeswap.files.write import write

LONG = "x" * 2**20
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


def of_one_long_text(path: Path, *, records: int, codec: str = "zstd") -> Path:
    """One text in the dictionary, and a run of codes that all mean it."""
    codes = pa.array([0] * records, pa.int32())
    table = pa.table({"a": pa.DictionaryArray.from_arrays(codes, pa.array([LONG]))})
    parquet.write_table(table, path, compression=codec, store_schema=False)
    return path


@pytest.mark.parametrize("records", [200_000, 2_000_000])  # decoded plainly, and kept as a dictionary
def test_a_small_dictionary_that_decodes_to_hundreds_of_gigabytes_is_refused(tmp_path, monkeypatch, records):
    path = of_one_long_text(tmp_path / "bomb.parquet", records=records)
    assert path.stat().st_size < 6000
    monkeypatch.setattr(parquet.ParquetFile, "read", _decode)
    with pytest.raises(InputError) as refused:
        safeswap.read(path)
    assert refused.value.code == "too-large"
    assert refused.value.fields["found"] >= records * 2**20


@pytest.mark.parametrize("codec", CODECS)
def test_it_is_refused_however_it_is_compressed(tmp_path, codec):
    path = of_one_long_text(tmp_path / "bomb.parquet", records=200_000, codec=codec)
    with pytest.raises(InputError, match="would take"):
        read_parquet(path, limits=Limits())


def test_a_file_that_is_read_in_parts_is_refused_as_well(tmp_path):
    path = of_one_long_text(tmp_path / "bomb.parquet", records=2_000_000)
    with pytest.raises(InputError, match="would take"):
        open_parquet(path)


def test_the_long_text_among_many_short_ones_is_found(tmp_path):
    levels = pa.array([*(str(number) for number in range(50_000)), LONG])
    codes = pa.array([50_000] * 10**6, pa.int32())
    table = pa.table({"a": pa.DictionaryArray.from_arrays(codes, levels)})
    parquet.write_table(table, tmp_path / "bomb.parquet", compression="zstd", dictionary_pagesize_limit=2**24)
    with pytest.raises(InputError, match="would take"):
        read_parquet(tmp_path / "bomb.parquet", limits=Limits())


def test_values_of_a_wide_fixed_length_are_counted_as_wide_as_they_are(tmp_path):
    wide = pa.array([b"x" * 2**12] * 2000, pa.binary(2**12))
    parquet.write_table(pa.table({"a": wide}), tmp_path / "bomb.parquet", compression="zstd")
    assert (tmp_path / "bomb.parquet").stat().st_size < 20_000
    with pytest.raises(InputError) as refused:
        read_parquet(tmp_path / "bomb.parquet", limits=Limits(max_decoded_bytes=2**22))
    assert refused.value.code == "too-large"


def test_texts_that_repeat_the_one_before_are_counted_a_few_at_a_time(tmp_path):
    path = tmp_path / "bomb.parquet"
    texts = pa.table({"a": pa.array(["x" * 2**16] * 2000)})
    parquet.write_table(texts, path, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})
    assert path.stat().st_size < 2**17
    with pytest.raises(InputError) as refused:
        read_parquet(path, limits=Limits(max_decoded_bytes=2**24))
    assert refused.value.code == "too-large"
    assert read_parquet(path, limits=Limits()).num_rows == 2000


@pytest.mark.parametrize(("field", "value"), [(5, 3), (6, 40)], ids=["values", "size"])
def test_a_footer_that_says_less_than_the_pages_hold_is_damaged(tmp_path, field, value):
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"a": [f"text {i}" for i in range(500)]}), path, use_dictionary=False)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = parse(content[-8 - length : -8])
    chunk = footer[4][1][1][0][1][1][1][0][3][1]  # row groups → columns → metadata
    chunk[field] = (chunk[field][0], value)
    changed = serialise(footer)
    path.write_bytes(content[: -8 - length] + changed + len(changed).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(InputError) as refused:
        read_parquet(path, limits=Limits())
    assert refused.value.code == "corrupt-file"


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("last", ["P00000", "Q", "a longer one"])
def test_the_longest_text_of_a_dictionary_is_found_whether_or_not_all_are_equally_long(tmp_path, compression, last):
    texts = [*(f"P{i:05d}" for i in range(100)), last]
    parquet.write_table(pa.table({"a": texts * 50}), tmp_path / "x.parquet", compression=compression)
    footer = parquet.read_metadata(tmp_path / "x.parquet")
    (chunk,), (size,) = measure(tmp_path / "x.parquet", footer, limits=Limits(max_decoded_bytes=1000))
    assert size == chunk.referring * max(map(len, texts))


@pytest.mark.parametrize("seed", range(30))
def test_no_file_takes_more_than_it_was_checked_for_and_honest_ones_are_read(tmp_path, seed):
    """The oracle is the table itself: what its values take, texts and offsets written out."""
    draw = random.Random(seed)
    table = random_table(draw)
    path = tmp_path / "x.parquet"
    parquet.write_table(
        table,
        path,
        compression=draw.choice(CODECS),
        use_dictionary=draw.random() < 0.7,
        data_page_size=draw.choice([100, 2000, 2**20]),
        data_page_version=draw.choice(["1.0", "2.0"]),
        row_group_size=draw.choice([50, 10_000]),
        dictionary_pagesize_limit=draw.choice([200, 2**20]),
    )
    assert read_parquet(path, limits=Limits()).num_rows == table.num_rows
    chunks, texts = measure(path, parquet.read_metadata(path), limits=Limits())
    taken = sum(_taken(column) for column in table.columns)
    assert sum(chunk.bare for chunk in chunks) + sum(texts) >= taken
    assert sum(chunk.values for chunk in chunks) == table.num_rows * table.num_columns


def random_table(draw: random.Random) -> pa.Table:
    records = draw.randint(1, 500)
    columns = {}
    for number in range(draw.randint(1, 5)):
        levels = ["y" * draw.randint(0, 300) + str(i) for i in range(draw.randint(1, 200))]
        columns[f"text {number}"] = pa.array([draw.choice([None, *levels]) for _ in range(records)], pa.string())
        columns[f"number {number}"] = pa.array([draw.choice([None, draw.random()]) for _ in range(records)])
    return pa.table(columns)


def _taken(column: pa.ChunkedArray) -> int:
    width = 4 if pa.types.is_string(column.type) else 8
    return width * len(column) + sum(len(text) for text in column.to_pylist() if isinstance(text, str))


def test_the_work_for_wide_files_grows_with_the_number_of_columns(tmp_path):
    """Counted in calls: four times as many columns once took more than ten times as many, and an opening for each."""

    def work(columns: int) -> Counter[str]:
        table = pa.table({f"c{number}": ["a", "b", "a"] for number in range(columns)})
        parquet.write_table(table, tmp_path / "wide.parquet")
        done: Counter[str] = Counter()

        def note(frame: FrameType, event: str, called: object) -> None:
            done["calls"] += event in {"call", "c_call"}
            done["openings"] += event == "call" and frame.f_code is parquet.ParquetFile.__init__.__code__

        threading.setprofile(note)  # columns are read by several threads
        sys.setprofile(note)
        try:
            data = safeswap.read(tmp_path / "wide.parquet")
            write(data, tmp_path / f"again-{columns}.parquet")
            workflow.describe(data)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return done

    work(10)  # what is imported and compiled on first use
    few, many = work(300), work(1200)
    assert many["calls"] < 5 * few["calls"]
    assert 0 < many["openings"] <= few["openings"]  # each reads the whole footer


def _decode(*_: object, **__: object) -> None:
    raise AssertionError("decoded")
