"""A column's codes tell its values apart, whatever its type and however its dictionary was made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import compiled
from safeswap.model import microdata
from safeswap.model.microdata import code_column

NAN = float("nan")


def assert_codes(column: pa.ChunkedArray) -> None:
    coded = code_column(column)
    levels = [*map(repr, coded.levels.to_pylist()), "None"]
    values = [repr(value) for value in column.to_pylist()]
    assert [levels[code] for code in coded.codes] == values
    assert len(set(levels)) == len(levels)
    assert coded.has_missing == ("None" in values)
    assert coded.codes.max(initial=0) < max(coded.cardinality, 1)


@pytest.mark.parametrize(
    "values",
    [
        ["b", "a", None, "b", "", "A", "é", "e\u0301"],
        [0.0, -0.0, NAN, NAN, None, 1.0],
        [True, None, False],
        [None, None],
        [3, -3, 2**62],
        [b"", b"\x00", b"\x00\x00", None],
    ],
)
@pytest.mark.parametrize("chunks", [1, 2])
def test_equal_values_have_equal_codes_and_others_have_not(values: list[object], chunks: int) -> None:
    assert_codes(pa.chunked_array([pa.array(values)] * chunks))


def dictionary(indices: list[int | None], levels: list[object], kind: pa.DataType | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind or pa.int8()), pa.array(levels))


@pytest.mark.parametrize(
    "array",
    [
        dictionary([0, 1, 2, 3, None], ["a", "b", "a", None]),
        dictionary([0, 1, 2, 3, 4, 5], [0.0, -0.0, NAN, 0.0, 1.0, NAN]),
        dictionary([1, 1], ["never", "always"]),
        dictionary([0, None], ["a", "b"]),
        dictionary([], []).cast(pa.dictionary(pa.int8(), pa.string())),
    ],
)
@pytest.mark.parametrize("chunks", [1, 3])
def test_repeated_and_missing_entries_of_a_dictionary_are_seen_through(array: pa.Array, chunks: int) -> None:
    assert_codes(pa.chunked_array([array] * chunks))


def test_chunks_whose_dictionaries_together_outgrow_their_indices() -> None:
    parts = [dictionary(list(range(100)), [f"{part} {i}" for i in range(100)]) for part in "abc"]
    column = pa.chunked_array(parts)
    assert_codes(column)
    assert code_column(column).codes.dtype == np.uint16


def test_indices_that_cannot_number_one_level_more_still_tell_missing_apart() -> None:
    full = dictionary([*range(128), None], [f"level {i}" for i in range(128)])
    assert_codes(pa.chunked_array([full]))


def test_no_chunk_is_no_record() -> None:
    for kind in (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.null()):
        coded = code_column(pa.chunked_array([], type=kind))
        assert (len(coded.codes), coded.cardinality) == (0, 0)


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=6), max_size=4))
def test_chunks_play_no_part(chunks: list[list[str | None]]) -> None:
    whole = [value for chunk in chunks for value in chunk]
    column = pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], type=pa.string())
    assert (
        code_column(column).codes.tolist()
        == code_column(pa.chunked_array([pa.array(whole, pa.string())])).codes.tolist()
    )
    encoded = pa.chunked_array(
        [pa.array(chunk, pa.string()).dictionary_encode() for chunk in chunks]
        or [pa.array([], pa.string()).dictionary_encode()]
    )
    assert_codes(encoded)


def test_dictionaries_that_outgrow_their_indices_together_are_read_all_the_same():
    import safeswap as ss

    parts = [
        pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array([f"{letter}{i}" for i in range(100)]))
        for letter in "abc"
    ]
    data = ss.read(pa.table({"code": pa.chunked_array(parts)}))
    assert data.table["code"].to_pylist() == [value for part in parts for value in part.to_pylist()]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16"])
def test_short_integers_of_a_large_file_are_coded_as_those_of_a_small_one(kind: str) -> None:
    limits = np.iinfo(kind)
    values = np.random.default_rng(8).integers(limits.min, limits.max, 600_000, dtype=kind, endpoint=True) // 3
    column = pa.chunked_array([values[:250_001], values[:0], values[250_001:]])
    levels, codes = np.unique(values, return_inverse=True)
    coded = code_column(column)
    np.testing.assert_array_equal(coded.levels.to_numpy(), levels)
    np.testing.assert_array_equal(coded.codes, codes)
    np.testing.assert_array_equal(code_column(column.slice(0, 1_000)).levels.to_numpy(), np.unique(values[:1_000]))


@pytest.mark.parametrize("threads", [1, 3])
def test_short_integers_in_uneven_chunks_are_coded_alike_by_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(compiled, "_most_threads", lambda: threads)
    monkeypatch.setattr(microdata, "is_worth_compiling", lambda _: True)
    values = np.random.default_rng(2).integers(-300, 300, 600_000).astype(np.int16)
    chunks = np.split(values, [0, 1, 150_000, 150_001, 400_000])
    coded = code_column(pa.chunked_array([pa.array(chunk) for chunk in chunks]))
    assert (coded.levels.to_numpy()[coded.codes] == values).all()
    assert coded.levels.to_pylist() == list(range(-300, 300))


SHORT_TEXTS = st.one_of(
    st.none(),
    st.text("0123456789.,-+/", max_size=15),
    st.text(st.characters(max_codepoint=127, exclude_characters="\0"), max_size=8),
)
OTHER_TEXTS = st.sampled_from(["\0", "é", "nine chars", "1234567890123456", "12345678e"])


@given(
    st.lists(SHORT_TEXTS, min_size=1, max_size=30),
    st.lists(OTHER_TEXTS, max_size=1),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 30),
)
def test_texts_packed_into_words_are_coded_as_arrow_codes_them(
    texts: list[str | None], others: list[str], kind: pa.DataType, cut: int
) -> None:
    column = pa.chunked_array([texts[:cut], texts[cut:] + others], kind).slice(min(1, len(texts) - 1))
    packed = microdata._code_short_texts(column)
    encoded = pa.chunked_array([column.combine_chunks().dictionary_encode()])
    expected = microdata.code_column(encoded)
    if others:
        assert packed is None
        return
    assert packed is not None
    assert packed.codes.tolist() == expected.codes.tolist()
    assert packed.codes.dtype == expected.codes.dtype
    assert packed.levels.equals(expected.levels)
    assert packed.has_missing == expected.has_missing
