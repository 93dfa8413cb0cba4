"""Swap the households of a coded population: areas in keyed order, risk from counts, pairs, rate, rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from safeswap.arrays import cells, order, sparse
from safeswap.arrays.compiled import FEW_STEPS, is_plain_python, njit, plain_python, python_if_little
from safeswap.arrays.integer_codes import take
from safeswap.arrays.types import Codes, Flags, Int32s, Int64s, Integers, UInt8s, UInt64s
from safeswap.methods.household_swap import pairing, search
from safeswap.methods.household_swap.pairing import FIXED, FREE, Ground, Profile, Reach

PER_MILLION = 1_000_000
_DENSE = 1 << 24
_FEW_KEYS = 1 << 20
_KEYS_PER_HOUSEHOLD = 2  # so many starts take the memory of the sorted keys of all households
_NO_CELL = np.iinfo(np.int32).max
_RUN = 1 << 17  # persons looked up at a time
_LITTLE_REPAIR = 1 << 21  # steps

STEPS_PER_PERSON = 30
"""Steps that kernels take for each person, roughly: what is too little to compile them for is told by this."""


@dataclass(frozen=True, eq=False)
class Areas:
    """The bottom areas in the order of their paths, so that an area of any level is one range of ranks."""

    rank: Int32s  # of each row of the paths
    levels: Int32s  # [level, rank]: number of the area of that level; the last row is the country
    starts: tuple[Int64s, ...]  # by level: the first rank of each area, and the end

    @property
    def depth(self) -> int:
        """The number of levels."""
        return len(self.starts) - 1

    @classmethod
    def of(cls, paths: Int64s, household_area: Int32s, draw: UInt64s) -> Areas:
        """Order the areas of each level by the first draw in them: names of areas play no part."""
        number, depth = paths.shape
        first = np.full(number, np.iinfo(np.uint64).max, dtype=np.uint64)
        if len(draw):
            _lowest(household_area, draw, first)
        keys: list[Int64s | UInt64s] = []
        group = np.zeros(number, dtype=np.int64)
        for level in range(depth):
            group = np.unique(group * (int(paths[:, level].max(initial=0)) + 1) + paths[:, level], return_inverse=True)[
                1
            ].ravel()
            lowest = np.full(number, np.iinfo(np.uint64).max, dtype=np.uint64)
            _lowest(group, first, lowest)
            keys += [lowest[group], paths[:, level]]
        by = np.lexsort(keys[::-1])
        rank = np.empty(number, dtype=np.int32)
        rank[by] = np.arange(number, dtype=np.int32)
        levels, starts = np.zeros((depth + 1, number), dtype=np.int32), []
        begins = np.zeros(number, dtype=np.bool_)
        for level in range(depth):
            begins[1:] |= paths[by[1:], level] != paths[by[:-1], level]
            levels[level] = np.cumsum(begins)
            starts.append(np.r_[0, np.flatnonzero(begins), number].astype(np.int64))
        return cls(rank, levels, (*starts, np.array([0, number], dtype=np.int64)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Population:
    """Coded columns of persons and households; persons without a household are counted, and never move."""

    household: Int32s  # of each counted person
    cell: Codes  # of each counted person: combination of the risk variables
    cells: int
    area: Int32s  # of each household: row of ``paths``
    paths: Int64s  # by bottom area: its code at each level
    profiles: tuple[Integers, ...]  # by household: cell number, strict to loose
    draw: UInt64s  # by household, distinct
    movable: Flags | None = None
    outside_area: Int32s = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    outside_cell: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))

    @cached_property
    def areas(self) -> Areas:
        """The areas in keyed order."""
        return Areas.of(self.paths, self.area, self.draw)

    @cached_property
    def ranks(self) -> Int32s:
        """The rank of the area of each household: its area, if these are in keyed order."""
        if (np.diff(self.areas.rank) == 1).all():
            return self.area
        ranks = np.empty_like(self.area)
        take(self.areas.rank, self.area, ranks)
        return ranks

    def without_draws(self) -> Population:
        """Return the population as far as counts need it: areas are in keyed order already."""
        told = replace(self, draw=np.zeros(0, dtype=np.uint64))
        vars(told).update(areas=self.areas, ranks=self.ranks)
        return told

    def rarity(self, k: int, ranks: Int32s | None = None) -> Iterator[tuple[slice, UInt8s, Int32s]]:
        """Yield runs of persons with each one's topmost level with fewer than k of its cell, and its bottom count.

        What is yielded is valid until the next run: of ten million persons, fresh memory costs more than the counts.
        """
        ranks = self.ranks if ranks is None else ranks
        outside = self.areas.rank[self.outside_area]
        rarity = self._rarity_by_table if self._fits_table else self._rarity_by_hash
        return rarity(ranks, outside, k)

    @property
    def _fits_table(self) -> bool:
        """True if the cells of all areas are counted in an array rather than by a hash."""
        return bool(self.cells * self.areas.levels.shape[1] <= max(_DENSE, 2 * len(self.cell)))

    def _rarity_by_hash(self, ranks: Int32s, outside: Int32s, k: int) -> Iterator[tuple[slice, UInt8s, Int32s]]:
        levels, depth = self.areas.levels, self.areas.depth
        own = ranks[self.household]
        all_areas = np.concatenate([own, outside]) if len(outside) else own
        all_cells = np.concatenate([self.cell, self.outside_cell]) if len(outside) else self.cell
        topmost = np.full(len(own), depth, dtype=np.uint8)
        count = np.zeros(len(own), dtype=np.int32)
        for level in range(depth - 1, -1, -1):
            sizes = [int(levels[level].max(initial=0)) + 1, self.cells]
            packed, _ = cells.pack([levels[level][all_areas].view(np.uint32), all_cells], sizes)
            found = sparse.count_occurrences(packed)[: len(own)]
            topmost[found < k] = level
            count = found if level == depth - 1 else count
        yield slice(0, len(own)), topmost, count

    def _rarity_by_table(self, ranks: Int32s, outside: Int32s, k: int) -> Iterator[tuple[slice, UInt8s, Int32s]]:
        areas, depth = self.areas, self.areas.depth
        table = np.zeros((areas.levels.shape[1], self.cells), dtype=np.int32)
        _count(ranks, self.household, self.cell, 1, table)
        _count(outside, np.arange(len(outside), dtype=np.int32), self.outside_cell, 1, table)
        sums = self._add_areas(table)[:-1]
        first = np.cumsum([0, *map(len, sums)])
        where = np.stack([areas.levels[level] + first[level] for level in range(depth)])[:-1].astype(np.int32)
        upper = np.concatenate([np.zeros((0, self.cells), dtype=np.int32), *sums])
        found, counts = np.empty(_RUN, dtype=np.uint8), np.empty(_RUN, dtype=np.int32)
        for start in range(0, len(self.cell), _RUN):
            run = slice(start, min(start + _RUN, len(self.cell)))
            some = found[: run.stop - start], counts[: run.stop - start]
            _look_up(ranks, self.household[run], self.cell[run], table, upper, where, k, *some)
            yield run, *some

    def count_rare(self, k: int, ranks: Int32s) -> tuple[Int64s, Int64s]:
        """Count the persons with fewer than k of their cell by level, and those of them in their true area.

        ``ranks`` are the areas in which the households are shown. Who lives outside of households is always in the
        true area.
        """
        if len(self.outside_area):
            everybody = self._with_outside()
            return everybody.count_rare(k, np.concatenate([ranks, everybody.ranks[len(ranks) :]]))
        rare, true = np.zeros((2, self.areas.depth), dtype=np.int64)
        for run, topmost, _ in self.rarity(k, ranks):
            _tally(self.household[run], topmost, self.ranks, ranks, self.areas.levels, rare, true)
        return rare, true

    def _with_outside(self) -> Population:
        """Return the population with persons outside of households as households of one, so that they count alike."""
        alone = np.arange(len(self.area), len(self.area) + len(self.outside_area), dtype=np.int32)
        everybody = replace(
            self,
            household=np.concatenate([self.household, alone]),
            cell=np.concatenate([self.cell, self.outside_cell]),
            area=np.concatenate([self.area, self.outside_area]),
            outside_area=self.outside_area[:0],
            outside_cell=self.outside_cell[:0],
        )
        vars(everybody).update(areas=self.areas)
        return everybody

    def _add_areas(self, table: Int32s) -> list[Int32s]:
        """Return the sums of a table of bottom areas by area of each level, the top one first."""
        levels, starts, sums = self.areas.levels, self.areas.starts, [table]
        for level in range(self.areas.depth - 2, -1, -1):
            above = np.zeros((len(starts[level]) - 1, self.cells), dtype=np.int32)
            _add_up(sums[0], levels[level][starts[level + 1][:-1]], above)
            sums.insert(0, above)
        return sums

    def misplaced(self, ranks: Int32s) -> list[float]:
        """Return, by level, the share of persons to move between cells of area × risk variables to restore the table.

        ``ranks`` are the areas of the households in the table to be restored from.
        """
        number = max(len(self.cell) + len(self.outside_cell), 1)
        if self._fits_table:
            table = np.zeros((self.areas.levels.shape[1], self.cells), dtype=np.int32)
            _count_moved(self.ranks, ranks, self.household, self.cell, table)
            return [float(np.abs(sums, out=sums).sum() / 2 / number) for sums in self._add_areas(table)]
        persons = np.flatnonzero((self.ranks != ranks)[self.household])
        household, cell = self.household[persons], self.cell[persons]
        shares = []
        for areas in self.areas.levels[:-1]:
            sizes = [int(areas.max(initial=0)) + 1, self.cells]
            sides = [
                cells.pack([areas[rank[household]].view(np.uint32), cell], sizes)[0] for rank in (self.ranks, ranks)
            ]
            _, before, after = sparse.count_joint(*sides)
            shares.append(float(np.abs(before - after).sum() / 2 / number))
        return shares


@dataclass(frozen=True, eq=False, kw_only=True)
class Risk:
    """By household: the topmost level at which it must leave its area, and the smallest bottom cell of a member."""

    required: UInt8s
    smallest: Int32s
    rare: Int64s | None = None  # persons by the topmost level at which they are rare, if that is known of all

    @classmethod
    def of(cls, population: Population, k: int) -> Risk:
        """Count the cells of the risk variables at every level."""
        required = np.full(len(population.area), population.areas.depth, dtype=np.uint8)
        smallest = np.full(len(population.area), _NO_CELL, dtype=np.int32)
        rare = np.zeros(population.areas.depth + 1, dtype=np.int64)
        for run, topmost, count in population.rarity(k):
            _fold(population.household[run], topmost, count, required, smallest, rare)
        return cls(required=required, smallest=smallest, rare=None if len(population.outside_area) else rare)

    def riskiest(self, number: int, draw: UInt64s, depth: int) -> Risk:
        """Return the risk with only this many households required to move: topmost level, then smallest cell first."""
        risky = np.flatnonzero(self.required < depth)
        if len(risky) <= number:
            return self
        first = risky[np.lexsort((draw[risky], self.smallest[risky], self.required[risky]))][:number]
        required = np.full_like(self.required, depth)
        required[first] = self.required[first]
        return replace(self, required=required)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules for choosing partners, and for the number of households swapped."""

    rate_per_million: int = 0
    shift: int = PER_MILLION // 2  # where the controlled rounding begins: 0 to 999,999
    near: bool = False
    crowd: int = 10
    spread: int = 3
    is_limit: bool = False  # whether the rate limits the swaps of all areas together


