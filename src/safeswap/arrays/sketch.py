"""A small sketch of a file, from which the share of records in common with another file can be estimated.

A *view* is a small set of columns, fine enough to distinguish records. Its *cells* are the combinations of values that
occur. For each view the sketch keeps the ``CELLS`` cells with the lowest hash, and their numbers of records.

Claim: for two files whose values were hashed under one key, every cell below both ceilings that occurs in either file
is listed in the sketch of each file in which it occurs, with its exact count, whatever the order of the records, the
order of the columns, and their names.

Why it holds: the hash of a cell is a function of the *sum* of the words of its values, so it does not depend on the
order of columns, on their names, or on the row. A cell leaves the table only when ``CELLS`` others have lower hashes;
the ceiling is then the lowest hash that left, and nothing at or above it is counted again. So the cells below the
ceiling were counted from their first record to their last. The list is a bottom-k sample of the cells: which ones are
kept depends on the key alone, not on the records.

Views are chosen from a sample of records: all sets of columns that are fine enough, smallest first, and if there are
too many, by keyed marks of their columns, so that two files that share a set of columns make the same choice.

Sketching is linear in the number of records. A sketch is confidential: anyone with the key can test whether a
combination of values occurs in the file. Stores keep it sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations, pairwise
from math import lgamma, log, prod, sqrt
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from safeswap.arrays.cells import count_dense, pack
from safeswap.arrays.compiled import njit, run_all, split_runs
from safeswap.arrays.types import Codes, Words

CELLS = 192
MOST_COLUMNS = 16
SAMPLE = 4096
WIDEST = 8  # columns of a view

_MOST_VIEWS, _MOST_TRIED = 384, 4000
_LARGE, _VIEWS_IF_LARGE = 500_000, 128  # a large file needs fewer views, and each costs a pass
_WIDE_VIEWS = 16
_FINE = 200  # cells in the sample from which a view is used; from three times as many no column is added
_FREQUENT = 8  # records of the sample that a value needs to mark its column
_SMALLER_FIRST = 1.7
_NESTED, _FEW, _MANY = 1.02, 20, 4
_FEW_CELLS = 1 << 16  # of columns that are counted by their codes, in a table that fits the cache
_CHUNK = 1 << 12
_SLOTS = 1 << 11
_LAST_SLOT = np.uint64(_SLOTS - 1)
_TOGETHER = 64
_LAST = np.uint64(2**64 - 1)
_FIRST_FACTOR, _SECOND_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


View: TypeAlias = tuple[int, ...]


class Sketch(NamedTuple):
    """The cells kept of each view. Rows of ``views`` list columns, ``groups`` gives nested columns one number."""

    records: int
    groups: npt.NDArray[np.int64]
    views: npt.NDArray[np.int64]  # (views, WIDEST), -1 where there are fewer columns
    cells: Words  # (views, CELLS), ascending; the largest number where there are fewer
    counts: npt.NDArray[np.uint32]  # (views, CELLS)
    ceilings: Words  # (views,): every cell below it is listed


def choose_columns(samples: Sequence[Words]) -> list[int]:
    """Return the columns with the most distinct values in the sample, at most ``MOST_COLUMNS``; constant ones never.

    >>> choose_columns([np.array([1, 1, 1], np.uint64), np.array([1, 2, 1], np.uint64), np.arange(3, dtype=np.uint64)])
    [2, 1]
    """
    distinct = [len(np.unique(sample)) for sample in samples]
    varied = [column for column, number in enumerate(distinct) if number > 1]
    return sorted(varied, key=lambda column: -distinct[column])[:MOST_COLUMNS]


def sketch_words(words: Words, samples: Sequence[Words]) -> Sketch:
    """Sketch a file, given a keyed word per value, ``words[column, record]``, and the words of a sample of records.

    >>> words = np.random.default_rng(1).integers(0, 2**63, (3, 500)).astype(np.uint64)
    >>> sketch = sketch_words(words, list(words))
    >>> sketch.records, sketch.cells.shape[1], bool((sketch.counts.sum(axis=1) == CELLS).all())
    (500, 192, True)
    """
    return sketch_blocks([words], words.shape[1], [Columns(samples, range(len(samples)))])[0]


class Columns(NamedTuple):
    """The columns of one of several files: the words of a sample of each, and its row in the blocks of words."""

    samples: Sequence[Words]
    rows: Sequence[int]


class LevelCodes(NamedTuple):
    """A row as codes: ``words[codes[record]]`` is the word of a record."""

    codes: Codes
    words: Words


def sketch_blocks(
    blocks: Iterable[Words], records: int, files: Sequence[Columns], coded: Mapping[int, LevelCodes] | None = None
) -> list[Sketch]:
    """Sketch files of the same records, given their words in blocks, ``words[row, record]``.

    Columns that files share are one row, and views of shared columns are counted once. In a large file, views of a few
    cells are counted by the codes of those rows that are ``coded``: a cell is hashed once, not once for each record.
    """
    chosen = [_choose_views(file.samples) if len(file.samples) else [] for file in files]
    chosen = [views[: _VIEWS_IF_LARGE if records > _LARGE else len(views)] for views in chosen]
    in_rows = [[tuple(sorted(file.rows[c] for c in view)) for view in v] for file, v in zip(files, chosen, strict=True)]
    views = list(dict.fromkeys(view for each in in_rows for view in each))
    groups = _group_coarse(views, coded) if coded and records > _LARGE else {}
    coarse = {view for group in groups.values() for view in group}
    views.sort(key=coarse.__contains__)
    place = {view: number for number, view in enumerate(views)}
    counted = _Counted(_as_array(views), len(views) - len(coarse))
    for words in blocks if len(coarse) < len(views) else ():
        counted.add(words)
    counted.finish()
    for rows, group in groups.items():
        for view, lowest in _count_by_codes(rows, group, coded or {}):
            counted.enter(place[view], *lowest)
    found = []
    for file, own_views, own_rows in zip(files, chosen, in_rows, strict=True):
        own = np.array([place[view] for view in own_rows], dtype=np.int64)
        kept = counted.cells[own], counted.counts[own], counted.ceilings[own]
        found.append(Sketch(records, _group_nested(file.samples), _as_array(own_views), *kept))
    return found


def _as_array(views: Sequence[View]) -> npt.NDArray[np.int64]:
    found = np.full((len(views), WIDEST), -1, dtype=np.int64)
    for row, view in enumerate(views):
        found[row, : len(view)] = view
    return found


class _Counted:
    """The lowest cells of some views: of the first ones counted block by block, of the others entered."""

    def __init__(self, views: npt.NDArray[np.int64], by_blocks: int) -> None:
        self._views = views[:by_blocks]
        self._table = np.zeros((by_blocks, _SLOTS), np.uint64)
        self._number = np.zeros((by_blocks, _SLOTS), np.uint32)
        self._used = np.zeros(by_blocks, np.int64)
        self.ceilings = np.full(len(views), _LAST, dtype=np.uint64)
        self.cells = np.full((len(views), CELLS), _LAST, dtype=np.uint64)
        self.counts = np.zeros((len(views), CELLS), dtype=np.uint32)

    def add(self, words: Words) -> None:
        """Count some records, the views divided among threads."""

        def count(part: tuple[int, int]) -> None:
            own = slice(*part)
            state = self._table[own], self._number[own], self._used[own], self.ceilings[own]
            _count_views(words, self._views[own], *state)

        parts = min(len(split_runs(words.shape[1] * len(self._views))), len(self._views))
        run_all(count, list(pairwise(len(self._views) * place // parts for place in range(parts + 1))))

    def finish(self) -> None:
        """List the cells."""
        if len(self._views):
            _list_cells(self._table, self._number, self._used, self.ceilings, self.cells, self.counts)

    def enter(self, place: int, cells: Words, counts: npt.NDArray[np.int64]) -> None:
        """List the cells of a view, given all that occur, ascending."""
        kept = slice(min(len(cells), CELLS))
        self.cells[place, kept], self.counts[place, kept] = cells[kept], counts[kept]
        self.ceilings[place] = cells[CELLS] if len(cells) > CELLS else _LAST


def _group_coarse(views: Sequence[View], coded: Mapping[int, LevelCodes]) -> dict[View, list[View]]:
    """Return the views of few cells by the columns from whose joint counts theirs follow; a pass counts each group."""

    def cells(view: View) -> int:
        return prod(len(coded[row].words) for row in view)

    groups: dict[View, list[View]] = {}
    coarse = [view for view in views if all(row in coded for row in view) and cells(view) <= _FEW_CELLS]
    for view in sorted(coarse, key=cells, reverse=True):
        joined = [(tuple(sorted({*rows, *view})), rows) for rows in groups]
        fitting = [(cells(both), both, rows) for both, rows in joined if cells(both) <= _FEW_CELLS]
        _, both, rows = min(fitting, default=(0, view, view))
        groups[both] = [*groups.pop(rows, []), *groups.pop(both, []), view]
    return groups


def _count_by_codes(
    rows: View, views: Sequence[View], coded: Mapping[int, LevelCodes]
) -> Iterator[tuple[View, tuple[Words, npt.NDArray[np.int64]]]]:
    """Yield the cells that occur of each view, ascending, and their counts, from the joint counts of the rows."""
    shape = [len(coded[row].words) for row in rows]
    joint = count_dense(*pack([coded[row].codes for row in rows], shape)).reshape(shape)
    for view in views:
        counts = joint.sum(axis=tuple(axis for axis, row in enumerate(rows) if row not in view)).ravel()
        sums: Words = reduce(np.add.outer, [coded[row].words for row in view]).ravel()
        occurs = np.flatnonzero(counts)
        hashed: Words = _mix.py_func(sums[occurs]) | np.uint64(1)  # type: ignore[no-untyped-call]
        hashes, place = np.unique(hashed, return_inverse=True)
        total = np.zeros(len(hashes), np.int64)  # several levels may have one word: two spellings of a number
        np.add.at(total, place, counts[occurs])
        below = hashes < _LAST
        yield view, (hashes[below], total[below])


def _choose_views(samples: Sequence[Words]) -> list[View]:
    """Return the sets of columns to use: some wide ones, then the small ones that are fine enough."""
    fine = min(_FINE, max(2, len(samples[0]) // 2))
    marks = [_mark(sample) for sample in samples]
    # Sets are grown in an order of the columns that follows from their values, not from their places in the file.
    order = sorted(range(len(samples)), key=lambda column: (marks[column], int(samples[column].min())))
    found: list[View] = []
    level: list[View] = [()]
    while level and len(found) < _MOST_TRIED and len(level[0]) < WIDEST:
        grown = [(*view, place) for view in level for place in range(view[-1] + 1 if view else 0, len(samples))]
        columns = [tuple(sorted(order[place] for place in view)) for view in grown]
        sizes = [_count_cells(samples, view) for view in columns]
        found += [view for view, size in zip(columns, sizes, strict=True) if size >= fine]
        level = [view for view, size in zip(grown, sizes, strict=True) if size < 3 * fine]

    def turn(view: View) -> float:
        uniform = (_mix_one(sum(marks[column] for column in view)) + 1) / 2**64
        return float(-log(uniform) * _SMALLER_FIRST ** len(view))

    wide = [_draw_wide(marks, number) for number in range(_WIDE_VIEWS)]
    return list(dict.fromkeys((*wide, *sorted(found, key=turn)[:_MOST_VIEWS])))


def _draw_wide(marks: Sequence[int], number: int) -> View:
    """Draw as many columns as a view may have, by their marks: the same columns give the same draw."""
    order = sorted(range(len(marks)), key=lambda column: _mix_one(marks[column] + number))
    return tuple(sorted(order[:WIDEST]))


def _mark(sample: Words) -> int:
    """Return a word that identifies a column in any file: the lowest word among its frequent values."""
    words, counts = np.unique(sample, return_counts=True)
    frequent = words[counts >= _FREQUENT]
    return int(frequent[0]) if len(frequent) else 1


def _group_nested(samples: Sequence[Words]) -> npt.NDArray[np.int64]:
    """Return a number per column, the same where one of two many-valued columns follows from the other."""
    number = np.arange(len(samples))
    distinct = [len(np.unique(sample)) for sample in samples]
    for one, other in combinations(range(len(samples)), 2):
        fewer, more = sorted((distinct[one], distinct[other]))
        if fewer < _FEW or more > len(samples[0]) / _MANY:
            continue
        if len(np.unique(samples[one] + samples[other])) <= _NESTED * more:
            number[number == number[other]] = number[one]
    return number.astype(np.int64)


def _count_cells(samples: Sequence[Words], view: Sequence[int]) -> int:
    total = samples[view[0]].copy()
    for column in view[1:]:
        total += samples[column]
    return int(_count_distinct(total))


def _mix_one(word: int) -> int:
    """Mix as :func:`_mix` does.

    >>> all(_mix_one(word) == int(_mix(np.uint64(word))) for word in (0, 7, 2**64 - 1, 0x9E3779B97F4A7C15))
    True
    """
    word %= 2**64
    word = (word ^ word >> 30) * _FIRST_FACTOR % 2**64
    word = (word ^ word >> 27) * _SECOND_FACTOR % 2**64
    return word ^ word >> 31


@njit(cache=True, nogil=True)
def _mix(word):  # type: ignore[no-untyped-def]
    """Mix a 64-bit word by a bijection in which every input bit affects every output bit (SplitMix64)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(_FIRST_FACTOR)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(_SECOND_FACTOR)
    return word ^ (word >> np.uint64(31))


