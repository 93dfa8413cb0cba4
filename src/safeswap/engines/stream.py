"""Records that pass by in batches, coded by levels that are learnt on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.engines.base import Classes, Constraint
from safeswap.engines.identity import column_identity
from safeswap.kernels import cells, keyed
from safeswap.model.schema import Schema

Codes = npt.NDArray[np.uint32]
MISSING = 0
"""The code of a missing value; levels are numbered from 1."""

_MERGE = 1 << 20


class Source(Protocol):
    """Where batches come from, as often as they are asked for and always in the same order."""

    def __len__(self) -> int: ...

    def batches(self, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Some columns, a batch at a time, each with the number of its first record."""
        ...


class LevelCoder:
    """One column's values as integers. A value keeps its integer, whichever batch it comes in.

    >>> coder = LevelCoder()
    >>> coder.codes(pa.array(["b", None])).tolist(), coder.codes(pa.array(["a", "b"])).tolist()
    ([1, 0], [2, 1])
    >>> coder.values(np.array([2, 0], np.uint32)).to_pylist()
    ['a', None]
    """

    def __init__(self) -> None:
        self._parts: list[pa.Array] = []
        self._number = 0
        self._whole = _KnownNumbers()
        self.has_missing = False

    @property
    def levels(self) -> pa.Array | None:
        """The values that have been met, in the order of their codes."""
        if len(self._parts) > 1:
            self._parts = [pa.concat_arrays(self._parts)]
        return self._parts[0] if self._parts else None

    @property
    def distinct(self) -> int:
        """How many different values have been met, missing counted as one."""
        return self._number + self.has_missing

    @property
    def bound(self) -> int:
        """A number above every code."""
        return 1 + self._number

    def codes(self, column: pa.Array) -> Codes:
        """The codes of these values; values that are new get new codes."""
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        encoded = _encoded(column)
        indices = encoded.indices
        if indices.null_count:
            self.has_missing = True
            indices = indices.fill_null(len(encoded.dictionary))
        of_entry = np.append(self._places(encoded.dictionary) + 1, MISSING).astype(np.uint32)
        codes: Codes = of_entry[indices.to_numpy(zero_copy_only=False)]
        return codes

    def values(self, codes: Codes) -> pa.Array:
        """The values behind codes, as codes with a dictionary."""
        assert self.levels is not None  # noqa: S101  (no code is without a level)
        missing = codes == MISSING
        indices = codes.astype(np.int32) - 1
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=missing if missing.any() else None), self.levels)

    def _places(self, entries: pa.Array) -> npt.NDArray[np.int64]:
        """Where these values, all different, stand among the levels; those that are new come last, in their order."""
        if pa.types.is_integer(entries.type):
            places = self._whole.places(entries.to_numpy(zero_copy_only=False))
            fresh = entries.take(pa.array(np.flatnonzero(places >= self._number)))
            if len(fresh) or not self._parts:
                self._parts.append(fresh)
        else:
            known = entries.slice(0, 0) if self.levels is None else self.levels
            none = pa.array([], pa.int32())
            every = pa.array(np.arange(len(entries), dtype=np.int32))
            both = pa.chunked_array(
                [
                    pa.DictionaryArray.from_arrays(none, known),
                    pa.DictionaryArray.from_arrays(every, entries),
                ]
            ).unify_dictionaries()
            self._parts = [both.chunk(0).dictionary]
            places = both.chunk(1).indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._number = max(self._number, int(places.max(initial=-1)) + 1)
        return places