@dataclass(frozen=True, eq=False, kw_only=True)
class Swapped:
    """By household its partner (negative: none), what it was required to leave, and totals."""

    partner: Int32s
    required: UInt8s
    risk: Risk
    target: int
    short: int
    proved: bool
    added: tuple[int, ...] = ()  # households newly required, by round

    def move(self, ranks: Int32s) -> Int32s:
        """Return the ranks of the areas of all households afterwards: each has that of its partner, if any."""
        moved = np.empty_like(ranks)
        _move(ranks, self.partner, moved)
        return moved


def swap_in_rounds(population: Population, rules: Rules, risk: Risk, *, k: int, rounds: int) -> Swapped:
    """Swap; require those found rare and in their true area to move too; swap afresh from the original.

    With ``k`` 0 the risk is not from counts, and one round is all. Those found later never cost one at risk its
    partner: where they would, the cell keeps what the risk alone requires.
    """
    board, added = _Board(population), []
    with python_if_little(_estimate_steps(population), pairing.pair_risky):
        done = _swap(board, rules, risk)
        promised = _Promised.of(population, risk, done.partner)
        for _ in range(rounds - 1 if k else 0):
            before = done.required
            more = find_exposed(population, done, before, k)
            promised.restore(more, promised.settled)
            if (more == before).all():
                added.append(0)
                break
            del done  # of a hundred million persons, 180 MB
            done = _swap(board, rules, replace(risk, required=more), promised)
            added.append(int(np.count_nonzero(done.required != before)))
    return replace(done, risk=risk, added=tuple(added))


