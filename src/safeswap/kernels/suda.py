"""Minimal sample uniques: the smallest sets of keys in which a record is like no other.

Records come as classes, each a distinct combination of codes with its number of records. Sets of keys are the bits of
an integer. They are visited in ascending order of that integer, so that every subset comes before its supersets; each
set refines the groups of the set without its lowest bit. A record that is alone in its group needs no further key and
leaves, so the groups shrink quickly, and a group without a record that could become unique is not looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations as choices
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from safeswap.kernels.combinations import Classes, mask_of
from safeswap.kernels.types import Floats, Int64s
from safeswap.kernels.wildcards import matching_sizes

_FIRST_ROOM = 1 << 12
_MARKED_KEYS = 9  # a bit for each set of so many keys: what is known of a record then fits a line of the cache


@dataclass(frozen=True, eq=False)
class MinimalUniques:
    """Every pair of a class and a set of keys, as bits, in which it is unique and in no smaller part of the set."""

    classes: Int64s
    masks: Int64s
    keys: int

    def __len__(self) -> int:
        return self.masks.size

    @property
    def sizes(self) -> Int64s:
        """How many keys each set has."""
        return np.bitwise_count(self.masks).astype(np.int64)


def minimal_uniques(found: Classes, *, most: int, missing: str = "own") -> MinimalUniques:
    """The minimal uniques of up to ``most`` keys.

    A blank is a value (own), is in no set (none, any) or is like all (vouching).

    >>> from safeswap.kernels.combinations import classes
    >>> town, job = np.array([0, 0, 1, 1, 2], np.uint8), np.array([0, 1, 0, 0, 0], np.uint8)
    >>> unique = minimal_uniques(classes([town, job], [3, 2], [9, 9]), most=2)
    >>> sorted(zip(unique.classes.tolist(), unique.masks.tolist()))
    [(0, 3), (1, 2), (3, 1)]
    """
    keys = len(found.columns)
    most = min(most, keys)
    if missing == "vouching" and found.complete(range(keys)) is not None:
        return _among_wildcards(found, most)
    # The key with most levels splits best: it is the one that most sets of keys begin with.
    order = np.argsort(found.cardinalities, kind="stable")
    width = np.dtype(np.uint16 if max(found.cardinalities) <= 1 << 16 else np.uint32)  # each costs a compilation
    codes = np.stack([found.columns[j].astype(width, copy=False) for j in order])
    outside = np.array([-1 if missing == "own" else found.blanks[j] for j in order], np.int64)
    classes, masks = _search(codes, outside, np.minimum(found.sizes, 2).astype(np.int8), max(found.cardinalities), most)
    return MinimalUniques(classes, _with_bits(masks, order), keys)


def totals(unique: MinimalUniques, classes: int, weights: Floats) -> Floats:
    """For each class the sum over its minimal uniques of a weight by size; ``weights[k]`` is that of k keys."""
    return np.bincount(unique.classes, weights[unique.sizes], classes).astype(np.float64, copy=False)


def key_totals(unique: MinimalUniques, classes: int, weights: Floats) -> Floats:
    """As :func:`totals`, by class and key: over the minimal uniques that hold the key."""
    table = np.zeros((classes, unique.keys))
    each = weights[unique.sizes]
    for key in range(unique.keys):
        holds = (unique.masks >> key) & 1 == 1
        table[:, key] = np.bincount(unique.classes[holds], each[holds], classes)
    return table


def smallest(unique: MinimalUniques, classes: int) -> Int64s:
    """For each class the size of its smallest minimal unique, 0 where it has none."""
    found = np.full(classes, unique.keys + 1, np.int64)
    np.minimum.at(found, unique.classes, unique.sizes)
    found[found > unique.keys] = 0
    return found


def _with_bits(masks: Int64s, places: Sequence[int] | npt.NDArray[Any]) -> Int64s:
    """The masks with bit i moved to the place ``places[i]``."""
    moved = np.zeros_like(masks)
    for i, place in enumerate(places):
        moved |= ((masks >> i) & 1) << int(place)
    return moved


def _among_wildcards(found: Classes, most: int) -> MinimalUniques:
    """Where a blank is like every value there are no groups to refine: each set of keys is counted by itself."""
    keys = len(found.columns)
    counted = replace(found, sizes=found.sizes.astype(np.int64))
    smaller: dict[tuple[int, ...], npt.NDArray[np.bool_]] = {}
    rows, masks = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for size in range(1, most + 1):
        unique = {}
        for chosen in choices(range(keys), size):
            alone = matching_sizes(counted, chosen) == 1
            parts = [smaller[part] for part in choices(chosen, size - 1) if part]
            new = np.flatnonzero(alone & ~np.logical_or.reduce(parts)) if parts else np.flatnonzero(alone)
            unique[chosen] = alone
            rows.append(new)
            masks.append(np.full(new.size, mask_of(chosen), np.int64))
        smaller = unique
    return MinimalUniques(np.concatenate(rows), np.concatenate(masks), keys)


@numba.njit(cache=True, nogil=True)
def _search(codes, outside, weights, levels, most):  # type: ignore[no-untyped-def]
    """Walk over the sets of keys, deepest branch first; each depth keeps the groups of the set that led to it."""
    keys, classes = codes.shape
    members = np.empty((most, classes), np.int32)
    starts = np.empty((most, classes // 2 + 2), np.int32)
    groups, child, limit = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    masks_at = np.zeros(most, np.int64)
    tally, singles = np.zeros((levels, 2), np.int32), np.zeros(levels, np.int32)
    touched = np.empty(max(levels, 1), np.int32)
    alone = np.empty(classes, np.int32)
    members[0] = np.arange(classes)
    starts[0, 0], starts[0, 1] = 0, classes
    groups[0], limit[0] = 1, keys
    marks = np.zeros((classes, max(1, (1 << keys) >> 6) if keys <= _MARKED_KEYS else 0), np.uint64)
    last = np.full(0 if marks.shape[1] else classes, -1, np.int64)
    owners, masks = np.empty(_FIRST_ROOM, np.int64), np.empty(_FIRST_ROOM, np.int64)
    before = np.empty(_FIRST_ROOM, np.int64)
    found, depth = 0, 0
    while depth >= 0:
        key = child[depth]
        if key == limit[depth] or classes == 0:
            depth -= 1
            continue
        child[depth] += 1
        leaf = depth + 1 == most or key == 0
        below = depth if leaf else depth + 1
        mask = masks_at[depth] | (np.int64(1) << key)
        number, kept = _refined(
            members[depth],
            starts[depth],
            groups[depth],
            codes[key],
            outside[key],
            weights,
            tally,
            singles,
            touched,
            leaf,
            members[below],
            starts[below],
            alone,
        )
        if found + number > masks.size:
            room = 2 * (found + number)
            owners, masks, before = _longer(owners, room), _longer(masks, room), _longer(before, room)
        for i in range(number):
            row = alone[i]
            if marks.shape[1]:
                if _part_marked(marks[row], mask):
                    continue
                marks[row, mask >> 6] |= np.uint64(1) << np.uint64(mask & 63)
            else:
                if _part_listed(masks, before, last[row], mask):
                    continue
                before[found] = last[row]
                last[row] = found
            owners[found], masks[found] = row, mask
            found += 1
        if not leaf and kept > 0:
            depth += 1
            groups[depth], child[depth], limit[depth], masks_at[depth] = kept, 0, key, mask
    return owners[:found].copy(), masks[:found].copy()


@numba.njit(cache=True, nogil=True)
def _refined(  # type: ignore[no-untyped-def]
    members, starts, groups, column, outside, weights, tally, singles, touched, leaf, next_members, next_starts, alone
):
    """Split each group by one key: list who is alone then, and (unless at a leaf) the groups worth splitting on.

    A class of several records weighs 2: it is never alone, and keeps others from being so. ``tally`` holds per code the
    weight and one of the classes, later its place in the next groups.
    """
    number, kept, filled = 0, 0, 0
    if not leaf:
        next_starts[0] = 0
    for group in range(groups):
        first, end = starts[group], starts[group + 1]
        if end - first == 2:  # most groups are pairs before long, and need no counting
            one, other = members[first], members[first + 1]
            if column[one] == column[other]:
                if not leaf and column[one] != outside:
                    next_members[filled], next_members[filled + 1] = one, other
                    filled += 2
                    kept += 1
                    next_starts[kept] = filled
                continue
            for row in (one, other):
                if weights[row] == 1 and column[row] != outside:
                    alone[number] = row
                    number += 1
            continue
        codes_met = 0
        for i in range(first, end):
            row = members[i]
            code = column[row]
            if code == outside:
                continue
            if tally[code, 0] == 0:
                touched[codes_met] = code
                codes_met += 1
            tally[code, 0] += weights[row]
            tally[code, 1] = row
            singles[code] += 1 if weights[row] == 1 else 0
        for t in range(codes_met):
            code = touched[t]
            if tally[code, 0] == 1:
                alone[number] = tally[code, 1]
                number += 1
                singles[code] = 0
            elif not leaf and singles[code] > 0:
                # Each single weighs 1 and each other class 2.
                size = singles[code] + (tally[code, 0] - singles[code]) // 2
                tally[code, 1] = filled
                filled += size
                kept += 1
                next_starts[kept] = filled
        if not leaf:
            for i in range(first, end):
                row = members[i]
                code = column[row]
                if code != outside and singles[code] > 0:
                    next_members[tally[code, 1]] = row
                    tally[code, 1] += 1
        for t in range(codes_met):
            tally[touched[t], 0] = 0
            singles[touched[t]] = 0
    return number, kept


@numba.njit(cache=True, nogil=True)
def _part_marked(marks, mask):  # type: ignore[no-untyped-def]
    """Whether a smaller set of these keys is marked."""
    part = (mask - 1) & mask
    while part:
        if (marks[part >> 6] >> np.uint64(part & 63)) & np.uint64(1):
            return True
        part = (part - 1) & mask
    return False


@numba.njit(cache=True, nogil=True)
def _part_listed(masks, before, at, mask):  # type: ignore[no-untyped-def]
    """Whether a smaller set of these keys is in a record's list, of which each entry names the one before."""
    while at >= 0:
        if masks[at] & mask == masks[at]:
            return True
        at = before[at]
    return False


@numba.njit(cache=True, nogil=True)
def _longer(array, room):  # type: ignore[no-untyped-def]
    longer = np.empty(room, array.dtype)
    longer[: array.size] = array
    return longer
