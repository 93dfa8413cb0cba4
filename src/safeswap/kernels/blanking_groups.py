"""Fill up groups of records that blank the same keys: each that is too small moves on, or calls others to join it.

Where blanks count as values, a record that blanks a key needs others that look the same afterwards. They are records
that blank something anyway and can leave their own group, or records that had nothing to blank and now pay for company.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import numpy as np

from safeswap.kernels import blanking_sweeps as loops
from safeswap.kernels.blanking import Blanking, Problem, after, company, gathered, unsafe_classes
from safeswap.kernels.types import Flags, Floats, Int64s, UInt64s

_MOST_TRIED = 130
_ENOUGH = 1e-9


def fill_groups(problem: Problem, blanking: Blanking, *, end: float) -> Blanking:
    """An answer whose groups are large enough, or at least fewer are not; cells without blanks are not looked at.

    When the time is over, at ``end`` of the clock that only goes forward, the groups that are left stay as they are.
    """
    return _Groups(problem, blanking).filled(end)


@dataclass(frozen=True)
class _Move:
    """A record comes to have other blanks, and so do the items that it calls and the records that classes give."""

    cost: float
    pattern: int
    items: tuple[int, ...] = ()
    given: tuple[int, ...] = ()


class _Groups:
    """All records that blank something or must have company, and the sizes of the groups they form.

    A pattern is all keys that are blank in a group, whether they were so in the file or not.
    """

    def __init__(self, problem: Problem, blanking: Blanking) -> None:
        self.problem = problem
        self.needed = max(problem.needed) - _ENOUGH
        self.words, self.blank_words = loops.words(problem.classes.columns, problem.classes.blanks)
        alone, numbers = _alone(problem, blanking)
        self.classes = np.concatenate([np.repeat(blanking.classes, blanking.numbers), np.repeat(alone, numbers)])
        masks = np.concatenate([np.repeat(blanking.masks, blanking.numbers), np.zeros(numbers.sum(), np.int64)])
        self.file_blank = problem.blank[self.classes]
        self.patterns = masks | self.file_blank
        self.paid = problem.cost(masks).tolist()
        self.names: list[int] = loops.group_names(self.words[self.classes], self.blank_words, masks).tolist()
        self.units: list[float] = problem.unit[self.classes].tolist()
        self.sizes = self._counted()
        self.wanted = int(np.ceil(self.needed / float(problem.unit.mean())))
        keeps = int(np.ceil(max(problem.needed) / float(problem.unit.mean())))
        taken = np.bincount(self.classes, minlength=problem.members.size)
        self.spare = np.maximum(0, problem.members - taken - keeps)
        self.given: list[tuple[int, int]] = []  # class and keys to blank
        self._prices: dict[int, float] = {}
        self._index: dict[int, tuple[Int64s, UInt64s, Int64s, UInt64s]] = {}

    def filled(self, end: float) -> Blanking:
        """Go through the groups that are too small, in the order of their classes."""
        poor = np.flatnonzero([self.sizes[name] < self.needed for name in self.names])
        candidates = self.problem.candidates[:_MOST_TRIED]
        prices = self.problem.cost(candidates)
        rows, of_item = np.unique(self.classes[poor], return_inverse=True)
        able = company(self.problem, rows, candidates) >= 1
        for item, row in zip(poor.tolist(), of_item.tolist(), strict=True):
            if monotonic() >= end:
                break
            if self.sizes[self.names[item]] < self.needed:
                self._place(item, candidates[able[row]], prices[able[row]])
        masks = self.patterns & ~self.file_blank
        given = np.array(self.given, np.int64).reshape(-1, 2)
        return gathered(np.concatenate([self.classes, given[:, 0]]), np.concatenate([masks, given[:, 1]]))

    def _place(self, item: int, candidates: Int64s, prices: Floats) -> None:
        now, best = self.paid[item], None
        blank = int(self.file_blank[item])
        for mask, price in zip(candidates.tolist(), prices.tolist(), strict=True):
            if best is not None and price - now >= best.cost:
                break
            move = self._with_company(item, mask | blank, price - now)
            if move is not None and (best is None or move.cost < best.cost):
                best = move
        if best is not None:
            self._make(item, best)

    def _with_company(self, item: int, pattern: int, cost: float) -> _Move | None:
        """What it costs to have these blanks and enough others who do; None where there are not enough."""
        name = self._name(int(self.classes[item]), pattern)
        size = self.sizes.get(name, 0.0) + (0.0 if pattern == self.patterns[item] else self.units[item])
        items: list[int] = []
        given: list[int] = []
        for extra, other, gives in self._donors(item, name, pattern) if size < self.needed else ():
            cost += extra
            size += float(self.problem.unit[other]) if gives else self.units[other]
            (given if gives else items).append(other)
            if size >= self.needed:
                break
        return _Move(cost, pattern, tuple(items), tuple(given)) if size >= self.needed else None

    def _donors(self, item: int, name: int, pattern: int) -> list[tuple[float, int, bool]]:
        """Who could join, the cheapest first: what it costs, the item or class, whether it is a class that gives."""
        items, item_names, classes, class_names = self._indexed(pattern)
        found: list[tuple[float, int, bool]] = []
        for other in items[_range(item_names, name)].tolist():
            if other == item or self.patterns[other] == pattern:
                continue
            size = self.sizes[self.names[other]]
            if size < self.needed or size - self.units[other] >= self.needed:
                price = self._price(pattern & ~int(self.file_blank[other]))
                found.append((max(0.0, price - self.paid[other]), other, False))
        for other in classes[_range(class_names, name)].tolist():
            price = self._price(pattern & ~int(self.problem.blank[other]))
            found += [(price, other, True)] * min(self.wanted, int(self.spare[other]))
        return sorted(found)

    def _make(self, item: int, move: _Move) -> None:
        for other in (item, *move.items):
            self.sizes[self.names[other]] -= self.units[other]
            self.patterns[other] = move.pattern
            self.paid[other] = self._price(move.pattern & ~int(self.file_blank[other]))
            self.names[other] = self._name(int(self.classes[other]), move.pattern)
            self._add(self.names[other], self.units[other])
        for giver in move.given:
            self.spare[giver] -= 1
            self.given.append((giver, move.pattern & ~int(self.problem.blank[giver])))
            self._add(self._name(giver, move.pattern), float(self.problem.unit[giver]))

    def _indexed(self, pattern: int) -> tuple[Int64s, UInt64s, Int64s, UInt64s]:
        """Items, and classes that can give, in the order of the group they would be in with these blanks."""
        if pattern not in self._index:
            items = np.flatnonzero(self._able(self.file_blank, pattern))
            names = self._names(self.classes[items], pattern)
            order = np.lexsort((items, names))
            givers = np.flatnonzero((self.spare > 0) & self._able(self.problem.blank, pattern))
            theirs = self._names(givers, pattern)
            largest = np.lexsort((givers, -self.spare[givers], theirs))
            self._index[pattern] = (items[order], names[order], givers[largest], theirs[largest])
        return self._index[pattern]

    def _able(self, blank: Int64s, pattern: int) -> Flags:
        """Whether records with these blanks can come to have the pattern: by keys that may be blanked, if any."""
        able: Flags = ((blank & ~pattern) == 0) & ((pattern & ~blank & ~self.problem.allowed) == 0)
        return able

    def _names(self, classes: Int64s, pattern: int) -> UInt64s:
        return loops.group_names(self.words[classes], self.blank_words, np.full(classes.size, pattern))

    def _name(self, of_class: int, pattern: int) -> int:
        return int(loops.group_name(self.words[of_class], self.blank_words, pattern))

    def _price(self, mask: int) -> float:
        if mask not in self._prices:
            costs = self.problem.costs.tolist()
            self._prices[mask] = float(sum(cost for key, cost in enumerate(costs) if mask >> key & 1))
        return self._prices[mask]

    def _add(self, name: int, size: float) -> None:
        self.sizes[name] = self.sizes.get(name, 0.0) + size

    def _counted(self) -> dict[int, float]:
        """The sizes of all groups: of the items, and of records of the file that have blanks and are no items."""
        inside = np.bincount(self.classes, minlength=self.problem.members.size)
        others = np.flatnonzero(self.problem.blank)
        left = (self.problem.members - inside)[others] * self.problem.unit[others]
        names = np.concatenate([self._names(others, 0), np.array(self.names, np.uint64)])
        sizes = np.concatenate([left, self.units])
        distinct, place = np.unique(names, return_inverse=True)
        return dict(zip(distinct.tolist(), np.bincount(place, sizes, distinct.size).tolist(), strict=True))


def _alone(problem: Problem, blanking: Blanking) -> tuple[Int64s, Int64s]:
    """Classes whose records have blanks in the file, blank nothing more and are unsafe; how many those are."""
    if not problem.blank.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    found, source, masks = after(problem, blanking)
    alone = unsafe_classes(problem, found) & (masks == 0) & (problem.blank[source] != 0)
    numbers = np.round(found.sizes[alone] / problem.unit[source[alone]]).astype(np.int64)
    return source[alone], numbers


def _range(names: UInt64s, name: int) -> slice:
    return slice(*(int(np.searchsorted(names, np.uint64(name), side=side)) for side in ("left", "right")))