@dataclass(eq=False)
class _Promised:
    """By cell of the loosest profile, the number of households at risk that move, whoever else is required to move."""

    cell: Integers
    required: UInt8s
    risky: Integers  # households at risk
    covered: Int64s  # by cell, from risk alone
    settled: Flags  # by cell: those found later are not required to move, since one at risk would stay

    @classmethod
    def of(cls, population: Population, risk: Risk, partner: Int32s) -> _Promised:
        """Count the households at risk with a partner."""
        cell = population.profiles[-1]
        risky = np.flatnonzero(risk.required < population.areas.depth).astype(np.int32)
        covered = np.bincount(cell[risky[partner[risky] >= 0]], minlength=int(cell.max(initial=0)) + 1)
        return cls(cell, risk.required, risky, covered, np.zeros(len(covered), dtype=np.bool_))

    def find_broken(self, partner: Int32s) -> Flags:
        """Flag the cells in which fewer of those at risk have a partner."""
        found = np.bincount(self.cell[self.risky[partner[self.risky] >= 0]], minlength=len(self.covered))
        broken: Flags = (found < self.covered) & ~self.settled
        return broken

    def restore(self, required: UInt8s, cells: Flags) -> Integers:
        """Require in these cells what the risk alone requires; return their households."""
        if not cells.any():
            return np.zeros(0, dtype=np.int64)
        households = np.flatnonzero(cells[self.cell])
        required[households] = self.required[households]
        return households


