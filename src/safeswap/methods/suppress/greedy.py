"""Find a good answer quickly: records in unsafe cells choose their blanks in turn, round after round.

A choice costs what it blanks plus a price for every record that it leaves, or makes, unsafe. The price rises from round
to round until nothing is unsafe; records that become unsafe on the way join in. Where blanks count as values, records
that blank something form groups that are large enough for every combination.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic

import numpy as np

from safeswap.arrays.combinations import cell_ranks, decode_mask
from safeswap.arrays.types import Flags, Floats, Int64s, UInt64s
from safeswap.methods.suppress import sweeps as loops
from safeswap.methods.suppress.problem import (
    Blanking,
    Problem,
    apply_blanking,
    blank_everything,
    count_company,
    gather,
    is_safe,
    unsafe_classes,
)
from safeswap.methods.suppress.sweeps import settle_by_published_keys

# Groups of records that blank the same keys.
#
# Where blanks count as values, a record that blanks a key needs others that look the same afterwards: records that
# blank something anyway and can leave their own group, or records that had nothing to blank and now pay to join.

_MOST_TRIED = 130
_ENOUGH = 1e-9


def fill_groups(problem: Problem, blanking: Blanking, *, end: float) -> Blanking:
    """Return an answer with all groups, or at least more, large enough; cells without blanks are ignored.

    At ``end`` (monotonic clock) the remaining groups stay as they are.
    """
    return _Groups(problem, blanking).fill(end)


@dataclass(frozen=True)
class _Move:
    """New blanks for a record, for the items it calls, and for the records that classes give."""

    cost: float
    pattern: int
    items: tuple[int, ...] = ()
    given: tuple[int, ...] = ()


class _Groups:
    """All records that blank something or need others to match, and the sizes of their groups.

    A pattern is the set of all keys that are blank in a group, including those blank in the file.
    """

    def __init__(self, problem: Problem, blanking: Blanking) -> None:
        self.problem = problem
        self.needed = max(problem.needed) - _ENOUGH
        self.words, self.blank_words = loops.draw_words(problem.classes.columns, problem.classes.blanks)
        alone, numbers = _find_alone(problem, blanking)
        self.classes = np.concatenate([np.repeat(blanking.classes, blanking.numbers), np.repeat(alone, numbers)])
        masks = np.concatenate([np.repeat(blanking.masks, blanking.numbers), np.zeros(numbers.sum(), np.int64)])
        self.file_blank = problem.blank[self.classes]
        self.patterns = masks | self.file_blank
        self.paid = problem.cost(masks).tolist()
        self.names: list[int] = loops.group_names(self.words[self.classes], self.blank_words, masks).tolist()
        self.units: list[float] = problem.unit[self.classes].tolist()
        self.sizes = self._count_groups()
        self.wanted = int(np.ceil(self.needed / float(problem.unit.mean())))
        keeps = int(np.ceil(max(problem.needed) / float(problem.unit.mean())))
        taken = np.bincount(self.classes, minlength=problem.members.size)
        self.spare = np.maximum(0, problem.members - taken - keeps)
        self.given: list[tuple[int, int]] = []  # class and keys to blank
        self._prices: dict[int, float] = {}
        self._index: dict[int, tuple[Int64s, UInt64s, Int64s, UInt64s]] = {}

    def fill(self, end: float) -> Blanking:
        """Fill the groups that are too small, in class order."""
        poor = np.flatnonzero([self.sizes[name] < self.needed for name in self.names])
        candidates = self.problem.candidates[:_MOST_TRIED]
        prices = self.problem.cost(candidates)
        rows, of_item = np.unique(self.classes[poor], return_inverse=True)
        able = count_company(self.problem, rows, candidates) >= 1
        for item, row in zip(poor.tolist(), of_item.tolist(), strict=True):
            if monotonic() >= end:
                break
            if self.sizes[self.names[item]] < self.needed:
                self._place(item, candidates[able[row]], prices[able[row]])
        masks = self.patterns & ~self.file_blank
        given = np.array(self.given, np.int64).reshape(-1, 2)
        return gather(np.concatenate([self.classes, given[:, 0]]), np.concatenate([masks, given[:, 1]]))

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
            self._make_move(item, best)

    def _with_company(self, item: int, pattern: int, cost: float) -> _Move | None:
        """Return the move to these blanks and a large enough group; None if there are too few donors."""
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
        """List possible donors, cheapest first: cost, item or class, and True for a class."""
        items, item_names, classes, class_names = self._index_donors(pattern)
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

    def _make_move(self, item: int, move: _Move) -> None:
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

    def _index_donors(self, pattern: int) -> tuple[Int64s, UInt64s, Int64s, UInt64s]:
        """Return items, and classes that can give, sorted by the group they would be in with these blanks."""
        if pattern not in self._index:
            items = np.flatnonzero(self._can_reach(self.file_blank, pattern))
            names = self._names(self.classes[items], pattern)
            order = np.lexsort((items, names))
            givers = np.flatnonzero((self.spare > 0) & self._can_reach(self.problem.blank, pattern))
            theirs = self._names(givers, pattern)
            largest = np.lexsort((givers, -self.spare[givers], theirs))
            self._index[pattern] = (items[order], names[order], givers[largest], theirs[largest])
        return self._index[pattern]

    def _can_reach(self, blank: Int64s, pattern: int) -> Flags:
        """Flag the records that can reach the pattern by blanking allowed keys only."""
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

    def _count_groups(self) -> dict[int, float]:
        """Sum the sizes of all groups: the items, and the file's other records with blanks."""
        inside = np.bincount(self.classes, minlength=self.problem.members.size)
        others = np.flatnonzero(self.problem.blank)
        left = (self.problem.members - inside)[others] * self.problem.unit[others]
        names = np.concatenate([self._names(others, 0), np.array(self.names, np.uint64)])
        sizes = np.concatenate([left, self.units])
        distinct, place = np.unique(names, return_inverse=True)
        return dict(zip(distinct.tolist(), np.bincount(place, sizes, distinct.size).tolist(), strict=True))