@njit(cache=True, nogil=True)
def _count_distinct(words):  # type: ignore[no-untyped-def]
    table = np.zeros(4 * SAMPLE, np.uint64)
    found = 0
    for word in words:
        mixed = _mix(word) | np.uint64(1)
        slot = (mixed >> np.uint64(8)) % np.uint64(table.size)
        while table[slot] != 0 and table[slot] != mixed:
            slot = (slot + np.uint64(1)) % np.uint64(table.size)
        found += table[slot] == 0
        table[slot] = mixed
    return found


@njit(cache=True, nogil=True)
def _count_views(words, views, table, number, used, ceilings):  # type: ignore[no-untyped-def]
    """Count the lowest cells of each view, in chunks of records so that their words stay in the cache."""
    hashes, low = np.empty(_CHUNK, np.uint64), np.empty(_TOGETHER, np.uint64)
    for start in range(0, words.shape[1], _CHUNK):
        part = hashes[: min(_CHUNK, words.shape[1] - start)]
        for view in range(views.shape[0]):
            _hash_cells(words, start, views[view], part)
            state = table[view], number[view], used[view], ceilings[view]
            used[view], ceilings[view] = _count_hashes(part, low, *state)


@njit(cache=True, nogil=True)
def _list_cells(table, number, used, ceilings, cells, counts):  # type: ignore[no-untyped-def]
    for view in range(used.size):
        used[view], ceilings[view] = _keep_lowest(table[view], number[view], used[view], ceilings[view])
        here = np.flatnonzero(table[view])
        order = here[np.argsort(table[view][here])]
        for place in range(order.size):
            cells[view, place] = table[view, order[place]]
            counts[view, place] = number[view, order[place]]


