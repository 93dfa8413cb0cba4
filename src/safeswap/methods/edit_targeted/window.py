"""Draw partners by the key: a class with too few records exchanges with a record from a window around it.

The sorted file comes as arrays over positions: class c holds the positions from ``starts[c]`` to ``starts[c + 1]``.
Each position has a label (exchanging records of one label changes nothing) and a keyed draw.

The window of a class grows outwards from it, one class at a time, alternately after and before it, over unused records,
and takes at most ``candidates`` of each class. It is large enough when, whichever label is excluded, at least
``candidates`` records remain. Then the record has at least that many possible partners, also for an observer of the
result, who sees the partner's label, which it now has, and can exclude only that one.

Claim: the pairs depend on classes, labels and draws only. Within a class positions are arranged by their draws before
use, and classes are visited in order, so the order of the records does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safeswap.arrays.compiled import njit, run_all, split_runs
from safeswap.arrays.types import Flags, Int64s, UInt32s, UInt64s

MOST_CLASSES = 128
"""Number of classes that a window may look at; beyond, partners are drawn from the whole stratum."""

_FEW = 64  # positions of a class arranged at first; the rest only if these are used up


def gather_in_order(rows: UInt32s, labels: UInt64s, draws: UInt64s) -> tuple[UInt64s, UInt64s]:
    """Return labels and draws of the records in the order of ``rows``.

    >>> labels, draws = gather_in_order(
    ...     np.array([1, 0], np.uint32), np.array([5, 6], np.uint64), np.array([7, 8], np.uint64)
    ... )
    >>> labels.tolist(), draws.tolist()
    ([6, 5], [8, 7])
    """
    ordered_labels, ordered_draws = np.empty(rows.size, np.uint64), np.empty(rows.size, np.uint64)

    def gather(run: tuple[int, int]) -> None:
        part = slice(*run)
        _gather(rows[part], labels, draws, ordered_labels[part], ordered_draws[part])

    run_all(gather, split_runs(rows.size))
    return ordered_labels, ordered_draws


@njit(cache=True, nogil=True)
def _gather(rows, labels, draws, ordered_labels, ordered_draws):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        ordered_labels[i] = labels[rows[i]]
        ordered_draws[i] = draws[rows[i]]


@dataclass(frozen=True, eq=False)
class Positions:
    """Row, label and draw at each position of the sorted file; they are rearranged within classes."""

    rows: UInt32s
    labels: UInt64s
    draws: UInt64s


def pair_in_windows(
    starts: Int64s,
    strata: Int64s,
    wanting: Flags,
    choosers: UInt64s,
    positions: Positions,
    candidates: int,
    *,
    is_whole: bool,
) -> tuple[Int64s, Flags, Flags]:
    """Pair every wanting class that has a window: return pairs of positions, used positions, classes treated.

    ``choosers`` holds the draw of each class that selects its candidate. Positions in the result refer to the new
    arrangement. If the classes are those of a whole file, a stratum smaller than a window counts as one.
    """
    cut = np.zeros(strata.size, np.bool_)
    arrays = (positions.rows, positions.labels, positions.draws)
    pairs, used, treated, _ = _pair(starts, strata, cut, wanting, choosers, *arrays, candidates, is_whole)
    return pairs, used, treated


def pair_among_lowest(
    starts: Int64s,
    strata: Int64s,
    cut: Flags,
    wanting: Flags,
    choosers: UInt64s,
    positions: Positions,
    candidates: int,
) -> tuple[Int64s, bool]:
    """Return pairs of positions when classes that are ``cut`` contain only their lowest draws.

    Also return True if they are the pairs of the whole file, and complete: no window needed a missing record, and every
    wanting class was treated.
    """
    arrays = (positions.rows, positions.labels, positions.draws)
    pairs, _, treated, missed = _pair(starts, strata, cut, wanting, choosers, *arrays, candidates, is_whole=True)
    return pairs, not missed and not (wanting & ~treated).any()


@njit(cache=True, nogil=True)
def _pair(
    starts: Int64s,
    strata: Int64s,
    cut: Flags,
    wanting: Flags,
    choosers: UInt64s,
    rows: UInt32s,
    labels: UInt64s,
    draws: UInt64s,
    candidates: int,
    is_whole: bool,
) -> tuple[Int64s, Flags, Flags, bool]:
    """Return pairs, used positions, classes treated, and True if a missing record was needed."""
    classes = strata.size
    used = np.zeros(rows.size, np.bool_)
    treated = np.zeros(classes, np.bool_)
    free = starts[1:] - starts[:-1]
    ready = np.zeros(classes, np.int64)
    behind, before = np.arange(classes + 1), np.arange(classes + 1)
    room = (MOST_CLASSES + 1) * candidates
    window, owner = np.empty(room, np.int64), np.empty(room, np.int64)
    kinds, counts = np.empty(room, np.uint64), np.empty(room, np.int64)
    pairs = np.empty((int(np.sum(wanting)), 2), np.int64)
    made = 0
    missed = False
    for c in range(classes):
        if not wanting[c] or treated[c]:
            continue
        _arrange(c, starts, ready, rows, labels, draws)
        size = _window(
            c,
            starts,
            strata,
            cut,
            ready,
            rows,
            labels,
            draws,
            used,
            behind,
            before,
            candidates,
            is_whole,
            window,
            owner,
            kinds,
            counts,
        )
        if size < 0:
            missed = True
            break
        first = starts[c]
        eligible = 0
        for i in range(size):
            eligible += labels[window[i]] != labels[first]
        if eligible == 0:
            continue
        left = np.int64(choosers[c] % np.uint64(eligible))
        i = 0
        while labels[window[i]] == labels[first] or left > 0:
            left -= labels[window[i]] != labels[first]
            i += 1
        pairs[made, 0], pairs[made, 1] = first, window[i]
        made += 1
        for position, of in ((first, c), (window[i], owner[i])):
            used[position] = True
            treated[of] = True
            free[of] -= 1
            if free[of] == 0:
                missed |= cut[of]
                behind[of] = of + 1
                before[of + 1] = of
    return pairs[:made], used, treated, missed


@njit(cache=True, nogil=True)
def _window(  # type: ignore[no-untyped-def]
    c,
    starts,
    strata,
    cut,
    ready,
    rows,
    labels,
    draws,
    used,
    behind,
    before,
    candidates,
    is_whole,
    window,
    owner,
    kinds,
    counts,
):
    """Fill the window of class c; return its size, or 0 if it is too small and there is more to look at.

    Negative: a missing record is needed.
    """
    size, known, most = 0, 0, 0
    below, above = c, c + 1  # behind[above] and before[below] skip classes without a free record
    forward, all_seen = True, is_whole
    for _ in range(MOST_CLASSES):
        above = _skip(behind, above)
        below = _skip(before, below)
        can_rise = above < strata.size and strata[above] == strata[c]
        can_sink = below > 0 and strata[below - 1] == strata[c]
        if not can_rise and not can_sink:
            return size if all_seen else 0  # a whole small stratum is the largest possible window
        other = above if can_rise and (forward or not can_sink) else below - 1
        forward = other < c
        above, below = (above + 1, below) if other > c else (above, below - 1)
        _arrange(other, starts, ready, rows, labels, draws)
        position, taken = starts[other], 0
        while taken < candidates and position < starts[other + 1]:
            if position == starts[other] + ready[other]:
                _arrange_all(other, starts, ready, rows, labels, draws)
            if not used[position]:
                window[size], owner[size] = position, other
                size += 1
                taken += 1
                kind = 0
                while kind < known and kinds[kind] != labels[position]:
                    kind += 1
                if kind == known:
                    kinds[kind], counts[kind] = labels[position], 0
                    known += 1
                counts[kind] += 1
                most = max(most, counts[kind])
            position += 1
        if taken < candidates and cut[other]:
            return -1
        if size - most >= candidates:
            return size
        all_seen &= position == starts[other + 1] and not cut[other]
    return 0


@njit(cache=True, nogil=True)
def _skip(links, c):  # type: ignore[no-untyped-def]
    """Follow the links to a class that links to itself, with path compression."""
    while links[c] != c:
        links[c] = links[links[c]]
        c = links[c]
    return c


@njit(cache=True, nogil=True)
def _arrange(c, starts, ready, rows, labels, draws):  # type: ignore[no-untyped-def]
    """Put the lowest draws of a class first, in order: all of a small class, a few of a large one."""
    start, end = starts[c], starts[c + 1]
    if ready[c]:
        return
    few = min(end - start, _FEW)
    for i in range(start + 1, end):
        if i >= start + few and draws[i] > draws[start + few - 1]:
            continue
        row, label, draw = rows[i], labels[i], draws[i]
        j = i
        if i >= start + few:
            j = start + few - 1
            rows[i], labels[i], draws[i] = rows[j], labels[j], draws[j]
        while j > start and draws[j - 1] > draw:
            rows[j], labels[j], draws[j] = rows[j - 1], labels[j - 1], draws[j - 1]
            j -= 1
        rows[j], labels[j], draws[j] = row, label, draw
    ready[c] = few


@njit(cache=True, nogil=True)
def _arrange_all(c, starts, ready, rows, labels, draws):  # type: ignore[no-untyped-def]
    """Sort all positions of a class by their draws."""
    run = slice(starts[c], starts[c + 1])
    order = np.argsort(draws[run])
    rows[run], labels[run], draws[run] = rows[run][order], labels[run][order], draws[run][order]
    ready[c] = starts[c + 1] - starts[c]


@njit(cache=True, nogil=True)
def pair_with_anyone(
    starts: Int64s,
    strata: Int64s,
    class_of: Int64s,
    left: Int64s,
    choosers: UInt64s,
    labels: UInt64s,
    used: Flags,
    treated: Flags,
    places: Int64s,
    stratum_starts: Int64s,
) -> Int64s:
    """Pair the classes ``left`` with a record drawn from all those of their stratum with another label.

    ``places`` lists the positions, stratum by stratum (from ``stratum_starts`` on), grouped by label. ``used`` and
    ``treated`` are updated.
    """
    rank, run_end = np.empty(labels.size, np.int64), np.empty(places.size, np.int64)
    run_start = np.empty(places.size, np.int64)
    for i in range(places.size):
        rank[places[i]] = i
        goes_on = i > 0 and labels[places[i]] == labels[places[i - 1]]
        run_start[i] = run_start[i - 1] if goes_on else i
    for i in range(places.size - 1, -1, -1):
        goes_on = i + 1 < places.size and run_start[i + 1] == run_start[i]
        run_end[i] = run_end[i + 1] if goes_on else i + 1
    pairs = np.empty((left.size, 2), np.int64)
    made = 0
    onward = np.arange(places.size + 1)  # links over used places; the end of the file links to itself
    for c in left:
        if treated[c]:
            continue
        lo, hi = stratum_starts[strata[c]], stratum_starts[strata[c] + 1]
        for first in range(starts[c], starts[c + 1]):
            if used[first]:
                continue
            run, end = max(run_start[rank[first]], lo), min(run_end[rank[first]], hi)
            partner = _find_anyone(c, lo, hi, run, end, choosers[c], places, class_of, used, onward)
            if partner >= 0:
                pairs[made, 0], pairs[made, 1] = first, partner
                made += 1
                used[first], used[partner] = True, True
                treated[c], treated[class_of[partner]] = True, True
                break
    return pairs[:made]


@njit(cache=True, nogil=True)
def _find_anyone(c, lo, hi, run, end, chooser, places, class_of, used, onward):  # type: ignore[no-untyped-def]
    """Return a free position of another class and another label, from a keyed place onwards; −1 for none."""
    others = hi - lo - (end - run)
    if others == 0:
        return -1
    start = lo + np.int64(chooser % np.uint64(others))
    start += end - run if start >= run else 0
    for begin, stop in ((start, hi), (lo, start)):
        i = begin
        while i < stop:
            if run <= i < end:
                i = end
            elif used[places[i]]:
                onward[i] = i + 1
                i = _skip(onward, i)
            elif class_of[places[i]] == c:
                i += 1
            else:
                return places[i]
    return -1
