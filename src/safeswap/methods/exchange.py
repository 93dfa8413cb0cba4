"""Methods that exchange values between records: they decide what moves; moving is the same for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, ClassVar, Protocol

import numpy as np

from safeswap.arrays import cells
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Rows
from safeswap.engines.base import Constraint, Drawn, Need, Records
from safeswap.engines.memory import MemoryRecords
from safeswap.errors import SpecError
from safeswap.model.audit import Exchange
from safeswap.model.invariant import Invariant
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.plan import Plan
from safeswap.model.schema import Kind, Schema
from safeswap.model.spec import MaskSpec


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

    def apply(self, data: Microdata, spec: Any, *, key: Key, replicate: int = 0) -> Masked:
        """Draw and exchange in memory."""
        records = MemoryRecords(data, key)
        drawn = self.draw(records, spec, key, replicate=replicate)
        masked = records.exchange(drawn.moves)
        exchanges = tuple(Exchange(attributes=move.names, pairs=move.pairs) for move in drawn.moves)
        facts = {"made": drawn.made, "exchanges": exchanges, "facts": drawn.facts}
        facts |= {"releasable": key.releasable and drawn.releasable}
        facts |= {"compensating": count_compensating(data, masked, exchanges)}
        return Masked.by(spec, data, masked, drawn.plan, key=key, replicate=replicate, **facts)


def count_compensating(before: Microdata, after: Microdata, exchanges: tuple[Exchange, ...]) -> int:
    """Count records that changed without changing the table: moved records minus the net change of the cells.

    Only records that took part are read, so the cost grows with the number of pairs.
    """
    if not exchanges:
        return 0
    rows = exchanges[0].pairs.ravel()
    if len(exchanges) > 1:
        rows = np.unique(np.concatenate([exchange.pairs.ravel() for exchange in exchanges]))
    swapped = tuple(dict.fromkeys(name for exchange in exchanges for name in exchange.attributes))
    others = tuple(name for name in before.schema.categorical if name not in swapped)
    rest, rest_size = _pack_cells(before, others, rows)
    was, size = _pack_cells(before, swapped, rows)
    now, _ = _pack_cells(after, swapped, rows)
    joint = cells.count_cells_jointly([rest, was], [rest, now], [rest_size, size])
    net = int(np.abs(joint.after - joint.before).sum()) // 2
    return int(np.count_nonzero(was != now)) - net


def _pack_cells(data: Microdata, names: Names, rows: Rows) -> tuple[Codes, int]:
    if not names:
        return np.zeros(len(rows), dtype=np.uint8), 1
    columns, cardinalities = zip(*(data.codes_at(name, rows) for name in names), strict=True)
    return cells.pack(columns, cardinalities)


@dataclass(frozen=True, eq=False)
class Nesting:
    """The geography of a file, as the schema states it or the records show it. Counts each pair of columns once."""

    records: Records
    _counted: dict[tuple[Names, str], tuple[int, int, int]] = field(default_factory=dict, repr=False)

    def check(self, stages: Sequence[Names], fixed: Names) -> None:
        """Refuse to exchange a level of a geography without the others, which would reveal or contradict it.

        Levels of one stage move together. A coarser level that is equal within all pairs need not move.
        """
        apart = [pair for pair in self._moved_apart(stages) if self._lies_in(*pair)]
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

    def _moved_apart(self, stages: Sequence[Names]) -> Iterator[tuple[str, str]]:
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