def _estimate_steps(population: Population) -> int:
    """Return roughly how many steps a swap takes at most, leaving repairs aside; a low one of many persons."""
    steps = STEPS_PER_PERSON * len(population.cell)
    if steps > FEW_STEPS:
        return steps
    cell, area = population.profiles[-1].astype(np.int64), population.area.astype(np.int64)
    pairs = np.unique(cell * (int(area.max(initial=0)) + 1) + area) // (int(area.max(initial=0)) + 1)
    sizes, areas = np.bincount(cell), np.bincount(pairs, minlength=int(cell.max(initial=0)) + 1)
    # Every area of a cell may look through the cell, at each level; topping up, every household through its area.
    return int(steps + population.areas.depth * (sizes * areas).sum() + (np.bincount(area) ** 2).sum())


def find_exposed(population: Population, done: Swapped, required: UInt8s, k: int) -> UInt8s:
    """Return the required levels, lowered where a member is rare in the swapped file and its household still there."""
    old, new, lowered = population.ranks, done.move(population.ranks), required.copy()
    for run, topmost, _ in population.rarity(k, new):
        _lower(population.household[run], topmost, old, new, population.areas.levels, lowered)
    return lowered


def swap_once(population: Population, rules: Rules, risk: Risk) -> Swapped:
    """Pair the households required to move, strict profile first, then top up to the rate."""
    with python_if_little(_estimate_steps(population), pairing.pair_risky):
        return _swap(_Board(population), rules, risk)