@njit(cache=True, nogil=True)
def _hash_cells(words, start, view, out):  # type: ignore[no-untyped-def]
    """Hash the cells of some records, in loops that the compiler can vectorise."""
    first = words[view[0], start : start + out.size]
    for row in range(out.size):
        out[row] = first[row]
    for place in range(1, view.size):
        if view[place] < 0:
            break
        more = words[view[place], start : start + out.size]
        for row in range(out.size):
            out[row] += more[row]
    for row in range(out.size):
        out[row] = _mix(out[row]) | np.uint64(1)  # never 0, which is an empty slot


@njit(cache=True, nogil=True)
def _count_hashes(hashes, low, table, number, used, ceiling):  # type: ignore[no-untyped-def]
    for first in range(0, hashes.size, low.size):
        some = 0
        for word in hashes[first : first + low.size]:  # picked out first: which ones are low cannot be foreseen
            low[some] = word
            some += int(word < ceiling)
        for word in low[:some]:
            if word >= ceiling:
                continue
            slot = (word >> np.uint64(1)) & _LAST_SLOT
            while table[slot] != 0 and table[slot] != word:
                slot = (slot + np.uint64(1)) & _LAST_SLOT
            if table[slot] == 0:
                table[slot] = word
                used += 1
            number[slot] += np.uint32(1)
            if used > _SLOTS // 2:
                used, ceiling = _keep_lowest(table, number, used, ceiling)
    return used, ceiling