class _KnownNumbers:
    """Whole numbers in their order, each with its place: areas of a country are too many to be hashed anew each time.

    >>> known = _KnownNumbers()
    >>> known.places(np.array([7, 3])).tolist(), known.places(np.array([5, 3, 9])).tolist()
    ([0, 1], [2, 1, 3])
    """

    def __init__(self) -> None:
        self._numbers: npt.NDArray[Any] = np.zeros(0, dtype=np.int64)
        self._places: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def places(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The places of these numbers, all different; new ones take the next places in their order."""
        if not len(self._numbers):
            self._numbers = self._numbers.astype(numbers.dtype)
        at = np.searchsorted(self._numbers, numbers)
        is_known = at < len(self._numbers)
        is_known[is_known] = self._numbers[at[is_known]] == numbers[is_known]
        found = np.empty(len(numbers), dtype=np.int64)
        found[is_known] = self._places[at[is_known]]
        fresh = np.flatnonzero(~is_known)
        if len(fresh):
            found[fresh] = len(self._numbers) + np.arange(len(fresh))
            order = fresh[np.argsort(numbers[fresh])]
            self._places = np.insert(self._places, at[order], found[order])
            self._numbers = np.insert(self._numbers, at[order], numbers[order])
        return found


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    """With 32-bit indices and a dictionary without repeated or missing entries."""
    if not pa.types.is_dictionary(column.type):
        return column.dictionary_encode()
    if column.dictionary.null_count or len(column.dictionary.unique()) < len(column.dictionary):
        return column.cast(column.type.value_type).dictionary_encode()
    if column.type.index_type == pa.int32() and not column.type.ordered:
        return column
    return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), column.dictionary)


class RecordStream:
    """The records of a file that is read from disk again whenever they are needed."""

    def __init__(self, source: Source, schema: Schema) -> None:
        self.source = source
        self.schema = schema
        self.coders: dict[str, LevelCoder] = {}
        self._seen: set[str] = set()

    def __len__(self) -> int:
        return len(self.source)

    def is_constant(self, name: str) -> bool:
        """Whether all records have the same value of an attribute."""
        if name not in self._seen:
            for _ in self.coded((name,)):
                pass
        return self.coders[name].distinct < 2

    def coded(self, names: Sequence[str], source: Source | None = None) -> Iterator[tuple[int, list[Codes]]]:
        """The codes of some columns, a batch at a time; also of another file, by the same levels."""
        coders = [self.coders.setdefault(name, LevelCoder()) for name in names]
        for start, batch in (source or self.source).batches(names):
            yield start, [coder.codes(column) for coder, column in zip(coders, batch.columns, strict=True)]
        if source is None:
            self._seen.update(names)

    def drawn(
        self, names: Sequence[str], *, draw_key: bytes, identity_key: bytes
    ) -> Iterator[tuple[int, keyed.Words, list[Codes]]]:
        """The whole cipher text of each record, from which its draw comes, and the codes of some columns."""
        attribute = self.schema.identifier
        own = [] if attribute is None else [attribute.name]
        coders = [self.coders.setdefault(name, LevelCoder()) for name in names]
        for start, batch in self.source.batches([*own, *names]):
            columns = [coder.codes(column) for coder, column in zip(coders, batch.columns[len(own) :], strict=True)]
            yield start, keyed.encrypt(_blocks(batch, start, own, identity_key), draw_key), columns
        self._seen.update(names)

    def classes(self, constraint: Constraint) -> Classes:
        """Count the records by stratum and coordinates; what is held is a line per class."""
        names = (*constraint.equal, *(name for group in constraint.unequal for name in group))
        return _as_classes(*self.counts(names), constraint)

    def counts(self, names: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The combinations of codes that occur, a line each, and how many records have them."""
        return self.several_counts([names])[0]

    def several_counts(
        self, sets: Sequence[Sequence[str]]
    ) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """The counts over several sets of columns, for which the records pass by once."""
        names = list(dict.fromkeys(name for columns in sets for name in columns))
        tallies = [_Tally(len(columns)) for columns in sets]
        for _, codes in self.coded(names):
            for tally, columns in zip(tallies, sets, strict=True):
                bounds = [self.coders[name].bound for name in columns]
                tally.add([codes[names.index(name)] for name in columns], bounds)
        return [tally.totals() for tally in tallies]


def _blocks(batch: pa.RecordBatch, start: int, own: list[str], identity_key: bytes) -> keyed.Words:
    if not own:
        return keyed.integer_blocks(np.arange(start, start + batch.num_rows, dtype=np.int64))
    identity: Any = column_identity(pa.chunked_array([batch.column(0)]), identity_key)
    return keyed.integer_blocks(identity) if identity.ndim == 1 else identity


class _Tally:
    """Counts by combinations of codes, batch after batch."""

    def __init__(self, columns: int) -> None:
        self._labels: list[npt.NDArray[np.int64]] = [np.zeros((0, columns), dtype=np.int64)]
        self._counts = [np.zeros(0, dtype=np.int64)]

    def add(self, codes: list[Codes], bounds: list[int]) -> None:
        if prod(bounds) <= cells.MOST_CELLS:
            counted = cells.cell_counts(codes, bounds)
            self._labels.append(np.stack(np.unravel_index(counted.codes.astype(np.int64), bounds), axis=1))
            self._counts.append(counted.counts)
        else:
            labels, counts = np.unique(np.stack(codes, axis=1), axis=0, return_counts=True)
            self._labels.append(labels.astype(np.int64))
            self._counts.append(counts)
        if sum(map(len, self._counts)) > _MERGE + 2 * len(self._counts[0]):
            merged, totals = self.totals()
            self._labels, self._counts = [merged], [totals]

    def totals(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        labels, counts = np.concatenate(self._labels), np.concatenate(self._counts)
        distinct, inverse = np.unique(labels, axis=0, return_inverse=True)
        totals = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(totals, inverse.ravel(), counts)
        return distinct, totals


def _as_classes(labels: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], constraint: Constraint) -> Classes:
    """Sorted by the codes of the Fixed attributes, which come first: classes of a stratum stand together."""
    width = len(constraint.equal)
    groups = []
    for group in constraint.unequal:
        groups.append(dense(labels[:, width : width + len(group)]))
        width += len(group)
    return Classes(
        strata=dense(labels[:, : len(constraint.equal)]), coordinates=np.stack(groups, axis=1), counts=counts
    )


def dense(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A number per combination, in the order of the combinations.

    >>> dense(np.array([[3, 1], [2, 9], [3, 1]])).tolist()
    [1, 0, 1]
    """
    if not labels.shape[1]:
        return np.zeros(len(labels), dtype=np.int64)
    numbers: npt.NDArray[np.int64] = np.unique(labels, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    return numbers
