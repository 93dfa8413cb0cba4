"""A record is known by its identifier, whatever its type in the file, and by nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from safeswap.arrays import keyed
from safeswap.model.microdata import Microdata, record_identity
from safeswap.model.schema import Attribute, Kind, Schema

MAC_KEY = bytes(range(32))


def blocks(identifiers: Any, kind: pa.DataType | None = None) -> list[list[int]]:
    """The blocks behind the draws, integers made into theirs."""
    column = identifiers if isinstance(identifiers, pa.ChunkedArray) else pa.array(identifiers, kind)
    schema = Schema(attributes=(Attribute(name="id", kind=Kind.IDENTIFIER),))
    found = record_identity(Microdata(pa.table({"id": column}), schema), MAC_KEY)
    return (keyed.integer_blocks(found.view(np.int64)) if found.ndim == 1 else found).tolist()


NUMBERS = [0, 1, 7, 100, 127]


@pytest.mark.parametrize(
    "kind",
    [
        *[pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()],
        *[pa.float64(), pa.decimal128(9)],
    ],
)
def test_the_width_of_a_number_plays_no_part(kind: pa.DataType) -> None:
    assert blocks(NUMBERS, kind) == blocks(NUMBERS, pa.int64())


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
)
def test_text_of_a_number_is_that_number(kind: pa.DataType) -> None:
    texts: list[Any] = [str(n) for n in NUMBERS]
    if "binary" in str(kind):
        texts = [text.encode() for text in texts]
    assert blocks(texts, kind) == blocks(NUMBERS)


def test_numbers_beyond_a_signed_word_are_what_their_text_is() -> None:
    large = [2**63, 2**64 - 1, 5]
    assert blocks(large, pa.uint64()) == blocks([str(n) for n in large])
    assert len({tuple(b) for b in blocks(large, pa.uint64())}) == 3


def test_leading_zeros_make_another_identifier() -> None:
    assert len({tuple(b) for b in blocks(["7", "07", "007"])}) == 3


def test_dictionaries_chunks_and_slices_play_no_part() -> None:
    texts = ["a", "", "a long identifier of a record", "12", "é" * 20, "0012"]
    expected = blocks(texts)
    whole = pa.array(texts)
    assert blocks(pa.chunked_array([whole.dictionary_encode()])) == expected
    assert blocks(pa.chunked_array([whole[:2], whole[:0], whole[2:]])) == expected
    assert blocks(pa.chunked_array([pa.array(["before", *texts, "after"])[1:-1]])) == expected
    numbers = pa.array([1, 2, 3, 4])
    assert blocks(pa.chunked_array([numbers[1:3], numbers[:0], numbers[3:]])) == blocks([2, 3, 4])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2)])
def test_bytes_that_are_not_text_are_taken_as_they_are(kind: pa.DataType) -> None:
    found = blocks([b"\xff\xfe", b"ab"], kind)
    assert found == [[0xFEFF, (2 << 56) + (2 << 48)], [0x6261, (2 << 56) + (2 << 48)]]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("ns"), pa.time64("us")])
def test_dates_and_times_are_known_by_how_they_print(kind: pa.DataType) -> None:
    assert len({tuple(b) for b in blocks([1, 2, 86_400], kind)}) == 3


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_no_records_have_no_identity(kind: pa.DataType) -> None:
    assert blocks([], kind) == []


def test_without_an_identifier_a_record_is_known_by_its_position() -> None:
    schema = Schema(attributes=(Attribute(name="x"),))
    assert record_identity(Microdata(pa.table({"x": ["a", "b", "c"]}), schema), MAC_KEY).tolist() == [0, 1, 2]


def test_long_text_needs_the_key_to_be_known_by_and_short_text_does_not() -> None:
    schema = Schema(attributes=(Attribute(name="id", kind=Kind.IDENTIFIER),))
    data = Microdata(pa.table({"id": ["short", "an identifier of more than fourteen bytes"]}), schema)
    one, other = (record_identity(data, key).tolist() for key in (MAC_KEY, bytes(32)))
    assert one[0] == other[0]
    assert one[1] != other[1]