class _Board:
    """The state that all rounds share: households in the orders in which kernels look for partners."""

    def __init__(self, population: Population) -> None:
        self.population, self.areas = population, population.areas
        self.number = population.areas.levels.shape[1]
        self._sorted: dict[int, Profile] = {}  # `cache` would keep the board itself alive

    def sort(self, place: int) -> Profile:
        """Return the households sorted by cell of a profile and area."""
        if place not in self._sorted:
            self._sorted[place] = self._sort(self.population.profiles[place])
        return self._sorted[place]

    def _sort(self, cell: Integers) -> Profile:
        number = (int(cell.max(initial=0)) + 1) * self.number
        if number <= max(_FEW_KEYS, _KEYS_PER_HOUSEHOLD * len(cell)):
            starts, rows = _group(cell * np.int32(self.number) + self.population.ranks, number)
            return Profile(cell=cell, order=rows, starts=starts, keys=np.zeros(0, dtype=np.int64))
        keys = cell * np.int64(self.number) + self.population.ranks
        ordered, places = order.sort_rows(keys.view(np.uint64), number)
        none = np.zeros(0, dtype=np.int32)
        return Profile(cell=cell, order=places.view(np.int32), starts=none, keys=ordered.view(np.int64))

    def group_by_area(self) -> tuple[Int32s, Int32s]:
        """Return the first place of each area, and the households by area; kernels may reorder those of one area."""
        return _group(self.population.ranks, self.number)  # type: ignore[no-any-return]


def _swap(board: _Board, rules: Rules, risk: Risk, promised: _Promised | None = None) -> Swapped:
    population, areas = board.population, board.areas
    partner = np.full(len(population.area), FREE, dtype=np.int32)
    if population.movable is not None:
        partner[~population.movable] = FIXED
    ground = Ground(
        required=risk.required,
        area=population.ranks,
        levels=areas.levels,
        draw=population.draw,
        smallest=risk.smallest,
        partner=partner,
    )
    proved = _pair_required(ground, board, rules, np.flatnonzero((risk.required < areas.depth) & (partner == FREE)))
    if promised is not None and (broken := promised.find_broken(partner)).any():
        promised.settled |= broken
        households = promised.restore(risk.required, broken)
        partner[households[partner[households] >= 0]] = FREE
        # Only these begin again: in other cells, partners found last need not agree in the strict profiles.
        again = households[(risk.required[households] < areas.depth) & (partner[households] == FREE)]
        proved &= _pair_required(ground, board, rules, again)
    target, short = _top_up(ground, board, rules)
    return Swapped(partner=partner, required=risk.required, risk=risk, target=target, short=short, proved=proved)


def _pair_required(ground: Ground, board: _Board, rules: Rules, alone: Int64s) -> bool:
    """Pair these households, which must move, strict profile first; return whether the optimum is proved."""
    draw = ground.draw[alone]  # distinct
    risky = order.sort_by_draw(alone, draw, lambda _: np.stack([draw, draw], axis=1)).astype(np.int32)
    levels = ground.required[risky]
    by_level = [risky[levels == level] for level in range(board.areas.depth)]
    proved = True
    for place in range(len(board.population.profiles)):
        if not (ground.partner[risky] == FREE).any():
            break
        proved = _pair_profile(risky, by_level, ground, board.sort(place), board.areas, rules)
    return proved