def _find_alone(problem: Problem, blanking: Blanking) -> tuple[Int64s, Int64s]:
    """Return the classes with blanks in the file that blank nothing more and are unsafe, and their numbers."""
    if not problem.blank.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    found, source, masks = apply_blanking(problem, blanking)
    alone = unsafe_classes(problem, found) & (masks == 0) & (problem.blank[source] != 0)
    numbers = np.round(found.sizes[alone] / problem.unit[source[alone]]).astype(np.int64)
    return source[alone], numbers


def _range(names: UInt64s, name: int) -> slice:
    return slice(*(int(np.searchsorted(names, np.uint64(name), side=side)) for side in ("left", "right")))


_PRICES = (0.3, 0.6, 0.9, 1.1, 1.5, 3.0)
_STRICT = 1e4
_MOST_REPAIRS = 12
_MOST_PRUNINGS = 3
_MOST_MEETINGS = 5
_CHUNK = 1 << 14
_FEWER_TRIED = 48  # with many records
_MANY = 10_000
_MOST_SWEPT = 500_000_000  # records, combinations and candidates
_MOST_GUESSED = 64  # candidates of the first search for groups


def greedy(problem: Problem, *, end: float = inf) -> Blanking:
    """Return an answer that leaves nothing unsafe.

    At ``end`` (monotonic clock) whatever is still unsafe is made safe at once, which may cost more than necessary.
    """
    quick = settle_by_published_keys(problem, end=end) if problem.meaning == "none" else None
    if quick is not None and (problem.is_closed or too_many_to_sweep(problem)):
        return quick
    state = Greedy(problem, end=end)
    state.look()
    state.join_unsafe()
    found = _form_groups(state) if state.grouped else _sweep_at_rising_prices(state, _PRICES)
    return found if quick is None or found.cost(problem) <= quick.cost(problem) else quick


def too_many_to_sweep(problem: Problem) -> bool:
    """Return True if unsafe records × combinations × sets of keys are too many to compare one by one.

    Only where a blank matches nothing: there a quick answer does not need the list of combinations.
    """
    if problem.meaning != "none":
        return False
    records = int(problem.members[unsafe_classes(problem, problem.classes)].sum())
    work = records * len(problem.combinations) * min(problem.candidates.size, _MOST_TRIED)
    return work > _MOST_SWEPT


