"""Turn a file's identifiers into the blocks from which keyed draws are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import keyed
from safeswap.arrays.types import Words
from safeswap.model.microdata import Microdata


def record_identity(data: Microdata, identity_key: bytes) -> npt.NDArray[np.int64] | Words:
    """Return integers, or blocks, one per record. Without an identifier a record is known by its position."""
    attribute = data.schema.identifier
    if attribute is None:
        return np.arange(len(data), dtype=np.int64)
    return column_identity(data.table.column(attribute.name), identity_key)


def column_identity(column: pa.ChunkedArray, identity_key: bytes) -> npt.NDArray[np.int64] | Words:
    """Return integers, or blocks, one per value, independent of the part of the column it is in.

    >>> column_identity(pa.chunked_array([[7, 8]]), bytes(32)).tolist()
    [7, 8]
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) and column.type != pa.uint64():
        values: npt.NDArray[np.int64] = column.to_numpy().astype(np.int64, copy=False)
        return np.ascontiguousarray(values)
    return _text_blocks(column, identity_key)


def column_blocks(column: pa.Array, identity_key: bytes) -> Words:
    """Return blocks throughout, whatever the type of the column."""
    identity: Any = column_identity(pa.chunked_array([column]), identity_key)
    return keyed.integer_blocks(identity) if identity.ndim == 1 else identity


def _text_blocks(column: pa.ChunkedArray, identity_key: bytes) -> Words:
    # Bytes need not be text and are used as they are. Everything else is identified by its printed form.
    text = column.cast(pa.large_binary() if _is_bytes(column.type) else pa.large_string())
    parts = []
    for chunk in text.chunks:
        _, offsets, data = chunk.buffers()
        start = chunk.offset
        positions = np.frombuffer(offsets, dtype=np.int64)[start : start + len(chunk) + 1]
        characters = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
        parts.append(keyed.text_blocks(positions, characters, identity_key))
    return np.concatenate(parts) if parts else np.zeros((0, 2), dtype=np.uint64)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )
