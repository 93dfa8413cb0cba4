"""Find the cheapest blanks where a blank matches every value and counts for others: few wide ones serve many records.

At the extreme, blanking all keys of as many records as a cell can lack makes every record safe, whatever the file: no
answer needs to cost more, and in large files hardly any costs less.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic

import numpy as np
import numpy.typing as npt

from safeswap.arrays.combinations import Classes, cell_codes, decode_mask, matching_sizes
from safeswap.arrays.highs import GrowingProgramme, Programme
from safeswap.arrays.types import Floats, Int64s
from safeswap.methods.suppress.problem import (
    NOTHING,
    Blanking,
    Problem,
    apply_blanking,
    blank_everything,
    gather,
    is_safe,
    unseen_price,
)
from safeswap.methods.suppress.solver import Answer, round_up, solve_blanks
from safeswap.methods.suppress.sweeps import draw_words, group_names

# Lower bound where a blank matches every value: blanked records must cover the records in unsafe cells.
#
# A record in an unsafe cell of a combination is safe only if enough blanked records match it, or if it is blanked
# itself. Put a price on each unit that a cell lacks. A record that blanks some keys earns the price of every cell
# that it then matches, times what it adds there: 1, or its weight. If no record could earn more than its blanks cost,
# then no answer costs less than the total price of all shortages (linear programming duality). Ignoring that a
# blanked record must be safe itself only lowers the bound. In files too large to ask every class what it could earn,
# a record may have the greatest weight and the best-paying values in every combination, which lowers it further.

_MOST_CELLS = 2_000
_MOST_ROUNDS = 200
_MOST_ASKED = 200_000_000


@dataclass(frozen=True, eq=False)
class UnsafeCells:
    """Cells without blanks that are too small: the combination, a class in it, its shortage, its records."""

    combinations: Int64s
    classes: Int64s
    lacks: Floats
    members: Int64s

    def select(self, rows: Int64s) -> UnsafeCells:
        """Select some of them."""
        return UnsafeCells(self.combinations[rows], self.classes[rows], self.lacks[rows], self.members[rows])


def unsafe_cells(problem: Problem) -> UnsafeCells:
    """Return the cells that must be covered."""
    found: list[tuple[Int64s, Int64s, Floats, Int64s]] = []
    for c, ((mask, _), needed) in enumerate(zip(problem.combinations, problem.needed, strict=True)):
        keys = decode_mask(mask)
        sizes = matching_sizes(problem.classes, keys).astype(np.float64)
        some = np.flatnonzero((sizes < needed) & ((problem.blank & mask) == 0))
        codes, _ = cell_codes(problem.classes, keys)
        _, first, place = np.unique(codes[some], return_index=True, return_inverse=True)
        members = np.bincount(place, problem.members[some], first.size).astype(np.int64)
        found.append((np.full(first.size, c), some[first], needed - sizes[some[first]], members))
    parts = [np.concatenate(part) for part in zip(*found, strict=True)]
    return UnsafeCells(parts[0], parts[1], parts[2], parts[3])


def cover_bound(problem: Problem, *, seconds: float, enough: float) -> float:
    """Return a lower bound of any answer's cost; stop once it exceeds ``enough``.

    If there are many cells, an even sample is priced: fewer prices, and still a bound.
    """
    end = monotonic() + seconds
    cells = unsafe_cells(problem)
    if not cells.classes.size:
        return 0.0
    sample = np.unique(np.linspace(0, cells.classes.size - 1, min(_MOST_CELLS, cells.classes.size)).astype(np.int64))
    market = _Market(problem, cells.select(sample))
    best = 0.0
    for _ in range(_MOST_ROUNDS):
        prices = market.prices()
        earned = market.best_earnings(prices)
        best = max(best, market.total(prices) / max(1.0, earned))
        if best > enough or earned <= 1 + 1e-7 or monotonic() > end:
            break
    return best


class _Market:
    """Prices of the cells' shortages, and the constraints that earnings by blanking impose so far."""

    def __init__(self, problem: Problem, cells: UnsafeCells) -> None:
        self.problem = problem
        self.cells = cells
        # A record of the cell itself earns its share of the shortage, once all records of the cell are blanked.
        self.shares = cells.lacks / cells.members
        self.heaviest = float(problem.unit.max())
        self._rows = {int(c): np.flatnonzero(cells.combinations == c) for c in np.unique(cells.combinations)}
        self._word, self._blank_word = draw_words(problem.classes.columns, problem.classes.blanks)
        self._groups: dict[tuple[int, int], tuple[Int64s, Int64s]] = {}
        self._own = {c: self._own_cells(c) for c in self._rows}
        asked = problem.members.size * problem.candidates.size * len(self._rows)
        self._ask_every_class = asked <= _MOST_ASKED
        self._programme = GrowingProgramme(gains=cells.lacks, upper=self._cap_prices())

    def prices(self) -> Floats:
        """Return the best prices under the constraints so far."""
        return self._programme.solve()

    def total(self, prices: Floats) -> float:
        """Return the total price of all shortages."""
        return float(self.cells.lacks @ prices)

    def best_earnings(self, prices: Floats) -> float:
        """Return the highest ratio of earnings to cost; blanks that earn too much become constraints."""
        most = float(prices @ np.maximum(self.heaviest, self.shares)) / unseen_price(self.problem)
        costs = self.problem.cost(self.problem.candidates[1:]).tolist()
        for blank in np.unique(self.problem.blank):
            classes = np.flatnonzero(self.problem.blank == blank)
            for mask, cost in zip(self.problem.candidates[1:].tolist(), costs, strict=True):
                if mask & blank:
                    continue
                earned, cells, factors = self._best_earning(classes, mask, int(mask | blank), prices)
                if earned > cost * (1 + 1e-7):
                    self._programme.add(cells, factors, cost)
                most = max(most, earned / cost)
        return most

    def _best_earning(self, classes: Int64s, mask: int, blank: int, prices: Floats) -> tuple[float, Int64s, Floats]:
        """Return the most that a record of these classes earns by blanking these keys, and the cells it covers."""
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
            covered, factor = self._cover_cells(c, blank, int(classes[earner if self._ask_every_class else best[c]]))
            cells.append(covered)
            factors.append(factor)
        return float(total[earner]), np.concatenate(cells), np.concatenate(factors)

    def _value(self, c: int, blank: int, prices: Floats) -> Floats:
        """Return the earnings of a record of each class in one combination."""
        of_cell, of_class = self._group_cells(c, blank)
        rows = self._rows[c]
        by_group = np.append(np.bincount(of_cell, prices[rows]), 0.0)  # last: classes that cover nothing
        units = self._units()
        value: Floats = units * by_group[of_class]
        own = self._own[c]
        some = own >= 0
        value[some] += prices[own[some]] * np.maximum(0.0, self.shares[own[some]] - units[some])
        return value

    def _units(self) -> Floats:
        """Return what a blanked record of each class adds to the cells it matches."""
        return self.problem.unit if self._ask_every_class else np.full(self.problem.members.size, self.heaviest)

    def _cover_cells(self, c: int, blank: int, of_class: int) -> tuple[Int64s, Floats]:
        of_cell, groups = self._group_cells(c, blank)
        covered = self._rows[c][of_cell == groups[of_class]]
        unit = self._units()[of_class]
        return covered, np.where(covered == self._own[c][of_class], np.maximum(unit, self.shares[covered]), unit)

    def _group_cells(self, c: int, blank: int) -> tuple[Int64s, Int64s]:
        """Group the cells of a combination, and all classes, by their remaining values, as small numbers."""
        combination = self.problem.combinations[c][0]
        if (c, blank & combination) not in self._groups:
            keys = np.array(decode_mask(combination), np.int64)
            chosen = sum(1 << place for place, key in enumerate(keys.tolist()) if blank >> key & 1)
            names = group_names(self._word[:, keys], self._blank_word[keys], np.full(len(self._word), chosen))
            values, of_cell = np.unique(names[self.cells.classes[self._rows[c]]], return_inverse=True)
            place = np.minimum(np.searchsorted(values, names), values.size - 1)
            of_class = np.where(values[place] == names, place, values.size)
            self._groups[c, blank & combination] = (of_cell, of_class)
        return self._groups[c, blank & combination]

    def _own_cells(self, c: int) -> Int64s:
        """Return the row of each class's own cell in a combination, −1 where that is not priced."""
        codes, _ = cell_codes(self.problem.classes, decode_mask(self.problem.combinations[c][0]))
        rows = self._rows[c]
        order = rows[np.argsort(codes[self.cells.classes[rows]])]
        sorted_codes = codes[self.cells.classes[order]]
        place = np.minimum(np.searchsorted(sorted_codes, codes), order.size - 1)
        found: Int64s = np.where(sorted_codes[place] == codes, order[place], -1)
        return found

    def _cap_prices(self) -> Floats:
        """Cap the price of a unit: blanking the cheapest key of a record of the cell must not earn more."""
        most = np.empty(self.cells.classes.size)
        units = self._units()[self.cells.classes]
        for c, rows in self._rows.items():
            keys = list(decode_mask(self.problem.combinations[c][0] & self.problem.allowed))
            most[rows] = self.problem.costs[keys].min(initial=np.inf) / np.maximum(units[rows], self.shares[rows])
        return most


_MOST_STEPS = 500
_MOST_PRUNED = 400
_SMALL = 600  # types of records; up to this many the whole problem is one programme
_MOST_ENTRIES = 3_000_000
_QUICKLY_PRICED = 2_000_000  # classes, sets of keys and combinations; beyond, a quick answer has a simple bound
_MOST_LOOKED_AT = 4_000_000  # cells and sets of keys in one step


def blank_least_wildcards(problem: Problem, *, seconds: float, gap: float = 0.0, exact: bool = True) -> Answer:
    """Return the cheapest answer, or nearly so, as far as time allows; the bound is always proved."""
    end = monotonic() + seconds
    best = greedy_wildcards(problem, end=end)
    greedy_cost = best.cost(problem)
    if not greedy_cost:
        return Answer(blanking=NOTHING, cost=0.0, bound=0.0, greedy_cost=0.0)
    unit = 1.0 if (problem.costs == np.round(problem.costs)).all() else 0.0
    found = float(problem.costs[list(decode_mask(problem.allowed))].min())  # at least one value must be blanked
    asked = problem.members.size * problem.candidates.size * len(problem.combinations)
    if exact or asked <= _QUICKLY_PRICED:
        found = max(found, cover_bound(problem, seconds=0.5 * seconds, enough=(1 - gap) * greedy_cost - unit + 1e-6))
    bound = round_up(found, problem.costs)
    if exact and best.cost(problem) - bound > gap * best.cost(problem) + 1e-9:
        best, bound = _solve_whole(problem, best, bound, max(0.1, end - monotonic()), gap)
    return Answer(blanking=best, cost=best.cost(problem), bound=bound, greedy_cost=greedy_cost)


def greedy_wildcards(problem: Problem, *, end: float = inf) -> Blanking:
    """Blank, one record at a time, the keys that make most unsafe records safer for their cost.

    At ``end`` (monotonic clock) whole records are blanked instead.
    """
    chosen: list[tuple[int, int]] = []
    whole = _whole_records(problem)
    limit = whole.cost(problem) if whole is not None else np.inf
    for _ in range(_MOST_STEPS):
        blanking = _gather_pairs(chosen)
        going_on = blanking.cost(problem) < limit and monotonic() < end
        step = _best_step(problem, blanking) if going_on else None
        if step is None:
            break
        chosen = _blank_one_more(problem, chosen, *step)
    blanking = _gather_pairs(chosen)
    if not is_safe(problem, blanking) or blanking.cost(problem) >= limit:
        blanking = whole if whole is not None else blank_everything(problem)
    return _prune(problem, blanking, end)


def _whole_records(problem: Problem) -> Blanking | None:
    """Blank all keys of as many records as a cell can lack; None if that does not make the file safe."""
    number = int(np.ceil(max(problem.needed))) - 1
    if number >= problem.members.sum():
        return None
    order = np.argsort(-problem.members, kind="stable")
    taken = np.minimum(problem.members[order], number)
    taken = np.diff(np.minimum(np.cumsum(taken), number), prepend=0)
    for tried in ((order, taken), _take_heaviest(problem)):  # records that weigh less than one may not suffice
        blanking = gather(tried[0], problem.allowed & ~problem.blank[tried[0]], tried[1])
        if is_safe(problem, blanking):
            return blanking
    return None


