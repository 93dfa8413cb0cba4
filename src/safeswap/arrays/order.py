"""Order records by their keyed draws, in full or as a prefix, or by integer codes; pair them along that order.

Records come in the order of their draws. The first record waits, the second is paired with it, the third waits again,
and so on. A pair is valid if the two are in one stratum and differ in every coordinate. Either all records share one
waiting place, so that consecutive records of the whole order are paired, or each stratum has its own, so that
consecutive records of a stratum are.

Claim: pairs come out in the order of the later of their two draws. So the first k valid pairs depend on a prefix of the
order only, and a longer prefix never changes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safeswap.arrays import keyed
from safeswap.arrays.compiled import is_worth_compiling, njit, run_all, split_runs
from safeswap.arrays.types import Codes, Flags, Int64s, Rows, UInt32s, Words

_SORTING = 8  # passes that cost as much as sorting
_PART = 1 << 15  # records that are sorted at once: they fit the second-level cache


def draw_prefix(identity: npt.NDArray[np.int64] | Words, key: bytes, share: float) -> Rows:
    """Return the rows whose draw is among the lowest ``share`` of all possible draws, in the order of their draws.

    >>> rows = draw_prefix(np.arange(1000), bytes(32), 1.0)
    >>> sorted(rows.tolist()) == list(range(1000)), len(draw_prefix(np.arange(1000), bytes(32), 0.1)) < 200
    (True, True)
    """
    threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
    runs = split_runs(len(identity)) if len(identity) else []
    found: list[list[tuple[Rows, Words]]] = [[] for _ in runs]

    def draw(number: int) -> None:
        first = runs[number][0]
        for start, draws in keyed.draw_chunks(identity[slice(*runs[number])], key):
            some = np.flatnonzero(draws <= threshold)
            found[number].append((some + (first + start), draws[some]))

    run_all(draw, range(len(runs)))
    ends = np.cumsum([0, *(sum(len(rows) for rows, _ in parts) for parts in found)])
    rows, values = np.empty(ends[-1], dtype=np.int64), np.empty(ends[-1], dtype=np.uint64)

    def collect(number: int) -> None:
        here = slice(ends[number], ends[number + 1])
        if found[number]:
            np.concatenate([some for some, _ in found[number]], out=rows[here])
            np.concatenate([draws for _, draws in found[number]], out=values[here])

    run_all(collect, range(len(runs)))
    return sort_by_draw(rows, values, lambda some: keyed.encrypt(as_blocks(identity[some]), key))


def draw_weighted(identity: npt.NDArray[np.int64] | Words, key: bytes, weights: npt.NDArray[np.float64]) -> Rows:
    """Return all rows in the order of a weighted draw without replacement (an exponential race).

    At every step a record is drawn with probability proportional to its weight among those not yet drawn
    (Efraimidis & Spirakis 2006).
    """
    draws = np.concatenate([values.copy() for _, values in keyed.draw_chunks(identity, key)])
    arrival = draw_arrivals(draws, weights)
    order: Rows = np.argsort(arrival)
    if (np.diff(arrival[order]) == 0).any():
        full = keyed.encrypt(as_blocks(identity), key)
        order = np.lexsort((full[:, 1], full[:, 0], arrival))
    return order


def weights_by_size(sizes: npt.NDArray[np.float64], wanted: int) -> npt.NDArray[np.float64]:
    """Return weights of the race such that the first ``wanted`` records are drawn in proportion to their sizes.

    A record whose size is at least its share of what is left comes with certainty, before all others. For the others,
    with inclusion probability p, the weight is −log(1 − p): order sampling with exponential arrivals (Rosén 1997).

    >>> weights_by_size(np.array([8.0, 1.0, 1.0]), 2).round(4).tolist()
    [1000000000.0, 0.6931, 0.6931]
    """
    distinct, place, members = np.unique(sizes, return_inverse=True, return_counts=True)
    return weights_of_sizes(distinct, members, wanted)[place]


def weights_of_sizes(
    sizes: npt.NDArray[np.float64], members: npt.NDArray[np.int64], wanted: int
) -> npt.NDArray[np.float64]:
    """Return the weights of :func:`weights_by_size` for each size that occurs, and how many records have it.

    >>> weights_of_sizes(np.array([1.0, 8.0]), np.array([2, 1]), 2).round(4).tolist()
    [0.6931, 1000000000.0]
    """
    shares = np.zeros(len(sizes))
    certain = np.zeros(len(sizes), dtype=np.bool_)
    while (left := wanted - int(members[certain].sum())) > 0 and not certain.all():
        shares = np.where(certain, 1.0, left * sizes / (sizes * members)[~certain].sum())
        more = (shares >= 1 - 1e-12) & ~certain
        if not more.any():
            break
        certain |= more
    uncertain = np.where(certain, 0.0, np.clip(shares, 1e-12, 1 - 1e-12))
    return np.where(certain, 1e9, -np.log1p(-uncertain) + np.where(certain, 1.0, 0.0))


def draw_arrivals(draws: Words, weights: npt.NDArray[np.float64] | float) -> npt.NDArray[np.float64]:
    """Return each record's arrival time in the race: exponential, from its draw, earlier for larger weights.

    >>> draw_arrivals(np.array([0, 2**63], np.uint64), 2.0).round(4).tolist()
    [0.0, 0.3466]
    """
    uniform = (draws >> np.uint64(11)).astype(np.float64) * 2.0**-53
    times: npt.NDArray[np.float64] = -np.log1p(-uniform) / weights
    return times


def as_sortable(times: npt.NDArray[np.float64]) -> Words:
    """Map non-negative times to integers in the same order, for engines that sort integers.

    >>> as_sortable(np.array([0.0, 0.25, 3.0])).argsort().tolist()
    [0, 1, 2]
    """
    return np.ascontiguousarray(times).view(np.uint64)


def as_blocks(identity: npt.NDArray[np.int64] | Words) -> Words:
    """Return the blocks to encrypt, whatever records are known by."""
    return keyed.integer_blocks(identity.view(np.int64)) if identity.ndim == 1 else identity.view(np.uint64)


def sort_by_draw(rows: Rows, values: Words, encrypt: Callable[[Rows], Words]) -> Rows:
    """Sort rows by the first word of their draws; where two are equal, by the whole draws, which ``encrypt`` gives."""
    ordered, met = sort_uniform(rows, values)
    if met:
        # Two 64-bit draws are equal; the whole cipher text, which is unique, breaks the tie. Row numbers must not.
        full = encrypt(rows)
        ordered = rows[np.lexsort((full[:, 1], full[:, 0], values))]
    return ordered


def sort_uniform(rows: Rows, values: Words) -> tuple[Rows, bool]:
    """Return the rows by ascending values, and whether two values are equal. Linear time for uniform values.

    Many rows are first moved to parts of the range of values, and each part is then sorted in the cache, on all cores.

    >>> sort_uniform(np.array([7, 8, 9]), np.array([30, 10, 20], np.uint64))[0].tolist()
    [8, 9, 7]
    """
    if len(rows) < 2 * _PART or not is_worth_compiling(8 * len(rows)):
        order, met = _order_words(values)
        return rows[order], met
    bits = min(_BITS, (len(rows) // _PART).bit_length())
    shift = np.uint64(max(0, int(values.max()).bit_length() - bits))
    values, ordered, starts = _sort_by_digit(values, rows, shift)
    equal: list[bool] = []

    def sort(part: int) -> None:
        here = slice(starts[part], starts[part + 1])
        order, met = _order_words(values[here])
        ordered[here] = ordered[here][order]
        equal.append(met)

    run_all(sort, np.flatnonzero(np.diff(starts) > 1).tolist(), len(split_runs(len(rows), _SORTING)))
    return ordered, any(equal)


def _order_words(words: Words) -> tuple[Rows, bool]:
    """Return the positions of the words in ascending order, and whether two words are equal.

    Positions are packed below the leading bits: plain words are sorted several times as fast as positions are.
    """
    if len(words) < 2:
        return np.arange(len(words)), False
    place_bits = (len(words) - 1).bit_length()
    above = words - words.min()
    cut = int(above.max()).bit_length() + place_bits - 64
    packed = above >> np.uint64(max(cut, 0)) << np.uint64(place_bits)
    packed |= np.arange(len(words), dtype=np.uint64)
    packed.sort()
    order = (packed & np.uint64((1 << place_bits) - 1)).view(np.int64)
    packed >>= np.uint64(place_bits)
    if not (packed[1:] == packed[:-1]).any():
        return order, False
    order = np.argsort(words)
    return order, bool((np.diff(words[order]) == 0).any())


# Parallel radix sort. Only the bytes that can differ are visited. Every run of records has its own counts and its own
# places to write to, computed beforehand: the result depends neither on the number of threads nor on their timing.

_BITS = 8  # 256 output streams: as many as the TLB holds; wider digits were slower in every trial
_MOST_RECORDS = 1 << 31


def sort_rows(codes: Codes, cells: int, rows: UInt32s | None = None) -> tuple[Codes, UInt32s]:
    """Return the codes in ascending order, and the row of each. Stable, linear time, on all cores.

    ``cells`` is above every code. ``rows`` gives the initial order of the records, which breaks ties: file order
    unless stated.

    >>> codes, rows = sort_rows(np.array([2, 0, 2, 1], np.uint8), 3)
    >>> codes.tolist(), rows.tolist()
    ([0, 1, 2, 2], [1, 3, 0, 2])
    >>> sort_rows(np.array([2, 0, 2, 1], np.uint8), 3, np.array([3, 2, 1, 0], np.uint32))[1].tolist()
    [1, 3, 2, 0]
    """
    if codes.size >= _MOST_RECORDS:
        raise ValueError("more than 2**31 - 1 records do not fit one call")
    if rows is not None:
        codes = codes[rows]
    place = np.arange(codes.size, dtype=np.uint32) if rows is None else rows
    ordered = np.ascontiguousarray(codes, dtype=f"uint{8 * codes.dtype.itemsize}")
    if not is_worth_compiling(8 * codes.size):
        found = np.argsort(ordered, kind="stable")
        return ordered[found], place[found]
    for shift in range(0, max(cells - 1, 0).bit_length(), _BITS):
        ordered, place, _ = _sort_by_digit(ordered, place, ordered.dtype.type(shift))
    return ordered, place


def _sort_by_digit(codes: Codes, rows: Any, shift: np.unsignedinteger[Any]) -> tuple[Codes, Any, Int64s]:
    """Return codes and rows in the order of one digit, stable, and where each value of the digit starts."""
    runs = split_runs(codes.size)
    mask = codes.dtype.type((1 << _BITS) - 1)
    counts = np.zeros((len(runs), 1 << _BITS), np.int64)
    run_all(lambda r: _count_digit(codes[slice(*runs[r])], shift, mask, counts[r]), range(len(runs)))
    totals = counts.sum(axis=0)
    starts = np.append(0, np.cumsum(totals))
    places = starts[:-1] + np.cumsum(counts, axis=0) - counts
    moved, moved_rows = np.empty_like(codes), np.empty_like(rows)

    def move(r: int) -> None:
        run = slice(*runs[r])
        _move(codes[run], rows[run], shift, mask, places[r], moved, moved_rows)

    run_all(move, range(len(runs)))
    return moved, moved_rows, starts


@njit(cache=True, nogil=True)
def _count_digit(codes, shift, mask, counts):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        counts[(codes[i] >> shift) & mask] += 1


@njit(cache=True, nogil=True)
def _move(codes, rows, shift, mask, places, moved, moved_rows):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        digit = (codes[i] >> shift) & mask
        place = places[digit]
        moved[place] = codes[i]
        moved_rows[place] = rows[i]
        places[digit] = place + 1


def walk(
    strata: UInt32s, number_of_strata: int, coordinates: UInt32s, wanted: int, by_stratum: bool
) -> tuple[Rows, int, int]:
    """Pair along the order until ``wanted`` pairs are valid or the records end.

    ``strata`` holds a label below ``number_of_strata`` per record (or is empty: one stratum), ``coordinates`` one row
    per record. With ``by_stratum`` each stratum has its own waiting place. Returns the valid pairs as positions in the
    order, the number of records visited, and the number of pairs formed.
    """
    find = _walk if is_worth_compiling(8 * len(coordinates)) else _walk_in_numpy
    return find(strata, number_of_strata, coordinates, wanted, by_stratum)


def _walk_in_numpy(
    strata: UInt32s, _: int, coordinates: UInt32s, wanted: int, by_stratum: bool
) -> tuple[Rows, int, int]:
    """Form all pairs at once, put them in the order of their later record, and stop at the last one wanted."""
    records = len(coordinates)
    if by_stratum and len(strata):
        order = np.argsort(strata, kind="stable")
        ends = np.flatnonzero(np.diff(strata[order])) + 1
        starts = np.r_[0, ends].astype(np.int64)
        rank = np.arange(records) - np.repeat(starts, np.diff(np.r_[starts, records]))
        second = np.flatnonzero(rank % 2)
        pairs = np.stack([order[second - 1], order[second]], axis=1)
        pairs = pairs[np.argsort(pairs[:, 1])]
    else:
        pairs = np.arange(records // 2 * 2).reshape(-1, 2)
    first, later = pairs.T
    is_valid = (coordinates[first] != coordinates[later]).all(axis=1)
    if len(strata):
        is_valid &= strata[first] == strata[later]
    valid = np.flatnonzero(is_valid)
    if len(valid) < wanted:
        return pairs[valid], records, len(pairs)
    if not wanted:
        return pairs[:0], 0, 0
    last = int(valid[wanted - 1])
    return pairs[valid[:wanted]], int(later[last]) + 1, last + 1


@njit(cache=True, nogil=True)
def _walk(
    strata: UInt32s, number_of_strata: int, coordinates: UInt32s, wanted: int, by_stratum: bool
) -> tuple[Rows, int, int]:
    records = coordinates.shape[0]
    pairs = np.empty((min(wanted, records // 2), 2), dtype=np.int64)
    waiting = np.full(max(number_of_strata, 1), -1, dtype=np.int64)
    made = 0
    formed = 0
    i = 0
    while i < records and made < wanted:
        stratum = strata[i] if len(strata) else np.uint32(0)
        place = stratum if by_stratum else np.uint32(0)
        other = waiting[place]
        if other < 0:
            waiting[place] = i
        else:
            waiting[place] = -1
            formed += 1
            if (not len(strata) or strata[other] == stratum) and _is_different(coordinates, other, i):
                pairs[made, 0] = other
                pairs[made, 1] = i
                made += 1
        i += 1
    return pairs[:made], i, formed


@njit(cache=True, nogil=True, inline="always")
def _is_different(coordinates: UInt32s, a: int, b: int) -> bool:
    for j in range(coordinates.shape[1]):  # noqa: SIM110  (a loop that Numba compiles)
        if coordinates[a, j] == coordinates[b, j]:
            return False
    return True


WINDOW = 50
"""Number of eligible records among which the best partner is sought."""

_REACH = 2_000  # further records are not looked at, even if fewer than WINDOW were eligible


class Choice(NamedTuple):
    """The criteria for partners, in keyed order: weights, values to be exchanged, and which of these are categories.

    Without values the nearest weight is best; with them, the smallest product of the differences of weights and values.
    """

    weights: Int64s
    values: Int64s
    are_categories: Flags


@njit(cache=True, nogil=True)
def walk_best(strata: UInt32s, number_of_strata: int, coordinates: UInt32s, wanted: int, choice: Choice) -> Rows:
    """Pair each record of the order with the best of the next eligible ones of its stratum, greedily.

    Eligible is who is not paired yet and differs in every coordinate. Of equally good ones the first is taken. Returns
    the pairs as positions, in the order of their first records.
    """
    records = coordinates.shape[0]
    after = np.full(records + 1, records, dtype=np.int64)  # the next record of the stratum that may be free
    latest = np.full(max(number_of_strata, 1), records, dtype=np.int64)
    for i in range(records - 1, -1, -1):
        stratum = strata[i] if len(strata) else np.uint32(0)
        after[i] = latest[stratum]
        latest[stratum] = i
    is_taken = np.zeros(records + 1, dtype=np.bool_)
    pairs = np.empty((min(wanted, records // 2), 2), dtype=np.int64)
    made = 0
    for i in range(records):
        if made == len(pairs):
            break
        if is_taken[i]:
            continue
        best = -1
        least = np.int64(0)
        seen = 0
        last, j = i, after[i]
        for _ in range(_REACH):
            while j < records and is_taken[j]:
                j = after[j]
            after[last] = j  # what is taken stays so: the next search passes over it at once
            if j >= records or seen == WINDOW:
                break
            if _is_different(coordinates, i, j):
                seen += 1
                cost = _cost(choice, i, j)
                if best < 0 or cost < least:
                    best, least = j, cost
            last, j = j, after[j]
        if best >= 0:
            is_taken[i] = True
            is_taken[best] = True
            pairs[made, 0] = i
            pairs[made, 1] = best
            made += 1
    return pairs[:made]


@njit(cache=True, nogil=True, inline="always")
def _cost(choice: Choice, a: int, b: int) -> np.int64:
    apart: np.int64 = abs(choice.weights[a] - choice.weights[b])
    if choice.values.shape[1] == 0:
        return apart
    total = np.int64(0)
    for v in range(choice.values.shape[1]):
        gap = abs(choice.values[a, v] - choice.values[b, v])
        total += min(gap, np.int64(1)) if choice.are_categories[v] else gap
    cost: np.int64 = apart * total
    return cost


@njit(cache=True, nogil=True)
def assign_moves(class_of: UInt32s, moves: Rows, number_of_classes: int) -> Rows:
    """Assign moves between classes to records: move (a, b, x) pairs the next x records of a with the next x of b.

    ``class_of`` is in keyed order, so "next" is random. Returns positions in that order, a row per pair.
    """
    first = np.zeros(number_of_classes + 1, dtype=np.int64)
    for c in class_of:
        first[c + 1] += 1
    for c in range(number_of_classes):
        first[c + 1] += first[c]
    place = first[:-1].copy()
    members = np.empty(len(class_of), dtype=np.int64)
    for i in range(len(class_of)):
        members[place[class_of[i]]] = i
        place[class_of[i]] += 1
    pairs = np.empty((moves[:, 2].sum(), 2), dtype=np.int64)
    made = 0
    for m in range(len(moves)):
        a, b = moves[m, 0], moves[m, 1]
        for _ in range(moves[m, 2]):
            pairs[made, 0] = members[first[a]]
            pairs[made, 1] = members[first[b]]
            first[a] += 1
            first[b] += 1
            made += 1
    return pairs


def exchange(values: Any, pairs: Rows, *, directed: bool = False) -> None:
    """Exchange the values of each pair, in place, one pair after the other.

    If ``directed``, the first of each pair takes the value that the second had before all of them.
    """
    if directed:
        values[pairs[:, 0]] = values[pairs[:, 1]]
        return
    if is_worth_compiling(10 * len(pairs)):
        _exchange(values, pairs)
    elif _are_disjoint(pairs, len(values)):
        values[pairs] = values[pairs[:, ::-1]]
    else:
        for a, b in pairs.tolist():
            values[a], values[b] = values[b], values[a]


def _are_disjoint(pairs: Rows, records: int) -> bool:
    taken = np.zeros(records, dtype=np.bool_)  # flags, not a sort: that would take longer than the exchange
    taken[pairs] = True
    return int(np.count_nonzero(taken)) == pairs.size


@njit(cache=True, nogil=True)
def _exchange(values: Any, pairs: Rows) -> None:
    for i in range(len(pairs)):
        a, b = pairs[i, 0], pairs[i, 1]
        values[a], values[b] = values[b], values[a]
