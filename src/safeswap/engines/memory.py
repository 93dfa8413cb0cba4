"""The engine for data that fit in memory: NumPy columns and Numba kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import (
    cells,
    keyed,
    matching,
    order,
)
from safeswap.arrays.cells import CellSet
from safeswap.arrays.compiled import run_all, run_pieces, split_runs
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Counts, Flags, Identity, Int64s, Integers, Rows, UInt32s, Words
from safeswap.engines.base import (
    DRAW,
    KEEP,
    Cells,
    Classes,
    Constraint,
    Derivation,
    Ends,
    Kernel,
    Move,
    Need,
    PairRequest,
    Pairs,
    Table,
    find_kept,
    prefix_share,
)
from safeswap.errors import InternalError
from safeswap.model.key import Key
from safeswap.model.microdata import Coded, Microdata, drop_signed_zero, record_identity, signed_zeros
from safeswap.model.spec import Targeting

_WHOLE_FILE = 100_000
"""Up to this many records the whole order is computed at once; above, only the prefix needed."""

_CELLS_PER_RECORD = 16
"""Largest number of possible cells per record at which an array of flags is faster than a hash table."""

_PASSES_OF_TAKING = 3
"""Rows that are all over a column take as long to read as so many passes over as many neighbours."""


class MemoryRecords:
    """The records of data in memory; the reference for other engines."""

    name: ClassVar[str] = "memory"
    lacks: ClassVar[Mapping[Need, str]] = {}

    def __init__(self, data: Microdata, key: Key | None = None) -> None:
        self.data = data
        self.schema = data.schema
        self._key = key

    def __len__(self) -> int:
        return len(self.data)

    @property
    def attributes(self) -> Names:
        """The attributes, in file order."""
        return self.data.attributes

    @property
    def held(self) -> Microdata:
        """The data."""
        return self.data

    @cached_property
    def identity(self) -> Identity:
        """The input of the keyed draws, one per record."""
        if self._key is None:
            raise InternalError("drawing records needs a key", code="no-key")
        return record_identity(self.data, keyed.derive(self._key.secret, "identity"))

    def is_constant(self, name: str) -> bool:
        """Return True if all records have the same value of an attribute."""
        return self.data.is_constant(name)

    def is_unique(self, name: str) -> bool:
        """Return True if every record has a value of an attribute, and no two have the same."""
        coded = self.data.coded(name)
        return not coded.has_missing and len(np.unique(coded.codes)) == len(self)

    def count(self, *keys: Names) -> tuple[Cells, ...]:
        """Count the records by each set of attributes."""
        return tuple(self._count(names) for names in keys)

    def _count(self, names: Names) -> Cells:
        codes, sizes = self.data.coded_columns(names)
        labels, counts = _count_occupied(codes, sizes)
        values = [_decode(self.data.coded(name), labels[:, i]) for i, name in enumerate(names)]
        return Cells(names=names, codes=labels, counts=counts, values=pa.table(values, names=list(names)))

    def classes(self, constraint: Constraint) -> Classes:
        """Count the records by stratum and coordinates."""
        labels, counts = _count_occupied(*_labels(self.data, constraint, None))
        return Classes(strata=labels[:, 0], coordinates=labels[:, 1:], counts=counts)

    def pair(self, request: PairRequest) -> Rows:
        """Draw pairs along the keyed order; repair a shortfall up to the true maximum if requested."""
        if request.wanted == 0:
            return np.zeros((0, 2), dtype=np.int64)
        if request.targeting is not None:
            weights = _weights(self.data, request.targeting, 2 * request.wanted)
            rows = order.draw_weighted(self.identity, request.draw_key, weights)
            found = _walk(self.data, request, rows)[0]
        elif request.partners is not None:
            rows = order.draw_prefix(self.identity, request.draw_key, 1.0)
            found = _walk(self.data, request, rows)[0]
        else:
            rows, found = _walk_prefixes(self.data, request, self.identity)
        if len(found) < request.wanted and request.repair:
            found = _repair(self.data, request, rows, found)
        return _take_rows([rows], found.ravel())[0].reshape(-1, 2)

    def draw(
        self,
        names: Names,
        key: bytes,
        *,
        keep: Ends | None = None,
        among: CellSet | None = None,
        derive: Derivation | None = None,
    ) -> MemoryTable:
        """Load the draws and the codes of some attributes."""
        if among is not None:
            rows = np.flatnonzero(_flag_cells(among, *self.data.coded_columns(among.names)))
            draws = keyed.draws(order.as_blocks(self.identity[rows]), key)
            kept = find_kept(draws, keep)
            rows, draws = rows[kept], draws[kept]
        else:
            rows, draws = self._draw(key, keep)
        columns: dict[str, Integers] = {name: self.data.coded(name).codes[rows] for name in names}
        bounds = {name: self.data.coded(name).cardinality for name in names}
        if derive is not None:
            added = dict(derive(draws, columns))
            if KEEP in added:
                flags = added.pop(KEEP)
                if not flags.all():
                    kept = np.flatnonzero(flags)
                    rows, draws = rows[kept], draws[kept]
                    columns, added = ({n: column[kept] for n, column in part.items()} for part in (columns, added))
            columns |= added
        return MemoryTable(
            rows, draws, columns, bounds, lambda some: keyed.encrypt(order.as_blocks(self.identity[some]), key)
        )

    def load(self, names: Names) -> Microdata:
        """Return the data."""
        return self.data

    def words(self, rows: Rows, key: bytes) -> Words:
        """Return the whole draws of some records."""
        return keyed.encrypt(order.as_blocks(self.identity[rows]), key)

    def pair_rows(self, rows: Rows) -> Rows:
        """Return the pairs."""
        return rows

    def _draw(self, key: bytes, keep: Ends | None) -> tuple[Rows, Words]:
        found: list[tuple[Rows, Words]] = []
        for start, draws in keyed.draw_chunks(self.identity, key):
            rows = find_kept(draws, keep)
            found.append((rows + start, draws[rows]))
        none = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
        rows_of, draws_of = zip(none, *found, strict=True)
        return np.concatenate(rows_of), np.concatenate(draws_of)

    def exchange(self, moves: Iterable[Move]) -> Microdata:
        """Return the data with values exchanged, move after move; all other columns are shared."""
        data = self.data
        for move in moves:
            data = exchange(data, move.names, move.pairs, directed=move.directed)
        return data


class MemoryTable:
    """Rows of integers as NumPy arrays: the row in the file, the first word of its draw, and named columns."""

    def __init__(
        self,
        rows: Rows,
        draws: Words,
        columns: Mapping[str, Integers],
        bounds: Mapping[str, int],
        encrypt: Callable[[Rows], Words],
    ) -> None:
        self._rows, self._draws, self._columns, self._bounds = rows, draws, dict(columns), dict(bounds)
        self._encrypt = encrypt  # the whole draws of some rows

    def map_groups(self, by: Names, order: Names, kernel: Kernel) -> Self:
        """Sort and run the kernel on all groups at once."""
        places = self._sort((*by, *order))
        columns = {name: self._columns[name][places] for name in dict.fromkeys((*by, *kernel.needs))}
        begins = np.ones(len(places) + 1, dtype=np.bool_)
        begins[1:-1] = np.logical_or.reduce([columns[name][1:] != columns[name][:-1] for name in by])
        bounds = np.flatnonzero(begins)
        added = dict(kernel(bounds, columns))
        rows, draws = self._rows[places], self._draws[places]
        if kernel.partner:
            partner = added[kernel.partner]
            added[kernel.partner] = np.where(partner < 0, -1, rows[partner])
        kept = {name: columns[name] for name in by}
        bounds_of = {name: bound for name, bound in self._bounds.items() if name in by}
        return self._derive(rows, draws, {**kept, **added}, bounds_of)

    def where(self, name: str, value: int) -> Self:
        """Return the rows with this value in a column."""
        return self._take(np.flatnonzero(self._columns[name] == value))

    def union(self, other: Table) -> Table:
        """Return the rows of both tables."""
        assert isinstance(other, MemoryTable)  # noqa: S101  (tables of one engine)
        columns = {name: np.concatenate([column, other._columns[name]]) for name, column in self._columns.items()}
        rows, draws = np.concatenate([self._rows, other._rows]), np.concatenate([self._draws, other._draws])
        return self._derive(rows, draws, columns, self._bounds)

    def totals(self, *names: str) -> tuple[int, ...]:
        """Return the sums of some columns."""
        return tuple(int(self._columns[name].sum()) for name in names)

    def distinct(self, names: Names) -> Int64s:
        """Return the distinct combinations of some columns."""
        some = np.unique(self._pack(names), return_index=True)[1]
        return np.stack([self._columns[name][some].astype(np.int64) for name in names], axis=1)

    def pairs(self, first: str, partner: str, order: Names) -> Pairs:
        """Pair each row in which ``first`` is 1 with its partner."""
        return self.pair_rows(first, partner, order)

    def pair_rows(self, first: str, partner: str, order: Names) -> Rows:
        """Return the rows of the file of each pair."""
        chosen = self.where(first, 1)
        places = chosen._sort(order)
        return np.stack([chosen._rows[places], chosen._columns[partner][places]], axis=1)

    def rows(self, name: str) -> Rows:
        """Return the rows of the file in which a column is 1."""
        chosen: Rows = self._rows[self._columns[name] == 1]
        return chosen

    def partners(self, name: str, partner: str = "mate") -> Rows:
        """Return the rows of the file that are partners of those in which a column is 1."""
        chosen: Rows = self._columns[partner][self._columns[name] == 1].astype(np.int64, copy=False)
        return chosen

    def _take(self, places: Rows) -> Self:
        columns = {name: column[places] for name, column in self._columns.items()}
        return self._derive(self._rows[places], self._draws[places], columns, self._bounds)

    def _derive(self, rows: Rows, draws: Words, columns: Mapping[str, Integers], bounds: Mapping[str, int]) -> Self:
        return type(self)(rows, draws, columns, bounds, self._encrypt)

    def _sort(self, names: Names) -> Rows:
        """Return the positions in the order of some columns, the draw last if it is one of them."""
        places: Rows = np.arange(len(self._rows), dtype=np.int64)
        if DRAW in names:
            places = order.sort_by_draw(places, self._draws, lambda some: self._encrypt(self._rows[some]))
        others = tuple(name for name in names if name != DRAW)
        if not others:
            return places
        packed = self._pack(others)
        return order.sort_rows(packed, int(packed.max(initial=0)) + 1, places.astype(np.uint32))[1].astype(np.int64)

    def _pack(self, names: Names) -> Codes:
        """Return a number for each combination of some columns, in their lexical order."""
        columns, bounds = zip(*map(self._count_from_zero, names), strict=True)
        return cells.pack(columns, bounds)[0]

    def _count_from_zero(self, name: str) -> tuple[Codes, int]:
        """Return a column as numbers from 0 in the same order, and a number above all of them."""
        column = self._columns[name]
        if name in self._bounds:
            return column.view(f"u{column.dtype.itemsize}"), max(self._bounds[name], 1)
        least = int(column.min(initial=0))
        if least < 0:  # the difference of two integers fits an unsigned one, where it wraps around
            column = column.astype(np.int64).view(np.uint64) - np.uint64(least % 2**64)
        numbers: Codes = column.view(f"u{column.dtype.itemsize}")
        return numbers, int(numbers.max(initial=0)) + 1


def exchange(data: Microdata, attributes: Names, pairs: Rows, *, directed: bool = False) -> Microdata:
    """Exchange values within each pair; all other columns are shared with the input. Codes are kept where known."""
    columns: dict[str, pa.ChunkedArray] = {}
    coded: dict[str, Coded] = {}

    def move_values(name: str) -> None:
        columns[name] = _exchange_values(data.table.column(name), pairs, directed=directed)

    def move_codes(name: str) -> None:
        before = data.cached_codes(name)
        if before is not None:
            codes = before.codes.copy()
            order.exchange(codes, pairs, directed=directed)
            coded[name] = Coded(codes, before.levels, before.has_missing)

    moves = [(move, name) for name in attributes for move in (move_values, move_codes)]
    run_all(lambda each: each[0](each[1]), moves, len(split_runs(len(data), len(moves))))
    return data.with_columns({name: columns[name] for name in attributes}, coded)


def _take_rows(columns: Sequence[npt.NDArray[Any]], rows: Rows) -> list[npt.NDArray[Any]]:
    """Return some rows of the columns."""
    taken = [np.empty(len(rows), dtype=column.dtype) for column in columns]

    def take(run: tuple[int, int]) -> None:
        for column, some in zip(columns, taken, strict=True):
            some[slice(*run)] = column[rows[slice(*run)]]

    run_pieces(take, len(rows), _PASSES_OF_TAKING * len(columns))
    return taken


def _flag_cells(among: CellSet, columns: Sequence[Codes], sizes: Sequence[int]) -> Flags:
    """Flag the records of some cells; one packed number is found sooner than a combination."""
    if prod(sizes) > cells.MOST_CELLS:
        return among.flags(columns)
    packed = np.ravel_multi_index(tuple(among.rows.T), tuple(sizes))
    if prod(sizes) <= _CELLS_PER_RECORD * len(columns[0]):
        is_wanted = np.zeros(prod(sizes), dtype=np.bool_)
        is_wanted[packed] = True
        return is_wanted[cells.pack(columns, sizes)[0]]
    return CellSet(("packed",), packed.reshape(-1, 1)).flags([cells.pack(columns, sizes)[0]])


def _decode(coded: Coded, codes: Int64s) -> pa.Array:
    """Return the values of some codes; the last code is that of a missing value, if there is any."""
    missing = codes == len(coded.levels)
    return coded.levels.take(pa.array(codes, mask=missing if missing.any() else None))


def _count_occupied(codes: Sequence[Codes], sizes: Sequence[int]) -> tuple[Int64s, Counts]:
    """Return the occurring combinations of codes, a row each, sorted by the first column, and their counts."""
    if prod(sizes) <= cells.MOST_CELLS:
        counted = cells.count_cells(codes, sizes)
        labels = np.unravel_index(counted.codes.astype(np.int64), tuple(sizes))
        return np.stack(labels, axis=1).astype(np.int64), counted.counts
    first, _, counts = _distinct(list(codes), list(sizes))
    return np.stack([column[first] for column in codes], axis=1).astype(np.int64), counts


def _labels(
    data: Microdata, constraint: Constraint, rows: Rows | None, *, exact: bool = False
) -> tuple[list[Codes], list[int]]:
    """Return the stratum and the label in each coordinate, a column each, for all records or for some rows.

    −0.0 and 0.0 have one label in a coordinate, since they do not differ, unless ``exact`` labels are requested. Those
    have the carried attributes as a last column.
    """
    records = len(data) if rows is None else len(rows)
    codes: list[Codes] = []
    sizes: list[int] = []
    groups = (constraint.equal, *constraint.unequal, *([constraint.carried] if exact and constraint.carried else []))
    for place, names in enumerate(groups):
        columns, cardinalities = data.coded_columns(names)
        if place and not exact:
            zeros = (signed_zeros(data.coded(name).levels) for name in names)
            columns = [drop_signed_zero(*each) for each in zip(columns, zeros, strict=True)]
        if rows is not None:
            columns = _take_rows(columns, rows)
        label, size = cells.pack(columns, cardinalities) if names else (np.zeros(records, dtype=np.uint8), 1)
        codes.append(label)
        sizes.append(size)
    return codes, sizes


def _pair_labels(data: Microdata, constraint: Constraint, rows: Rows) -> tuple[UInt32s, int, UInt32s]:
    """Return strata, their number and coordinates of some rows, as :func:`safeswap.arrays.order.walk` takes them."""
    codes, sizes = _labels(data, constraint, rows)
    columns = [_narrow(code, size) for code, size in zip(codes, sizes, strict=True)]
    strata, number = columns[0] if constraint.equal else (np.zeros(0, dtype=np.uint32), 1)
    coordinates = [column for column, _ in columns[1:]]
    return strata, number, np.stack(coordinates, axis=1) if len(coordinates) > 1 else coordinates[0].reshape(-1, 1)


def _distinct(codes: list[Codes], sizes: list[int]) -> tuple[Rows, Rows, Counts]:
    """Return the classes, sorted by stratum: the first record of each, the class of each record, the counts."""
    packed, _ = cells.pack(codes, sizes)
    _, first, inverse, counts = np.unique(packed, return_index=True, return_inverse=True, return_counts=True)
    return first, inverse, counts


def _narrow(codes: Codes, size: int) -> tuple[UInt32s, int]:
    """Return labels as 32-bit array indices, renumbered if there are too many possible ones."""
    if size <= max(4 * len(codes), 1 << 16) and size <= 1 << 32:
        return codes.astype(np.uint32, copy=False), size
    distinct, inverse = np.unique(codes, return_inverse=True)
    return inverse.astype(np.uint32), len(distinct)


def _walk(data: Microdata, request: PairRequest, rows: Rows) -> tuple[Rows, int]:
    strata, number, coordinates = _pair_labels(data, request.constraint, rows)
    if request.partners is not None:
        codes = {name: data.coded(name).codes[rows] for name in request.partners.names}
        choice = order.Choice(*request.partners.numbers(codes))
        return order.walk_best(strata, number, coordinates, request.wanted, choice), len(rows)
    found, looked_at, _ = order.walk(strata, number, coordinates, request.wanted, request.repair)
    return found, looked_at


def _walk_prefixes(
    data: Microdata, request: PairRequest, identity: npt.NDArray[np.int64] | npt.NDArray[np.uint64]
) -> tuple[Rows, Rows]:
    """Walk a prefix of the order that should suffice, and a longer one if it does not."""
    records = len(data)
    expected = request.pairs_per_record
    share = 0.0
    while True:
        share = 1.0 if records <= _WHOLE_FILE else prefix_share(request, records, expected, share)
        rows = order.draw_prefix(identity, request.draw_key, share)
        found, looked_at = _walk(data, request, rows)
        if len(found) >= request.wanted or share >= 1.0:
            return rows, found
        expected = (len(found) + 1) / (looked_at + 1)


def _weights(data: Microdata, targeting: Targeting, wanted: int) -> npt.NDArray[np.float64]:
    """Return the weight of each record: the targeting weight in a cell below ``n``, 1 elsewhere; or by its size."""
    columns, cardinalities = data.coded_columns(targeting.keys or data.schema.categorical)
    counts = cells.record_cell_counts(columns, cardinalities)
    if targeting.rule == "pps":
        return order.weights_by_size(np.maximum(0, targeting.n - counts) + 1.0, wanted)
    return np.where(counts < targeting.n, targeting.weight, 1.0)


def _repair(data: Microdata, request: PairRequest, rows: Rows, found: Rows) -> Rows:
    """Keep as many random pairs as still allow the target, and pair the rest exactly on counts of classes.

    ``rows`` is the whole keyed order. Adding a random pair never raises (pairs kept + best of the rest), so bisection
    finds the largest number that can be kept.
    """
    codes, sizes = _labels(data, request.constraint, rows, exact=True)
    class_of, classes = _canonical_classes(codes, sizes, _labels(data, request.constraint, rows)[0][1:])
    target = min(request.wanted, _best(classes, classes.counts))
    kept = _bisect(
        len(found),
        lambda q: q + _best(classes, _subtract_members(classes.counts, class_of[found[:q].ravel()])) >= target,
    )
    rest = np.ones(len(rows), dtype=np.bool_)
    rest[found[:kept].ravel()] = False
    places = np.flatnonzero(rest)
    counts = _subtract_members(classes.counts, class_of[found[:kept].ravel()])
    moves = matching.largest_matching(classes.strata, classes.coordinates, counts).moves
    dealt = places[order.assign_moves(class_of[places].astype(np.uint32), moves, len(classes.counts))]
    first = np.argsort(dealt.max(axis=1), kind="stable")[: target - kept]
    repaired: Rows = np.concatenate([found[:kept], dealt[first]])
    return repaired


def _canonical_classes(codes: list[Codes], sizes: list[int], labels: list[Codes]) -> tuple[Rows, Classes]:
    """Number classes by first appearance in the keyed order: neither row order nor names of levels matter."""
    first, inverse, counts = _distinct(codes, sizes)
    strata_codes = codes[0][first]
    earliest: dict[int, int] = {}
    for place, stratum in sorted(zip(first.tolist(), strata_codes.tolist(), strict=True)):
        earliest.setdefault(stratum, place)
    stratum_place = np.array([earliest[s] for s in strata_codes.tolist()], dtype=np.int64)
    arranged = np.lexsort((first, stratum_place))
    number = np.empty(len(first), dtype=np.int64)
    number[arranged] = np.arange(len(first))
    coordinates = np.stack([column[first[arranged]] for column in labels], axis=1).astype(np.int64)
    return number[inverse], Classes(
        strata=stratum_place[arranged], coordinates=coordinates, counts=counts[arranged].astype(np.int64)
    )


def _best(classes: Classes, counts: Counts) -> int:
    return matching.largest_total(classes.strata, classes.coordinates, counts).found


def _subtract_members(counts: Counts, members: Rows) -> Counts:
    remaining: Counts = counts - np.bincount(members, minlength=len(counts))
    return remaining


def _bisect(most: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number up to ``most`` that ``holds``; it holds for 0 and never again after a failure."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _exchange_values(column: pa.ChunkedArray, pairs: Rows, *, directed: bool) -> pa.ChunkedArray:
    """Exchange values of a column; the values themselves are moved, never rebuilt from codes."""
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_float64(column.type)):
        values = np.concatenate([np.empty(0, column.type.to_pandas_dtype()), *(c.to_numpy() for c in column.chunks)])
        order.exchange(values, pairs, directed=directed)
        return pa.chunked_array([pa.array(values, type=column.type)])
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # the result of combining an empty column
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], type=column.type)
    if pa.types.is_dictionary(whole.type) and whole.null_count == 0:
        indices = whole.indices.to_numpy().copy()
        order.exchange(indices, pairs, directed=directed)
        # Unchecked: the indices are the same as before, in another order.
        moved = pa.DictionaryArray.from_arrays(
            pa.array(indices), whole.dictionary, ordered=whole.type.ordered, safe=False
        )
        return pa.chunked_array([moved])
    source = np.arange(len(whole), dtype=np.int64)
    order.exchange(source, pairs, directed=directed)
    return pa.chunked_array([whole.take(pa.array(source))])
