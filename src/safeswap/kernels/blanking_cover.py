"""A lower bound where a blank matches every value: records in unsafe cells must be covered by blanked ones.

A record in an unsafe cell of a combination is safe only if enough blanked records match it, or if it is blanked itself.
Put a price on each unit that a cell lacks. A record that blanks some keys earns the price of every cell that it then
matches, times what it adds there: 1, or its weight. If no record could earn more than its blanks cost, then no answer
costs less than the prices of all that is lacking (linear programming duality). That a blanked record has to be safe
itself is left out, which only lowers the bound. Where the file is too large to ask every class what it could earn, a
record may have the greatest weight and the values that pay best in every combination, which lowers it further.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import numpy as np

from safeswap.kernels.blanking import Problem, unseen_price
from safeswap.kernels.blanking_sweeps import group_names, words
from safeswap.kernels.combinations import cell_codes, positions
from safeswap.kernels.highs import GrowingProgramme
from safeswap.kernels.types import Floats, Int64s
from safeswap.kernels.wildcards import matching_sizes

_MOST_CELLS = 2_000
_MOST_ROUNDS = 200
_MOST_ASKED = 200_000_000


@dataclass(frozen=True, eq=False)
class UnsafeCells:
    """Cells without blanks that are too small: the combination, a class in it, how much it lacks, its records."""

    combinations: Int64s
    classes: Int64s
    lacks: Floats
    members: Int64s

    def only(self, rows: Int64s) -> UnsafeCells:
        """Some of them."""
        return UnsafeCells(self.combinations[rows], self.classes[rows], self.lacks[rows], self.members[rows])


def unsafe_cells(problem: Problem) -> UnsafeCells:
    """The cells that have to be covered."""
    found: list[tuple[Int64s, Int64s, Floats, Int64s]] = []
    for c, ((mask, _), needed) in enumerate(zip(problem.combinations, problem.needed, strict=True)):
        keys = positions(mask)
        sizes = matching_sizes(problem.classes, keys).astype(np.float64)
        some = np.flatnonzero((sizes < needed) & ((problem.blank & mask) == 0))
        codes, _ = cell_codes(problem.classes, keys)
        _, first, place = np.unique(codes[some], return_index=True, return_inverse=True)
        members = np.bincount(place, problem.members[some], first.size).astype(np.int64)
        found.append((np.full(first.size, c), some[first], needed - sizes[some[first]], members))
    parts = [np.concatenate(part) for part in zip(*found, strict=True)]
    return UnsafeCells(parts[0], parts[1], parts[2], parts[3])


def cover_bound(problem: Problem, *, seconds: float, enough: float) -> float:
    """What no answer costs less than; the search ends when the bound has come above ``enough``.

    Where cells are many an even sample of them is priced: fewer prices, and a bound still.
    """
    end = monotonic() + seconds
    cells = unsafe_cells(problem)
    if not cells.classes.size:
        return 0.0
    sample = np.unique(np.linspace(0, cells.classes.size - 1, min(_MOST_CELLS, cells.classes.size)).astype(np.int64))
    market = _Market(problem, cells.only(sample))
    best = 0.0
    for _ in range(_MOST_ROUNDS):
        prices = market.prices()
        earned = market.best_earnings(prices)
        best = max(best, market.total(prices) / max(1.0, earned))
        if best > enough or earned <= 1 + 1e-7 or monotonic() > end:
            break
    return best


class _Market:
    """Prices of what cells lack, and the constraints that earnings by blanking have put on them so far."""

    def __init__(self, problem: Problem, cells: UnsafeCells) -> None:
        self.problem = problem
        self.cells = cells
        # A record of the cell itself earns its share of all that is lacking, once all records of it are blanked.
        self.shares = cells.lacks / cells.members
        self.heaviest = float(problem.unit.max())
        self._rows = {int(c): np.flatnonzero(cells.combinations == c) for c in np.unique(cells.combinations)}
        self._word, self._blank_word = words(problem.classes.columns, problem.classes.blanks)
        self._groups: dict[tuple[int, int], tuple[Int64s, Int64s]] = {}
        self._own = {c: self._own_cells(c) for c in self._rows}
        asked = problem.members.size * problem.candidates.size * len(self._rows)
        self._ask_every_class = asked <= _MOST_ASKED
        self._programme = GrowingProgramme(gains=cells.lacks, upper=self._alone())

    def prices(self) -> Floats:
        """The best prices under the constraints so far."""
        return self._programme.solve()

    def total(self, prices: Floats) -> float:
        """What all that is lacking costs."""
        return float(self.cells.lacks @ prices)

    def best_earnings(self, prices: Floats) -> float:
        """The most that blanking some keys earns for what they cost; what earns too much becomes a constraint."""
        most = float(prices @ np.maximum(self.heaviest, self.shares)) / unseen_price(self.problem)
        costs = self.problem.cost(self.problem.candidates[1:]).tolist()
        for blank in np.unique(self.problem.blank):
            classes = np.flatnonzero(self.problem.blank == blank)
            for mask, cost in zip(self.problem.candidates[1:].tolist(), costs, strict=True):
                if mask & blank:
                    continue
                earned, cells, factors = self._earned(classes, mask, int(mask | blank), prices)
                if earned > cost * (1 + 1e-7):
                    self._programme.add(cells, factors, cost)
                most = max(most, earned / cost)
        return most

    def _earned(self, classes: Int64s, mask: int, blank: int, prices: Floats) -> tuple[float, Int64s, Floats]:
        """What a record of these classes earns at most by blanking these keys, and by covering which cells."""
        concerned = [c for c in self._rows if self.problem.combinations[c][0] & mask]
        total = np.zeros(classes.size)
        best: dict[int, int] = {}
        for c in concerned:
            value = self._value(c, blank, prices)[classes]
            best[c] = int(value.argmax())
            total += value if self._ask_every_class else value[best[c]]
        earner = int(total.argmax()) if classes.size else 0
        cells, factors = [np.empty(0, np.int64)], [np.empty(0)]
        for c in concerned:
            covered, factor = self._covered(c, blank, int(classes[earner if self._ask_every_class else best[c]]))
            cells.append(covered)
            factors.append(factor)
        return float(total[earner]), np.concatenate(cells), np.concatenate(factors)

    def _value(self, c: int, blank: int, prices: Floats) -> Floats:
        """What a record of each class earns in one combination."""
        of_cell, of_class = self._grouped(c, blank)
        rows = self._rows[c]
        by_group = np.append(np.bincount(of_cell, prices[rows]), 0.0)  # the last one for classes that cover nothing
        units = self._units()
        value: Floats = units * by_group[of_class]
        own = self._own[c]
        some = own >= 0
        value[some] += prices[own[some]] * np.maximum(0.0, self.shares[own[some]] - units[some])
        return value

    def _units(self) -> Floats:
        """What a blanked record of each class adds to the cells that it matches."""
        return self.problem.unit if self._ask_every_class else np.full(self.problem.members.size, self.heaviest)

    def _covered(self, c: int, blank: int, of_class: int) -> tuple[Int64s, Floats]:
        of_cell, groups = self._grouped(c, blank)
        covered = self._rows[c][of_cell == groups[of_class]]
        unit = self._units()[of_class]
        return covered, np.where(covered == self._own[c][of_class], np.maximum(unit, self.shares[covered]), unit)

    def _grouped(self, c: int, blank: int) -> tuple[Int64s, Int64s]:
        """The cells of a combination, and all classes, by the values that are left of it, as small numbers."""
        combination = self.problem.combinations[c][0]
        if (c, blank & combination) not in self._groups:
            keys = np.array(positions(combination), np.int64)
            chosen = sum(1 << place for place, key in enumerate(keys.tolist()) if blank >> key & 1)
            names = group_names(self._word[:, keys], self._blank_word[keys], np.full(len(self._word), chosen))
            values, of_cell = np.unique(names[self.cells.classes[self._rows[c]]], return_inverse=True)
            place = np.minimum(np.searchsorted(values, names), values.size - 1)
            of_class = np.where(values[place] == names, place, values.size)
            self._groups[c, blank & combination] = (of_cell, of_class)
        return self._groups[c, blank & combination]

    def _own_cells(self, c: int) -> Int64s:
        """For each class the row of its own cell in a combination, −1 where that is not priced."""
        codes, _ = cell_codes(self.problem.classes, positions(self.problem.combinations[c][0]))
        rows = self._rows[c]
        order = rows[np.argsort(codes[self.cells.classes[rows]])]
        sorted_codes = codes[self.cells.classes[order]]
        place = np.minimum(np.searchsorted(sorted_codes, codes), order.size - 1)
        found: Int64s = np.where(sorted_codes[place] == codes, order[place], -1)
        return found

    def _alone(self) -> Floats:
        """What a unit can be worth at most: blanking the cheapest key of a record of the cell must not earn more."""
        most = np.empty(self.cells.classes.size)
        units = self._units()[self.cells.classes]
        for c, rows in self._rows.items():
            keys = list(positions(self.problem.combinations[c][0] & self.problem.allowed))
            most[rows] = self.problem.costs[keys].min(initial=np.inf) / np.maximum(units[rows], self.shares[rows])
        return most
