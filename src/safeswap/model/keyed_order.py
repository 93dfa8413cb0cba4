"""Orders of records or households that only the holder of the key can predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Identity, Integers

_CHUNK = 1 << 20


def keyed_order(names: Identity, key: bytes) -> Integers:
    """Return the positions of ``names`` (integers, or 16-byte blocks) in the order of their draws under a derived key.

    The order is a function of the key and the names alone, whatever the order of the rows.

    >>> order = keyed_order(np.array([30, 10, 20]), bytes(32))
    >>> other = keyed_order(np.array([10, 20, 30]), bytes(32))
    >>> np.array([30, 10, 20])[order].tolist() == np.array([10, 20, 30])[other].tolist()
    True
    """
    # The row number is in the low bits of its draw, so one sort of plain integers is enough.
    bits = max(1, (len(names) - 1).bit_length())
    ordered = _pack(names, key, bits)
    ordered.sort()
    rows, ties = _unpack(ordered, bits)
    if len(ties):
        places = np.union1d(ties, ties + 1)
        _break_ties(names, key, rows, places, ordered[places] >> np.uint64(bits))
    return rows


def _unpack(ordered: npt.NDArray[np.uint64], bits: int) -> tuple[Integers, Integers]:
    """Return the row numbers, and the places whose draw equals the next one; in chunks, to save memory."""
    rows: Integers = np.empty(len(ordered), dtype=np.int32 if len(ordered) < 2**31 else np.int64)
    ties = []
    for start in range(0, len(ordered), _CHUNK):
        part = ordered[start : start + _CHUNK + 1]
        ties.append(start + np.flatnonzero((part[1:] ^ part[:-1]) >> np.uint64(bits) == 0))
        rows[start : start + _CHUNK] = part[:_CHUNK] & np.uint64((1 << bits) - 1)
    return rows, np.concatenate(ties) if ties else np.empty(0, dtype=np.int64)


def _pack(names: Identity, key: bytes, bits: int) -> npt.NDArray[np.uint64]:
    from safeswap.arrays.keyed import draw_chunks

    packed = np.empty(len(names), dtype=np.uint64)
    high = ~np.uint64((1 << bits) - 1)
    for start, draws in draw_chunks(names, key):
        end = start + len(draws)
        packed[start:end] = (draws & high) | np.arange(start, end, dtype=np.uint64)
    return packed


def _break_ties(names: Identity, key: bytes, rows: Integers, places: Integers, drawn: npt.NDArray[np.uint64]) -> None:
    """Order the few rows, at some places, whose shortened draws are equal by their full draws."""
    from safeswap.arrays.keyed import encrypt, integer_blocks

    tied = rows[places]
    blocks = names[tied] if names.ndim == 2 else integer_blocks(names[tied].view(np.int64))
    words = encrypt(blocks.view(np.uint64), key)
    rows[places] = tied[np.lexsort((words[:, 1], words[:, 0], drawn))]


def names_of(column: pa.ChunkedArray, mac_key: bytes) -> Identity:
    """Return the names of a column's values in keyed draws: whole numbers as they are, the rest as text blocks.

    >>> names_of(pa.chunked_array([["7", "8"]]), bytes(32))[:, 0].tolist()
    [7, 8]
    >>> names_of(pa.chunked_array([[7.0, 8.0]]), bytes(32)).tolist()
    [7, 8]
    """
    from safeswap.arrays.keyed import text_blocks

    kind = column.type
    if pa.types.is_dictionary(kind):
        return names_of(column.cast(kind.value_type), mac_key)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        whole = _whole_numbers(column)
        if whole is not None:
            return whole
    if not len(column):
        return np.empty(0, dtype=np.int64)
    text = _as_text(column).combine_chunks()
    offsets = np.frombuffer(text.buffers()[1], dtype=np.int64)[text.offset : text.offset + len(text) + 1]
    data = np.frombuffer(text.buffers()[2] or b"", dtype=np.uint8)
    return text_blocks(offsets, data, mac_key)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.chunked_array([[value.hex() for value in column.to_pylist()]], type=pa.large_string())
    return column.cast(pa.large_string())


def _whole_numbers(column: pa.ChunkedArray) -> npt.NDArray[Any] | None:
    try:
        numbers: npt.NDArray[Any] = np.ascontiguousarray(pc.cast(column, pa.int64()).to_numpy())
    except pa.ArrowInvalid:  # a fraction, or beyond 64 bits with sign
        return None
    return numbers
