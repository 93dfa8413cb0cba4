"""The largest number of disjoint pairs, computed on counts of classes instead of records.

A class is a combination of labels in J coordinates within a stratum. Two records may be paired if they lie in the same
stratum and their classes differ in every coordinate.

* One coordinate, a stratum of n records whose largest class has m: the maximum is min(n // 2, n − m). It is reached by
  laying the records out class by class and pairing i with i + n/2 (no class is longer than half), or, where one class
  holds more than half, by pairing all others with members of it.
* Several coordinates: a maximum b-matching in the graph of compatible classes. Half of all records, and all records
  outside a label, are upper bounds. A greedy pass that takes the most crowded labels first often reaches one; where it
  does not, augmenting paths (:mod:`safeswap.arrays.augmenting`) lead to the maximum and prove it. Where only the
  number is needed and no label is crowded, the degrees alone prove it.

The work on a stratum is limited. Beyond the limit the result is a range: the number of pairs found, and an upper bound.

The caller gives the classes in a canonical order, so the result depends on neither row order nor label names.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from safeswap.arrays.augmenting import close_gap, may_pair
from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.arrays.types import Counts

_WORK = 2_000_000_000
"""The budget per stratum in comparisons of two classes: about twenty seconds."""

_GREEDY_WORK = 50_000_000
"""A stratum whose greedy pass would need more comparisons starts with a first-fit pass instead."""


_MOST_COMPARED = 400
"""A stratum with more classes than this is not compared pairwise where an estimate suffices."""


class Total(NamedTuple):
    """The number of pairs found and an upper bound; equal where the maximum is proved.

    >>> Total(40, 40).is_proved, Total(40, 45).is_proved
    (True, False)
    """

    found: int
    most: int

    @property
    def is_proved(self) -> bool:
        """True if the number found is the maximum."""
        return self.found == self.most


@dataclass(frozen=True, eq=False)
class Matching:
    """Moves (class a, class b, number of pairs), their total, and an upper bound on any matching."""

    moves: Counts
    total: int
    most: int

    @property
    def proved(self) -> bool:
        """True if no larger matching exists."""
        return self.total == self.most


def largest_matching(strata: Counts, coordinates: Counts, counts: Counts) -> Matching:
    """Return the most pairs that the classes allow. ``strata`` must be sorted, ``coordinates`` has a row per class.

    >>> one = largest_matching(np.zeros(3, int), np.array([[0], [1], [2]]), np.array([5, 2, 1]))
    >>> one.total, one.proved
    (3, True)
    """
    occupied = np.flatnonzero(counts)
    if len(occupied) < len(counts):
        # Records left over after random pairing lie in few classes, and the work is quadratic in their number.
        matching = largest_matching(strata[occupied], coordinates[occupied], counts[occupied])
        matching.moves[:, :2] = occupied[matching.moves[:, :2]]
        return matching
    bounds = np.flatnonzero(np.r_[True, strata[1:] != strata[:-1], True]) if len(strata) else np.zeros(1, dtype=int)
    if coordinates.shape[1] == 1 and not _has_twins(strata, coordinates[:, 0]):
        moves = _match_one_coordinate(bounds, counts)
        total = int(moves[:, 2].sum())
        return Matching(moves, total, total)
    moves, most = _match_strata(bounds, _dense_labels(coordinates), counts, _GREEDY_WORK, _WORK)
    return Matching(moves, int(moves[:, 2].sum()), int(most))


def largest_total(strata: Counts, coordinates: Counts, counts: Counts) -> Total:
    """Return the number of pairs only; without building the moves for one coordinate or small crowds.

    >>> largest_total(np.zeros(2, int), np.array([[0], [1]]), np.array([41762, 7080]))
    Total(found=7080, most=7080)
    """
    if not len(strata):
        return Total(0, 0)
    starts = np.flatnonzero(np.r_[True, strata[1:] != strata[:-1]])
    size = np.add.reduceat(counts, starts)
    total, open_strata = _total_by_degrees(starts, size, coordinates, counts)
    if not open_strata.any():
        return Total(total, total)
    rest = np.repeat(open_strata, np.diff(np.r_[starts, len(counts)]))
    matched = largest_matching(strata[rest], coordinates[rest], counts[rest])
    return Total(total + matched.total, total + matched.most)


def _has_twins(strata: Counts, labels: Counts) -> bool:
    """Return whether two classes of a stratum share one label, as −0.0 and 0.0 do."""
    order = np.lexsort((labels, strata))
    return bool(((np.diff(labels[order]) == 0) & (np.diff(strata[order]) == 0)).any())


def _total_by_degrees(
    starts: Counts, size: Counts, coordinates: Counts, counts: Counts
) -> tuple[int, npt.NDArray[np.bool_]]:
    """Return the pairs of the strata whose maximum follows from the degrees, and flag the remaining strata.

    In a stratum of n records let m_j be the largest number with one label in coordinate j, M the sum of the m_j.
    A record has at least n − M partners. So M ≤ n/2 proves a cycle through all records (Dirac 1952), hence n // 2
    pairs. And if n − m_j ≤ m_j − (M − m_j) for some j, each of the n − m_j records outside that label finds a partner
    of its own inside it, in whatever order they choose; no matching has more pairs. With one coordinate M = m_1, and
    one of the two always holds.
    """
    stratum = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(counts)]))
    crowds = np.zeros((len(starts), coordinates.shape[1]), dtype=np.int64)
    for j, labels in enumerate(coordinates.T):
        order = np.lexsort((labels, stratum))
        groups = np.flatnonzero(np.r_[True, (np.diff(labels[order]) != 0) | (np.diff(stratum[order]) != 0)])
        np.maximum.at(crowds[:, j], stratum[order][groups], np.add.reduceat(counts[order], groups))
    together = crowds.sum(axis=1)
    largest = crowds.max(axis=1)
    spread = 2 * together <= size
    dominated = size - largest <= 2 * largest - together
    total = int((size // 2)[spread].sum() + (size - largest)[dominated & ~spread].sum())
    return total, ~(spread | dominated)


def pairs_per_record(strata: Counts, coordinates: Counts, counts: Counts, *, by_stratum: bool = True) -> float:
    """Return the expected number of valid pairs per record of a random pairing, within strata or over all records.

    >>> round(pairs_per_record(np.zeros(2, int), np.array([[0], [1]]), np.array([41762, 7080])), 4)
    0.1239
    """
    bounds = np.flatnonzero(np.r_[True, strata[1:] != strata[:-1], True]) if len(strata) else np.zeros(1, dtype=int)
    # A stratum costs some dozen calls of NumPy, and classes are compared pairwise.
    effort = 2000 * len(bounds) + min(len(counts), _MOST_COMPARED) * len(counts) * coordinates.shape[1]
    expect = _expected_pairs if is_worth_compiling(effort) else _expected_pairs_in_numpy
    return float(expect(bounds, coordinates, counts, by_stratum) / max(int(counts.sum()), 1))


def _expected_pairs_in_numpy(bounds: Counts, coordinates: Counts, counts: Counts, by_stratum: bool) -> float:
    expected, others = 0.0, max(float(counts.sum()) - 1.0, 1.0)
    for start, end in pairwise(bounds.tolist()):
        labels, sizes = coordinates[start:end], counts[start:end].astype(np.float64)
        total = float(sizes.sum())
        if total < 2:
            continue
        if labels.shape[1] == 1 or end - start > _MOST_COMPARED:
            share = 1.0
            for column in labels.T:
                crowds = np.bincount(np.unique(column, return_inverse=True)[1], weights=sizes)
                share *= 1 - float((crowds * (crowds - 1.0)).sum()) / (total * (total - 1))
        else:
            is_alike = (labels[:, None] == labels[None]).any(axis=2)
            alike = float(sizes @ (is_alike @ sizes) - sizes[is_alike.diagonal()].sum())
            share = 1 - alike / (total * (total - 1))
        expected += total / 2 * share * (1.0 if by_stratum else (total - 1) / others)
    return expected


@njit(cache=True, nogil=True)
def _expected_pairs(bounds: Counts, coordinates: Counts, counts: Counts, by_stratum: bool) -> float:
    expected = 0.0
    others = max(float(counts.sum()) - 1.0, 1.0)
    for s in range(len(bounds) - 1):
        start, end = bounds[s], bounds[s + 1]
        total = float(counts[start:end].sum())
        if total < 2:
            continue
        if coordinates.shape[1] == 1 or end - start > _MOST_COMPARED:
            # Too many classes to compare pairwise: treating coordinates as independent is close enough.
            share = 1.0
            for j in range(coordinates.shape[1]):
                share *= 1 - _count_alike(coordinates[start:end, j], counts[start:end]) / (total * (total - 1))
        else:
            share = 1 - _count_alike_anywhere(coordinates[start:end], counts[start:end]) / (total * (total - 1))
        # Without strata, the next record is in the same stratum only by chance.
        expected += total / 2 * share * (1.0 if by_stratum else (total - 1) / others)
    return expected


@njit(cache=True, nogil=True)
def _count_alike(labels: Counts, counts: Counts) -> float:
    """Count the ordered pairs of records with the same label."""
    order = np.argsort(labels)
    alike = 0.0
    i = 0
    while i < len(order):
        label = labels[order[i]]
        crowd = 0.0
        while i < len(order) and labels[order[i]] == label:
            crowd += counts[order[i]]
            i += 1
        alike += crowd * (crowd - 1.0)
    return alike


@njit(cache=True, nogil=True)
def _count_alike_anywhere(coordinates: Counts, counts: Counts) -> float:
    """Count the ordered pairs of records with the same label in at least one coordinate."""
    alike = 0.0
    for a in range(len(counts)):
        for b in range(len(counts)):
            for j in range(coordinates.shape[1]):
                if coordinates[a, j] == coordinates[b, j]:
                    alike += counts[a] * (counts[b] - (1.0 if a == b else 0.0))
                    break
    return alike


@njit(cache=True, nogil=True)
def _match_one_coordinate(bounds: Counts, counts: Counts) -> Counts:
    moves = np.empty((2 * len(counts) + 1, 3), dtype=np.int64)
    made = 0
    left = np.empty(len(counts), dtype=np.int64)
    for s in range(len(bounds) - 1):
        start, end = bounds[s], bounds[s + 1]
        left[start:end] = counts[start:end]
        total = left[start:end].sum()
        largest = start + np.argmax(left[start:end])
        if 2 * left[largest] > total:
            # One class holds more than half: every other record is paired with a member of it.
            left[largest] = total - left[largest]
        elif total % 2:
            left[largest] -= 1
        made = _rotate(left, start, end, left[start:end].sum() // 2, moves, made)
    return moves[:made].copy()


@njit(cache=True, nogil=True)
def _rotate(left: Counts, start: int, end: int, half: int, moves: Counts, made: int) -> int:
    """Pair place i with place i + half of classes laid end to end; both pointers only move forwards."""
    a = start
    used_a = 0
    b = start
    used_b = half
    while b < end and used_b >= left[b]:
        used_b -= left[b]
        b += 1
    remaining = half
    while remaining > 0:
        while used_a >= left[a]:
            a += 1
            used_a = 0
        while used_b >= left[b]:
            b += 1
            used_b = 0
        x = min(left[a] - used_a, left[b] - used_b, remaining)
        moves[made, 0] = a
        moves[made, 1] = b
        moves[made, 2] = x
        made += 1
        used_a += x
        used_b += x
        remaining -= x
    return made


def _dense_labels(coordinates: Counts) -> Counts:
    return np.stack([np.unique(column, return_inverse=True)[1] for column in coordinates.T], axis=1).astype(np.int64)


@njit(cache=True, nogil=True)
def _upper_bound(labels: Counts, counts: Counts) -> int:
    """Return the lesser of half of all records and the records outside any one label."""
    classes, coordinates = labels.shape
    total = counts.sum()
    bound: int = total // 2
    for j in range(coordinates):
        sizes = np.zeros(labels[:, j].max() + 1, dtype=np.int64)
        for c in range(classes):
            sizes[labels[c, j]] += counts[c]
        bound = min(bound, total - sizes.max())
    return bound


@njit(cache=True, nogil=True)
def _match_strata(bounds: Counts, labels: Counts, counts: Counts, greedy_work: int, work: int) -> tuple[Counts, int]:
    """Return the moves in every stratum, and an upper bound on the number of pairs."""
    levels = 0
    for j in range(labels.shape[1]):
        if len(labels):
            levels = max(levels, labels[:, j].max() + 1)
    crowd = np.zeros((labels.shape[1], levels), dtype=np.int64)
    moves = np.empty((max(64, 2 * len(counts)), 3), dtype=np.int64)
    made = 0
    most = 0
    for s in range(len(bounds) - 1):
        start, end = bounds[s], bounds[s + 1]
        before = made
        own_labels, own_counts = labels[start:end], counts[start:end]
        if own_counts.sum() * (end - start) <= greedy_work:
            moves, made = _greedy(own_labels, own_counts, crowd, moves, made, start)
        else:
            moves, made = _first_fit(own_labels, own_counts, moves, made, start)
        bound = _upper_bound(own_labels, own_counts)
        if moves[before:made, 2].sum() < bound:
            begun = moves[before:made].copy()
            begun[:, :2] -= start
            closed, bound, _ = close_gap(own_labels, own_counts, begun, bound, work)
            if closed[:, 2].sum() > begun[:, 2].sum():
                while before + len(closed) > len(moves):
                    moves = np.concatenate((moves, np.empty_like(moves)))
                closed[:, :2] += start
                made = before + len(closed)
                moves[before:made] = closed
        most += bound
    return moves[:made].copy(), most


@njit(cache=True, nogil=True)
def _first_fit(labels: Counts, counts: Counts, moves: Counts, made: int, offset: int) -> tuple[Counts, int]:
    """Pair each class, most crowded labels first, with the first compatible classes."""
    order = _order_hardest_first(labels, counts)
    sorted_labels = labels[order]
    left = counts[order]
    following = np.arange(1, len(counts) + 1)  # the next class that may have records left
    for a in range(len(counts)):
        previous = a
        b = following[a]
        while left[a] and b < len(counts):
            if left[b] and may_pair(sorted_labels, a, b):
                x = min(left[a], left[b])
                left[a] -= x
                left[b] -= x
                if made == len(moves):
                    moves = np.concatenate((moves, np.empty_like(moves)))
                moves[made] = (order[a] + offset, order[b] + offset, x)
                made += 1
            if not left[b]:
                following[previous] = following[b]
            else:
                previous = b
            b = following[b]
    return moves, made


@njit(cache=True, nogil=True)
def _order_hardest_first(labels: Counts, counts: Counts) -> Counts:
    """Order classes by their number of possible partners, ascending, as if coordinates were independent."""
    partners = np.ones(len(counts))
    for j in range(labels.shape[1]):
        sizes = np.zeros(labels[:, j].max() + 1, dtype=np.int64)
        for c in range(len(counts)):
            sizes[labels[c, j]] += counts[c]
        for c in range(len(counts)):
            partners[c] *= 1.0 - sizes[labels[c, j]] / counts.sum()
    return np.argsort(partners, kind="mergesort")


@njit(cache=True, nogil=True)
def _greedy(labels: Counts, counts: Counts, crowd: Counts, moves: Counts, made: int, offset: int) -> tuple[Counts, int]:
    """Pair the class with the most crowded label with its most crowded partner, part by part.

    ``crowd`` counts the records left per coordinate and label; it is all zeros on entry and exit.
    """
    left = counts.copy()
    closed = np.zeros(len(counts), dtype=np.bool_)  # classes without any partner left
    for c in range(len(counts)):
        _shift(crowd, labels, c, counts[c])
    while True:
        a = _most_crowded(labels, left, crowd, closed, -1)
        if a < 0:
            break
        b = _most_crowded(labels, left, crowd, closed, a)
        if b < 0:
            closed[a] = True
            continue
        x = max(1, min(left[a], left[b]) // 8)
        for c in (a, b):
            left[c] -= x
            _shift(crowd, labels, c, -x)
        if made == len(moves):
            moves = np.concatenate((moves, np.empty_like(moves)))
        moves[made, 0] = a + offset
        moves[made, 1] = b + offset
        moves[made, 2] = x
        made += 1
    for c in range(len(counts)):
        _shift(crowd, labels, c, -left[c])
    return moves, made


@njit(cache=True, nogil=True)
def _shift(crowd: Counts, labels: Counts, c: int, x: int) -> None:
    for j in range(labels.shape[1]):
        crowd[j, labels[c, j]] += x


@njit(cache=True, nogil=True)
def _most_crowded(labels: Counts, left: Counts, crowd: Counts, closed: npt.NDArray[np.bool_], partner: int) -> int:
    best = -1
    best_crowd = np.int64(-1)
    for c in range(len(left)):
        if left[c] == 0 or closed[c]:
            continue
        largest = np.int64(0)
        compatible = True
        for j in range(labels.shape[1]):
            if partner >= 0 and labels[c, j] == labels[partner, j]:
                compatible = False
                break
            largest = max(largest, crowd[j, labels[c, j]])
        if compatible and (largest > best_crowd or (largest == best_crowd and left[c] > left[best])):
            best = c
            best_crowd = largest
    return best
