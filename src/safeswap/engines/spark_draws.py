"""What runs in Spark's workers: the draws of the records of an Arrow batch. It must not need the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Batches = Iterable[pa.RecordBatch]


def drawing(draw_key: bytes, identity_key: bytes, threshold: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function on batches that begin with the identifier: the records whose draw is at most ``threshold``.

    The two words of the cipher text follow the identifier as columns h and l: signed numbers in the same order, since
    Spark has no others.

    >>> batch = pa.record_batch({"i": [7, 8, 9], "v": ["a", "b", "c"]})
    >>> (drawn,) = drawing(bytes(32), bytes(32), 2**64 - 1)([batch])
    >>> drawn.schema.names, drawn.num_rows
    (['i', 'h', 'l', 'v'], 3)
    """

    def draw(batches: Batches) -> Iterator[pa.RecordBatch]:
        from safeswap.engines.identity import column_identity
        from safeswap.kernels import keyed

        for batch in batches:
            identity = column_identity(pa.chunked_array([batch.column(0)]), identity_key)
            blocks = keyed.integer_blocks(identity.view(np.int64)) if identity.ndim == 1 else identity.view(np.uint64)
            words = keyed.encrypt(blocks, draw_key)
            low = words[:, 0] <= np.uint64(threshold)
            taken = batch.take(pa.array(np.flatnonzero(low)))
            columns = [taken.column(0), *(_signed(words[low, word]) for word in (0, 1)), *taken.columns[1:]]
            first, *others = taken.schema.names
            yield pa.RecordBatch.from_arrays(columns, names=[first, "h", "l", *others])

    return draw


def _signed(words: npt.NDArray[np.uint64]) -> pa.Array:
    return pa.array((words ^ np.uint64(1 << 63)).view(np.int64))
