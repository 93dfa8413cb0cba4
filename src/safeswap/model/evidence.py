"""The file before, the file after and the audit between them: what promises are checked on."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int32s, Int64s, SignedCodes
from safeswap.model.audit import Audit, Exchange, move_within, undo
from safeswap.model.columns import (
    aligned_columns,
    as_codes,
    flag_changes,
    has_distinct_levels,
    number_cells,
    pack_cells,
    same_memory,
    to_bits,
)
from safeswap.model.microdata import Microdata

_AT_ONCE = 1 << 20


class PairEvidence(Protocol):
    """Evidence on which the promises of an exchange are checked: both files, and the pairs between them.

    It is told in counts, so that it can be found wherever the records are. A stage is the number of an exchange.
    """

    @property
    def identifier(self) -> str | None:
        """The name of the record identifier."""
        ...

    @property
    def attributes(self) -> Names:
        """The attributes of the file, as far as they were read."""
        ...

    @property
    def exchanged(self) -> tuple[Names, ...]:
        """The attributes of each exchange."""
        ...

    def number_of_pairs(self, stage: int) -> int:
        """Return the number of pairs of an exchange."""
        ...

    def count_changed(self, name: str) -> int:
        """Count the records that have a different value of an attribute from before."""
        ...

    def count_moved_cells(self, names: Names) -> int:
        """Count the cells by some attributes together that have a different count from before."""
        ...

    def count_repeated(self, stage: int) -> int:
        """Count the places in the pairs of an exchange that go to a record that has one already.

        A record of a directed exchange has two, one that takes and one that gives; either without the other counts too.
        In a mutual one a record may give several times, or not at all.
        """
        ...

    def count_agreeing(self, stage: int, names: Names) -> int:
        """Count the pairs that agree in all of these attributes when they are exchanged."""
        ...

    def count_differing(self, stage: int, names: Names) -> int:
        """Count the pairs that differ in all of these attributes when they are exchanged."""
        ...

    def count_moved_records(self, stage: int) -> int:
        """Count the records that an exchange changed."""
        ...

    def count_torn(self, unit: str, names: Names) -> int:
        """Count the units, such as households, with members that changed and others that did not, or that differ now.

        A unit is the records with one value of an attribute; a missing value names none.
        """
        ...

    def count_moved_units(self, unit: str, names: Names) -> int:
        """Count the cells by some attributes together that have a different number of units from before.

        Only records that changed are counted, which is right where no unit is torn.
        """
        ...

    def explains(self, name: str) -> bool:
        """Return True if the pairs lead from the values before to those after."""
        ...

    def restores(self, name: str) -> bool:
        """Return True if undoing gives the values before back."""
        ...


class Evidence:
    """The file before, the file after and the audit between them, with cached comparisons.

    Uses neither the codes that a method worked with nor the kernels: the Arrow columns themselves are compared, bit by
    bit. Only rows that changed according to the files, or took part according to the audit, are examined one by one, so
    the cost follows the number of exchanges.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="x"),))
    >>> before = Microdata(pa.table({"x": [0.0, 1.0]}), schema)
    >>> after = Microdata(pa.table({"x": [-0.0, 1.0]}), schema)
    >>> Evidence(before, after, Audit(records=2)).changed("x").tolist()
    [True, False]
    """

    def __init__(self, before: Microdata, after: Microdata, audit: Audit) -> None:
        self.before = before
        self.after = after
        self.audit = audit
        self._changed: dict[str, Flags | None] = {}
        self._codes: dict[str, tuple[SignedCodes, SignedCodes]] = {}
        self._pairs: dict[int, Int64s] = {}
        self._sources: dict[tuple[int, bool], Int64s] = {}
        self._units: dict[str, tuple[Int64s, Int32s, Int32s]] = {}
        self._common: dict[str, tuple[pa.ChunkedArray, pa.ChunkedArray]] = {}

    @cached_property
    def obstacle(self) -> str:
        """The reason why the two files and the audit cannot be compared; empty if they can."""
        if len(self.before) != len(self.after) or self.audit.records != len(self.before):
            return "the files before and after and the audit do not have the same number of records"
        if self.before.attributes != self.after.attributes:
            return "the files before and after do not have the same columns"
        for exchange in self.audit.exchanges:
            if exchange.pairs.ndim != 2 or exchange.pairs.shape[1] != 2:
                return "the audit holds something that is not a list of pairs"
        named = {name for exchange in self.audit.exchanges for name in exchange.attributes}
        named |= {replacement.attribute for replacement in self.audit.replacements}
        if unknown := named - set(self.before.attributes):
            return f"the audit names an attribute that is not in the file: {min(unknown)}"
        lists = [*(e.pairs for e in self.audit.exchanges), *(r.rows for r in self.audit.replacements)]
        if any(rows.size and not 0 <= rows.min() <= rows.max() < len(self.before) for rows in lists):
            return "the audit names rows that are not in the file"
        return ""

    def changed(self, name: str) -> Flags | None:
        """Flag the rows whose value differs from before; None if both columns share memory."""
        if name not in self._changed:
            shared = same_memory(*self._columns(name))
            self._changed[name] = None if shared else flag_changes(*self._align(name))
        return self._changed[name]

    @cached_property
    def rows(self) -> Int64s:
        """The rows to examine: in an exchange according to the audit, or changed according to the files."""
        flags = np.zeros(len(self.before), dtype=np.bool_)
        for exchange in self.audit.exchanges:
            flags[exchange.pairs.ravel()] = True
        for name in self.before.attributes:
            changed = self.changed(name)
            if changed is not None:
                np.logical_or(flags, changed, out=flags)
        return np.flatnonzero(flags)

    def pairs(self, exchange: Exchange) -> Int64s:
        """Return the pairs of a stage as positions within ``rows``."""
        if id(exchange) not in self._pairs:
            self._pairs[id(exchange)] = self._position[exchange.pairs].astype(np.int64)
        return self._pairs[id(exchange)]

    @cached_property
    def _position(self) -> npt.NDArray[Any]:
        # Only the rows to examine are filled in; the others are never read, and an empty array costs nothing.
        position = np.empty(len(self.before), dtype=np.int32 if len(self.before) < 2**31 else np.int64)
        position[self.rows] = np.arange(len(self.rows))
        return position

    def codes(self, name: str) -> tuple[SignedCodes, SignedCodes]:
        """Return the column over ``rows``, before and after, as integers that are equal where the values are."""
        if name not in self._codes:
            index = pa.array(self.rows)
            known = self._common.get(name)
            before, after = (column.take(index) for column in known or self._columns(name))
            self._codes[name] = as_codes(before, after) if known else as_codes(*aligned_columns(before, after))
        return self._codes[name]

    @property
    def identifier(self) -> str | None:
        """The name of the record identifier."""
        return None if self.before.schema.identifier is None else self.before.schema.identifier.name

    @property
    def attributes(self) -> Names:
        """The attributes of the file."""
        return self.before.attributes

    @property
    def exchanged(self) -> tuple[Names, ...]:
        """The attributes of each exchange."""
        return tuple(exchange.attributes for exchange in self.audit.exchanges)

    def number_of_pairs(self, stage: int) -> int:
        """Return the number of pairs of an exchange."""
        return len(self.audit.exchanges[stage].pairs)

    def count_changed(self, name: str) -> int:
        """Count the records that have a different value of an attribute from before."""
        flags = self.changed(name)
        return 0 if flags is None else int(np.count_nonzero(flags))

    def count_moved_cells(self, names: Names) -> int:
        """Count the cells that have a different count from before.

        Only records that changed can change a count, so only those are counted.
        """
        if all(self.changed(name) is None for name in names):
            return 0
        return _count_differing(*pack_cells(np.concatenate(self.codes(name)) for name in names))

    def count_repeated(self, stage: int) -> int:
        """Count the places in the pairs that go to a record that has one already."""
        exchange = self.audit.exchanges[stage]
        sides = exchange.pairs.T if exchange.directed else (exchange.pairs.ravel(),)
        flags = np.zeros((len(sides), self.audit.records), dtype=np.bool_)
        for seen, rows in zip(flags, sides, strict=True):
            seen[rows] = True
        if exchange.mutual:
            taken = int(np.count_nonzero(flags[0]))
            return len(exchange.pairs) - taken + int(np.count_nonzero(flags[1] & ~flags[0]))
        one_sided = int(np.count_nonzero(flags[0] ^ flags[-1]))
        return exchange.pairs.size - int(np.count_nonzero(flags)) + one_sided

    def count_agreeing(self, stage: int, names: Names) -> int:
        """Count the pairs that agree in all of these attributes."""
        return int(np.count_nonzero(np.all([self._agree(stage, name) for name in names], axis=0)))

    def count_differing(self, stage: int, names: Names) -> int:
        """Count the pairs that differ in all of these attributes."""
        return int(np.count_nonzero(np.all([~self._agree(stage, name) for name in names], axis=0)))

    def count_moved_records(self, stage: int) -> int:
        """Count the records that an exchange changed: from the files, or replayed where stages share an attribute."""
        exchange = self.audit.exchanges[stage]
        flags = np.zeros(len(self.rows), dtype=np.bool_)
        for name in exchange.attributes:
            if sum(name in names for names in self.exchanged) == 1:
                before, after = self.codes(name)
            else:
                before = self._codes_at(stage, name)
                after = self._replay(before, [exchange])
            flags |= before != after
        return int(np.count_nonzero(flags))

    def count_torn(self, unit: str, names: Names) -> int:
        """Count the units of which some members changed and others did not, or which differ now."""
        order, units, numbers = self._by_unit(unit)
        moved, torn = (np.zeros(int(numbers.max(initial=-1)) + 2, dtype=np.bool_) for _ in range(2))
        moved[units] = True  # the last place, of records without a unit, stays False
        for start in range(0, len(numbers), _AT_ONCE):  # indices of all records would be 800 MB for 10⁸ of them
            some = numbers[start : start + _AT_ONCE]
            stayed = moved[some]
            low, high = np.searchsorted(self.rows, [start, start + len(some)])
            stayed[self.rows[low:high] - start] = False
            torn[some[stayed]] = True
        same = units[1:] == units[:-1]
        for name in names:
            codes = self.codes(name)[1][order]
            torn[units[1:][(codes[1:] != codes[:-1]) & same]] = True
        return int(np.count_nonzero(torn))

    def count_moved_units(self, unit: str, names: Names) -> int:
        """Count the cells that have a different number of units from before."""
        order, units, _ = self._by_unit(unit)
        begins = np.append(True, units[1:] != units[:-1])[: len(units)]
        fresh = begins.copy()  # one record of each unit suffices, unless others of it are in another cell
        for codes in (side[order] for name in names for side in self.codes(name)):
            fresh[1:] |= codes[1:] != codes[:-1]
        some = order[fresh]
        cell, size = pack_cells(np.concatenate([codes[some] for codes in self.codes(name)]) for name in names)
        if np.array_equal(fresh, begins):  # all members are in one cell: each unit is counted once
            return _count_differing(cell, size)
        cell, sides = number_cells([cell]), np.repeat([0, 1], len(some))
        first = np.unique(number_cells([np.tile(units[fresh], 2), cell, sides]), return_index=True)[1]
        counts = np.bincount(cell[first] * 2 + sides[first], minlength=2 * (int(cell.max(initial=-1)) + 1))
        return int(np.count_nonzero(counts[0::2] != counts[1::2]))

    def _by_unit(self, unit: str) -> tuple[Int64s, Int32s, Int32s]:
        """Return the positions within ``rows`` of those with a unit, sorted by it; their units; every record's."""
        if unit not in self._units:
            found = bit_codes(self.after.table.column(unit))
            numbers = (found.fill_null(-1) if found.null_count else found).to_numpy()
            codes = numbers[self.rows]
            order = np.argsort(codes, kind="stable")
            order = order[np.count_nonzero(codes < 0) :]  # those without a unit come first
            self._units[unit] = order, codes[order], numbers
        return self._units[unit]

    def explains(self, name: str) -> bool:
        """Return True if the pairs lead from the values before to those after."""
        stages = self._exchanges_of(name)
        if self.audit.steps or name in self._replaced or (not stages and self.changed(name) is None):
            return True
        # All rows that changed or took part are in the codes, so no other change is possible.
        before, after = self.codes(name)
        return bool(np.array_equal(self._replay(before, stages), after))

    def restores(self, name: str) -> bool:
        """Return True if undoing gives the values before back."""
        stages = self._exchanges_of(name)
        if not stages and not self.audit.steps and self.changed(name) is None:
            return True
        if self.audit.steps or name in self._replaced:
            return self._is_restored(name)
        before, after = self.codes(name)
        return bool(np.array_equal(self._replay(after, stages[::-1], back=True), before))

    def _is_restored(self, name: str) -> bool:
        """Return whether undoing restores the column, tested on the file itself."""
        if self._restored is None:
            return False
        before, after = self.before.table.column(name), self._restored.table.column(name)
        return not flag_changes(*aligned_columns(before, after)).any()

    @cached_property
    def _restored(self) -> Microdata | None:
        """The file after with everything undone; None if a value that was not replaced does not fit the old type."""
        try:
            return undo(self.after, self.audit)
        except pa.ArrowInvalid:
            return None

    @cached_property
    def _replaced(self) -> set[str]:
        return {replacement.attribute for replacement in self.audit.replacements}

    def _exchanges_of(self, name: str) -> list[Exchange]:
        return [exchange for exchange in self.audit.exchanges if name in exchange.attributes]

    def _replay(self, codes: SignedCodes, exchanges: list[Exchange], *, back: bool = False) -> SignedCodes:
        for exchange in exchanges:
            codes = codes[self._source(exchange, back=back)]
        return codes

    def _source(self, exchange: Exchange, *, back: bool) -> Int64s:
        """Return, as positions within ``rows``, where an exchange takes the values from, or its inverse."""
        if (id(exchange), back) not in self._sources:
            pairs = self.pairs(exchange)
            pairs = pairs[:, ::-1] if back and not exchange.mutual else pairs
            own = np.arange(len(self.rows))
            self._sources[id(exchange), back] = move_within(own, pairs, directed=exchange.directed)
        return self._sources[id(exchange), back]

    def _agree(self, stage: int, name: str) -> Flags:
        codes, pairs = self._codes_at(stage, name), self.pairs(self.audit.exchanges[stage])
        flags: Flags = codes[pairs[:, 0]] == codes[pairs[:, 1]]
        return flags

    def _codes_at(self, stage: int, name: str) -> SignedCodes:
        """Return the codes of an attribute just before an exchange."""
        earlier = [exchange for exchange in self.audit.exchanges[:stage] if name in exchange.attributes]
        return self._replay(self.codes(name)[0], earlier)

    def _align(self, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """Return both columns in full; common dictionary codes are cached, since finding them is expensive."""
        before, after = self._columns(name)
        aligned = aligned_columns(before, after)
        dictionaries = all(pa.types.is_dictionary(side.type) for side in (before, after))
        if dictionaries and all(pa.types.is_integer(side.type) for side in aligned):
            self._common[name] = aligned
        return aligned

    def _columns(self, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        return self.before.table.column(name), self.after.table.column(name)


def _count_differing(cells: Int64s, size: int) -> int:
    """Count the cells in which the first half of the records has a different number from the second half.

    Both halves may be sorted, in place.

    >>> _count_differing(np.array([7, 7, 3, 7, 3, 9]), 10)
    2
    """
    if size > len(cells):
        one, other = np.split(cells, 2)
        one.sort()
        other.sort()
        if np.array_equal(one, other):
            return 0
        cells = number_cells([cells])
    before, after = (np.bincount(side, minlength=int(cells.max(initial=0)) + 1) for side in np.split(cells, 2))
    return int(np.count_nonzero(before != after))


def bit_codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Encode values as small integers, equal where the values are bit for bit; missing stays missing."""
    if pa.types.is_dictionary(column.type) and has_distinct_levels(column):
        return pa.chunked_array([_as_signed(chunk.indices) for chunk in column.chunks], type=pa.int32())
    encoded = to_bits(column).dictionary_encode().unify_dictionaries()
    return pa.chunked_array([chunk.indices for chunk in encoded.chunks], type=pa.int32())


def _as_signed(indices: pa.Array) -> pa.Array:
    """Return indices as signed integers, without a copy if possible: a dictionary has fewer than 2³¹ levels."""
    return indices.view(pa.int32()) if indices.type == pa.uint32() else indices.cast(pa.int32())
