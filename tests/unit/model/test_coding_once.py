"""Columns are coded as Arrow codes them, shared where they are equal, and ordered by their cipher texts."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from safeswap.model.columns import same_memory, share_columns
from safeswap.model.keyed_order import keyed_order
from safeswap.model.microdata import Microdata, code_column
from safeswap.model.schema import Attribute, Schema

INTEGER_TAG = 72057594037927936  # 1 in the last byte of the block


def test_many_floating_point_numbers_are_coded_as_arrow_codes_them() -> None:
    rng = np.random.default_rng(5)
    numbers = np.round(rng.lognormal(3, 1, 150_000), 2)
    numbers[rng.integers(0, len(numbers), 900)] = np.tile([0.0, -0.0, np.nan], 300)
    column = pa.chunked_array([numbers[:70_000], numbers[70_000:]])
    coded, expected = code_column(column), column.combine_chunks().dictionary_encode()
    np.testing.assert_array_equal(coded.codes, expected.indices.to_numpy())
    assert coded.levels.view(pa.int64()).equals(expected.dictionary.view(pa.int64()))
    assert not coded.has_missing


def test_only_columns_that_are_equal_bit_by_bit_are_shared() -> None:
    schema = Schema(attributes=tuple(Attribute(name=name) for name in "abcd"))
    before = pa.table({"a": ["x", None], "b": [0.0, float("nan")], "c": [0.0, 1.0], "d": ["x", "y"]})
    after = pa.table({"a": ["x", None], "b": [0.0, float("nan")], "c": [-0.0, 1.0], "d": ["x", None]})
    one, other = Microdata(before, schema), Microdata(after, schema)
    codes = one.coded("a")
    shared = share_columns(one, other)
    assert [name for name in "abcd" if same_memory(before[name], shared.table[name])] == ["a", "b"]
    assert shared.coded("a") is codes
    assert shared.table.to_pylist()[1]["d"] is None


@pytest.mark.parametrize("records", [0, 1, 2, 5_000])
def test_the_keyed_order_is_that_of_the_cipher_texts(records: int) -> None:
    names = np.random.default_rng(records).permutation(records).astype(np.int64) - records // 2
    cipher = Cipher(algorithms.AES(bytes(32)), modes.ECB()).encryptor()
    tag = INTEGER_TAG.to_bytes(8, "little")
    drawn = [cipher.update(int(name).to_bytes(8, "little", signed=True) + tag) for name in names]
    expected = sorted(range(records), key=lambda row: struct.unpack("<QQ", drawn[row]))
    assert keyed_order(names, bytes(32)).tolist() == expected
