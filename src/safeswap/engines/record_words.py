"""Two words that stand for the values of several columns of a record: equal where all of these are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from safeswap.engines.identity import column_blocks
from safeswap.kernels import keyed, word_cells
from safeswap.kernels.types import Words


def column_keys(key: bytes, columns: int) -> list[bytes]:
    """A key for each of so many columns."""
    return [keyed.derive(key, "column", number) for number in range(columns)]


def record_words(columns: Sequence[pa.Array], keys: Sequence[bytes]) -> Words:
    """The sum without carry, over the columns, of the cipher texts of the values, each column having its own key.

    Equal records have equal words. Unequal ones differ in some column, whose two cipher texts are independent of all
    else, so that their words are equal with probability 2⁻¹²⁸: below 2⁻⁷⁰ for all pairs of 10⁸ records together, also
    if two bits of them are not looked at. So cells can be counted without holding all of what makes them. Words of
    some columns are the sum of what they have in common and what not.

    >>> keys = column_keys(bytes(32), 2)
    >>> one, two, three = record_words([pa.array(["a", "a", "b"]), pa.array([1, 1, None])], keys).tolist()
    >>> one == two, one == three
    (True, False)
    >>> same = record_words([pa.array(["a", "a", "b"]).dictionary_encode(), pa.array([1, 1, None])], keys)
    >>> same[2].tolist() == three
    True
    """
    words = np.zeros((len(columns[0]) if columns else 0, 2), dtype=np.uint64)
    for column, key in zip(columns, keys, strict=True):
        _mix(words, column, key)
    return words


def _mix(words: Words, column: pa.Array, key: bytes) -> None:
    if pa.types.is_dictionary(column.type) and not column.dictionary.null_count:
        # Values are few: each is looked at once, and the one after the last stands for what is missing.
        table = np.append(_texts(column.dictionary, key), np.zeros((1, 2), dtype=np.uint64), axis=0)
        codes = column.indices
        if codes.null_count:
            codes = codes.cast(pa.int32()).fill_null(len(table) - 1)
        word_cells.mix(words, codes.to_numpy(zero_copy_only=False), table)
    elif column.type == pa.int8() and not column.null_count:
        table = _texts(pa.array(np.arange(256, dtype=np.uint8).view(np.int8)), key)
        word_cells.mix(words, column.to_numpy().view(np.uint8), table)
    elif pa.types.is_dictionary(column.type):
        words ^= _texts(column.cast(column.type.value_type), key)
    else:
        words ^= _texts(column, key)


def _texts(column: pa.Array, key: bytes) -> Words:
    """The cipher text of each value, and nothing for what is missing."""
    texts = keyed.encrypt(column_blocks(column.drop_null(), key), key)
    if not column.null_count:
        return texts
    all_texts = np.zeros((len(column), 2), dtype=np.uint64)
    all_texts[np.asarray(column.is_valid())] = texts
    return all_texts
