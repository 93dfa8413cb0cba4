"""Methods that exchange values between records: they decide what moves; moving is the same for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from safeswap.arrays import cells, sparse
from safeswap.arrays.compiled import is_worth_compiling, run_all, split_runs
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Rows
from safeswap.engines.base import Constraint, Drawn, Move, Need, Records
from safeswap.engines.memory import MemoryRecords
from safeswap.errors import InputError, SpecError
from safeswap.model.audit import Exchange
from safeswap.model.columns import aligned_columns, as_codes, has_distinct_levels, number_cells
from safeswap.model.effect import Effect, Permuted
from safeswap.model.invariant import Invariant
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema, refuse_date
from safeswap.model.spec import MaskSpec, Plan
from safeswap.model.text import plural, quote_name


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that a result depends on, and those that it may change."""

    read: Names
    changed: Names


class Described(Protocol):
    """The facts of a file from which a method states its promises: the schema, and the attributes at hand."""

    @property
    def schema(self) -> Schema:
        """The schema."""
        ...

    @property
    def attributes(self) -> Names:
        """The attributes at hand, in file order."""
        ...


class ExchangingMethod(ABC):
    """A method that exchanges values within pairs of records, on any engine.

    ``draw`` decides, on counts and in kernels; nothing has moved when it returns. So a method is written once, and a
    plug-in masks files of any size like a method of ours.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    spec_type: ClassVar[type[MaskSpec]]
    sources: ClassVar[tuple[str, ...]]
    needs: ClassVar[frozenset[Need]] = frozenset()

    @abstractmethod
    def columns(self, schema: Schema, spec: Any) -> Columns:
        """Return the columns on which the result depends, and those it may change."""

    @abstractmethod
    def plan(self, data: Microdata, spec: Any) -> Plan:
        """Return what would be done, and whether it is feasible."""

    @abstractmethod
    def draw(self, records: Records, spec: Any, key: Key, *, replicate: int = 0) -> Drawn:
        """Decide what is exchanged. The same data, spec, key and replicate give the same result on every engine."""

    @abstractmethod
    def invariants(self, data: Described, spec: Any) -> tuple[Invariant, ...]:
        """Return what holds for every result of this spec on these data."""

    def effects(self, schema: Schema, spec: Any) -> tuple[Effect, ...]:
        """Return that values were exchanged, of each attribute by itself; a method that knows more says more."""
        return tuple(Permuted((name,)) for name in self.columns(schema, spec).changed)

    def apply(self, data: Microdata, spec: Any, *, key: Key, replicate: int = 0) -> Masked:
        """Draw and exchange in memory."""
        records = MemoryRecords(data, key)
        return self._exchange(records, spec, self.draw(records, spec, key, replicate=replicate), key, replicate)

    def _exchange(self, records: MemoryRecords, spec: Any, drawn: Drawn, key: Key, replicate: int) -> Masked:
        """Exchange what was decided, and return it with its audit record."""
        data = records.data
        masked = records.exchange(drawn.moves)
        exchanges = tuple(as_exchange(move) for move in drawn.moves)
        facts = {"made": drawn.made, "exchanges": exchanges, "facts": drawn.facts}
        facts |= {"releasable": key.releasable and drawn.releasable}
        facts |= {"compensating": count_compensating(data, masked, exchanges)}
        return Masked.by(spec, data, masked, drawn.plan, key=key, replicate=replicate, **facts)


def as_exchange(move: Move) -> Exchange:
    """Return a move as it is recorded, its pairs as rows."""
    return Exchange(attributes=move.names, pairs=move.pairs, directed=move.directed, mutual=move.mutual)


def require_categorical(schema: Schema, names: Names, *, what: str, code: str) -> None:
    """Refuse attributes that are not categorical; ``what`` is their part in the method."""
    hint = "describe a count such as the number of persons as ordinal; recode a continuous item into ranges"
    if code == "not-geography":  # codes of many small areas look like numbers
        hint = 'describe codes of areas with the kind "geography": by kinds=, or in the schema file of describe'
    for name in names:
        refuse_date(schema, name)
        if not schema[name].kind.is_categorical:
            raise SpecError(
                f"{name!r} is {schema[name].kind.value}: {what} is categorical",
                code=code,
                hint=hint,
                attribute=name,
            )


def refuse_missing(counts: Mapping[str, int], *, code: str, hint: str) -> None:
    """Refuse attributes with missing values, of which ``counts`` gives the numbers."""
    some = {name: count for name, count in counts.items() if count}
    if some:
        listed = ", ".join(f"{quote_name(name)} ({plural(count, 'record')})" for name, count in some.items())
        raise InputError(f"there are missing values in {listed}", code=code, hint=hint, records=some)


MISSING_KEYS = 'edit or impute them first, or say missing_keys="level" to treat missing as a separate value'


_MIXED_ROWS = 1 << 14  # at once: their words stay in the cache from one column to the next


def count_compensating(before: Microdata, after: Microdata, exchanges: tuple[Exchange, ...]) -> int:
    """Count records that changed without changing the table: moved records minus the net change of the cells.

    Only records that took part are read, so the cost grows with the number of pairs.
    """
    if not exchanges:
        return 0
    rows = find_rows(exchanges)
    swapped = tuple(dict.fromkeys(name for exchange in exchanges for name in exchange.attributes))
    others = tuple(name for name in before.schema.categorical if name not in swapped)
    # A record unlike all others in the rest leaves one cell and enters another: no other record compensates for it.
    alike, rest, size = _number_alike(before, others, rows)
    return count_in_vain(before, after, swapped, rows[alike], [(rest, size)])


def find_rows(exchanges: Sequence[Exchange]) -> Rows:
    """Return the rows that take part in some exchange, each once, in file order: columns are then read forward."""
    if len(exchanges) == 1 and not exchanges[0].directed:
        return np.sort(exchanges[0].pairs, axis=None)
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(each.pairs.ravel() for each in exchanges)]))


def count_in_vain(
    before: Microdata, after: Microdata, swapped: Names, rows: Rows, others: Sequence[tuple[Codes, int]]
) -> int:
    """Count those of some rows that changed without changing the table of the swapped and the other attributes.

    ``others`` has the codes of the other attributes in these rows, and a number above each.
    """
    rest, rest_size = cells.pack(*zip(*others, strict=True)) if others else (np.zeros(len(rows), dtype=np.uint8), 1)
    was, now, size = _pack_both(before, after, swapped, rows)
    return int(np.count_nonzero(was != now)) - cells.count_net_change([rest, was], [rest, now], [rest_size, size])


def _number_alike(data: Microdata, names: Names, rows: Rows) -> tuple[Rows, Codes, int]:
    """Return the places of the rows that agree with another in all these attributes, a number for each, a bound."""
    labels = [_labels_of(data, name, rows) for name in names]
    words = np.zeros(len(rows), dtype=np.uint64)

    def mix(start: int) -> None:
        here = slice(start, start + _MIXED_ROWS)
        part = words[here]
        for each in labels:
            part *= np.uint64(sparse.MULTIPLIER)
            part += each.take(here)

    run_all(mix, range(0, len(rows), _MIXED_ROWS), len(split_runs(len(rows), len(names))))
    places = np.arange(len(rows))
    if is_worth_compiling(len(rows) * len(names)):
        places = np.flatnonzero(sparse.flag_repeated(words))
    places = places[np.argsort(words[places])]
    ordered = words[places]
    is_same = np.concatenate([[False], ordered[1:] == ordered[:-1], [False]])
    some = np.flatnonzero(is_same[1:] | is_same[:-1])
    places, is_same = places[some], is_same[some]
    values = (each.take(places) for each in labels)
    if any((is_same[1:] & (some[1:] != some[:-1])).any() for some in values):  # different ones with one word: rarely
        return places, *cells.pack(*zip(*(each.code(places) for each in labels), strict=True))
    return places, np.cumsum(~is_same).astype(np.uint32), len(places) + 1


@dataclass(frozen=True, eq=False)
class _Labels:
    """Numbers that are equal in two rows if and only if the values of an attribute are."""

    values: Codes
    rows: Rows | None  # of ``values``; None if there is one value for each row asked about
    above: int | None  # a number above all, if they are codes

    def take(self, places: Rows | slice) -> Codes:
        """Return the numbers of some of the rows."""
        return self.values[places if self.rows is None else self.rows[places]]

    def code(self, places: Rows) -> tuple[Codes, int]:
        """Return codes of some of the rows, and a number above all."""
        numbers = self.take(places)
        if self.above is not None:
            return numbers, self.above
        distinct, codes = np.unique(numbers, return_inverse=True)
        return codes.astype(np.uint32), max(1, len(distinct))


def _labels_of(data: Microdata, name: str, rows: Rows) -> _Labels:
    """Return the labels of an attribute, without a copy where whole numbers or codes are at hand."""
    coded, column = data.cached_codes(name), data.table.column(name)
    if coded is not None:
        return _Labels(coded.codes, rows, coded.cardinality)
    if column.num_chunks == 1 and not column.null_count:
        whole = column.chunk(0)
        if pa.types.is_dictionary(column.type) and has_distinct_levels(column):
            whole = whole.indices
        if pa.types.is_integer(whole.type):
            return _Labels(whole.to_numpy().view(f"u{whole.type.bit_width // 8}"), rows, None)
    codes, size = data.codes_at(name, rows)
    return _Labels(codes, None, size)


def _pack_both(before: Microdata, after: Microdata, names: Names, rows: Rows) -> tuple[Codes, Codes, int]:
    """Return the cells of some rows before and after, with the same codes: coded apart, they might differ."""
    columns, sizes = [], []
    for name in names:
        if before.cached_codes(name) is not None and after.cached_codes(name) is not None:
            (was, size), (now, _) = before.codes_at(name, rows), after.codes_at(name, rows)
        else:
            index = pa.array(rows)
            taken = (data.table.column(name).take(index) for data in (before, after))
            number = number_cells([np.concatenate(as_codes(*aligned_columns(*taken)))]).view(np.uint64)
            was, now, size = number[: len(rows)], number[len(rows) :], int(number.max(initial=0)) + 1
        columns.append(np.concatenate([was, now]))
        sizes.append(size)
    packed, size = cells.pack(columns, sizes)
    return packed[: len(rows)], packed[len(rows) :], size


@dataclass(frozen=True, eq=False)
class Nesting:
    """The geography of a file, as the schema states it or the records show it. Counts each pair of columns once."""

    records: Records
    _counted: dict[tuple[Names, str], tuple[int, int, int]] = field(default_factory=dict, repr=False)

    def check(self, stages: Sequence[Names], fixed: Names) -> None:
        """Refuse to exchange a level of a geography without the others, which would reveal or contradict it.

        Levels of one stage move together. A coarser level that is equal within all pairs need not move.
        """
        apart = [pair for pair in self._pairs_moved_apart(stages) if self._lies_in(*pair)]
        apart = [(fine, coarse) for fine, coarse in apart if not self._follows(fixed, coarse)]
        if not apart:
            return
        fine, coarse = apart[0]
        swapped = {name for names in stages for name in names}
        others = tuple(dict.fromkeys(name for pair in apart for name in pair if name not in swapped))
        first = fine if fine in swapped else coarse
        beside = ", ".join(map(repr, others or (coarse,)))
        holds = f", or hold {coarse!r} fixed" if coarse in others else ""
        raise SpecError(
            f"{first!r} is swapped without {beside}: the levels of one geography move together",
            code="geography-split",
            hint=f"swap {beside} together with {first!r}, in one stage{holds}; or drop levels from the file",
            attribute=first,
            levels=list(others or (coarse,)),
        )

    def _pairs_moved_apart(self, stages: Sequence[Names]) -> Iterator[tuple[str, str]]:
        stage = {name: number for number, names in enumerate(stages) for name in names}
        areas = [attribute.name for attribute in self.records.schema.iter_kind(Kind.GEOGRAPHY)]
        return (pair for pair in permutations(areas, 2) if stage.get(pair[0]) != stage.get(pair[1]))

    def _lies_in(self, fine: str, coarse: str) -> bool:
        """Return whether each area of one level lies in one of another: as stated, or else as counted."""
        stated = [self.records.schema[name].geography_level for name in (fine, coarse)]
        if stated[0] is not None and stated[1] is not None and stated[0] != stated[1]:
            return bool(stated[0] > stated[1])
        straddling, areas, above = self._count((fine,), coarse)
        # A single value that straddles stands for unknown areas, if the rest is finer than the level above.
        return not straddling or (straddling == 1 and areas - 1 > above)

    def _follows(self, names: Names, value: str) -> bool:
        return self._count(names, value)[0] == 0 if names else bool(self.records.is_constant(value))

    def _count(self, names: Names, value: str) -> tuple[int, int, int]:
        """Count the combinations that occur with several values, all combinations, and the values."""
        if (names, value) not in self._counted:
            classes = self.records.classes(Constraint(equal=names, unequal=((value,),)))
            values = np.unique(classes.strata, return_counts=True)[1]
            counts = (int((values > 1).sum()), len(values), len(np.unique(classes.coordinates)))
            self._counted[names, value] = counts
        return self._counted[names, value]