def _pair_profile(
    risky: Int32s, by_level: Sequence[Int32s], ground: Ground, profile: Profile, areas: Areas, rules: Rules
) -> bool:
    """Pair level by level, nearest first; repair what is left; return whether the optimum of the profile is proved."""
    for level, some in enumerate(by_level):
        todo, group = pairing.choose(some, level, ground, profile)
        if not len(todo):
            continue
        todo = todo[order.sort_rows(group, int(group.max()) + 1)[1]]
        for reach in _reaches(level, areas, rules):
            if not len(todo):
                break
            todo = pairing.pair_risky(todo, ground, profile, reach)
    left = risky[ground.partner[risky] == FREE]
    if not len(left):
        return True
    left = left[np.lexsort((ground.draw[left], ground.required[left], profile.cell[left]))]
    # Both may take the square of a cell for each household.
    steps = (np.bincount(profile.cell)[profile.cell[left]].astype(np.float64) ** 2).sum() if is_plain_python() else 0
    with plain_python(is_plain_python() and bool(steps <= _LITTLE_REPAIR)):
        pairing.repair(left, ground, profile)
        left = left[ground.partner[left] == FREE]
        return search.cover_rest(left, ground, profile) if len(left) else True


def _reaches(level: int, areas: Areas, rules: Rules) -> Iterator[Reach]:
    """Yield the passes over scopes: from the area above to the country, risky partners first unless ``near``."""
    scopes = [*range(level - 1, -1, -1), areas.depth]
    plain = [] if rules.near else [(scope, False) for scope in scopes]
    for scope, donors in [*plain, *((scope, True) for scope in scopes)]:
        yield Reach(
            level=level,
            scope=scope,
            level_starts=areas.starts[level],
            scope_starts=areas.starts[scope],
            donors=donors,
            taken=pairing.BY_RISK if rules.near else pairing.RISKY_FIRST,
            crowd=rules.crowd,
            spread=rules.spread,
        )


