"""When two columns are the same: bit by bit, whatever the chunks, dictionaries and text types they are kept in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.kernels.types import Flags, Int64s

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def same_memory(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether two columns are views of the very same bytes; then no comparison could tell them apart."""
    if one.type != other.type or one.num_chunks != other.num_chunks:
        return False
    return all(_place(a) == _place(b) for a, b in zip(one.chunks, other.chunks, strict=True))


def _place(array: pa.Array) -> tuple[Any, ...]:
    place: tuple[Any, ...] = (array.offset, len(array), *(b.address if b else None for b in array.buffers()))
    return (*place, *_place(array.dictionary)) if pa.types.is_dictionary(array.type) else place


def aligned_columns(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Two columns in a form in which equality is equality of bits, dictionaries resolved to common codes."""
    if pa.types.is_dictionary(before.type) and pa.types.is_dictionary(after.type):
        common = _common_codes(before, after)
        if common is not None:
            return common
    return bitwise(before), bitwise(after)


def bitwise(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose equality is equality of bits: NaN equals itself, −0.0 is not 0.0, text is plain text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return bitwise(column.cast(kind.value_type))
    if pa.types.is_floating(kind):
        bits = _BITS[kind.bit_width]
        return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], type=bits)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    return column.cast(pa.string()) if pa.types.is_null(kind) else column


def _common_codes(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray] | None:
    """The indices of two dictionary columns into the first one's dictionary, −1 for what is not in it."""
    if not before.num_chunks or not after.num_chunks:
        return None
    if any(chunk.dictionary.null_count for side in (before, after) for chunk in side.chunks):
        return None
    before, after = before.unify_dictionaries(), after.unify_dictionaries()
    first, second = before.chunk(0), after.chunk(0)
    if first.type == second.type and first.dictionary.equals(second.dictionary) and _is_plain(first.dictionary):
        return tuple(pa.chunked_array([chunk.indices for chunk in side.chunks]) for side in (before, after))
    levels, others = (bitwise(pa.chunked_array([side.chunk(0).dictionary])) for side in (before, after))
    if levels.type != others.type or any(len(each.unique()) != len(each) for each in (levels, others)):
        return None
    place = pc.index_in(others, value_set=levels.combine_chunks()).fill_null(-1).combine_chunks()
    codes = pa.chunked_array([place.take(chunk.indices) for chunk in after.chunks])
    return pa.chunked_array([chunk.indices.cast(codes.type) for chunk in before.chunks]), codes


def means_bits(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary column has one dictionary, in which different places mean different bits."""
    return column.num_chunks == 1 and _is_plain(column.chunk(0).dictionary)


def _is_plain(levels: pa.Array) -> bool:
    """Whether different places of a dictionary mean different bits, and the same place the same."""
    kind = levels.type
    known = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(known) and not levels.null_count and _are_distinct(levels)


def _are_distinct(levels: pa.Array) -> bool:
    """Whether no level occurs twice; told at once of numbers that ascend, as areas of a sorted file do."""
    if pa.types.is_integer(levels.type):
        numbers = levels.to_numpy()
        if (numbers[1:] > numbers[:-1]).all():
            return True
    return bool(len(levels.unique()) == len(levels))


def different(before: pa.ChunkedArray, after: pa.ChunkedArray) -> Flags:
    """Per row, whether the value differs; missing equals missing only. Another type differs everywhere.

    >>> a, b = (pa.chunked_array([values]) for values in (["x", None, "y"], ["x", None, None]))
    >>> different(a, b).tolist()
    [False, False, True]
    """
    if before.type != after.type:
        return np.ones(len(before), dtype=np.bool_)
    flags: Flags = pc.fill_null(pc.not_equal(before, after), fill_value=True).to_numpy()
    if before.null_count and after.null_count:
        both = pc.and_(before.is_null(), after.is_null()).to_numpy()
        flags = flags & ~both
    return flags


def as_codes(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[Int64s, Int64s]:
    """Two aligned columns as integers that are equal where the values are; missing is a value of its own."""
    if before.type != after.type:  # no value of one type is a value of the other
        return as_codes(before, before)[0], ~as_codes(after, after)[0]
    if pa.types.is_integer(before.type) and not before.null_count and not after.null_count:
        return before.to_numpy().astype(np.int64), after.to_numpy().astype(np.int64)
    together = pa.chunked_array([*before.chunks, *after.chunks], type=before.type)
    encoded = together.dictionary_encode().unify_dictionaries()
    parts = [chunk.indices.fill_null(-1).to_numpy().astype(np.int64) for chunk in encoded.chunks]
    codes = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    return codes[: len(before)], codes[len(before) :]
