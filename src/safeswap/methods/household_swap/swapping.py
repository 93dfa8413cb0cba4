"""Swap the households of a coded population: areas in keyed order, risk from counts, pairs, rate, rounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np

from safeswap.arrays import cells, order, sparse
from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Codes, Flags, Int32s, Int64s, UInt8s, UInt64s
from safeswap.methods.household_swap import pairing, search
from safeswap.methods.household_swap.pairing import FIXED, FREE, Ground, Profile, Reach

PER_MILLION = 1_000_000
_LARGEST_CELL = (1 << 24) - 1  # with the 40 upper bits of a draw, the product fits 64 bits
_DENSE = 1 << 24
_NO_CELL = np.iinfo(np.int32).max


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
            group = np.unique(group * (int(paths[:, level].max()) + 1) + paths[:, level], return_inverse=True)[
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
    profiles: tuple[Int64s, ...]  # by household: cell number, strict to loose
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
        """The rank of the area of each household."""
        return self.areas.rank[self.area]

    def rarity(self, k: int, ranks: Int32s | None = None) -> tuple[UInt8s, Int32s]:
        """Return each person's topmost level with fewer than k of its cell, and its count at the bottom level."""
        ranks = self.ranks if ranks is None else ranks
        outside = self.areas.rank[self.outside_area]
        levels, depth = self.areas.levels, self.areas.depth
        if self.cells * levels.shape[1] <= max(_DENSE, 2 * len(self.cell)):
            return self._rarity_by_table(ranks, outside, k)
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
        return topmost, count

    def _rarity_by_table(self, ranks: Int32s, outside: Int32s, k: int) -> tuple[UInt8s, Int32s]:
        areas, depth = self.areas, self.areas.depth
        table = np.zeros((areas.levels.shape[1], self.cells), dtype=np.int32)
        _count(ranks, self.household, self.cell, table)
        _count(outside, np.arange(len(outside), dtype=np.int32), self.outside_cell, table)
        topmost = np.full(table.shape, depth, dtype=np.uint8)
        for level in range(depth - 1, -1, -1):
            if level == depth - 1:
                topmost[table < k] = level
            else:
                small = np.add.reduceat(table, areas.starts[level][:-1], axis=0) < k
                topmost[small[areas.levels[level]]] = level
        found, counts = np.empty(len(self.cell), dtype=np.uint8), np.empty(len(self.cell), dtype=np.int32)
        _look_up(ranks, self.household, self.cell, topmost, table, found, counts)
        return found, counts