@njit(cache=True, nogil=True)
def _keep_lowest(table, number, used, ceiling):  # type: ignore[no-untyped-def]
    """Drop all cells but the lowest; the ceiling becomes the lowest dropped one."""
    if used <= CELLS:
        return used, ceiling
    filled = np.flatnonzero(table)
    words, counts = table[filled], number[filled]
    order = np.argsort(words)
    table[:] = 0
    number[:] = 0
    for place in order[:CELLS]:
        slot = (words[place] >> np.uint64(1)) & _LAST_SLOT
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & _LAST_SLOT
        table[slot] = words[place]
        number[slot] = counts[place]
    return CELLS, words[order[CELLS]]


# The share of records that two files have in common, from their sketches alone.
#
# Claim. Let a cell have n1 records in one file and n2 in the other, m = n1 + n2, q = N1/(N1 + N2). If the files are
# independent samples of one population, n1 given m is binomial(m, q), so with d = n1 - m·q the sum of m·q·(1-q) - d²
# has mean 0, however fine or coarse the cells are. If M records are in both files its mean is 2·M·q·(1-q). Therefore
#
#     signal / weight,  signal = Σ w·(m·q·(1-q) - d²),  weight = Σ w·m·q·(1-q),
#
# estimates 2M/(N1 + N2), and z = signal / (its standard deviation under independence) tests it against chance.
# w = 1/max(m - 1, 1) weighs cells by their information: equally where each holds one record, less where they hold
# many.
#
# Why it is safe: differences between the populations, clusters and households only add to d², so they lower the
# estimate.
#
# For a file that is part of the other a second statistic counts *hits*: records of the smaller file in cells that
# occur in the larger one. By the Cauchy–Schwarz inequality strangers hit at most at the root of the product of both
# files' rates of coincidence, times the ratio of sizes, whatever the two populations are.
#
# For a narrow file with all cells listed, neither is conclusive. There the files are taken to be the same only if
# every count agrees and a binomial would do that with a probability below ``CHANCE``.
#
# Columns can agree by design: a record number, a quota, a list of sampling points. So an alarm needs a tenth of the
# comparable views, and views that no single column, nor one nest of columns, explains; or half of all comparable
# views, some of more than one column.

