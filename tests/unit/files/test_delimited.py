"""Delimited text comes in exactly as it stands, or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safeswap import Key, workflow
from safeswap.errors import InputError
from safeswap.files.delimited import Delimited, read_delimited
from safeswap.files.describe import describe
from safeswap.files.formats import Limits
from safeswap.files.read import read
from safeswap.files.write import write_csv
from safeswap.model.columns import to_numbers
from safeswap.model.schema import Attribute, Kind, Schema

AWKWARD = [
    "007", "1.0", "1", "-0.0", "NaN", "nan", "NA", "null", "9223372036854775808", " lead", "trail ", '"', '""', "a\"b",
    "a,b", "a;b", "a\tb", "a|b", "line\nbreak", "cr\rhere", "crlf\r\n", "\ufeffbom", "'quoted'", "=1+1", "\\", "#",
    unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"), "\u2028", "\x85", "\x1c", "😀",
]  # fmt: skip
VALUES = st.one_of(
    st.none(), st.just(""), st.sampled_from(AWKWARD), st.text(st.characters(codec="utf-8", exclude_characters="\0"))
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6) | st.sampled_from(
    AWKWARD
)


def read_bytes(folder: Path, data: bytes, *, name: str = "file.csv", **options: object) -> Delimited:
    path = folder / name
    path.write_bytes(data)
    return read_delimited(path, limits=Limits(), **options)  # type: ignore[arg-type]


def values(table: pa.Table) -> dict[str, list[object]]:
    return {name: table[name].to_pylist() for name in table.column_names}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(1, 12))
    columns = [pa.array(draw(st.lists(VALUES, min_size=rows, max_size=rows)), type=pa.string()) for _ in names]
    return pa.table(columns, names=names)


@given(table=tables(), delimiter=st.sampled_from([",", ";", "\t", "|"]))
@example(table=pa.table({"\ufeffa": ["\ufeff", None]}), delimiter=",")
@example(table=pa.table({"'a": ["'"], "b'": [None]}), delimiter=",")
@example(table=pa.table({"0": pa.array([None, ""]), ";0": pa.array([None, None], pa.string())}), delimiter=",")
@example(table=pa.table({"alone": [",", ";", "\t"]}), delimiter=";")
@example(table=pa.table({"a;b": ["1;2"], "c;d": ["3;4"]}), delimiter=",")
def test_text_survives_writing_and_reading_exactly(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, delimiter: str
) -> None:
    path = tmp_path_factory.mktemp("csv") / "file.csv"
    write_csv(table, path, delimiter=delimiter)
    again = read_delimited(path, limits=Limits()).table
    assert again.column_names == table.column_names
    assert values(again) == values(table)


@given(data=st.text(st.sampled_from('ab",\n\r;é '), min_size=1, max_size=60), block=st.sampled_from([16, 64, 4096]))
@example(data='a,b\n"x"y,z\n', block=4096)
@example(data='a,b\nx"y,"z\n1,2"\n', block=16)
def test_whatever_is_read_is_what_the_strict_reader_of_the_standard_library_reads(
    tmp_path_factory: pytest.TempPathFactory, data: str, block: int
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    try:
        found = read_bytes(folder, data.encode(), delimiter=",", quote='"', block_bytes=block).table
    except InputError:
        return
    rows = list(csv.reader(io.StringIO(data, newline=""), strict=True))
    header = next(row for row in rows if row)
    body = rows[rows.index(header) + 1 :]
    expected = [row or [""] for row in body if row or len(header) == 1]
    assert found.column_names == header
    assert [[v or "" for v in row.values()] for row in found.to_pylist()] == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_is_one(tmp_path: Path, end: str) -> None:
    found = read_bytes(tmp_path, end.join(["a,b", "1,2", '"x', 'y",4', ""]).encode())
    assert values(found.table) == {"a": ["1", f"x{end}y"], "b": ["2", "4"]}
    assert found.lines([0, 1]) == [2, 3]


def test_unquoted_empty_is_missing_and_quoted_empty_is_text(tmp_path: Path) -> None:
    assert values(read_bytes(tmp_path, b'a,b\n,""\n"",\n').table) == {"a": [None, ""], "b": ["", None]}


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_an_empty_last_value_is_missing_whatever_ends_the_file(tmp_path: Path, end: str) -> None:
    data = f'a;b\n"1";x\n"2";{end}'.encode()
    assert values(read_bytes(tmp_path, data).table)["b"] == ["x", None]


def test_a_single_column_keeps_its_blank_lines_as_missing(tmp_path: Path) -> None:
    assert values(read_bytes(tmp_path, b'a\n\nx\n""\n').table) == {"a": [None, "x", ""]}


def test_blank_lines_between_records_carry_nothing(tmp_path: Path) -> None:
    assert values(read_bytes(tmp_path, b"\n\na,b\n\n1,2\n\n").table) == {"a": ["1"], "b": ["2"]}


@pytest.mark.parametrize(
    ("data", "delimiter"),
    [
        (b"a,b\n1,2\n", ","),
        (b"a;b\n1,5;2\n", ";"),
        (b"a\tb\n1\t2\n", "\t"),
        (b"a|b\n1|2\n", "|"),
        (b"a,b;c\n1;2\n", ";"),
        (b'"a,b";c\n1;2\n', ";"),
        (b"alone\n1,2,3\n".replace(b",", b"-"), ","),
    ],
)
def test_the_delimiter_is_found(tmp_path: Path, data: bytes, delimiter: str) -> None:
    assert read_bytes(tmp_path, data).layout.dialect.delimiter == delimiter


def test_a_stated_delimiter_is_taken_at_its_word(tmp_path: Path) -> None:
    assert read_bytes(tmp_path, b"a:b,c\n1:2,3\n", delimiter=":").table.column_names == ["a", "b,c"]


def test_a_file_called_tsv_is_parted_by_tabs(tmp_path: Path) -> None:
    assert read_bytes(tmp_path, b"a,b\tc,d\n1,2\t3,4\n", name="x.tsv").table.column_names == ["a,b", "c,d"]


def test_a_file_that_two_delimiters_part_evenly_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_bytes(tmp_path, b"a,b;c\n1,2;3\n")
    assert caught.value.code == "ambiguous-delimiter"


def test_single_quotes_are_found_when_the_header_has_them(tmp_path: Path) -> None:
    assert values(read_bytes(tmp_path, b"'a','b'\n'x,y','it''s'\n").table) == {"a": ["x,y"], "b": ["it's"]}


DECIMALS = "a;b;c;d;e\n1,5;1,2,3;x;0,5-1;-,25\n2.5;4,5;7,0;2,5;NA\n;1;y;3;+3,\n"


def test_only_where_stated_and_only_in_columns_of_numbers_do_decimal_commas_become_points(tmp_path: Path) -> None:
    as_written = values(read_bytes(tmp_path, DECIMALS.encode()).table)
    assert as_written == values(read_bytes(tmp_path, DECIMALS.encode(), decimal=".").table)
    changed = values(read_bytes(tmp_path, DECIMALS.encode(), decimal=",").table)
    assert {name for name in changed if changed[name] != as_written[name]} == {"a", "c"}
    assert (changed["a"], changed["c"]) == (["1.5", "2.5", None], ["x", "7.0", "y"])


@given(st.lists(st.none() | st.sampled_from(["1,5", "1.5", "-2,25", "7", ",5", "NA", ""]), min_size=1, max_size=40))
def test_decimal_commas_are_replaced_in_every_block_and_form_of_a_column(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None]
) -> None:
    path = tmp_path_factory.mktemp("decimals") / "toy.csv"
    write_csv(pa.table({"id": [f"{i}" for i in range(len(texts))], "n": pa.array(texts, pa.string())}), path)
    read_back = read_delimited(path, limits=Limits(), decimal=",", block_bytes=64).table
    read_back.validate(full=True)
    assert read_back["n"].to_pylist() == [None if text is None else text.replace(",", ".") for text in texts]


def test_numbers_with_decimal_commas_are_numeric_and_masked_as_such(tmp_path: Path) -> None:
    path = tmp_path / "wages.csv"
    path.write_text("id;wage\n" + "".join(f"{i};{1000 + 7 * i},{i % 10}\n" for i in range(200)), encoding="utf-8")
    told = "its commas look like decimal commas"
    as_written, data = read(path, identifier="id"), read(path, identifier="id", decimal=",")
    assert as_written.schema["wage"].kind is Kind.NOMINAL
    assert any(told in warning for warning in describe(as_written).warnings)
    assert data.schema["wage"].kind is Kind.NUMERIC
    assert not any(told in warning for warning in describe(data).warnings)
    spec = {"method": "noise", "attributes": ["wage"]}
    masked = workflow.mask(data, spec, key=Key(bytes(32)))
    numbers = [float(value) for value in masked.data.table["wage"].to_pylist()]
    assert np.mean(numbers) == pytest.approx(1000 + 7 * 99.5 + 0.45, rel=0.05)
    assert masked.undo().table.equals(data.table)


@pytest.mark.parametrize("is_described", [False, True])
def test_missing_codes_with_a_decimal_comma_are_missing(tmp_path: Path, is_described: bool) -> None:
    path = tmp_path / "wages.csv"
    path.write_text("id;wage\n1;1,5\n2;99,9\n3;2,5E1\n", encoding="utf-8")
    wage = Attribute(name="wage", kind=Kind.NUMERIC, missing=("99,9",))
    stated: dict[str, Any] = (
        {"schema": Schema(attributes=(Attribute(name="id"), wage))} if is_described else {"missing": ["99,9"]}
    )
    data = read(path, decimal=",", **stated)
    assert np.array_equal(to_numbers(data, "wage"), [1.5, np.nan, 25.0], equal_nan=True)


def test_quotes_can_be_letters(tmp_path: Path) -> None:
    data = b'a,b\n5" pipe,"\n'
    assert values(read_bytes(tmp_path, data, quote="").table) == {"a": ['5" pipe'], "b": ['"']}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_an_encoding_with_a_mark_is_found(tmp_path: Path, encoding: str) -> None:
    assert values(read_bytes(tmp_path, "a,b\nnaïve,😀\n".encode(encoding)).table) == {"a": ["naïve"], "b": ["😀"]}


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16-le", "utf-16-be", "cp850", "utf-8-sig"])
def test_an_encoding_can_be_stated(tmp_path: Path, encoding: str) -> None:
    data = "a,b\nnaïve,ß\n".encode(encoding)
    assert values(read_bytes(tmp_path, data, encoding=encoding).table) == {"a": ["naïve"], "b": ["ß"]}


def test_gzip_is_read_whatever_the_file_is_called(tmp_path: Path) -> None:
    data = gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n")
    for name in ("x.csv.gz", "x.csv"):
        assert values(read_bytes(tmp_path, data, name=name).table) == {"a": ["1", "3"], "b": ["2", "4"]}


@pytest.mark.parametrize("name", ["PAR1", "ARROW1", "FEA1", "BZh9", "PKx"])
def test_a_column_called_like_another_format_is_a_column(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{name},b\n1,2\n")
    assert read(path).attributes == (name, "b")


def test_repeating_columns_come_as_categories_and_others_as_text(tmp_path: Path) -> None:
    data = "id,Sex\n" + "".join(f"{i},{'MF'[i % 2]}\n" for i in range(50))
    table = read_bytes(tmp_path, data.encode()).table
    assert pa.types.is_string(table.schema.field("id").type)
    assert pa.types.is_dictionary(table.schema.field("Sex").type)


def test_records_longer_than_a_block_are_read(tmp_path: Path) -> None:
    long = "x" * 10_000
    found = read_bytes(tmp_path, f"a,b\n1,{long}\n2,{long}\n".encode(), block_bytes=256).table
    assert values(found) == {"a": ["1", "2"], "b": [long, long]}


def test_a_header_longer_than_the_beginning_looked_at_is_read(tmp_path: Path) -> None:
    names = [f"a rather long column name, number {i}" for i in range(12_000)]
    data = ",".join(f'"{n}"' for n in names) + "\n" + ",".join("1" for _ in names) + "\n"
    assert read_bytes(tmp_path, data.encode()).table.column_names == names


def test_the_line_of_a_record_counts_blank_lines_and_lines_within_values(tmp_path: Path) -> None:
    found = read_bytes(tmp_path, b'a,b\n1,"x\ny"\n\n2,z\n3,z\n')
    assert found.lines([2, 0, 1]) == [6, 2, 5]