@dataclass(frozen=True, eq=False, kw_only=True)
class Risk:
    """By household: the topmost level at which it must leave its area, and the smallest bottom cell of a member."""

    required: UInt8s
    smallest: Int32s

    @classmethod
    def of(cls, population: Population, k: int) -> Risk:
        """Count the cells of the risk variables at every level."""
        topmost, count = population.rarity(k)
        required = np.full(len(population.area), population.areas.depth, dtype=np.uint8)
        smallest = np.full(len(population.area), _NO_CELL, dtype=np.int32)
        _fold(population.household, topmost, count, required, smallest)
        return cls(required=required, smallest=smallest)

    def riskiest(self, number: int, draw: UInt64s, depth: int) -> Risk:
        """Return the risk with only so many households required to move: topmost level, then smallest cell first."""
        risky = np.flatnonzero(self.required < depth)
        if len(risky) <= number:
            return self
        first = risky[np.lexsort((draw[risky], self.smallest[risky], self.required[risky]))][:number]
        required = np.full_like(self.required, depth)
        required[first] = self.required[first]
        return replace(self, required=required)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How partners are chosen, and how many households are swapped."""

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

    @property
    def new_households(self) -> Int64s:
        """The household whose area each one gets: its partner, or itself."""
        places = np.arange(len(self.partner))
        found: Int64s = np.where(self.partner >= 0, self.partner, places)
        return found


def swap_in_rounds(population: Population, rules: Rules, risk: Risk, *, k: int, rounds: int) -> Swapped:
    """Swap; require those found rare and in their true area to move too; swap afresh from the original.

    With ``k`` 0 the risk is not from counts, and one round is all.
    """
    required, added = risk.required, []
    done = swap_once(population, rules, risk)
    for _ in range(rounds - 1 if k else 0):
        more = find_exposed(population, done, required, k)
        added.append(int(np.count_nonzero(more != required)))
        if not added[-1]:
            break
        required = more
        done = swap_once(population, rules, replace(risk, required=required))
    return replace(done, risk=risk, required=required, added=tuple(added))


def find_exposed(population: Population, done: Swapped, required: UInt8s, k: int) -> UInt8s:
    """Return the required levels, lowered where a member is rare in the swapped file and its household still there."""
    new = population.ranks[done.new_households]
    topmost, _ = population.rarity(k, new)
    lowered = required.copy()
    _lower(population.household, topmost, population.ranks, new, population.areas.levels, lowered)
    return lowered


def swap_once(population: Population, rules: Rules, risk: Risk) -> Swapped:
    """Pair the households required to move, strict profile first, then top up to the rate."""
    areas = population.areas
    partner = np.full(len(population.area), FREE, dtype=np.int32)
    if population.movable is not None:
        partner[~population.movable] = FIXED
    size = np.minimum(risk.smallest, _LARGEST_CELL).astype(np.uint64)
    ground = Ground(
        required=risk.required,
        area=population.ranks,
        levels=areas.levels,
        draw=population.draw,
        priority=(population.draw >> np.uint64(24)) * size,
        partner=partner,
    )
    risky = np.flatnonzero((risk.required < areas.depth) & (partner == FREE)).astype(np.int32)
    risky = risky[np.argsort(population.draw[risky], kind="stable")]
    sort = cache(lambda place: _sort_profile(population.profiles[place], ground))
    proved = True
    for place in range(len(population.profiles)):
        if not (partner[risky] == FREE).any():
            break
        proved = _pair_profile(risky, ground, sort(place), areas, rules)
    target, short = _top_up(ground, map(sort, range(len(population.profiles))), areas, rules)
    return Swapped(partner=partner, required=risk.required, risk=risk, target=target, short=short, proved=proved)


def _sort_profile(cell: Int64s, ground: Ground) -> Profile:
    key = cell * ground.levels.shape[1] + ground.area
    ordered, rows = order.sort_rows(key.view(np.uint64), int(key.max(initial=0)) + 1)
    return Profile(cell=cell, key=ordered.view(np.int64), order=rows.view(np.int32))


def _pair_profile(risky: Int32s, ground: Ground, profile: Profile, areas: Areas, rules: Rules) -> bool:
    """Pair level by level, nearest first; repair what is left; return whether the optimum of the profile is proved."""
    for level in range(areas.depth):
        todo = risky[(ground.required[risky] == level) & (ground.partner[risky] == FREE)]
        if not len(todo):
            continue
        group = profile.cell[todo] * ground.levels.shape[1] + ground.levels[level][ground.area[todo]]
        todo = todo[np.argsort(group, kind="stable")]
        for reach in _reaches(level, areas, rules):
            if not len(todo):
                break
            todo = pairing.pair_risky(todo, ground, profile, reach)
    left = risky[ground.partner[risky] == FREE]
    if not len(left):
        return True
    left = left[np.lexsort((ground.draw[left], ground.required[left], profile.cell[left]))]
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


def _top_up(ground: Ground, profiles: Iterable[Profile], areas: Areas, rules: Rules) -> tuple[int, int]:
    """Add swaps up to the rate of each bottom area; return the target and how many households lack."""
    if not rules.rate_per_million:
        return 0, 0
    number = ground.levels.shape[1]
    households = np.bincount(ground.area[ground.partner != FIXED], minlength=number)
    targets = round_targets(households, rules.rate_per_million, rules.shift)
    short = np.maximum(0, targets - np.bincount(ground.area[ground.partner >= 0], minlength=number)).astype(np.int64)
    left = max(0, int(targets.sum()) - int(np.count_nonzero(ground.partner >= 0)))
    if rules.is_limit and short.sum() > left:  # some areas had more swaps for risk than their share
        short = np.diff(np.r_[0, np.cumsum(short) * left // short.sum()])
    starts = np.r_[0, np.cumsum(np.bincount(ground.area, minlength=number))].astype(np.int64)
    by_area = order.sort_rows(ground.area.view(np.uint32), number)[1].view(np.int32)
    pairing.sort_by_priority(starts, by_area, short, ground)
    if short.sum() > 1:
        used = []
        for profile in profiles:
            used.append(profile)
            for scope in [*range(areas.depth - 2, -1, -1), areas.depth]:
                pairing.top_up(short, areas.starts[scope], ground, profile, starts, by_area)
            if short.sum() < 2:
                break
        for profile in used if short.max(initial=0) > 1 else ():
            pairing.open_pairs(short, ground, profile, starts, by_area)
    return int(targets.sum()), int(short.sum())


@njit(cache=True, nogil=True)
def _lowest(area, draw, first):  # type: ignore[no-untyped-def]
    for i in range(len(area)):
        first[area[i]] = min(first[area[i]], draw[i])


@njit(cache=True, nogil=True)
def _count(area, household, cell, table):  # type: ignore[no-untyped-def]
    for i in range(len(household)):
        table[area[household[i]], cell[i]] += 1


@njit(cache=True, nogil=True)
def _look_up(area, household, cell, topmost, table, found, counts):  # type: ignore[no-untyped-def]
    for i in range(len(household)):
        here = area[household[i]]
        found[i] = topmost[here, cell[i]]
        counts[i] = table[here, cell[i]]


@njit(cache=True, nogil=True)
def _fold(household, topmost, count, required, smallest):  # type: ignore[no-untyped-def]
    for i in range(len(household)):
        h = household[i]
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
