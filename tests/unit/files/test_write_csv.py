"""A file of text and whole numbers is written without Polars, with the bytes that Polars writes."""

from __future__ import annotations

import io
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from safeswap.files import write

texts = st.none() | st.text(
    st.sampled_from("ab,;\t|\"'\n\r #ü–\\") | st.characters(codec="utf-8", exclude_characters="\0")
)
kinds = st.sampled_from(["text", "levels", "large", "number", "flag"])


@st.composite
def columns(draw: st.DrawFn, records: int) -> pa.ChunkedArray:
    kind = draw(kinds)
    if kind == "number":
        values = pa.array(
            draw(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=records, max_size=records))
        )
        return pa.chunked_array([values.cast(pa.int64())])
    if kind == "flag":
        flags = draw(st.lists(st.none() | st.booleans(), min_size=records, max_size=records))
        return pa.chunked_array([pa.array(flags, pa.bool_())])
    values = pa.array(draw(st.lists(texts, min_size=records, max_size=records)), pa.string())
    cut = draw(st.integers(0, records))
    column = pa.chunked_array([values[:cut], values[cut:]])
    return (
        column.dictionary_encode()
        if kind == "levels"
        else column.cast(pa.large_string() if kind == "large" else pa.string())
    )


@given(st.data(), st.integers(1, 5), st.integers(2, 3), st.sampled_from(",;\t|"))
def test_all_ways_of_writing_give_the_same_bytes(
    data: st.DataObject, records: int, number: int, delimiter: str
) -> None:
    table = pa.table({f"c{i}": data.draw(columns(records)) for i in range(number)})
    small, large, by_polars = (io.BytesIO() for _ in range(3))
    with patch.object(pl, "DataFrame", side_effect=AssertionError("written by Polars")):
        write.write_lines(table, small, delimiter)
        with (
            patch.object(write, "_FEW_FIELDS", 0),
            patch.object(write, "_BATCH", 2),
            patch.object(write, "is_worth_compiling", return_value=True),
            patch.object(write, "_join_fields", side_effect=AssertionError("written as a small file")),
        ):
            write.write_lines(table, large, delimiter)
    with patch.object(write, "_is_plain", return_value=False):
        write.write_lines(table, by_polars, delimiter)
    assert small.getvalue() == large.getvalue() == by_polars.getvalue()


def test_a_single_column_and_other_types_are_written_too(tmp_path: Path) -> None:
    write.write_csv(pa.table({"a": ["x", None, ""]}), tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text() == 'a\nx\n\n""\n'
    write.write_csv(pa.table({"a": [0.5], "b": ["x"]}), tmp_path / "two.csv")
    assert (tmp_path / "two.csv").read_text() == "a,b\n0.5,x\n"
