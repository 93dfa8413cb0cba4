"""The content of a file as the ledger sees it: keyed words of its values, without names, order and identifiers.

A value has the same word wherever it stands: 1, 1.0 and "1" are one value, and so is a text in any column type, with or
without blanks around it. Without the key a word tells nothing about its value (AES, see :mod:`safeswap.kernels.keyed`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.kernels.keyed import derive, draw_chunks, text_blocks
from safeswap.kernels.sketch import SAMPLE, Sketch, choose_columns, sketch_words
from safeswap.kernels.threads import run_all
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind

Words: TypeAlias = npt.NDArray[np.uint64]
Identifiers: TypeAlias = tuple[Words, Words]
"""The lowest words of a file's identifiers, ascending, and the ceiling below which all are listed."""

_NUMBER, _MISSING = np.uint64(4 << 56), np.uint64(5 << 56)  # tags of blocks that keyed draws do not use
_IDENTIFIERS = 2048
_NOT_CONTENT = (Kind.IDENTIFIER, Kind.HOUSEHOLD)
# A numbering: whole numbers almost without gaps, and more of them than a classification has.
_FEWEST_NUMBERS, _SHARE_OF_RECORDS, _LONGEST_SPAN, _FILLED = 300, 0.02, 1.3, 0.9
_DISTINCT_IN_SAMPLE = 250


def sketch_content(data: Microdata, secret: bytes, *, drop: Sequence[str] = ()) -> Sketch:
    """The sketch of a file's content; identifiers, household numbers and columns that only number records left out.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> table = pa.table({"age": [30, 40, 50], "sex": ["f", "m", "f"]})
    >>> data = Microdata(table, Schema(attributes=(Attribute(name="age"), Attribute(name="sex"))))
    >>> sketch_content(data, bytes(32)).records
    3
    """
    key = derive(secret, "ledger values")
    rows = _sample_rows(len(data))
    names = [name for name in data.attributes if data.schema[name].kind not in _NOT_CONTENT and name not in drop]
    samples = {name: hash_values(data.table.column(name).take(rows), key) for name in names}
    content = [name for name in names if not _is_numbering(data.table.column(name), samples[name])]
    chosen = [content[place] for place in choose_columns([samples[name] for name in content])]
    words = np.empty((len(chosen), len(data)), dtype=np.uint64)

    def fill(columns: range) -> None:
        for column in columns:
            words[column] = hash_values(data.table.column(chosen[column]), key)

    threads = min(os.cpu_count() or 1, max(len(chosen), 1)) if len(data) > SAMPLE else 1
    run_all(fill, [range(first, len(chosen), threads) for first in range(threads)])
    return sketch_words(words, [samples[name] for name in chosen])


def sketch_identifiers(data: Microdata, secret: bytes) -> Identifiers:
    """The lowest words of the identifiers; none where the file has no identifier."""
    identifier = data.schema.identifier
    words = np.empty(0, np.uint64)
    if identifier is not None:
        words = np.unique(hash_values(data.table.column(identifier.name), derive(secret, "ledger identifiers")))
    ceiling = words[_IDENTIFIERS] if len(words) > _IDENTIFIERS else np.uint64(2**64 - 1)
    return words[:_IDENTIFIERS], np.array([ceiling], np.uint64)


def digest_in_order(column: pa.ChunkedArray, secret: bytes) -> str:
    """A keyed digest of a column's values in the order of the records."""
    key = derive(secret, "ledger order")
    return hashlib.sha256(key + hash_values(column, key).tobytes()).hexdigest()


