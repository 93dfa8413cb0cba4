"""Codes that are learnt batch by batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import keyed
from safeswap.engines import stream
from safeswap.engines.stream import LevelCoder, Tally

TYPES = (pa.int8(), pa.int32(), pa.uint64(), pa.int64(), pa.string(), pa.float64())


def array_of(numbers: list[int | None], kind: pa.DataType, *, as_levels: bool) -> pa.Array:
    plain = pa.array([None if each is None else each for each in numbers], pa.int64())
    values = plain.cast(kind)
    return values.dictionary_encode() if as_levels else values


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(
    batches=st.lists(st.lists(st.none() | st.integers(0, 120), max_size=12), max_size=6),
    as_levels=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_a_value_has_the_number_of_its_first_coming(kind: Any, batches: Any, as_levels: list[bool]) -> None:
    coder, known = LevelCoder(), {}
    for numbers, whether in zip(batches, as_levels, strict=False):
        column = array_of(numbers, kind, as_levels=whether)
        values = column.to_pylist()
        for value in values:
            if value is not None:
                known.setdefault(value, len(known) + 1)
        codes = coder.codes(column)
        assert codes.dtype == np.uint32
        assert codes.tolist() == [0 if value is None else known[value] for value in values]
        assert coder.bound == len(known) + 1
    assert ([] if coder.levels is None else coder.levels.to_pylist()) == list(known)
    if known:
        everything = np.arange(len(known) + 1, dtype=np.uint32)
        assert coder.values(everything).to_pylist() == [None, *known]


@pytest.mark.parametrize("shared", [0, 2])
def test_texts_that_share_a_word_are_told_apart_by_the_other(shared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []
    encrypt = keyed.encrypt

    def poor_words(blocks: Any, key: bytes) -> Any:
        """With the first keys there are few first words."""
        if key not in keys:
            keys.append(key)
        words = encrypt(blocks, key)
        if keys.index(key) < shared:
            words[:, 0] %= np.uint64(5)
        return words

    monkeypatch.setattr(stream.keyed, "encrypt", poor_words)
    coder, known = LevelCoder(), {}
    for start in range(0, 60, 7):
        texts = [f"area {number}" for number in range(start, start + 12)]
        for text in texts:
            known.setdefault(text, len(known) + 1)
        assert coder.codes(pa.array(texts)).tolist() == [known[text] for text in texts]
    assert coder.levels is not None
    assert coder.levels.to_pylist() == list(known)
    assert len(keys) == 1 + shared


def test_numbers_with_and_without_a_sign_of_zero_are_told_apart() -> None:
    coder = LevelCoder()
    codes = [coder.codes(pa.array([value])).tolist() for value in (0.0, -0.0, 0.0, float("nan"), -0.0, float("nan"))]
    assert codes == [[1], [2], [1], [3], [2], [3]]


@pytest.mark.parametrize("kind", [pa.string(), pa.int16(), pa.null()], ids=str)
def test_a_column_of_missing_values_can_be_written_again(kind: Any) -> None:
    coder = LevelCoder()
    assert coder.values(coder.codes(pa.array([None, None], kind))).to_pylist() == [None, None]


@given(
    known=st.lists(st.integers(-3, 3)),
    batches=st.lists(st.lists(st.none() | st.integers(-9, 9), max_size=9), max_size=4),
)
@pytest.mark.parametrize("kind", [pa.int64(), pa.int16(), pa.int8(), pa.string(), pa.float64()], ids=str)
def test_records_of_known_values_are_counted(kind: Any, known: list[int], batches: list[list[int | None]]) -> None:
    coder = LevelCoder()
    coder.codes(pa.array(known).cast(kind))
    codes = {number: coder.codes(pa.array([number]).cast(kind)).item() for number in known}
    counts = np.zeros(100, dtype=np.int32)
    for batch in batches:
        coder.count(pa.array(batch, pa.int64()).cast(kind), counts)
    met = Counter(number for batch in batches for number in batch)
    assert {number: counts[code] for number, code in codes.items()} == {number: met[number] for number in codes}


@given(batches=st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=20), max_size=6))
@pytest.mark.parametrize("bound", [6, 2**32])
def test_combinations_are_counted_over_batches(bound: int, batches: list[list[tuple[int, int]]]) -> None:
    tally = Tally(2)
    for batch in batches:
        codes = np.array(batch, dtype=np.uint32).reshape(-1, 2)
        tally.add([np.ascontiguousarray(column) for column in codes.T], [bound, bound])
    labels, counts = tally.totals()
    counted = Counter(pair for batch in batches for pair in batch)
    assert [tuple(label) for label in labels.tolist()] == sorted(counted)
    assert counts.tolist() == [counted[pair] for pair in sorted(counted)]


def test_large_numbers_are_told_apart() -> None:
    coder = LevelCoder()
    assert coder.codes(pa.array([2**64 - 1, 2**63, 0], pa.uint64())).tolist() == [1, 2, 3]
    assert coder.codes(pa.array([0, 2**64 - 2, 2**63], pa.uint64())).tolist() == [3, 4, 2]