def _sweep_at_rising_prices(state: Greedy, prices: tuple[float, ...]) -> Blanking:
    for price in prices:
        if state.is_late:
            break
        state.sweep(price)
        state.sweep(price)
        if state.look():
            state.join_unsafe()
    return finish(state)


def _form_groups(state: Greedy) -> Blanking:
    """Form groups where that costs nothing extra, then fill the groups that are too small."""
    state.seek_company()
    for _ in range(_MOST_MEETINGS):
        if state.is_late or not state.sweep(_PRICES[0]):
            break
    state.resume(fill_groups(state.problem, state.blanking(), end=state.end))
    return finish(state)


def repair(problem: Problem, blanking: Blanking, *, end: float = inf) -> Blanking:
    """Turn an unsafe answer into one that leaves nothing unsafe, within the time limit of :func:`greedy`."""
    state = Greedy(problem, end=end)
    if state.grouped:
        state.resume(fill_groups(problem, blanking, end=end))
        return finish(state)
    state.resume(blanking)
    state.look()
    state.join_unsafe()
    return _sweep_at_rising_prices(state, _PRICES[2:])


def finish(state: Greedy) -> Blanking:
    """Repair whatever is unsafe at any price, then undo unnecessary blanks."""
    for _ in range(_MOST_REPAIRS):
        if state.is_late or not state.look():
            break
        state.join_unsafe()
        state.sweep(_PRICES[0], state.unsafe_items(), growing=True)
        if state.grouped and state.look():
            state.resume(fill_groups(state.problem, state.blanking(), end=state.end))
    if state.grouped and state.look():
        state.join_unsafe()
        state.meet(state.unsafe_items())
    while state.look():
        state.join_unsafe()
        if not state.blank_all(state.unsafe_items()) and not state.give_up_a_class():
            return blank_everything(state.problem)
    best = state.blanking()
    for _ in range(0 if state.is_late else _MOST_PRUNINGS):
        changed = state.sweep(_STRICT)
        pruned = state.blanking()
        if pruned.cost(state.problem) < best.cost(state.problem) and is_safe(state.problem, pruned):
            best = pruned
        if not changed:
            break
    return best


