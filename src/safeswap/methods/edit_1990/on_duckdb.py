"""The Confidentiality Edit of 1990 on DuckDB: households of the same key, matched by the rank of their draws.

Only the sample is walked: sorted by key and draw, a run of records at a time, by the kernel of
:mod:`safeswap.methods.edit_1990.same_key`. Those left over lie in one area per key and take, by rank, the households of
the key with the highest draws elsewhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import keyed, sparse
from safeswap.arrays.names import Names
from safeswap.arrays.sampling import RESERVED_FROM, draw_limit
from safeswap.arrays.types import Codes, Counts, Flags, Rows, Words
from safeswap.engines.duckdb.engine import DuckDBEngine, StoredPairs, table_by_position
from safeswap.engines.identity import column_blocks
from safeswap.engines.spilled_cells import SpilledCells
from safeswap.engines.stream import MISSING, RecordStream, Tally, rows_per_batch
from safeswap.methods.edit_1990.areas import FoundPartners
from safeswap.methods.edit_1990.same_key import pair_groups
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.model.schema import level_texts

_MOST = 1 << 62
_ONE = np.uint64(1)
_NOWHERE = np.uint32(2**32 - 1)


class LevelCounts:
    """Number of records with each code.

    >>> counts = LevelCounts()
    >>> counts.add(np.array([1, 3], np.uint32), 4)
    >>> counts.add(np.array([5, 1], np.uint32), 6)
    >>> counts.total([1, 5, 99])
    3
    """

    def __init__(self) -> None:
        self._counts: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def add(self, codes: Codes, bound: int) -> None:
        """Count records, all of whose codes are below ``bound``."""
        self._counts = _grow(self._counts, bound, 0)
        _count(codes, self._counts)

    def total(self, codes: list[int]) -> int:
        """Return the number of records with one of these codes."""
        known = [code for code in codes if code < len(self._counts)]
        return int(self._counts[known].sum())


class Nesting:
    """The area of a coarser level that contains each area of a finer one, and those that lie in several.

    >>> nesting = Nesting()
    >>> nesting.add(np.array([1, 2], np.uint32), np.array([1, 1], np.uint32), 3)
    >>> nesting.add(np.array([2, 2], np.uint32), np.array([1, 2], np.uint32), 3)
    >>> nesting.straddling
    1
    """

    def __init__(self) -> None:
        self._around: npt.NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)
        self._straddles: npt.NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

    def add(self, fine: Codes, coarse: Codes, bound: int) -> None:
        """Add records, whose codes of the finer level are below ``bound``."""
        self._around = _grow(self._around, bound, _NOWHERE)
        self._straddles = _grow(self._straddles, bound, 0)
        _look_around(fine, coarse, self._around, self._straddles)

    @property
    def straddling(self) -> int:
        """The number of areas of the finer level that lie in more than one of the coarser."""
        return int(np.count_nonzero(self._straddles))


class Among:
    """Finds the records with one of some combinations of codes, reading as few columns as possible.

    >>> among = Among([3, 9], np.array([[1, 2], [2, 8]]))
    >>> among.flags([np.array([1, 1, 2], np.uint32), np.array([2, 8, 8], np.uint32)]).tolist()
    [True, False, True]
    """

    def __init__(self, bounds: Sequence[int], combinations: npt.NDArray[np.int64]) -> None:
        # The columns whose combination fits a number; later ones are ignored.
        fit = [i for i in range(len(bounds) + 1) if prod(bounds[:i]) < _MOST]
        self._bounds = [int(bound) for bound in bounds[: fit[-1]]]
        wanted = np.zeros(len(combinations), dtype=np.uint64)
        for column, bound in zip(combinations.T, self._bounds, strict=False):
            wanted = wanted * np.uint64(bound) + column.astype(np.uint64)
        self._wanted = np.unique(wanted)
        self._slots = np.zeros(1 << (4 * len(self._wanted) + 1).bit_length(), dtype=np.int32)
        sparse.enter(self._wanted, self._slots)

    def flags(self, columns: Sequence[Codes]) -> npt.NDArray[np.bool_]:
        """Flag records that may have one: no false negatives, and exact unless there are 2⁶² combinations or more."""
        packed = np.zeros(len(columns[0]), dtype=np.uint64)
        for column, bound in zip(columns, self._bounds, strict=False):
            packed *= np.uint64(bound)
            packed += column
        flags = np.empty(len(packed), dtype=np.bool_)
        _look_up(packed, self._wanted, self._slots, flags)
        return flags


def _grow(array: npt.NDArray[Any], bound: int, filling: Any) -> npt.NDArray[Any]:
    """Grow an array to at least ``bound`` entries, in steps large enough to make growing cheap."""
    if len(array) >= bound:
        return array
    more = np.full(max(bound, len(array) + len(array) // 2) - len(array), filling, dtype=array.dtype)
    return np.concatenate([array, more])


@numba.njit(cache=True, nogil=True)
def _count(codes, counts):  # type: ignore[no-untyped-def]
    for code in codes:
        counts[code] += 1


@numba.njit(cache=True, nogil=True)
def _look_around(fine, coarse, around, straddles):  # type: ignore[no-untyped-def]
    for i in range(fine.size):
        if around[fine[i]] == _NOWHERE:
            around[fine[i]] = coarse[i]
        elif around[fine[i]] != coarse[i]:
            straddles[fine[i]] = 1


@numba.njit(cache=True, nogil=True)
def _look_up(packed, wanted, slots, flags):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.size - 1)
    for i in range(packed.size):
        slot = sparse.scramble(packed[i]) & mask
        while slots[slot] != 0 and wanted[slots[slot] - 1] != packed[i]:
            slot = (slot + _ONE) & mask
        flags[i] = slots[slot] != 0


class DuckDBHouseholds:
    """The households of a streamed file, and the tables in which partners are found."""

    def __init__(
        self, engine: DuckDBEngine, data: RecordStream, spec: Edit1990Spec, *, draw_key: bytes, identity_key: bytes
    ) -> None:
        self._store, self._data, self._spec = engine.store, data, spec
        self._keys = {"draw_key": draw_key, "identity_key": identity_key}
        self.names: Names = tuple(dict.fromkeys((*spec.geography, *spec.keys)))
        self._levels = {name: LevelCounts() for name in self.names}
        self._nesting = {pair: Nesting() for pair in pairwise(spec.geography)}
        self._areas: dict[Names, tuple[Counts, Counts]] = {}

    def count(self) -> None:
        """Count the records by every relevant attribute and area, in one pass."""
        spec, coders = self._spec, self._data.coders
        tallies = {self._within_across: Tally(len(self._within_across))}
        if spec.small_block_rate is not None:
            blocks = spec.area(spec.geography[-1])
            tallies.setdefault(blocks, Tally(len(blocks)))
        for _, columns in self._data.coded(self.names):
            codes = dict(zip(self.names, columns, strict=True))
            for name, counts in self._levels.items():
                counts.add(codes[name], coders[name].bound)
            for (coarse, fine), nesting in self._nesting.items():
                nesting.add(codes[fine], codes[coarse], coders[fine].bound)
            for names, tally in tallies.items():
                tally.add([codes[name] for name in names], [coders[name].bound for name in names])
        self._areas = {names: tally.totals() for names, tally in tallies.items()}

    @property
    def _within_across(self) -> Names:
        spec = self._spec
        return tuple(dict.fromkeys((*spec.area(spec.within_level), *spec.area(spec.across_level))))

    def missing(self, name: str) -> int:
        """Count the records with no value of an attribute, or a missing code."""
        levels = self._data.coders[name].levels
        stated = set(self._data.schema[name].missing)
        texts = level_texts(levels) if levels is not None and stated else []
        missing = {MISSING, *(code for code, text in enumerate(texts, start=1) if text in stated)}
        return self._levels[name].total(sorted(missing))

    def repeats(self, name: str) -> bool:
        """Return True if a household number is missing or occurs twice, without storing the numbers."""
        cells, key = SpilledCells(self._store.work, records=len(self._data)), secrets.token_bytes(32)
        for _, batch in self._data.source.batches((name,), rows=rows_per_batch(1)):
            if batch.column(0).null_count:
                return True
            words = keyed.encrypt(column_blocks(batch.column(0), key), key)
            cells.add(words, np.zeros(len(words), dtype=np.bool_), words[:0])
        return bool((cells.kinds()[:, 0] > 1).any())

    def straddling(self, coarse: str, fine: str) -> int:
        """Count the areas of a finer level that lie in more than one of a coarser one."""
        return self._nesting[coarse, fine].straddling

    def single_areas(self) -> tuple[int, int]:
        """Count the areas with several households but no other area to exchange with, and their households."""
        labels, counts = self._areas[self._within_across]
        width = len(self._spec.area(self._spec.within_level))
        _, place = np.unique(labels[:, :width], axis=0, return_inverse=True)
        areas, households = np.bincount(place.ravel()), np.bincount(place.ravel(), weights=counts).astype(np.int64)
        single = (areas == 1) & (households > 1)
        return int(single.sum()), int(households[single].sum())

    def partners(self) -> FoundPartners:
        """Draw the sample and find partners for it."""
        store, spec = self._store, self._spec
        single = self.single_areas()[0]
        self._levels, self._nesting = {}, {}  # every block of a country: free the memory for the search
        pa.default_memory_pool().release_unused()
        sampled, reserve, in_small, small = self._draw_sample()
        self._areas = {}
        walked = self._walk_sample(sampled)
        left = store.table_of(
            f"SELECT w.g, w.r, w.n, row_number() OVER (PARTITION BY w.g ORDER BY w.n) AS k, {self._list_columns('s')} "  # noqa: S608
            f"FROM {walked} w JOIN {sampled} s USING (r) WHERE w.p < 0"
        )
        groups = store.table_of(
            f"SELECT g, count(*) AS w, {', '.join(f'any_value(c{i}) AS c{i}' for i in self._columns)} "  # noqa: S608
            f"FROM {left} GROUP BY g"
        )
        offered = self._offer_outside(groups, sampled, reserve)
        opened = self._find_openings(groups, offered, walked, sampled)
        pairs, inside = self._pair_all(sampled, walked, left, offered, opened)
        number = store.number(f"SELECT count(*) FROM {pairs}")  # noqa: S608
        total = store.number(f"SELECT count(*) FROM {sampled}")  # noqa: S608
        found = StoredPairs(table=pairs, number=number, columns=self.names)
        result = FoundPartners(
            pairs=found,
            sampled=total,
            in_small_blocks=in_small,
            small_blocks=small,
            inside=inside,
            outside=number - inside,
            alone=total - number - inside,
            single_areas=single,
            within={level: self._count_agreeing(pairs, spec.area(level)) for level in spec.geography},
        )
        for table in (sampled, walked, left, groups, offered, opened):
            store.drop(table)
        return result

    @property
    def _columns(self) -> range:
        return range(len(self.names))

    def _places(self, names: Names) -> list[int]:
        return [self.names.index(name) for name in names]

    def _list_columns(self, table: str, names: Names | None = None) -> str:
        places = self._columns if names is None else self._places(names)
        return ", ".join(f"{table}.c{i}" for i in places)

    def _equal_columns(self, one: str, other: str, names: Names) -> str:
        return " AND ".join(f"{one}.c{i} = {other}.c{i}" for i in self._places(names))

    @property
    def _across(self) -> Names:
        return self._spec.area(self._spec.across_level)

    def _draw(self, chosen: Callable[[Words], Flags]) -> Iterator[tuple[int, Words, Rows, dict[str, pa.Array]]]:
        """Yield batches: first record, words of all, the rows whose draw is ``chosen``, and the columns."""
        for start, words, columns in self._data.draw_batches(self.names, **self._keys):
            yield start, words, np.flatnonzero(chosen(words[:, 0])), columns

    def _rows(self, start: int, words: Words, rows: Rows, columns: Mapping[str, pa.Array]) -> pa.Table:
        """Return some rows of a batch as they are stored."""
        index = pa.array(rows)
        codes = [self._data.codes(name, column.take(index)) for name, column in columns.items()]
        kinds = ["r", "h", "l", *(f"c{i}" for i in self._columns)]
        return table_by_position([rows + start, words[rows, 0], words[rows, 1], *codes]).rename_columns(kinds)

    def _table(self, more: str = "") -> str:
        columns = "".join(f", c{i} UINTEGER" for i in self._columns)
        return self._store.new_table(f"{more}r BIGINT, h UBIGINT, l UBIGINT{columns}")

    def _draw_sample(self) -> tuple[str, str, int, int]:
        """Return the sample, the reserve of the highest draws, its size in small blocks, and their number.

        The reserve may overlap the sample.
        """
        spec, store = self._spec, self._store
        usual, most = draw_limit(spec.rate), draw_limit(max(spec.rate, spec.small_block_rate or 0.0))
        table, reserve = self._table(), self._table()
        with store.inserter(table) as add, store.inserter(reserve) as add_reserve:
            for start, words, rows, columns in self._draw(lambda draws: (draws < most) | (draws >= RESERVED_FROM)):
                part = self._rows(start, words, rows, columns)
                draws = words[rows, 0]
                add(part.take(pa.array(np.flatnonzero(draws < most))))
                add_reserve(part.take(pa.array(np.flatnonzero(draws >= RESERVED_FROM))))
        if spec.small_block_rate is None:
            return table, reserve, 0, 0
        area = spec.area(spec.geography[-1])
        labels, counts = self._areas[area]
        small = labels[counts < spec.small_block_units]
        blocks = store.new_table(", ".join(f"c{i} UINTEGER" for i in self._places(area)))
        store.insert(blocks, table_by_position(list(small.T)))
        inside = f"EXISTS (SELECT 1 FROM {blocks} b WHERE {self._equal_columns('t', 'b', area)})"  # noqa: S608
        sampled = store.table_of(f"SELECT * FROM {table} t WHERE h < {usual} OR {inside}")  # noqa: S608
        number = store.number(f"SELECT count(*) FROM {sampled} t WHERE {inside}")  # noqa: S608
        store.drop(table)
        store.drop(blocks)
        return sampled, reserve, number, len(small)

    def _walk_sample(self, sampled: str) -> str:
        """Return, for each sampled record, its group g, its place n in it, and the row p of its partner, or −1."""
        table = self._store.new_table("r BIGINT, g BIGINT, n BIGINT, p BIGINT")
        first = 0
        for rows, matched, areas in self._groups(sampled):
            begins = np.r_[True, (matched[1:] != matched[:-1]).any(axis=1)]
            bounds = np.append(np.flatnonzero(begins), len(rows))
            group = np.cumsum(begins) - 1
            partner = pair_groups(bounds, areas)
            taken = np.where(partner < 0, -1, rows[partner])
            self._store.insert(
                table, table_by_position([rows, group + first, np.arange(len(rows)) - bounds[group], taken])
            )
            first += len(bounds) - 1
        return table

    def _groups(self, sampled: str) -> Iterator[tuple[Counts, Counts, npt.NDArray[np.uint32]]]:
        """Yield rows, codes that partners share, and areas, sorted by codes and draws; no group is split."""
        width = len(self._spec.matched)
        order = self._list_columns("s", self._spec.matched)
        query = f"SELECT s.r, {order}, {self._list_columns('s', self._across)} FROM {sampled} s ORDER BY {order}, h, l"  # noqa: S608
        held = np.zeros((0, 1 + width + len(self._across)), dtype=np.int64)
        for batch in self._store.batches(query):
            fresh = np.stack([column.to_numpy().astype(np.int64) for column in batch.columns], axis=1)
            held = np.concatenate([held, fresh])
            codes = held[:, 1 : 1 + width]
            last = np.flatnonzero((codes != codes[-1]).any(axis=1))
            cut = int(last[-1]) + 1 if len(last) else 0
            yield from _split_columns(held[:cut], width)
            held = held[cut:]
        yield from _split_columns(held, width)

    def _offer_outside(self, groups: str, sampled: str, reserve: str) -> str:
        """Return households from outside by rank: as many elsewhere as needed, and one in the same area.

        First from the reserve of the highest draws; from all others only if that is not enough.
        """
        store = self._store
        differs = f"NOT ({self._equal_columns('i', 'q', self._across)})"
        columns = ", ".join(f"i.{name}" for name in ("r", "h", "l", *(f"c{i}" for i in self._columns)))
        offer = (
            f"SELECT q.g, {differs} AS elsewhere, {columns} FROM {{}} i JOIN {{}} q "  # noqa: S608
            f"ON {self._equal_columns('i', 'q', self._spec.matched)} ANTI JOIN {sampled} s ON i.r = s.r"
        )
        found = store.table_of(offer.format(reserve, groups))
        store.drop(reserve)
        wanted = store.table_of(
            f"SELECT q.* FROM {groups} q LEFT JOIN (SELECT g, count(*) AS s FROM {found} WHERE elsewhere GROUP BY g) f "  # noqa: S608
            f"USING (g) WHERE coalesce(s, 0) < w"
        )
        others = self._find_others(wanted)
        if others is not None:
            store.run(f"INSERT INTO {found} {offer.format(others, wanted)}")
            store.drop(others)
        ranked = store.table_of(
            f"SELECT f.*, row_number() OVER (PARTITION BY f.g, f.elsewhere ORDER BY f.h DESC, f.l DESC) AS k "  # noqa: S608
            f"FROM {found} f JOIN {groups} q USING (g) QUALIFY k <= CASE WHEN f.elsewhere THEN q.w ELSE 1 END"
        )
        store.drop(found)
        store.drop(wanted)
        return ranked

    def _find_others(self, wanted: str) -> str | None:
        """Return households outside the reserve that match some group; None if nothing is wanted."""
        places = self._places(self._spec.matched)
        listed = ", ".join(f"c{i}" for i in places)
        rows = self._store.rows(f"SELECT DISTINCT {listed} FROM {wanted}")  # noqa: S608
        if not rows:
            return None
        matching = Among([self._data.coders[name].bound for name in self._spec.matched], np.array(rows, dtype=np.int64))
        table = self._table()
        with self._store.inserter(table) as add:
            for start, words, low, columns in self._draw(lambda draws: draws < RESERVED_FROM):
                flags = matching.flags([self._data.codes(name, columns[name]) for name in self._spec.matched])
                add(self._rows(start, words, low[flags[low]], columns))
        return table

    def _find_openings(self, groups: str, offered: str, walked: str, sampled: str) -> str:
        """Return pairs (a, b) to open for a record left over, z, whose possible partners outside all lie in its area.

        Of each such group, the first pair with neither record in that area.
        """
        elsewhere = " AND ".join(f"NOT ({self._equal_columns(side, 'q', self._across)})" for side in ("x", "y"))
        return self._store.table_of(
            f"SELECT v.g, arg_min(v.r, v.n) AS a, arg_min(v.p, v.n) AS b FROM {walked} v "  # noqa: S608
            f"JOIN {groups} q USING (g) JOIN {sampled} x ON x.r = v.r JOIN {sampled} y ON y.r = v.p "
            f"WHERE q.w = 1 AND (x.h, x.l) < (y.h, y.l) AND {elsewhere} "
            f"AND v.g IN (SELECT g FROM {offered}) AND v.g NOT IN (SELECT g FROM {offered} WHERE elsewhere) "
            f"GROUP BY v.g"
        )

    def _pair_all(self, sampled: str, walked: str, left: str, offered: str, opened: str) -> tuple[str, int]:
        """Return all pairs, and how many lie inside the sample: these first, each part in the order of the draws."""
        store = self._store
        inside = (
            f"SELECT 0 AS part, v.r AS a, v.p AS b FROM {walked} v WHERE v.p >= 0 "  # noqa: S608
            f"AND v.r NOT IN (SELECT a FROM {opened}) AND v.r NOT IN (SELECT b FROM {opened}) "
            f"UNION ALL SELECT 0, o.a, z.r FROM {opened} o JOIN {left} z USING (g) "
            f"UNION ALL SELECT 0, z.r, o.a FROM {opened} o JOIN {left} z USING (g)"
        )
        outside = (
            f"SELECT 1 AS part, z.r AS a, f.r AS b FROM {left} z JOIN {offered} f ON z.g = f.g AND z.k = f.k "  # noqa: S608
            f"WHERE f.elsewhere UNION ALL SELECT 1, o.b, f.r FROM {opened} o JOIN {offered} f USING (g)"
        )
        columns = ["r", "h", "l", *(f"c{i}" for i in self._columns)]
        anyone = f"SELECT {', '.join(columns)} FROM {sampled} UNION ALL SELECT {', '.join(columns)} FROM {offered}"  # noqa: S608
        own = "".join(f", x.c{i} AS a{i}, y.c{i} AS b{i}" for i in self._columns)
        table = store.table_of(
            f"SELECT row_number() OVER (ORDER BY p.part, x.h, x.l) AS k, p.part, p.a, p.b{own} "  # noqa: S608
            f"FROM ({inside} UNION ALL {outside}) p JOIN {sampled} x ON x.r = p.a JOIN ({anyone}) y ON y.r = p.b "
            f"WHERE p.part = 1 OR (x.h, x.l) < (y.h, y.l)"
        )
        return table, store.number(f"SELECT count(*) FROM {table} WHERE part = 0")  # noqa: S608

    def _count_agreeing(self, pairs: str, names: Names) -> int:
        same = " AND ".join(f"a{i} = b{i}" for i in self._places(names))
        return self._store.number(f"SELECT count(*) FROM {pairs} WHERE {same}")  # noqa: S608


def _split_columns(rows: Counts, width: int) -> Iterator[tuple[Counts, Counts, npt.NDArray[np.uint32]]]:
    if not len(rows):
        return
    areas = rows[:, 1 + width :]
    if areas.shape[1] > 1:
        areas = np.unique(areas, axis=0, return_inverse=True)[1].reshape(-1, 1)
    yield np.ascontiguousarray(rows[:, 0]), rows[:, 1 : 1 + width], areas[:, 0].astype(np.uint32)