def round_targets(households: Int64s, rate_per_million: int, shift: int) -> Int64s:
    """Round rate × households along the order of areas: the floor or the ceiling in every area of every level.

    >>> round_targets(np.array([10, 10, 10, 10]), 250_000, 0).tolist()
    [2, 3, 2, 3]
    """
    reached = (np.cumsum(households.astype(np.int64)) * rate_per_million + shift) // PER_MILLION
    targets: Int64s = np.diff(np.r_[shift // PER_MILLION, reached])
    return targets


def _top_up(ground: Ground, board: _Board, rules: Rules) -> tuple[int, int]:
    """Add swaps up to the rate of each bottom area; return the target and how many households lack."""
    if not rules.rate_per_million:
        return 0, 0
    areas = board.areas
    households, swapped = (count_in_areas(ground.area, ground.partner, least, board.number) for least in (FREE, 0))
    targets = round_targets(households, rules.rate_per_million, rules.shift)
    short = np.maximum(0, targets - swapped)
    left = max(0, int(targets.sum()) - int(swapped.sum()))
    if rules.is_limit and short.sum() > left:  # some areas had more swaps for risk than their share
        short = np.diff(np.r_[0, np.cumsum(short) * left // short.sum()])
    starts, by_area = board.group_by_area()
    pairing.sort_by_priority(starts, by_area, short, ground)
    if short.sum() > 1:
        used = []
        for place in range(len(board.population.profiles)):
            used.append(board.sort(place))
            for scope in [*range(areas.depth - 2, -1, -1), areas.depth]:
                pairing.top_up(short, areas.starts[scope], ground, used[-1], starts, by_area)
            if short.sum() < 2:
                break
        for profile in used if short.max(initial=0) > 1 else ():
            pairing.open_pairs(short, ground, profile, starts, by_area)
    return int(targets.sum()), int(short.sum())


def count_in_areas(area: Int32s, partner: Int32s, least: int, number: int) -> Int64s:
    """Count the households of each area whose partner is at least ``least``.

    >>> count_in_areas(np.array([0, 2, 2], np.int32), np.array([2, FREE, 0], np.int32), 0, 3).tolist()
    [1, 0, 1]
    """
    counts = np.zeros(number, dtype=np.int64)
    _count_partnered(area, partner, least, counts)
    return counts


@njit(cache=True, nogil=True)
def _lowest(area, draw, first):  # type: ignore[no-untyped-def]
    for i in range(len(area)):
        first[area[i]] = min(first[area[i]], draw[i])


@njit(cache=True, nogil=True)
def _count(area, household, cell, step, table):  # type: ignore[no-untyped-def]
    for i in range(len(household)):
        table[area[household[i]], cell[i]] += step


@njit(cache=True, nogil=True)
def _count_moved(old, new, household, cell, table):  # type: ignore[no-untyped-def]
    for i in range(len(household)):
        before, after = old[household[i]], new[household[i]]
        if before != after:
            table[before, cell[i]] -= 1
            table[after, cell[i]] += 1


@njit(cache=True, nogil=True)
def _add_up(table, parent, above):  # type: ignore[no-untyped-def]
    for area in range(len(table)):
        for cell in range(table.shape[1]):
            above[parent[area], cell] += table[area, cell]


@njit(cache=True, nogil=True)
def _look_up(area, household, cell, table, upper, where, k, found, counts):  # type: ignore[no-untyped-def]
    for i in range(len(household)):
        here = area[household[i]]
        counts[i] = table[here, cell[i]]
        level = len(where) + 1
        if counts[i] < k:  # an area has at least as many as those within it
            level = 0
            while level < len(where) and upper[where[level, here], cell[i]] >= k:
                level += 1
        found[i] = level


@njit(cache=True, nogil=True)
def _group(keys, number):  # type: ignore[no-untyped-def]
    """Return the first place of each key, and the end, and the households sorted by key."""
    starts = np.zeros(number + 2, np.int32)
    for key in keys:
        starts[key + 2] += 1
    for key in range(number):
        starts[key + 2] += starts[key + 1]
    households = np.empty(len(keys), np.int32)
    for h in range(len(keys)):  # the place after this key is the end of the key before, until all are placed
        households[starts[keys[h] + 1]] = h
        starts[keys[h] + 1] += 1
    return starts[: number + 1], households


@njit(cache=True, nogil=True)
def _move(ranks, partner, moved):  # type: ignore[no-untyped-def]
    for h in range(len(ranks)):
        moved[h] = ranks[partner[h] if partner[h] >= 0 else h]


@njit(cache=True, nogil=True)
def _count_partnered(area, partner, least, counts):  # type: ignore[no-untyped-def]
    for h in range(len(area)):
        counts[area[h]] += partner[h] >= least


@njit(cache=True, nogil=True)
def _tally(household, topmost, old, new, levels, rare, true):  # type: ignore[no-untyped-def]
    for i in range(len(household)):
        h = household[i]
        for level in range(topmost[i], len(rare)):  # rare at a level: rare at every one below it
            rare[level] += 1
            true[level] += levels[level, old[h]] == levels[level, new[h]]


@njit(cache=True, nogil=True)
def _fold(household, topmost, count, required, smallest, rare):  # type: ignore[no-untyped-def]
    for i in range(len(household)):
        h = household[i]
        rare[topmost[i]] += 1
        required[h] = min(required[h], topmost[i])
        smallest[h] = min(smallest[h], count[i])


@njit(cache=True, nogil=True)
def _lower(household, topmost, old, new, levels, required):  # type: ignore[no-untyped-def]
    for i in range(len(household)):
        h = household[i]
        for level in range(topmost[i], required[h]):  # rare at a level: rare at every one below it
            if levels[level, old[h]] == levels[level, new[h]]:
                required[h] = level
                break
