"""A column in which some rows get other values, without a copy of more than its bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.kernels.types import Rows


def replaced_column(column: pa.ChunkedArray, rows: Rows, values: pa.Array) -> pa.ChunkedArray:
    """The column with ``values[i]`` in row ``rows[i]``; rows are distinct, in any order. The type stays.

    >>> column = pa.chunked_array([["a", "b"], ["c", None]])
    >>> replaced_column(column, np.array([3, 0]), pa.array(["x", None])).to_pylist()
    [None, 'b', 'c', 'x']
    """
    if pa.types.is_dictionary(column.type) and column.num_chunks > 1:
        column = column.unify_dictionaries()
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    values = values.take(pa.array(order))
    if not pa.types.is_dictionary(column.type) and values.type != column.type:
        values = values.cast(column.type)
    chunks, start = [], 0
    for chunk in column.chunks:
        first, last = np.searchsorted(ascending, [start, start + len(chunk)])
        chunks.append(_replaced(chunk, ascending[first:last] - start, values[first:last]) if last > first else chunk)
        start += len(chunk)
    return pa.chunked_array(chunks, type=column.type)


def _replaced(chunk: pa.Array, rows: Rows, values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(chunk.type):
        places = pc.index_in(values.cast(chunk.dictionary.type), value_set=chunk.dictionary, skip_nulls=True)
        indices = _replaced(chunk.indices, rows, places.cast(chunk.indices.type))
        return pa.DictionaryArray.from_arrays(indices, chunk.dictionary, ordered=chunk.type.ordered)
    mask = np.zeros(len(chunk), dtype=np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(chunk, pa.array(mask), values)
