"""Code that runs in Spark's workers: the draws of the records of an Arrow batch. It must not need the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Batches = Iterable[pa.RecordBatch]


def drawing(
    draw_key: bytes, identity_key: bytes, threshold: int, *, least: int = 0
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function on batches (identifier first) that keeps records with a draw from ``least`` to ``threshold``.

    The two words of the cipher text follow the identifier as columns h and l: signed numbers in the same order, as
    Spark has no unsigned ones.

    >>> batch = pa.record_batch({"i": [7, 8, 9], "v": ["a", "b", "c"]})
    >>> (drawn,) = drawing(bytes(32), bytes(32), 2**64 - 1)([batch])
    >>> drawn.schema.names, drawn.num_rows
    (['i', 'h', 'l', 'v'], 3)
    """

    def draw(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            words = _words(batch, draw_key, identity_key)
            low = (words[:, 0] >= np.uint64(least)) & (words[:, 0] <= np.uint64(threshold))
            taken = batch.take(pa.array(np.flatnonzero(low)))
            columns = [taken.column(0), *(_as_signed(words[low, word]) for word in (0, 1)), *taken.columns[1:]]
            first, *others = taken.schema.names
            yield pa.RecordBatch.from_arrays(columns, names=[first, "h", "l", *others])

    return draw


def make_racer(draw_key: bytes, identity_key: bytes, weight: float) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function on batches (identifier first) that adds arrival times, as usual and with ``weight``.

    Columns usual, sooner and l follow the identifier; l, which breaks ties, is the draw.

    >>> batch = pa.record_batch({"i": [7, 8, 9], "v": ["a", "b", "c"]})
    >>> (raced,) = make_racer(bytes(32), bytes(32), 10.0)([batch])
    >>> raced.schema.names
    ['i', 'usual', 'sooner', 'l', 'v']
    """

    def race(batches: Batches) -> Iterator[pa.RecordBatch]:
        from safeswap.arrays import order

        for batch in batches:
            draws = np.ascontiguousarray(_words(batch, draw_key, identity_key)[:, 0])
            # No time is negative, so their order as integers is the same, signed or not.
            times = [order.sortable(order.arrivals(draws, each)).view(np.int64) for each in (1.0, weight)]
            columns = [batch.column(0), *map(pa.array, times), _as_signed(draws), *batch.columns[1:]]
            first, *others = batch.schema.names
            yield pa.RecordBatch.from_arrays(columns, names=[first, "usual", "sooner", "l", *others])

    return race


def _words(batch: pa.RecordBatch, draw_key: bytes, identity_key: bytes) -> npt.NDArray[np.uint64]:
    """Return the whole cipher text of each record, from its identifier, the first column."""
    from safeswap.arrays import keyed
    from safeswap.engines.identity import column_blocks

    return keyed.encrypt(column_blocks(batch.column(0), identity_key), draw_key)


def _as_signed(words: npt.NDArray[np.uint64]) -> pa.Array:
    return pa.array((words ^ np.uint64(1 << 63)).view(np.int64))
