"""Fill up groups of records that blank the same keys: each that is too small moves on, or calls others to join it.

Where blanks count as values, a record that blanks a key needs others that look the same afterwards. They are records
that blank something anyway and can leave their own group, or records that had nothing to blank and now pay for company.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from safeswap.kernels import blanking_sweeps as loops
from safeswap.kernels.blanking import Blanking, Floats, Int64s, Problem, company, gathered

_MOST_TRIED = 130
_ENOUGH = 1e-9

Names = npt.NDArray[np.uint64]


def fill_groups(problem: Problem, blanking: Blanking) -> Blanking:
    """An answer whose groups are large enough, or at least fewer are not; cells without blanks are not looked at."""
    return _Groups(problem, blanking).filled()


@dataclass(frozen=True)
class _Move:
    """A record blanks other keys, and so do those that it calls; classes give records that blanked nothing before."""

    cost: float
    mask: int
    price: float
    items: tuple[int, ...] = ()
    given: tuple[tuple[int, int], ...] = ()


class _Groups:
    """All records that blank something, and the sizes of the groups they form."""

    def __init__(self, problem: Problem, blanking: Blanking) -> None:
        self.problem = problem
        self.needed = max(problem.needed)
        self.scale = float(problem.unit.mean())
        self.classes = np.repeat(blanking.classes, blanking.numbers)
        self.masks = np.repeat(blanking.masks, blanking.numbers)
        self.words, self.blank_words = loops.words(problem.classes.columns, problem.classes.blanks)
        self.names = loops.group_names(self.words[self.classes], self.blank_words, self.masks).tolist()
        self.sizes: dict[int, float] = {}
        self._count(np.flatnonzero(problem.blank))
        for name, unit in zip(self.names, problem.unit[self.classes].tolist(), strict=True):
            self.sizes[name] = self.sizes.get(name, 0.0) + unit
        self.paid = problem.cost(self.masks).tolist()
        self.spare = self._spare()
        self.given: list[tuple[int, int, int]] = []  # class, mask, number
        self._index: dict[int, tuple[Int64s, Names, Int64s, Names]] = {}

    def filled(self) -> Blanking:
        """Go through the groups that are too small, in the order of their classes."""
        poor = np.flatnonzero([self.sizes[name] < self.needed - _ENOUGH for name in self.names])
        candidates = self.problem.candidates[1:_MOST_TRIED]
        rows, of_item = np.unique(self.classes[poor], return_inverse=True)
        able = company(self.problem, rows, candidates) >= 1
        prices = self.problem.cost(candidates)
        for item, row in zip(poor.tolist(), of_item.tolist(), strict=True):
            if self.sizes[self.names[item]] < self.needed - _ENOUGH:
                self._place(item, candidates[able[row]], prices[able[row]])
        given = np.array(self.given, np.int64).reshape(-1, 3)
        return gathered(
            np.concatenate([self.classes, given[:, 0]]),
            np.concatenate([self.masks, given[:, 1]]),
            np.concatenate([np.ones(self.classes.size, np.int64), given[:, 2]]),
        )

    def _place(self, item: int, candidates: Int64s, prices: Floats) -> None:
        now = self.paid[item]
        best: _Move | None = None
        for mask, price in zip(candidates.tolist(), prices.tolist(), strict=True):
            if best is not None and price - now >= best.cost:
                break
            move = self._with_company(item, mask, price, now)
            if move is not None and (best is None or move.cost < best.cost):
                best = move
        if best is not None:
            self._make(item, best)

    def _with_company(self, item: int, mask: int, price: float, now: float) -> _Move | None:
        """What it costs to blank these keys and to have enough others do so; None where there are not enough."""
        name = self._name(int(self.classes[item]), mask)
        stays = mask == self.masks[item]
        size = self.sizes.get(name, 0.0) + (0.0 if stays else float(self.problem.unit[self.classes[item]]))
        cost, items, given = price - now, [], []
        if size >= self.needed - _ENOUGH:
            return _Move(cost, mask, price)
        for extra, other, giver in self._donors(item, name, mask, price):
            cost += extra
            if giver:
                given.append((other, 1))
                size += float(self.problem.unit[other])
            else:
                items.append(other)
                size += float(self.problem.unit[self.classes[other]])
            if size >= self.needed - _ENOUGH:
                return _Move(cost, mask, price, tuple(items), tuple(given))
        return None

    def _donors(self, item: int, name: int, mask: int, price: float) -> list[tuple[float, int, bool]]:
        """Who could join, the cheapest first: what it costs, the item or class, whether it is a class that gives."""
        items, item_names, classes, class_names = self._indexed(mask)
        here = slice(*(int(np.searchsorted(item_names, np.uint64(name), side=s)) for s in ("left", "right")))
        found: list[tuple[float, int, bool]] = []
        for other in items[here].tolist():
            if other == item or self.masks[other] == mask:
                continue
            size = self.sizes[self.names[other]]
            if size < self.needed or size - self.problem.unit[self.classes[other]] >= self.needed - _ENOUGH:
                found.append((max(0.0, price - self.paid[other]), other, False))
        wanted = int(np.ceil(self.needed / self.scale))
        there = slice(*(int(np.searchsorted(class_names, np.uint64(name), side=s)) for s in ("left", "right")))
        for other in classes[there].tolist():
            found += [(price, other, True)] * min(wanted, int(self.spare[other]))
        return sorted(found)

    def _make(self, item: int, move: _Move) -> None:
        for other in (item, *move.items):
            unit = float(self.problem.unit[self.classes[other]])
            self.sizes[self.names[other]] -= unit
            self.masks[other], self.paid[other] = move.mask, move.price
            self.names[other] = self._name(int(self.classes[other]), move.mask)
            self.sizes[self.names[other]] = self.sizes.get(self.names[other], 0.0) + unit
        for giver, number in move.given:
            self.spare[giver] -= number
            self.given.append((giver, move.mask, number))
            name = self._name(giver, move.mask)
            self.sizes[name] = self.sizes.get(name, 0.0) + number * float(self.problem.unit[giver])

    def _indexed(self, mask: int) -> tuple[Int64s, Names, Int64s, Names]:
        """Items, and classes that can give, in the order of the group they would be in with these keys blanked."""
        if mask not in self._index:
            every = np.arange(self.classes.size)
            free = every[(self.problem.blank[self.classes] & mask) == 0]
            names = loops.group_names(self.words[self.classes[free]], self.blank_words, np.full(free.size, mask))
            order = np.lexsort((free, names))
            givers = np.flatnonzero((self.spare > 0) & ((self.problem.blank & mask) == 0))
            theirs = loops.group_names(self.words[givers], self.blank_words, np.full(givers.size, mask))
            largest = np.lexsort((givers, -self.spare[givers], theirs))
            self._index[mask] = (free[order], names[order], givers[largest], theirs[largest])
        return self._index[mask]

    def _name(self, of_class: int, mask: int) -> int:
        return int(loops.group_name(self.words[of_class], self.blank_words, mask))

    def _count(self, classes: Int64s) -> None:
        """Records of the file that have blanks are groups from the beginning."""
        names = loops.group_names(self.words[classes], self.blank_words, np.zeros(classes.size, np.int64))
        for name, size in zip(names.tolist(), self.problem.classes.sizes[classes].tolist(), strict=True):
            self.sizes[name] = self.sizes.get(name, 0.0) + size

    def _spare(self) -> Int64s:
        """How many records each class can give without becoming unsafe, none of its own being blanked yet."""
        keeps = int(np.ceil(self.needed / self.scale))
        taken = np.bincount(self.classes, minlength=self.problem.members.size)
        spare: Int64s = np.maximum(0, self.problem.members - taken - keeps)
        return spare
