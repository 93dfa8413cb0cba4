"""Records streamed in batches, coded by levels as they are found."""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import cells, keyed
from safeswap.arrays.integer_codes import IntegerCodes
from safeswap.arrays.types import Int32s, Rows, UInt32s, Words
from safeswap.engines.base import Classes, Constraint, number_labels
from safeswap.engines.spilled_cells import open_private, translate_write_errors
from safeswap.model.microdata import column_blocks, drop_signed_zero, signed_zeros, smallest_code_type
from safeswap.model.schema import Schema

# Known values of a column, each with its place, so that a batch costs no more than it holds: areas of a country are too
# many to hash again with every batch.


class KnownLevels(Protocol):
    """Values by place."""

    def __len__(self) -> int: ...

    @property
    def levels(self) -> pa.Array:
        """The values in the order of first appearance."""
        ...

    def places(self, values: pa.Array) -> UInt32s:
        """Return the places of non-missing values; new ones take the next places in their order."""
        ...


def known_levels(kind: pa.DataType) -> KnownLevels:
    """Return an empty set of known values of a type.

    >>> known = known_levels(pa.string())
    >>> known.places(pa.array(["b"])).tolist(), known.places(pa.array(["a", "b"])).tolist(), known.levels.to_pylist()
    ([0], [1, 0], ['b', 'a'])
    """
    if pa.types.is_integer(kind):
        return _Numbers(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _Texts(kind)
    return _Values(kind)


class _Numbers:
    """Whole numbers; a request may contain repetitions."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._numbers = IntegerCodes()
        self._levels = pa.array([], kind)

    def __len__(self) -> int:
        return len(self._numbers.levels)

    @property
    def levels(self) -> pa.Array:
        if len(self._levels) < len(self):
            numbers = self._numbers.levels
            whole = self._kind == pa.uint64()
            self._levels = pa.array(numbers.view(np.uint64)) if whole else pa.array(numbers).cast(self._kind)
        return self._levels

    def places(self, values: pa.Array) -> UInt32s:
        return self._numbers.code(_as_signed(values))

    def count(self, values: pa.Array, counts: Int32s) -> None:
        """Add known values to the counts by place."""
        self._numbers.count(_as_signed(values), counts)


def _as_signed(values: pa.Array) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return numbers.view(np.int64) if numbers.dtype == np.uint64 else numbers


class _Texts:
    """Texts, distinct within a request, identified by two words that are random without the key.

    The first word finds the place and the second confirms it. Should two texts share the first word, which in a
    country's worth of areas happens once in a million runs, everything restarts with another key.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._parts = [pa.array([], kind)]
        self._begin()

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def levels(self) -> pa.Array:
        if len(self._parts) > 1:
            self._parts = [pa.concat_arrays(self._parts)]
        return self._parts[0]

    def places(self, values: pa.Array) -> UInt32s:
        first = self._parts[0]
        if len(values) <= len(first) and values.equals(first.slice(0, len(values))):
            return np.arange(len(values), dtype=np.uint32)  # the usual case with few values
        found = self._enter(values)
        while found is None:
            self._begin()
            if self._enter(self.levels) is not None:
                found = self._enter(values)
        fresh = np.flatnonzero(found >= len(self))
        if len(fresh):
            self._parts.append(values.take(pa.array(fresh)))
        return found

    def _begin(self) -> None:
        self._key = secrets.token_bytes(32)
        self._numbers = IntegerCodes()
        self._second: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)

    def _enter(self, values: pa.Array) -> UInt32s | None:
        """Return the places of texts; None if two of all share the first word."""
        words = keyed.encrypt(column_blocks(values, self._key), self._key)
        known = len(self._numbers.levels)
        places: UInt32s = self._numbers.code(np.ascontiguousarray(words[:, 0]).view(np.int64))
        number = len(self._numbers.levels)
        if number > len(self._second):
            self._second = np.concatenate([self._second, np.zeros(number // 2 + number - known, dtype=np.uint64)])
        fresh = places >= known
        self._second[places[fresh][::-1]] = words[fresh, 1][::-1]
        return places if bool((self._second[places] == words[:, 1]).all()) else None


class _Values:
    """Any other values, distinct within a request, as Arrow compares them."""

    def __init__(self, kind: pa.DataType) -> None:
        self.levels = pa.array([], kind)

    def __len__(self) -> int:
        return len(self.levels)

    def places(self, values: pa.Array) -> UInt32s:
        none = pa.array([], pa.int32())
        every = pa.array(np.arange(len(values), dtype=np.int32))
        both = pa.chunked_array(
            [
                pa.DictionaryArray.from_arrays(none, self.levels),
                pa.DictionaryArray.from_arrays(every, values),
            ]
        ).unify_dictionaries()
        self.levels = both.chunk(0).dictionary
        places: UInt32s = both.chunk(1).indices.to_numpy(zero_copy_only=False).astype(np.uint32)
        return places


MISSING = 0
"""The code of a missing value; levels are numbered from 1."""

_MERGE = 1 << 20
_VALUES = 1 << 21


class Source(Protocol):
    """A source of batches, readable repeatedly and always in the same order."""

    def __len__(self) -> int: ...

    def batches(self, names: Sequence[str], *, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield some columns, at most ``rows`` rows at a time, each batch with the number of its first record."""
        ...


def rows_per_batch(columns: int) -> int:
    """Return the number of rows to read: fewer with more columns, so that memory stays about the same.

    >>> rows_per_batch(1), rows_per_batch(11)
    (1048576, 174762)
    """
    return max(1 << 16, _VALUES // (1 + columns))


class LevelCoder:
    """Codes one column's values as integers. A value keeps its integer across batches.

    >>> coder = LevelCoder()
    >>> coder.codes(pa.array(["b", None])).tolist(), coder.codes(pa.array(["a", "b"])).tolist()
    ([1, 0], [2, 1])
    >>> coder.values(np.array([2, 0], np.uint32)).to_pylist()
    ['a', None]
    """

    def __init__(self) -> None:
        self._known: KnownLevels | None = None
        self._is_half = False

    @property
    def levels(self) -> pa.Array | None:
        """The values met so far, in the order of their codes."""
        if self._known is None:
            return None
        return self._known.levels.view(pa.float16()) if self._is_half else self._known.levels

    @property
    def bound(self) -> int:
        """A number above every code."""
        return 1 if self._known is None else 1 + len(self._known)

    def codes(self, column: pa.Array) -> UInt32s:
        """Return the codes of these values; new values get new codes."""
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        self._is_half = pa.types.is_float16(column.type)
        column = column.view(pa.uint16()) if self._is_half else column  # Arrow does not unify half floats
        if pa.types.is_integer(column.type):
            return self._code_integers(column)
        encoded = _encode(column)
        indices = encoded.indices
        if indices.null_count:
            indices = indices.fill_null(len(encoded.dictionary))
        of_entry = np.append(self._codes_of(encoded.dictionary), np.uint32(MISSING))
        codes: UInt32s = of_entry[indices.to_numpy(zero_copy_only=False)]
        return codes

    def count(self, column: pa.Array, counts: Int32s) -> None:
        """Add the records of each value met before to the counts by code, which have a place for every record."""
        if isinstance(self._known, _Numbers):
            self._known.count(column.drop_null(), counts[MISSING + 1 :])
            counts[MISSING] += column.null_count
        elif self._known is not None:
            np.add.at(counts, self.codes(column), np.int32(1))

    def values(self, codes: UInt32s) -> pa.Array:
        """Return the values of these codes, dictionary-encoded."""
        assert self.levels is not None  # noqa: S101  (every code has a level)
        missing = codes == MISSING
        indices = codes.astype(np.int32) - 1
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=missing if missing.any() else None), self.levels)

    def _code_integers(self, column: pa.Array) -> UInt32s:
        """Return the codes of whole numbers, which need not be made distinct first."""
        if not column.null_count:
            return self._codes_of(column)
        codes = np.full(len(column), MISSING, dtype=np.uint32)
        codes[np.asarray(column.is_valid())] = self._codes_of(column.drop_null())
        return codes

    def _codes_of(self, values: pa.Array) -> UInt32s:
        if self._known is None:
            self._known = known_levels(values.type)
        codes: UInt32s = self._known.places(values)
        codes += np.uint32(1)
        return codes


def _encode(column: pa.Array) -> pa.DictionaryArray:
    """Encode with 32-bit indices and a dictionary without repeated or missing entries."""
    if not pa.types.is_dictionary(column.type):
        return column.dictionary_encode()
    if column.dictionary.null_count or len(column.dictionary.unique()) < len(column.dictionary):
        return column.cast(column.type.value_type).dictionary_encode()
    if column.type.index_type == pa.int32() and not column.type.ordered:
        return column
    return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), column.dictionary)


class KeptCodes:
    """The codes of a column on disk, as narrow as they were when written; to read them takes a tenth of decoding.

    >>> import tempfile
    >>> kept = KeptCodes(Path(tempfile.mkdtemp()) / "codes")
    >>> kept.add(np.array([1, 2], np.uint32), 3)
    >>> kept.add(np.array([700, 2], np.uint32), 701)
    >>> kept.read(1, 3).tolist()
    [2, 700]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._starts, self._offsets, self._kinds = [0], [0], list[np.dtype[Any]]()

    def add(self, codes: UInt32s, bound: int) -> None:
        """Write the codes of the next records, all below ``bound``."""
        narrow = codes.astype(smallest_code_type(bound), copy=False)
        with translate_write_errors(), open(self.path, "ab", opener=open_private) as file:
            file.write(narrow.data)
        self._starts.append(self._starts[-1] + len(codes))
        self._offsets.append(self._offsets[-1] + narrow.nbytes)
        self._kinds.append(narrow.dtype)

    def read(self, start: int, stop: int) -> UInt32s:
        """Return the codes of the records from ``start`` to ``stop``."""
        codes: UInt32s = np.empty(stop - start, dtype=np.uint32)
        done = start
        with self.path.open("rb") as file:
            while done < stop:
                place = bisect_right(self._starts, done) - 1
                number = min(stop, self._starts[place + 1]) - done
                file.seek(self._offsets[place] + (done - self._starts[place]) * self._kinds[place].itemsize)
                codes[done - start : done - start + number] = np.fromfile(file, self._kinds[place], number)
                done += number
        return codes


class StreamBatch:
    """Some records of a stream: columns read from its source, and the codes of others from disk."""

    def __init__(self, stream: RecordStream, start: int, stop: int, columns: Mapping[str, pa.Array]) -> None:
        self._stream, self.start, self.stop, self.columns = stream, start, stop, columns

    def codes(self, name: str, places: Rows | None = None) -> UInt32s:
        """Return the codes of a column, of all records or of those in some places."""
        if name in self.columns:
            column = self.columns[name]
            return self._stream.codes(name, column if places is None else column.take(pa.array(places)))
        codes = self._stream.kept[name].read(self.start, self.stop)
        return codes if places is None else codes[places]


class RecordStream:
    """The records of a file, read from disk again whenever they are needed.

    With a ``work`` directory, the codes of a column that was coded as a whole are kept there.
    """

    def __init__(self, source: Source, schema: Schema, work: Path | None = None) -> None:
        self.source = source
        self.schema = schema
        self.coders: dict[str, LevelCoder] = {}
        self.kept: dict[str, KeptCodes] = {}
        self._work = work

    def __len__(self) -> int:
        return len(self.source)

    def is_constant(self, name: str) -> bool:
        """Return True if all records have the same value of an attribute; unused levels do not matter."""
        met: set[int] = set()
        for _, (codes,) in self.coded((name,)):
            met.update((int(codes.min()), int(codes.max())))
            if len(met) > 1:  # most often the first batch tells
                return False
        return True

    def coded(self, names: Sequence[str]) -> Iterator[tuple[int, list[UInt32s]]]:
        """Yield the codes of some columns in batches."""
        with self._keeping([] if self._work is None else [name for name in names if name not in self.kept]) as keeping:
            for batch in self.batches(names):
                codes = {name: batch.codes(name) for name in names}
                for name, kept in keeping.items():
                    kept.add(codes[name], self.coder(name).bound)
                yield batch.start, [codes[name] for name in names]

    @contextmanager
    def _keeping(self, names: Sequence[str]) -> Iterator[dict[str, KeptCodes]]:
        """Keep the codes of these columns, unless the pass over the file ends early."""
        kept = {name: KeptCodes(Path(str(self._work)) / f"codes-{secrets.token_hex(8)}") for name in names}
        try:
            yield kept
            self.kept |= kept
        finally:
            for name, codes in kept.items():
                if self.kept.get(name) is not codes:
                    codes.path.unlink(missing_ok=True)

    def batches(self, names: Sequence[str], *, identified: bool = False) -> Iterator[StreamBatch]:
        """Yield some columns, and if asked for what tells the records apart."""
        own = self.schema.identifier
        read = [] if own is None or not identified else [own.name]
        read += [name for name in names if name not in self.kept and name not in read]
        rows = rows_per_batch(len(names))
        if not read:
            for start in range(0, len(self), rows):
                yield StreamBatch(self, start, min(start + rows, len(self)), {})
            return
        for start, batch in self.source.batches(read, rows=rows):
            columns = dict(zip(read, batch.columns, strict=True))
            yield StreamBatch(self, start, start + batch.num_rows, columns)

    def draw_batches(
        self, names: Sequence[str], *, draw_key: bytes, identity_key: bytes
    ) -> Iterator[tuple[StreamBatch, Words]]:
        """Yield some columns and the whole cipher text of each record, which gives its draw."""
        for batch in self.batches(names, identified=True):
            yield batch, self.encrypt(batch, draw_key=draw_key, identity_key=identity_key)

    def encrypt(self, batch: StreamBatch, places: Rows | None = None, *, draw_key: bytes, identity_key: bytes) -> Words:
        """Return the whole cipher text of the records of a batch, or of those in some places."""
        if self.schema.identifier is None:
            rows = np.arange(batch.stop - batch.start, dtype=np.int64) if places is None else places
            return keyed.encrypt(keyed.integer_blocks(rows + batch.start), draw_key)
        column = batch.columns[self.schema.identifier.name]
        column = column if places is None else column.take(pa.array(places))
        return keyed.encrypt(column_blocks(column, identity_key), draw_key)

    def words(self, rows: Rows, *, draw_key: bytes, identity_key: bytes) -> Words:
        """Return the whole cipher text of some records, given by ascending row."""
        if self.schema.identifier is None:
            return keyed.encrypt(keyed.integer_blocks(rows.astype(np.int64)), draw_key)
        own = self.schema.identifier.name
        found: Words = np.empty((len(rows), 2), dtype=np.uint64)
        for start, batch in self.source.batches([own], rows=rows_per_batch(1)):
            low, high = np.searchsorted(rows, [start, start + batch.num_rows])
            some = batch.column(0).take(pa.array(rows[low:high] - start))
            found[low:high] = keyed.encrypt(column_blocks(some, identity_key), draw_key)
        return found

    def codes(self, name: str, column: pa.Array) -> UInt32s:
        """Return the codes of some values of a column."""
        return self.coder(name).codes(column)

    def coder(self, name: str) -> LevelCoder:
        """Return the coder of a column, a new one if none of its values has been met."""
        return self.coders.setdefault(name, LevelCoder())

    def classes(self, constraint: Constraint) -> Classes:
        """Count the records by stratum and coordinates, holding one row per class."""
        names = (*constraint.equal, *(name for group in constraint.unequal for name in group))
        labels, counts = self.counts(names)
        return _as_classes(self.without_signed_zeros(names, labels, constraint), counts, constraint)

    def signed_zeros(self, name: str) -> tuple[int, int] | None:
        """Return the codes of −0.0 and of 0.0, if both were met."""
        levels = self.coders[name].levels
        zeros = None if levels is None else signed_zeros(levels)
        return None if zeros is None else (zeros[0] + 1, zeros[1] + 1)

    def without_signed_zeros(
        self, names: Sequence[str], labels: npt.NDArray[np.int64], constraint: Constraint
    ) -> npt.NDArray[np.int64]:
        """Replace −0.0 by 0.0 in combinations of codes, except for the attributes that must be equal."""
        merged = labels.copy()
        for place, name in enumerate(names):
            if place >= len(constraint.equal):
                merged[:, place] = drop_signed_zero(labels[:, place], self.signed_zeros(name))
        return merged

    def counts(self, names: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the occurring combinations of codes, a row each, and their numbers of records."""
        tally = Tally(len(names))
        for _, codes in self.coded(names):
            tally.add(codes, [self.coders[name].bound for name in names])
        return tally.totals()


class Tally:
    """Counts by combinations of codes, batch by batch.

    >>> tally = Tally(2)
    >>> tally.add([np.array([1, 1], np.uint32), np.array([2, 2], np.uint32)], [2, 3])
    >>> tally.add([np.array([0, 1], np.uint32), np.array([2, 2], np.uint32)], [2, 3])
    >>> [each.tolist() for each in tally.totals()]
    [[[0, 2], [1, 2]], [1, 3]]
    """

    def __init__(self, columns: int) -> None:
        self._labels: list[UInt32s] = [np.zeros((0, columns), dtype=np.uint32)]
        self._counts = [np.zeros(0, dtype=np.int64)]

    def add(self, codes: Sequence[UInt32s], bounds: Sequence[int]) -> None:
        """Count records, given their codes in each column and exclusive upper bounds of these."""
        if prod(bounds) <= cells.MOST_CELLS:
            counted = cells.count_cells(codes, bounds)
            columns = np.unravel_index(counted.codes.astype(np.int64), tuple(bounds))
            labels, counts = np.stack(columns, axis=1).astype(np.uint32), counted.counts
        else:
            labels, counts = np.unique(np.stack(codes, axis=1), axis=0, return_counts=True)
        self._labels.append(labels)
        self._counts.append(counts)
        if sum(map(len, self._counts)) > _MERGE + 2 * len(self._counts[0]):
            self._merge()

    def totals(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the combinations in ascending order, and their numbers of records."""
        self._merge()
        return self._labels[0].astype(np.int64), self._counts[0]

    def _merge(self) -> None:
        labels, counts = np.concatenate(self._labels), np.concatenate(self._counts)
        self._labels, self._counts = [], []
        order = _order(labels)
        labels, counts = labels[order], counts[order]
        if len(labels):
            begins = np.flatnonzero(np.r_[True, (labels[1:] != labels[:-1]).any(axis=1)])
            labels, counts = labels[begins], np.add.reduceat(counts, begins)
        self._labels, self._counts = [labels], [counts]


def _order(labels: UInt32s) -> npt.NDArray[np.int64]:
    """Sort combinations, by a single packed number each if possible."""
    bounds = labels.max(axis=0, initial=0).astype(object) + 1
    if prod(bounds) > cells.MOST_CELLS:
        return np.lexsort(labels.T[::-1])
    packed = np.zeros(len(labels), dtype=np.int64)
    for column, bound in zip(labels.T, bounds, strict=True):
        packed = packed * int(bound) + column
    return np.argsort(packed, kind="stable")  # fast on partly sorted input


def _as_classes(labels: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], constraint: Constraint) -> Classes:
    """Sort by the codes of the Fixed attributes, which come first, so that classes of a stratum are adjacent."""
    width = len(constraint.equal)
    groups = []
    for group in constraint.unequal:
        groups.append(number_labels(labels[:, width : width + len(group)]))
        width += len(group)
    return Classes(
        strata=number_labels(labels[:, : len(constraint.equal)]), coordinates=np.stack(groups, axis=1), counts=counts
    )