def _take_heaviest(problem: Problem) -> tuple[Int64s, Int64s]:
    """Sort the classes by the weight of their records; also return how many of each add up to the required size."""
    order = np.flatnonzero(problem.unit > 0)
    order = order[np.argsort(-problem.unit[order], kind="stable")]
    unit, members = problem.unit[order], problem.members[order]
    lacking = max(problem.needed) - (np.cumsum(unit * members) - unit * members)
    return order, np.clip(np.ceil(lacking / unit), 0, members).astype(np.int64)


def _best_step(problem: Problem, blanking: Blanking) -> tuple[int, int] | None:
    """Return the class and the keys that cover most for their cost; None if nothing is unsafe."""
    found, source, masks = apply_blanking(problem, blanking)
    unsafe: list[tuple[int, Int64s, Floats]] = []
    for c, (mask, _) in enumerate(problem.combinations):
        sizes = matching_sizes(found, decode_mask(mask)).astype(np.float64)
        small = np.flatnonzero(sizes < problem.needed[c])
        if small.size:
            small = small[:: -(-small.size // _MOST_CELLS)]  # an even sample shows which blanks are widest
            unsafe.append((c, small, problem.needed[c] - sizes[small]))
    if not unsafe:
        return None
    return _find_widest(problem, found, source, masks, unsafe)


def _find_widest(
    problem: Problem, found: Classes, source: Int64s, masks: Int64s, unsafe: list[tuple[int, Int64s, Floats]]
) -> tuple[int, int]:
    """Compare sets of keys by how many unsafe records they make safer, for the best record of each."""
    word, blank_word = draw_words(found.columns, found.blanks)
    who = np.unique(np.concatenate([small for _, small, _ in unsafe]))
    candidates = problem.candidates[1:]
    most = max(64, _MOST_LOOKED_AT // max(1, who.size * len(unsafe)))
    if candidates.size > most:  # the cheapest, and the widest
        candidates = np.concatenate([candidates[: most // 2], candidates[-(most - most // 2) :]])
    best, best_value = (int(source[who[0]]), int(problem.allowed)), 0.0
    for mask in candidates:
        value = np.zeros(who.size)
        for c, small, lacks in unsafe:
            if problem.combinations[c][0] & mask:
                value += _count_covered(
                    word, blank_word, problem.combinations[c][0], int(mask), who, small, lacks, found
                )
        value /= float(problem.cost(mask))
        more = (mask & ~(masks[who] | problem.blank[source[who]])) != 0
        value[~more] = 0.0
        place = int(value.argmax())
        if value[place] > best_value + 1e-9:
            best, best_value = (int(source[who[place]]), int(mask)), float(value[place])
    return best


def _count_covered(
    word: npt.NDArray[np.uint64],
    blank_word: npt.NDArray[np.uint64],
    combination: int,
    mask: int,
    who: Int64s,
    small: Int64s,
    lacks: Floats,
    found: Classes,
) -> Floats:
    """Count, for each record that could blank these keys, the unsafe records it would match; itself at most once."""
    keys = np.array(decode_mask(combination), np.int64)
    chosen = sum(1 << place for place, key in enumerate(keys.tolist()) if mask >> key & 1)
    both = np.concatenate([who, small])
    names = group_names(word[both][:, keys], blank_word[keys], np.full(both.size, chosen))
    _, place = np.unique(names, return_inverse=True)
    gains = found.sizes[small] * np.minimum(1.0, lacks)
    total = np.bincount(place[who.size :], gains, int(place.max()) + 1)
    itself = np.zeros(len(found))
    itself[small] = found.sizes[small] * (np.minimum(1.0, lacks) - lacks / np.maximum(found.sizes[small], 1))
    return np.asarray(total[place[: who.size]] - itself[who], np.float64)


def _blank_one_more(problem: Problem, chosen: list[tuple[int, int]], of_class: int, mask: int) -> list[tuple[int, int]]:
    """Blank one more record of a class; if all have blanks already, widen the blanks of one."""
    mine = [i for i, (c, _) in enumerate(chosen) if c == of_class]
    mask &= ~int(problem.blank[of_class])
    if len(mine) < problem.members[of_class]:
        return [*chosen, (of_class, mask)]
    widened = list(chosen)
    open_ = next((i for i in mine if mask & ~chosen[i][1]), mine[0])
    widened[open_] = (of_class, chosen[open_][1] | mask)
    return widened


def _prune(problem: Problem, blanking: Blanking, end: float) -> Blanking:
    """Undo unnecessary blanks, key by key, the dearest first."""
    if blanking.values > _MOST_PRUNED:
        return blanking
    classes, masks = (np.repeat(part, blanking.numbers).tolist() for part in (blanking.classes, blanking.masks))
    chosen: list[tuple[int, int]] = list(zip(classes, masks, strict=True))
    keys = sorted(decode_mask(problem.allowed), key=lambda key: -problem.costs[key])
    for i in range(len(chosen)):
        for key in keys:
            if chosen[i][1] >> key & 1 and monotonic() < end:
                less = [*chosen[:i], (chosen[i][0], chosen[i][1] & ~(1 << key)), *chosen[i + 1 :]]
                if is_safe(problem, _gather_pairs(less)):
                    chosen = less
    return _gather_pairs(chosen)


def _gather_pairs(chosen: list[tuple[int, int]]) -> Blanking:
    pairs = np.array(chosen, np.int64).reshape(-1, 2)
    return gather(pairs[:, 0], pairs[:, 1])


def _solve_whole(problem: Problem, best: Blanking, bound: float, seconds: float, gap: float) -> tuple[Blanking, float]:
    """Solve a small problem as one programme: a number of records per type, each type safe or unused."""
    types = problem.members.size * problem.candidates.size
    if types > _SMALL or types**2 * len(problem.combinations) > _MOST_ENTRIES or np.isfinite(unseen_price(problem)):
        return best, bound
    classes = np.repeat(np.arange(problem.members.size), problem.candidates.size)
    masks = np.tile(problem.candidates, problem.members.size)
    real = (masks & problem.blank[classes]) == 0
    classes, masks = classes[real], masks[real]
    found = solve_blanks(_types_programme(problem, classes, masks), seconds=seconds, gap=gap)
    bound = max(bound, round_up(found.bound, problem.costs))
    if found.values is not None:
        chosen = gather(classes, masks, found.values[: classes.size].astype(np.int64))
        if chosen.cost(problem) < best.cost(problem) - 1e-9 and is_safe(problem, chosen):
            best = chosen
    return best, bound


def _types_programme(problem: Problem, classes: Int64s, masks: Int64s) -> Programme:
    """Columns: records of each type, then a flag per used type. Rows: all records, used or not, enough matches."""
    from scipy import sparse  # slow to import

    types = classes.size
    members = problem.members[classes].astype(np.float64)
    records = sparse.csr_array((np.ones(types), (classes, np.arange(types))), shape=(problem.members.size, types))
    none = sparse.csr_array((problem.members.size, types))
    blocks = [[records, none], [sparse.eye_array(types), -sparse.diags_array(members)]]
    low = [problem.members.astype(np.float64), np.full(types, -np.inf)]
    high = [problem.members.astype(np.float64), np.zeros(types)]
    for (mask, _), needed in zip(problem.combinations, problem.needed, strict=True):
        blocks.append([sparse.csr_array(_matching(problem, classes, masks, mask)), -needed * sparse.eye_array(types)])
        low.append(np.zeros(types))
        high.append(np.full(types, np.inf))
    return Programme(
        costs=np.concatenate([problem.cost(masks), np.zeros(types)]),
        upper=np.concatenate([members, np.ones(types)]),
        matrix=sparse.csr_array(sparse.block_array(blocks)),
        low=np.concatenate(low),
        high=np.concatenate(high),
    )


def _matching(problem: Problem, classes: Int64s, masks: Int64s, combination: int) -> Floats:
    """Return, by pairs of types, what a record of the second adds to the matches of one of the first."""
    agree = np.ones((classes.size, classes.size), np.bool_)
    blank = masks | problem.blank[classes]
    for key in decode_mask(combination):
        codes, free = problem.classes.columns[key][classes], (blank >> key & 1).astype(np.bool_)
        agree &= (codes[:, None] == codes[None, :]) | free[:, None] | free[None, :]
    return agree * problem.unit[classes][None, :]