def hash_values(column: pa.ChunkedArray, key: bytes) -> Words:
    """A keyed word per record.

    >>> one, other = (
    ...     [hash_values(pa.chunked_array([values]), bytes(32)).tolist() for values in pair]
    ...     for pair in (([1, 2, None], ["1.0", " 2", None]), (["a"], ["b"]))
    ... )
    >>> one[0] == one[1], other[0] == other[1]
    (True, False)
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _hash_numbers(_as_floats(column), key)
    if not pa.types.is_dictionary(kind):
        column = _as_text(column).dictionary_encode()
    coded = column.unify_dictionaries()
    if not len(coded):
        return np.empty(0, dtype=np.uint64)
    coded = coded.combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    levels = np.append(_hash_levels(coded.dictionary, key), _hash_numbers(np.array([np.nan]), key))
    codes = coded.indices.cast(pa.int64()).fill_null(len(levels) - 1).to_numpy(zero_copy_only=False)
    words: Words = levels[codes]
    return words


def _hash_levels(levels: pa.Array, key: bytes) -> Words:
    if pa.types.is_integer(levels.type) or pa.types.is_floating(levels.type):
        return _hash_numbers(_as_floats(pa.chunked_array([levels])), key)
    text = pc.utf8_trim_whitespace(_as_text(pa.chunked_array([levels])).combine_chunks())
    numbers = _parse(text)
    words = _hash_numbers(numbers, key)
    wordy = np.isnan(numbers) & text.is_valid().to_numpy(zero_copy_only=False)
    if wordy.any():
        rest = text.filter(pa.array(wordy)).cast(pa.large_string())
        offsets = np.frombuffer(rest.buffers()[1], np.int64)[rest.offset : rest.offset + len(rest) + 1]
        blocks = text_blocks(offsets, np.frombuffer(rest.buffers()[2] or b"", np.uint8), derive(key, "long texts"))
        words[wordy] = _encrypt(blocks, key)
    return words


def _parse(text: pa.Array) -> npt.NDArray[np.float64]:
    """The numbers that texts stand for, NaN for those that are none."""
    import polars as pl

    parsed = pl.Series(text).cast(pl.String).cast(pl.Float64, strict=False)
    return parsed.to_numpy().astype(np.float64)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.chunked_array([[None if value is None else value.hex() for value in column.to_pylist()]], pa.string())
    return column.cast(pa.large_string())


def _as_floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    numbers: npt.NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    return numbers


def _hash_numbers(numbers: npt.NDArray[np.float64], key: bytes) -> Words:
    """A word per number; missing and not-a-number have one of their own, and -0 is 0."""
    blocks = np.empty((len(numbers), 2), dtype=np.uint64)
    blocks[:, 0], blocks[:, 1] = (numbers + 0.0).view(np.uint64), _NUMBER
    blocks[np.isnan(numbers)] = (np.uint64(0), _MISSING)
    return _encrypt(blocks, key)


def _encrypt(blocks: Words, key: bytes) -> Words:
    words = np.empty(len(blocks), dtype=np.uint64)
    for start, draws in draw_chunks(blocks, key):
        words[start : start + len(draws)] = draws
    return words


def _sample_rows(records: int) -> npt.NDArray[Any]:
    if records <= SAMPLE:
        return np.arange(records)
    return np.sort(np.random.default_rng(0).choice(records, SAMPLE, replace=False))


def _is_numbering(column: pa.ChunkedArray, sample: Words) -> bool:
    """Whether a column only numbers the records, or groups of them: 1, 2, 3, … in whatever order."""
    if len(np.unique(sample)) < min(_DISTINCT_IN_SAMPLE, _FILLED * len(sample)):
        return False
    numbers = _known_numbers(column)
    if numbers is None or not len(numbers) or bool((numbers != np.floor(numbers)).any()):
        return False
    first = numbers.min()
    span = numbers.max() - first + 1
    if not max(_FEWEST_NUMBERS, _SHARE_OF_RECORDS * len(column)) <= span <= _LONGEST_SPAN * len(column):
        return False
    there = np.zeros(int(span), dtype=np.bool_)
    there[(numbers - first).astype(np.int64)] = True
    return bool(np.count_nonzero(there) > _FILLED * span)


def _known_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.float64] | None:
    """The numbers of a column, or None where some values are none."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    known = column.drop_null()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers = _as_floats(known)
        return numbers[np.isfinite(numbers)]
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    numbers = _parse(known.combine_chunks()) if len(known) else np.empty(0)
    return None if np.isnan(numbers).any() else numbers
