"""Code that runs in Spark's workers: the draws of the records of an Arrow batch. It must not need the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.cell_set import CellSet
from safeswap.arrays.names import Names
from safeswap.engines.base import KEEP, Derivation, Ends, Kernel

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

    Columns usual, sooner, l and m follow the identifier; l and m, which break ties, are the words of the draw.

    >>> batch = pa.record_batch({"i": [7, 8, 9], "v": ["a", "b", "c"]})
    >>> (raced,) = make_racer(bytes(32), bytes(32), 10.0)([batch])
    >>> raced.schema.names
    ['i', 'usual', 'sooner', 'l', 'm', 'v']
    """

    def race(batches: Batches) -> Iterator[pa.RecordBatch]:
        from safeswap.arrays import order

        for batch in batches:
            words = _words(batch, draw_key, identity_key)
            draws = np.ascontiguousarray(words[:, 0])
            # No time is negative, so their order as integers is the same, signed or not.
            times = [order.sortable(order.arrivals(draws, each)).view(np.int64) for each in (1.0, weight)]
            ties = [_as_signed(words[:, word]) for word in (0, 1)]
            columns = [batch.column(0), *map(pa.array, times), *ties, *batch.columns[1:]]
            first, *others = batch.schema.names
            yield pa.RecordBatch.from_arrays(columns, names=[first, "usual", "sooner", "l", "m", *others])

    return race


def make_coder(key: bytes) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function on batches (identifier first) that adds the code of each value after the identifier.

    >>> batch = pa.record_batch({"i": [7, 8], "v": ["a", "a"], "w": [3, None]})
    >>> (coded,) = make_coder(bytes(32))([batch])
    >>> coded.schema.names, coded["w0"][0] == coded["w0"][1]
    (['i', 'w0', 'w1', 'v', 'w'], True)
    """

    def code(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            codes = [pa.array(value_codes(column, key)) for column in batch.columns[1:]]
            first, *others = batch.schema.names
            names = [first, *(f"w{j}" for j in range(len(codes))), *others]
            yield pa.RecordBatch.from_arrays([batch.column(0), *codes, *batch.columns[1:]], names=names)

    return code


def value_codes(column: pa.Array, key: bytes) -> npt.NDArray[np.int64]:
    """Return a number for each value: 0 if it is missing, else a word that is random without the key.

    Two values share a word once in 10¹⁹ pairs; verification compares the values themselves.
    """
    from safeswap.arrays import keyed
    from safeswap.engines.identity import column_blocks

    codes = np.zeros(len(column), dtype=np.int64)
    known = np.flatnonzero(np.asarray(column.is_valid()))
    words = keyed.encrypt(column_blocks(column.drop_null(), key), key)
    codes[known] = np.ascontiguousarray(words[:, 0]).view(np.int64)
    return codes


PARTNER = "p"


@dataclass(frozen=True, eq=False)
class TableDraw:
    """Turn batches of identifier and values into identifier, draw, codes and derived columns."""

    names: Names
    draw_key: bytes = field(repr=False)
    identity_key: bytes = field(repr=False)
    code_key: bytes = field(repr=False)
    keep: Ends | None
    among: CellSet | None
    derive: Derivation | None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over the batches of a partition."""
        for batch in batches:
            words = _words(batch, self.draw_key, self.identity_key)
            rows = np.arange(len(words)) if self.keep is None else _at_ends(words[:, 0], self.keep)
            taken = batch.take(pa.array(rows))
            codes = {n: value_codes(c, self.code_key) for n, c in zip(self.names, taken.columns[1:], strict=True)}
            if self.among is not None:
                flags = self.among.flags([codes[name] for name in self.among.names])
                rows, codes = rows[flags], {name: column[flags] for name, column in codes.items()}
            added: dict[str, Any] = {}
            if self.derive is not None:
                added = dict(self.derive(np.ascontiguousarray(words[rows, 0]), codes))
                flags = np.asarray(added.pop(KEEP, np.ones(len(rows))), dtype=np.bool_)
                rows = rows[flags]
                codes, added = ({n: column[flags] for n, column in part.items()} for part in (codes, added))
                added = {name: added[name] for name in self.derive.adds if name != KEEP}
            numbers = [pa.array(column.astype(np.int64)) for column in (*codes.values(), *added.values())]
            columns = [batch.column(0).take(pa.array(rows)), *(_as_signed(words[rows, w]) for w in (0, 1)), *numbers]
            names = [batch.schema.names[0], "h", "l", *(f"c{j}" for j in range(len(numbers)))]
            yield pa.RecordBatch.from_arrays(columns, names=names)


@dataclass(frozen=True, eq=False)
class GroupRun:
    """Run a kernel over the sorted rows of a partition, cut where a group ends."""

    read: Names
    width: int
    kernel: Kernel

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield identifier, the partner's identifier, the draw, the columns of the groups, and what the kernel adds."""
        held: pa.Table | None = None
        for batch in batches:
            fresh = pa.Table.from_batches([batch])
            held = fresh if held is None else pa.concat_tables([held, fresh])
            bounds = self._bounds(held)
            stop = int(bounds[-2]) if len(bounds) > 1 else 0  # the last group may go on in the next batch
            if stop:
                yield self._run(held.slice(0, stop), bounds[:-1])
                held = held.slice(stop)
        if held is not None and held.num_rows:
            yield self._run(held, self._bounds(held))

    def _bounds(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        begins = np.zeros(rows.num_rows, dtype=np.bool_)
        begins[:1] = True
        for column in rows.columns[3 : 3 + self.width]:
            values = column.to_numpy()
            begins[1:] |= values[1:] != values[:-1]
        return np.append(np.flatnonzero(begins), rows.num_rows)

    def _run(self, rows: pa.Table, bounds: npt.NDArray[np.int64]) -> pa.RecordBatch:
        own = rows.column(0).combine_chunks()
        own = pa.concat_arrays(own.chunks) if isinstance(own, pa.ChunkedArray) else own
        columns = {name: rows.column(3 + j).to_numpy() for j, name in enumerate(self.read)}
        added = dict(self.kernel(bounds, columns))
        partner = added[self.kernel.partner] if self.kernel.partner else np.full(rows.num_rows, -1)
        mates = own.take(pa.array(partner, mask=partner < 0))
        if self.kernel.partner:
            added[self.kernel.partner] = (partner >= 0).astype(np.int64)
        words = [pa.array(rows.column(j).to_numpy()) for j in (1, 2)]
        groups = [columns[name] for name in self.read[: self.width]]
        numbers = [pa.array(column) for column in (*groups, *(added[name] for name in self.kernel.adds))]
        names = [rows.column_names[0], PARTNER, "h", "l", *(f"c{j}" for j in range(len(numbers)))]
        return pa.RecordBatch.from_arrays([own, mates, *words, *numbers], names=names)


def _at_ends(draws: npt.NDArray[np.uint64], keep: Ends) -> npt.NDArray[np.int64]:
    return np.flatnonzero((draws < np.uint64(keep.below)) | (draws >= np.uint64(keep.since)))


def _words(batch: pa.RecordBatch, draw_key: bytes, identity_key: bytes) -> npt.NDArray[np.uint64]:
    """Return the whole cipher text of each record, from its identifier, the first column."""
    from safeswap.arrays import keyed
    from safeswap.engines.identity import column_blocks

    return keyed.encrypt(column_blocks(batch.column(0), identity_key), draw_key)


def _as_signed(words: npt.NDArray[np.uint64]) -> pa.Array:
    return pa.array((words ^ np.uint64(1 << 63)).view(np.int64))