class Greedy:
    """The records that take part so far, their blanked keys, and the sizes of their cells and groups."""

    def __init__(self, problem: Problem, *, end: float = inf) -> None:
        self.problem = problem
        self.end = end
        self.grouped = problem.meaning == "own"
        self.masks = np.array([mask for mask, _ in problem.combinations], np.int64)
        self.needed = np.array(problem.needed, np.float64)
        self.words, self.blank_words = loops.draw_words(problem.classes.columns, problem.classes.blanks)
        self.scale = float(problem.unit.mean())
        most = _MOST_TRIED if problem.members.size <= _MANY else _FEWER_TRIED
        tried = np.r_[: min(most, problem.candidates.size), problem.candidates.size - 1]
        self.candidates = problem.candidates[np.unique(tried)]
        self.prices = problem.cost(self.candidates)
        # By item: class, keys blanked, cell by combination, company by candidate.
        self.classes, self.blanked = np.empty(0, np.int64), np.empty(0, np.int64)
        self.cells = np.empty((0, self.masks.size), np.int64)
        self.company = np.empty((0, self.candidates.size), np.float32)
        self.cell_sizes, self._first_cell = self._file_cells()
        self.names, self.sizes, self.groups = np.zeros(1 << 10, np.uint64), np.zeros(1 << 10), 0
        self._unsafe = (np.empty(0, np.int64), np.empty(0, np.int64))  # class and keys blanked
        if self.grouped:
            self._add_groups(np.flatnonzero(problem.blank))

    @property
    def is_late(self) -> bool:
        """True once the time limit has passed."""
        return monotonic() >= self.end

    def blanking(self) -> Blanking:
        """Return the answer so far."""
        return gather(self.classes, self.blanked)

    def look(self) -> bool:
        """Recount everything; return True if something is unsafe."""
        found, source, masks = apply_blanking(self.problem, self.blanking())
        unsafe = unsafe_classes(self.problem, found)
        self._unsafe = (source[unsafe], masks[unsafe])
        return bool(unsafe.any())

    def join_unsafe(self) -> None:
        """Let all unsafe records take part."""
        classes, masks = self._unsafe
        classes = classes[masks == 0]
        inside = np.bincount(self.classes, minlength=self.problem.members.size)
        self.join(classes, self.problem.members[classes] - inside[classes])

    def join(self, classes: Int64s, numbers: Int64s) -> None:
        """Let this many more records of these classes take part, with nothing blanked yet."""
        classes, numbers = classes[numbers > 0], numbers[numbers > 0]
        more = np.repeat(classes, numbers)
        together = np.concatenate([self.classes, more])
        order = np.argsort(together, kind="stable")
        self.classes = together[order]
        self.blanked = np.concatenate([self.blanked, np.zeros(more.size, np.int64)])[order]
        cells = np.repeat(self._cells_of(classes), numbers, axis=0)
        self.cells = np.concatenate([self.cells, cells])[order]
        found = np.repeat(self._count_company(classes), numbers, axis=0)
        self.company = np.concatenate([self.company, found])[order]

    def resume(self, blanking: Blanking) -> None:
        """Take over an answer, in which more records may take part."""
        numbers = np.bincount(blanking.classes, blanking.numbers, self.problem.members.size).astype(np.int64)
        inside = np.bincount(self.classes, minlength=numbers.size)
        self.join(np.arange(numbers.size), np.maximum(0, numbers - inside))
        chosen = np.zeros(self.classes.size, np.int64)
        first = np.searchsorted(self.classes, blanking.classes)
        order = np.argsort(blanking.classes, kind="stable")
        classes, before = blanking.classes[order], np.cumsum(blanking.numbers[order]) - blanking.numbers[order]
        start = np.searchsorted(classes, classes)  # the first entry of the class
        places = np.repeat(first[order] + before - before[start], blanking.numbers[order])
        within = np.arange(places.size) - np.repeat(before, blanking.numbers[order])
        chosen[places + within] = np.repeat(blanking.masks[order], blanking.numbers[order])
        self.choose(chosen)

    def unsafe_items(self) -> Int64s:
        """Return the items found unsafe by the last :meth:`look`."""
        classes, masks = self._unsafe
        width = len(self.problem.costs)
        return np.flatnonzero(np.isin((self.classes << width) | self.blanked, (classes << width) | masks))

    def blank_all(self, items: Int64s) -> bool:
        """Blank every allowed key in these records; return True if that blanked anything new."""
        chosen = self.blanked.copy()
        chosen[items] = self.problem.allowed & ~self.problem.blank[self.classes[items]]
        changed = bool((chosen != self.blanked).any())
        self.choose(chosen)
        return changed

    def give_up_a_class(self) -> bool:
        """Blank every allowed key in the smallest remaining class; return False if there is none."""
        whole = self.problem.allowed & ~self.problem.blank
        given_up = np.bincount(self.classes[self.blanked == whole[self.classes]], minlength=whole.size)
        left = np.flatnonzero((given_up < self.problem.members) & (whole != 0))
        if not left.size:
            return False
        smallest = left[self.problem.members[left].argmin()]
        inside = np.count_nonzero(self.classes == smallest)
        self.join(np.array([smallest]), self.problem.members[[smallest]] - inside)
        return self.blank_all(np.flatnonzero(self.classes == smallest))

    def seek_company(self) -> None:
        """Let every record blank the keys that group it with most unsafe records, at the lowest cost."""
        best, best_score = self.blanked.copy(), np.full(self.classes.size, np.inf)
        needed = max(self.needed) / self.scale
        for k in range(1, min(_MOST_GUESSED, self.candidates.size)):
            mask = np.full(self.classes.size, self.candidates[k])
            names = loops.group_names(self.words[self.classes], self.blank_words, mask)
            _, place, number = np.unique(names, return_inverse=True, return_counts=True)
            score = self.prices[k] + (np.maximum(0.0, needed - number) + 1e-3 / number)[place]
            better = (score < best_score) & (self.company[:, k] >= 1)
            best[better], best_score[better] = self.candidates[k], score[better]
        self.choose(best)

    def meet(self, items: Int64s) -> None:
        """Let each of these records blank the cheapest keys that group enough of them, all at once."""
        chosen, left = self.blanked.copy(), items
        for k in range(1, self.candidates.size):
            able = left[self.company[left, k] >= 1]
            masks = np.full(able.size, self.candidates[k])
            names = loops.group_names(self.words[self.classes[able]], self.blank_words, masks)
            _, place = np.unique(names, return_inverse=True)
            enough = np.bincount(place, self.problem.unit[self.classes[able]])[place] >= max(self.needed)
            chosen[able[enough]] = self.candidates[k]
            left = np.setdiff1d(left, able[enough], assume_unique=True)
        self.choose(chosen)

    def sweep(self, price: float, items: Int64s | None = None, *, growing: bool = False) -> int:
        """Run one round; return the number of changed records."""
        items = np.arange(self.classes.size) if items is None else items
        units, word, changed = self.problem.unit[self.classes], self.words[self.classes], 0
        for start in range(0, items.size, _CHUNK):
            part = items[start : start + _CHUNK]
            self._make_room(part.size)
            moved, entered = loops.sweep(
                part,
                self.blanked,
                self.cells,
                self.masks,
                self.needed,
                units,
                self.company,
                self.candidates,
                self.prices,
                self.cell_sizes,
                word,
                self.blank_words,
                self.names,
                self.sizes,
                max(self.needed) if self.grouped else 0.0,
                price,
                growing,
                self.scale,
            )
            changed += moved
            self.groups += entered
        return changed

    def choose(self, chosen: Int64s) -> None:
        """Set the blanked keys of every item."""
        self._make_room(self.classes.size)
        self.groups += loops.rearrange(
            chosen,
            self.blanked,
            self.cells,
            self.masks,
            self.problem.unit[self.classes],
            self.cell_sizes,
            self.words[self.classes],
            self.blank_words,
            self.names,
            self.sizes,
            self.grouped,
        )

    def _file_cells(self) -> tuple[Floats, Int64s]:
        """Return the sizes of the cells of all combinations, and the offset of each combination."""
        sizes, starts = [], [0]
        for mask in self.masks:
            ranks, number = cell_ranks(self.problem.classes, decode_mask(int(mask)))
            sizes.append(np.bincount(ranks, self.problem.classes.sizes, number))
            starts.append(starts[-1] + number)
        return np.concatenate(sizes), np.array(starts[:-1], np.int64)

    def _cells_of(self, classes: Int64s) -> Int64s:
        """Return the cell number by class and combination, −1 where the class is in none."""
        found = np.empty((classes.size, self.masks.size), np.int64)
        for c, mask in enumerate(self.masks):
            ranks, _ = cell_ranks(self.problem.classes, decode_mask(int(mask)))
            found[:, c] = self._first_cell[c] + ranks[classes]
        if not self.grouped:
            found[(self.problem.blank[classes][:, None] & self.masks[None, :]) != 0] = -1
        return found

    def _count_company(self, classes: Int64s) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        found = count_company(self.problem, classes, self.candidates, spare=True)
        # If no choice has donors to spare, allow every choice that has any.
        hard = (found[:, :-1] < 1).all(axis=1)
        if hard.any():
            found[hard] = np.where(count_company(self.problem, classes[hard], self.candidates) >= 1, 1.0, 0.0)
        return found

    def _add_groups(self, classes: Int64s) -> None:
        """Add the file's records with blanks as initial groups."""
        self._make_room(classes.size)
        names = loops.group_names(self.words[classes], self.blank_words, np.zeros(classes.size, np.int64))
        sizes = self.problem.classes.sizes[classes].astype(np.float64)
        self.groups += loops.add(self.names, self.sizes, names, sizes)

    def _make_room(self, more: int) -> None:
        if 2 * (self.groups + more) <= self.names.size:
            return
        names, sizes = self.names[self.sizes != 0], self.sizes[self.sizes != 0]
        size = 1 << (4 * (names.size + more)).bit_length()
        self.names, self.sizes = np.zeros(size, np.uint64), np.zeros(size)
        self.groups = loops.add(self.names, self.sizes, names, sizes)
