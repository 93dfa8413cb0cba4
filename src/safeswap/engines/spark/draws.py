"""Code that runs in Spark's workers: draws, codes and counts of a piece's records. It must not need the session."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.cells import CellSet
from safeswap.arrays.names import Names
from safeswap.arrays.types import Int64s, UInt64s
from safeswap.engines.base import KEEP, Derivation, Ends, Kernel, find_kept, number_labels
from safeswap.engines.spark.session import (
    Batches,
    Piece,
    pack,
    plain,
    receive,
    send,
    unpack,
    whole,
)
from safeswap.model.microdata import column_blocks, column_identity


class Step(Protocol):
    """The work of a task on a piece: it gets the row numbers, and the columns in the order asked for."""

    def __call__(self, rows: Int64s, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return the result."""
        ...


_spared: set[int] = set()
"""Numbers of modules that this worker had imported when they were exempted."""


def spare_imports() -> None:
    """Exempt modules and compiled kernels from the garbage collection that Spark runs in a worker after every task.

    It takes longer than a small task: a worker holds hundreds of thousands of objects that live as long as it does.
    """
    if len(sys.modules) not in _spared:
        gc.collect()
        gc.freeze()
        _spared.add(len(sys.modules))


@dataclass(frozen=True, eq=False)
class PieceRun:
    """Read the pieces whose numbers arrive, and run a step on each."""

    pieces: tuple[Piece, ...]
    names: Names
    step: Step

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run over the numbers of a partition."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                piece = self.pieces[number]
                table = piece.read(self.names)
                rows = np.arange(piece.first, piece.first + piece.records)
                yield self.step(rows, [whole(column) for column in table.columns])
        spare_imports()


@dataclass(frozen=True, eq=False)
class Draw:
    """The draws of records by their identifier, and codes of values.

    Derived keys, without the one they come from: a worker cannot draw for other data or another stage.
    """

    key: bytes = field(repr=False)
    identity_key: bytes = field(repr=False)
    code_key: bytes = field(repr=False)

    def words(self, own: pa.Array) -> UInt64s:
        """Return the whole cipher text of each record."""
        from safeswap.arrays import keyed

        words: UInt64s = keyed.encrypt(column_blocks(own, self.identity_key), self.key)
        return words

    def codes(self, columns: Sequence[pa.Array]) -> list[Int64s]:
        """Return the codes of each column."""
        return [value_codes(column, self.code_key) for column in columns]


