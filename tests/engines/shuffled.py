"""An engine that breaks every habit a method could rely on by accident.

Codes are random 64-bit integers, rows come in random order, and kernels get the groups in random order and in batches
of random size. A method that follows the rules of :mod:`safeswap.engines.base` gives the pairs of the memory engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import keyed
from safeswap.arrays.cells import CellSet
from safeswap.arrays.names import Names
from safeswap.arrays.order import as_blocks
from safeswap.engines.base import DRAW, KEEP, Cells, Classes, Constraint, Derivation, Ends, Kernel, Need
from safeswap.engines.memory import MemoryRecords

Column = npt.NDArray[np.int64]


class ShuffledRecords(MemoryRecords):
    """Records in memory under other codes and in another order."""

    name: ClassVar[str] = "shuffled"
    lacks: ClassVar[Mapping[Need, str]] = {Need.WHOLE_FILE: "it hides the records"}

    def __init__(self, data: Any, key: Any, seed: int) -> None:
        super().__init__(data, key)
        self.random = np.random.default_rng(seed)
        self._code = cache(self._make_codes)

    @property
    def held(self) -> None:
        """Nothing: a method has to do with counts and kernels."""
        return

    def _make_codes(self, name: str) -> Column:
        """Return a random integer for each code of an attribute, no two of them equal."""
        number = self.data.coded(name).cardinality
        found: set[int] = set()
        while len(found) < number:
            found.add(int(self.random.integers(-(2**63), 2**63 - 1, endpoint=True)))
        return self.random.permutation(np.array(sorted(found), dtype=np.int64))

    def codes(self, name: str) -> Column:
        return self._code(name)[self.data.coded(name).codes]

    def count(self, *keys: Names) -> tuple[Cells, ...]:
        return tuple(self._shuffle_cells(cells) for cells in super().count(*keys))

    def _shuffle_cells(self, cells: Cells) -> Cells:
        order = self.random.permutation(len(cells))
        codes = [self._code(name)[cells.codes[order, i]] for i, name in enumerate(cells.names)]
        values = cells.values.take(pa.array(order))
        return Cells(names=cells.names, codes=np.stack(codes, axis=1), counts=cells.counts[order], values=values)

    def classes(self, constraint: Constraint) -> Classes:
        """Return the classes under other labels and in another order, those of a stratum adjacent."""
        found = super().classes(constraint)
        relabelled = [self._relabel(column) for column in (found.strata, *found.coordinates.T)]
        order = np.lexsort((self.random.permutation(len(found.counts)), relabelled[0]))
        strata, *coordinates = (column[order] for column in relabelled)
        return Classes(strata=strata, coordinates=np.stack(coordinates, axis=1), counts=found.counts[order])

    def _relabel(self, labels: Column) -> Column:
        """Return other small numbers, equal where the labels are."""
        known, inverse = np.unique(labels, return_inverse=True)
        return self.random.permutation(len(known))[inverse]

    def draw(
        self,
        names: Names,
        key: bytes,
        *,
        keep: Ends | None = None,
        among: CellSet | None = None,
        derive: Derivation | None = None,
    ) -> ShuffledTable:  # type: ignore[override]  (a table of its own)
        words = keyed.encrypt(as_blocks(self.identity), key)
        chosen = np.ones(len(self), dtype=np.bool_)
        if keep is not None:
            chosen &= (words[:, 0] < np.uint64(keep.below)) | (words[:, 0] >= np.uint64(keep.since))
        if among is not None:
            wanted = {tuple(row) for row in among.rows.tolist()}
            own = zip(*(self.codes(name).tolist() for name in among.names), strict=True)
            chosen &= np.array([each in wanted for each in own], dtype=np.bool_)
        rows = self.random.permutation(np.flatnonzero(chosen))
        columns: dict[str, Any] = {name: self.codes(name)[rows] for name in names}
        if derive is not None:
            columns |= derive(np.ascontiguousarray(words[rows, 0]), dict(columns))
        kept = np.asarray(columns.pop(KEEP, np.ones(len(rows)))).astype(np.bool_)
        return ShuffledTable(
            rows[kept], words[rows[kept]], {n: c[kept].astype(np.int64) for n, c in columns.items()}, self.random
        )


class ShuffledTable:
    """Rows in random order: the row of the file, both words of its draw, and columns."""

    def __init__(
        self,
        rows: Column,
        words: npt.NDArray[np.uint64],
        columns: Mapping[str, Column],
        random: np.random.Generator,
    ) -> None:
        order = random.permutation(len(rows))
        self._rows, self._words, self._random = rows[order], words[order], random
        self._columns = {name: column[order] for name, column in columns.items()}

    def map_groups(self, by: Names, order: Names, kernel: Kernel) -> ShuffledTable:
        sorted_places = self._sort(order)
        groups: dict[tuple[int, ...], list[int]] = {}
        for place in sorted_places.tolist():
            groups.setdefault(tuple(int(self._columns[name][place]) for name in by), []).append(place)
        mixed = [list(groups.values())[i] for i in self._random.permutation(len(groups))]
        parts = [self._run(kernel, batch) for batch in self._cut(mixed)]
        places = np.array([place for batch in mixed for place in batch], dtype=np.int64)
        added = {n: np.concatenate([np.zeros(0, np.int64), *(part[n] for part in parts)]) for n in kernel.adds}
        kept = {name: self._columns[name][places] for name in by}
        return ShuffledTable(self._rows[places], self._words[places], {**kept, **added}, self._random)

    def _cut(self, groups: list[list[int]]) -> list[list[list[int]]]:
        """Return the groups in batches of one to three."""
        batches, start = [], 0
        while start < len(groups):
            stop = start + int(self._random.integers(1, 4))
            batches.append(groups[start:stop])
            start = stop
        return batches

    def _run(self, kernel: Kernel, batch: list[list[int]]) -> dict[str, Column]:
        places = np.array([place for group in batch for place in group], dtype=np.int64)
        bounds = np.cumsum([0, *(len(group) for group in batch)])
        added = dict(kernel(bounds, {name: self._columns[name][places] for name in kernel.needs}))
        if kernel.partner:
            partner = added[kernel.partner]
            added[kernel.partner] = np.where(partner < 0, -1, self._rows[places][partner])
        return {name: np.asarray(column).astype(np.int64) for name, column in added.items()}

    def where(self, name: str, value: int) -> ShuffledTable:
        return self._take(np.flatnonzero(self._columns[name] == value))

    def union(self, other: Any) -> ShuffledTable:
        columns = {name: np.concatenate([column, other._columns[name]]) for name, column in self._columns.items()}
        rows, words = np.concatenate([self._rows, other._rows]), np.concatenate([self._words, other._words])
        return ShuffledTable(rows, words, columns, self._random)

    def totals(self, *names: str) -> tuple[int, ...]:
        return tuple(sum(self._columns[name].tolist()) for name in names)

    def distinct(self, names: Names) -> Column:
        found = sorted(set(zip(*(self._columns[name].tolist() for name in names), strict=True)))
        return self._random.permutation(np.array(found, dtype=np.int64).reshape(-1, len(names)))

    def pairs(self, first: str, partner: str, order: Names) -> Column:
        chosen = self.where(first, 1)
        places = chosen._sort(order)
        return np.stack([chosen._rows[places], chosen._columns[partner][places]], axis=1)

    def _take(self, places: Column) -> ShuffledTable:
        columns = {name: column[places] for name, column in self._columns.items()}
        return ShuffledTable(self._rows[places], self._words[places], columns, self._random)

    def _sort(self, names: Names) -> Column:
        """Return the places in the order of some columns; the draw is its two words."""
        keys = [k for n in names for k in ([self._words[:, 0], self._words[:, 1]] if n == DRAW else [self._columns[n]])]
        return np.lexsort(keys[::-1]) if keys else np.arange(len(self._rows))
