"""Identifiers tell every record from every other, and an error about them tells nothing."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import InputError
from safeswap.files.identifiers import check_identifier, is_unique


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5), max_size=20), split=st.integers(0, 20))
def test_uniqueness_is_that_of_a_set(values: list[int], split: int) -> None:
    chunks = [values[:split], values[split:]]
    for column in (
        pa.chunked_array(chunks, type=pa.int64()),
        pa.chunked_array([[str(v) for v in chunk] for chunk in chunks], type=pa.string()),
        pa.chunked_array(chunks, type=pa.int64()).dictionary_encode(),
    ):
        assert is_unique(column) == (len(set(values)) == len(values))


def test_neighbouring_64_bit_identifiers_are_different() -> None:
    check_identifier(pa.chunked_array([[2**63 - 1, 2**63 - 2, 2**53, 2**53 + 1]]), name="id")


def test_texts_that_are_equal_as_numbers_or_in_another_normal_form_are_different() -> None:
    check_identifier(pa.chunked_array([["7", "007", "7.0", "é", "e\u0301"]]), name="id")


@pytest.mark.parametrize(
    ("column", "records"),
    [
        (["CANARY1", "b", "CANARY1", "c", "b"], [1, 3]),
        ([471100, 1, 471100], [1, 3]),
        ([2.5, 471100.0, 471100.0], [2, 3]),
    ],
)
def test_duplicates_are_reported_by_position_only(column: list[object], records: list[int]) -> None:
    with pytest.raises(InputError) as caught:
        check_identifier(pa.chunked_array([column]), name="id", file="x.csv")
    assert caught.value.code == "duplicate-identifier"
    assert caught.value.fields["records"] == records
    error = json.dumps(caught.value.as_dict())
    assert "CANARY" not in error
    assert "4711" not in error


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([["a", None]]),
        pa.chunked_array([["a", ""]]),
        pa.chunked_array([["a", "-9"]]),
        pa.chunked_array([["a", ""]]).dictionary_encode(),
        pa.chunked_array([pa.array(np.array([1.0, np.nan]))]),
        pa.chunked_array([[1, None]]),
    ],
)
def test_a_record_without_identifier_is_found(column: pa.ChunkedArray) -> None:
    with pytest.raises(InputError) as caught:
        check_identifier(column, name="id", missing=("-9",), lines=lambda positions: [p + 2 for p in positions])
    assert caught.value.code == "missing-identifier"
    assert caught.value.fields["records"] == [2]
    assert caught.value.fields["lines"] == [3]


def test_only_the_first_few_positions_are_listed() -> None:
    with pytest.raises(InputError) as caught:
        check_identifier(pa.chunked_array([[None] * 100], type=pa.string()), name="id")
    assert len(caught.value.fields["records"]) == 10
    assert "100 records" in str(caught.value)