@dataclass(frozen=True, eq=False)
class LowDraws:
    """Send records (identifier first) with a draw up to ``most`` to their slice: row, both words of the draw, codes.

    The words are signed numbers in the same order, as Spark has no unsigned ones.

    >>> step = LowDraws(Draw(bytes(32), bytes(32), bytes(32)), 2**64 - 1, 0)
    >>> sent = step(np.arange(3), [pa.array([7, 8, 9]), pa.array(["a", "b", "c"])])
    >>> receive([sent], (4,))[0][0][:, 0].tolist()
    [0, 1, 2]
    """

    draw: Draw
    most: int
    bits: int

    def __call__(self, rows: Int64s, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Run on a piece."""
        words = self.draw.words(columns[0])
        low = np.flatnonzero(words[:, 0] <= np.uint64(self.most))
        codes = self.draw.codes([column.take(pa.array(low)) for column in columns[1:]])
        signed = [_as_signed(words[low, word]) for word in (0, 1)]
        return send(np.column_stack([rows[low], *signed, *codes]), slice_of(signed[0], self.bits))


@dataclass(frozen=True, eq=False)
class Race:
    """Add arrival times, as usual and with ``weight``, to row and codes; l and m, the words of the draw, break ties.

    >>> step = Race(Draw(bytes(32), bytes(32), bytes(32)), 10.0)
    >>> step(np.arange(2), [pa.array([7, 8]), pa.array(["a", "b"])]).schema.names
    ['i', 'usual', 'sooner', 'l', 'm', 'g0']
    """

    draw: Draw
    weight: float

    def __call__(self, rows: Int64s, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Run on a piece."""
        from safeswap.arrays import order

        words = self.draw.words(columns[0])
        draws = np.ascontiguousarray(words[:, 0])
        # No time is negative, so their order as integers is the same, signed or not.
        times = [order.as_sortable(order.draw_arrivals(draws, each)).view(np.int64) for each in (1.0, self.weight)]
        ties = [_as_signed(words[:, word]) for word in (0, 1)]
        return _batch(["i", "usual", "sooner", "l", "m"], [rows, *times, *ties], self.draw.codes(columns[1:]), "g")


@dataclass(frozen=True, eq=False)
class CellCount:
    """Count the records of a piece by the codes of all columns, at most ``most`` cells; values are packed.

    >>> step = CellCount(bytes(32))
    >>> counted = step(np.arange(3), [pa.array(["a", "b", "a"])])
    >>> counted.schema.names, sorted(counted["n"].to_pylist())
    (['n', 'g0', 'v0'], [1, 2])
    """

    code_key: bytes = field(repr=False)
    most: int | None = None

    def __call__(self, rows: Int64s, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Run on a piece."""
        names = [f"g{j}" for j in range(len(columns))]
        codes = [pa.array(value_codes(column, self.code_key)) for column in columns]
        table = pa.table([*codes, pa.array(np.arange(len(rows)))], names=[*names, "place"])
        found = table.group_by(names, use_threads=False).aggregate([("place", "min"), ("place", "count")])
        found = found.slice(0, self.most).combine_chunks()
        places = whole(found.column("place_min"))
        values = [pack(column.take(places)) for column in columns]
        labels = [whole(found.column(name)) for name in names]
        kept = [f"v{j}" for j in range(len(columns))]
        counts = whole(found.column("place_count"))
        return pa.RecordBatch.from_arrays([counts, *labels, *values], names=["n", *names, *kept])


@dataclass(frozen=True, eq=False)
class IdentifierCheck:
    """Count missing identifiers in a piece, and see whether integers ascend, from the end of the piece before."""

    pieces: tuple[Piece, ...]
    own: str
    missing: tuple[str, ...]

    def __call__(self, rows: Int64s, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Run on a piece."""
        from safeswap.files.identifiers import find_missing

        column = pa.chunked_array([columns[0]])
        absent, ascends = len(find_missing(column, self.missing)), False
        if not absent:
            identity = column_identity(column, bytes(32))  # only integers are looked at
            if identity.ndim == 1:
                ascends = bool((identity[1:] > identity[:-1]).all()) and self._follows(int(rows[0]), int(identity[0]))
        names = ["absent", "ascends"]
        return pa.RecordBatch.from_arrays([pa.array([absent]), pa.array([int(ascends)])], names=names)

    def _follows(self, first: int, value: int) -> bool:
        before = next((piece for piece in self.pieces if piece.first + piece.records == first), None)
        if before is None:
            return True
        last = whole(before.read([self.own]).column(0))[-1].as_py()
        return last is not None and int(last) < value


@dataclass(frozen=True, eq=False)
class IdentityBlocks:
    """Return the blocks of the identifiers: equal where these are."""

    identity_key: bytes = field(repr=False)

    def __call__(self, rows: Int64s, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Run on a piece."""

        blocks = column_blocks(columns[0], self.identity_key)
        return _batch(["x", "y"], [np.ascontiguousarray(blocks[:, word]).view(np.int64) for word in (0, 1)], [], "")


def value_codes(column: pa.Array, key: bytes) -> Int64s:
    """Return a number for each value: 0 if it is missing, else a word that is random without the key.

    Two values share a word once in 10¹⁹ pairs; verification codes them again, under another key.

    >>> one, two, none, again = value_codes(pa.array(["a", "b", None, "a"]), bytes(32)).tolist()
    >>> one == again != two, none
    (True, 0)
    """
    from safeswap.arrays import keyed

    levels, indices = _levels(column)
    words = keyed.encrypt(column_blocks(levels, key), key)
    codes = np.append(np.ascontiguousarray(words[:, 0]).view(np.int64), np.int64(0))
    found: Int64s = codes[indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return found


def _levels(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the distinct values to the bit, and which of them each record has: coding few values is cheaper."""
    if pa.types.is_null(column.type):
        return pa.array([], pa.string()), pa.nulls(len(column), pa.int64())
    packed = pack(plain(column)).dictionary_encode()
    return unpack(packed.dictionary, plain(column).type), packed.indices


PARTNER = "p"


@dataclass(frozen=True, eq=False)
class TableDraw:
    """Turn identifier and values into row, draw, codes and derived columns."""

    names: Names
    draw: Draw
    keep: Ends | None
    among: CellSet | None
    derive: Derivation | None

    def __call__(self, rows: Int64s, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Run on a piece."""
        words = self.draw.words(columns[0])
        chosen = find_kept(words[:, 0], self.keep)
        taken = [column.take(pa.array(chosen)) for column in columns[1:]]
        codes = dict(zip(self.names, self.draw.codes(taken), strict=True))
        if self.among is not None:
            flags = self.among.flags([codes[name] for name in self.among.names])
            chosen, codes = chosen[flags], {name: column[flags] for name, column in codes.items()}
        added: dict[str, Any] = {}
        if self.derive is not None:
            added = dict(self.derive(np.ascontiguousarray(words[chosen, 0]), codes))
            flags = np.asarray(added.pop(KEEP, np.ones(len(chosen))), dtype=np.bool_)
            chosen = chosen[flags]
            codes, added = ({n: column[flags] for n, column in part.items()} for part in (codes, added))
            added = {name: added[name] for name in self.derive.adds if name != KEEP}
        values = [np.asarray(column).astype(np.int64) for column in (*codes.values(), *added.values())]
        signed = [_as_signed(words[chosen, word]) for word in (0, 1)]
        return _batch(["i", "h", "l"], [rows[chosen], *signed], values, "c")


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
        numbers = [pa.array(column, pa.int64()) for column in (*groups, *(added[name] for name in self.kernel.adds))]
        names = [rows.column_names[0], PARTNER, "h", "l", *(f"c{j}" for j in range(len(numbers)))]
        return pa.RecordBatch.from_arrays([own, mates, *words, *numbers], names=names)


Zeros = dict[int, tuple[int, int]]
"""The codes of −0.0 and 0.0, by the place of a floating-point attribute."""


def slice_of(first: Int64s, bits: int) -> Int64s:
    """Return the slice of the keyed order to which each first word belongs: its leading bits, which keep the order."""
    return first >> (64 - bits) if bits else np.zeros_like(first)


@dataclass(frozen=True, eq=False, kw_only=True)
class Walk:
    """Pair consecutive records of each stratum along the keyed order, slice by slice.

    A row is the record's number, the ``words`` of its draw, and codes: first of the attributes that must be equal, then
    of the groups that must differ. A stratum goes on from slice to slice, so a slice has to know in which strata the
    number of records before it is odd: there the first record pairs with an earlier one. Such records, and the last
    ones that remain, are left as singles: in the order of their stratum they are pairs again.
    """

    words: int
    strata: int
    equal: int
    unequal: tuple[tuple[int, ...], ...]
    width: int
    zeros: Zeros
    bits: int
    parts: int

    def pack(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Send rows to their slices."""
        for batch in batches:
            rows = np.column_stack([column.to_numpy() for column in batch.columns])
            yield send(rows, slice_of(rows[:, 1], self.bits))

    def unpack(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the rows of packets."""
        for (rows,) in receive(batches, (self.width,)).values():
            names = [*"ihlm"[: 1 + self.words], *(f"g{j}" for j in range(self.width - 1 - self.words))]
            yield _batch(names, [np.ascontiguousarray(column) for column in rows.T], [], "")

    def count_strata(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Send slice, codes and number of records of each stratum to the task that looks after the stratum."""
        for part, (rows,) in receive(batches, (self.width,)).items():
            counted = _count_rows(self._stratum(rows))
            counted = np.column_stack([np.full(len(counted), part), counted])
            yield send(counted, self._place(counted[:, 1:-1]))

    def find_odd(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Send each slice the strata with an odd number of records in the slices before it."""
        for (counted,) in receive(batches, (2 + self.strata,)).values():
            rows = _sort_rows(counted, (*range(1, 1 + self.strata), 0))
            starts = np.flatnonzero(_begins(rows[:, 1:-1]))
            before = np.cumsum(rows[:, -1]) - rows[:, -1]
            # Several pieces count a slice: what matters is the number before the first of them.
            first = np.flatnonzero(_begins(rows[:, :-1]))
            stratum = starts[np.searchsorted(starts, first, side="right") - 1]
            odd = rows[first[(before[first] - before[stratum]) % 2 == 1], :-1]
            yield send(odd, odd[:, 0], kind=1)

    def pair(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Pair the records of slices; kind 0: words of the later record and both rows; kind 1: singles."""
        for part, (rows, odd) in receive(batches, (self.width, 1 + self.strata)).items():
            pairs, singles = self._walk(rows, odd[odd[:, 0] == part, 1:])
            yield send(pairs, np.full(len(pairs), part))
            if self.bits:
                yield send(singles, self._place(self._stratum(singles)), kind=1)

    def pair_singles(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Pair the singles of all slices, and send the pairs to the slice of their later record."""
        for _, rows in receive(batches, (2 + self.words, self.width)).values():
            pairs, _ = self._walk(rows, np.zeros((0, self.strata), np.int64))
            yield send(pairs, slice_of(pairs[:, 0], self.bits))

    def _walk(self, rows: Int64s, odd: Int64s) -> tuple[Int64s, Int64s]:
        """Return the pairs that are allowed, and the singles; ``odd`` are strata that begin with a second record."""
        rows = _sort_rows(rows, (*range(1 + self.words, 1 + self.words + self.strata), *range(1, 1 + self.words)))
        begins = _begins(self._stratum(rows))
        ends = np.append(begins[1:], True)[: len(rows)]
        starts = np.flatnonzero(begins)
        shift = _is_among(self._stratum(rows)[starts], odd)
        group = np.cumsum(begins) - 1
        is_first = (np.arange(len(rows)) - starts[group] + shift[group]) % 2 == 0
        first = np.flatnonzero(is_first & ~ends)
        first = first[self._may_pair(rows[first], rows[first + 1])]
        pairs = np.column_stack([rows[first + 1, 1 : 1 + self.words], rows[first, 0], rows[first + 1, 0]])
        return pairs, rows[(is_first & ends) | (~is_first & begins)]

    def _may_pair(self, one: Int64s, two: Int64s) -> npt.NDArray[np.bool_]:
        """Return whether pairs agree and differ as required; −0.0 does not differ from 0.0."""
        place = 1 + self.words
        allowed: npt.NDArray[np.bool_] = np.all(
            one[:, place:][:, : self.equal] == two[:, place:][:, : self.equal], axis=1
        )
        for group in self.unequal:
            same = [self._values(one, j) == self._values(two, j) for j in group]
            allowed &= ~np.all(same, axis=0)
        return allowed

    def _values(self, rows: Int64s, place: int) -> Int64s:
        column = rows[:, 1 + self.words + place]
        if place not in self.zeros:
            return column
        minus, zero = self.zeros[place]
        return np.where(column == minus, zero, column)

    def _stratum(self, rows: Int64s) -> Int64s:
        return rows[:, 1 + self.words : 1 + self.words + self.strata]

    def _place(self, strata: Int64s) -> Int64s:
        """Return the task that looks after each stratum: codes are random words."""
        places: Int64s = np.bitwise_xor.reduce(strata, axis=1, initial=0) % self.parts
        return places


@dataclass(frozen=True, eq=False)
class NumberPairs:
    """Number the pairs of each slice, from the number of those in the slices before, up to ``wanted``."""

    words: int
    before: dict[int, int]
    wanted: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield place and both rows."""
        for part, (pairs,) in receive(batches, (self.words + 2,)).items():
            rows = _sort_rows(pairs, range(self.words))[: max(0, self.wanted - self.before[part])]
            places = self.before[part] + 1 + np.arange(len(rows))
            yield _batch(["k", "a", "b"], [places, *np.ascontiguousarray(rows[:, -2:].T)], [], "")


def _sort_rows(rows: Int64s, by: Sequence[int]) -> Int64s:
    return rows[np.lexsort([rows[:, column] for column in reversed(by)])]


def _begins(labels: Int64s) -> npt.NDArray[np.bool_]:
    """Return where a row of sorted labels is another than the one before."""
    begins = np.any(labels[1:] != labels[:-1], axis=1)
    return np.append(True, begins)[: len(labels)]


def _count_rows(labels: Int64s) -> Int64s:
    """Return the distinct rows, each with the number of its occurrences as the last column."""
    names = [str(j) for j in range(labels.shape[1])]
    if not names:
        return np.array([[len(labels)]])
    table = pa.table([np.ascontiguousarray(column) for column in labels.T], names=names)
    counted = table.group_by(names, use_threads=False).aggregate([([], "count_all")])
    return np.column_stack([counted.column(name).to_numpy() for name in (*names, "count_all")])


def _is_among(labels: Int64s, some: Int64s) -> npt.NDArray[np.bool_]:
    number = number_labels(np.concatenate([some, labels]))
    return np.isin(number[len(some) :], number[: len(some)])


def _as_signed(words: npt.NDArray[np.uint64]) -> Int64s:
    return (words ^ np.uint64(1 << 63)).view(np.int64)


def _batch(first: list[str], columns: Sequence[Int64s], others: Sequence[Int64s], prefix: str) -> pa.RecordBatch:
    names = [*first, *(f"{prefix}{j}" for j in range(len(others)))]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in (*columns, *others)], names=names)