ALARM_SHARE = 0.5
CHANCE = 3e-7  # of five standard deviations

_ALARM_Z = 5.0
_AGREE, _NEARLY_ALL = 0.1, 0.5
_FEWEST_HELD, _MOST_BY_CHANCE = 12, 0.3
_ENOUGH, _FEWEST_COMMON = 48, 2
_LOG_CHANCE, _LOG_TWO = log(CHANCE), log(2.0)


class Overlap(NamedTuple):
    """The estimated ``share`` of the smaller file's records in the other, and what it rests on."""

    share: float
    z: float
    agreeing: int  # views
    compared: int  # views
    alarm: bool
    closeness: float  # mean share over the comparable views: which of two files is nearer


def estimate_overlap(one: Sketch, other: Sketch, *, alarm_share: float = ALARM_SHARE) -> Overlap:
    """Estimate the share of records in common, and whether it is at least ``alarm_share`` beyond doubt."""
    best = np.zeros((len(other.cells), 3))
    half = len(best) // 2

    def compare(part: tuple[int, int]) -> None:
        which = slice(*part)
        _compare_views(one.cells, one.counts, one.ceilings, one.records,
                       other.cells[which], other.counts[which], other.ceilings[which], other.records,
                       best[which])  # fmt: skip

    if one.records and other.records:
        run_all(compare, [(0, half), (half, len(best))])
    share, z, seen = best[:, 0], best[:, 1], best[:, 2]
    compared = int(np.count_nonzero(seen))
    agreeing = np.flatnonzero((share >= alarm_share) & (z >= _ALARM_Z))
    alarm = _is_alarm(other, agreeing, compared)
    reported = agreeing if alarm else np.argsort(-z)[:1]
    estimate = float(np.median(share[reported])) if len(reported) else 0.0
    closeness = float(np.clip(share, 0.0, 1.0).sum()) / max(compared, 1)
    return Overlap(min(max(estimate, 0.0), 1.0), float(z.max(initial=0.0)), len(agreeing), compared, alarm, closeness)


def has_content(sketch: Sketch) -> bool:
    """Return whether some view has enough cells to recognise the file even after changes."""
    return bool((sketch.counts > 0).sum(axis=1).max(initial=0) >= _ENOUGH)


def _is_alarm(sketch: Sketch, agreeing: npt.NDArray[np.intp], compared: int) -> bool:
    if not len(agreeing) or len(agreeing) < _AGREE * compared:
        return False
    kinds = [set(sketch.groups[row[row >= 0]].tolist()) for row in sketch.views[agreeing]]
    if len(agreeing) >= _NEARLY_ALL * compared:
        return any(len(kind) > 1 for kind in kinds)
    return not set.intersection(*kinds)


