"""A value is known in a schema by one text, whatever its type in the file."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.model.schema import level_texts


@given(values=st.lists(st.text()))
def test_text_is_itself(values: list[str]) -> None:
    assert level_texts(pa.array(values, pa.string())) == values
    assert level_texts(pa.array(values, pa.string()).dictionary_encode()) == values


@given(values=st.lists(st.floats(allow_nan=False)))
def test_numbers_can_be_told_apart_by_their_texts(values: list[float]) -> None:
    texts = level_texts(pa.array(values, pa.float64()))
    assert [repr(float(text)) for text in texts] == [repr(value) for value in values]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([1.0, 2.5, -0.0, 1e22]), ["1", "2.5", "-0", "1e+22"]),
        (pa.array([1, -7], pa.int8()), ["1", "-7"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([b"\xff\x00"]), ["ff00"]),
        (pa.array([dt.date(2020, 1, 2)]), ["2020-01-02"]),
    ],
)
def test_other_values_have_their_usual_text(values: pa.Array, texts: list[str]) -> None:
    assert level_texts(values) == texts