def share_of_identifiers(one: Sequence[npt.NDArray[np.uint64]], other: Sequence[npt.NDArray[np.uint64]]) -> float:
    """Return the share of the shorter list's identifiers in the longer one, from the lowest words and ceiling of each.

    >>> low, high = np.arange(4, dtype=np.uint64), np.array([9], np.uint64)
    >>> share_of_identifiers((low, high), (low[:2], high))
    1.0
    """
    top = min(one[1][0], other[1][0])
    mine, theirs = (words[words < top] for words in (one[0], other[0]))
    fewer = min(len(mine), len(theirs))
    return len(np.intersect1d(mine, theirs)) / fewer if fewer else 0.0


@njit(cache=True, nogil=True)
def _compare_views(cells1, counts1, tops1, n1, cells2, counts2, tops2, n2, best):  # type: ignore[no-untyped-def]
    """Compare each view of the second sketch with its best match in the first: share, z and common cells."""
    for j in range(len(cells2)):
        for i in range(len(cells1)):
            share, z, common = _compare(cells1[i], counts1[i], tops1[i], n1, cells2[j], counts2[j], tops2[j], n2)
            if common > 0 and (z > best[j, 1] or best[j, 2] == 0):
                best[j, 0], best[j, 1], best[j, 2] = share, z, common


@njit(cache=True, nogil=True)
def _log_chance(counts):  # type: ignore[no-untyped-def]
    """Return the log-probability that two independent files have the same counts, given their sum in each cell."""
    total = 0.0
    for count in counts:
        total += lgamma(2.0 * count + 1.0) - 2.0 * lgamma(count + 1.0) - 2.0 * count * _LOG_TWO
    return total


@njit(cache=True, nogil=True)
def _compare(cells1, counts1, top1, n1, cells2, counts2, top2, n2):  # type: ignore[no-untyped-def]
    """Return (share, z, common cells) of the smaller file in the other, by the most certain statistic."""
    top, q = min(top1, top2), n1 / (n1 + n2)
    q1 = q * (1.0 - q)
    signal, weight, variance = 0.0, 0.0, 1.0
    sum1, sum2, twice1, twice2, inside1, inside2 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    i, j, seen, common, unequal = 0, 0, 0, 0, 0
    while True:
        a = cells1[i] if i < len(cells1) else top
        b = cells2[j] if j < len(cells2) else top
        if a >= top and b >= top:
            break
        x = float(counts1[i]) if a <= b else 0.0
        y = float(counts2[j]) if b <= a else 0.0
        i, j = i + (a <= b), j + (b <= a)
        common += a == b
        unequal += x != y
        seen += 1
        if seen == _ENOUGH and common < _FEWEST_COMMON:
            return 0.0, 0.0, 0  # other columns, or other codes
        m = x + y
        d, v = x - m * q, m * q1
        w = 1.0 / max(m - 1.0, 1.0)
        signal += w * (v - d * d)
        weight += w * v
        variance += w * w * (2.0 * v * v + v * (1.0 - 6.0 * q1))
        sum1, sum2 = sum1 + x, sum2 + y
        twice1, twice2 = twice1 + x * (x - 1.0), twice2 + y * (y - 1.0)
        inside1, inside2 = inside1 + (x if y > 0 else 0.0), inside2 + (y if x > 0 else 0.0)
    if weight <= 0.0:
        return 0.0, 0.0, 0
    if unequal == 0 and top == _LAST and n1 == n2 and _log_chance(counts1) < _LOG_CHANCE:
        return 1.0, max(_ALARM_Z, signal / sqrt(variance)), common
    share, z = signal / weight * (n1 + n2) / (2.0 * min(n1, n2)), signal / sqrt(variance)
    held, inside = (sum2, inside2) if n2 <= n1 else (sum1, inside1)
    if held >= _FEWEST_HELD and sum1 > 0 and sum2 > 0:
        rates = (twice1 + 1.0) / sum1 * (twice2 + 1.0) / sum2
        chance = min(1.0, sqrt(rates * max(n1, n2) / min(n1, n2)))
        by_hits = (inside / held - chance) / (0.5 / sqrt(held))
        if chance < _MOST_BY_CHANCE and by_hits > z:
            share, z = (inside / held - chance) / (1.0 - chance), by_hits
    return share, z, common
