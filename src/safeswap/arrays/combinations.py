"""Count many combinations of the keys of one file. Records that agree in every key form one class.

Keys come coded: unsigned integers below the key's cardinality, one of which may mean a blank. A combination
is given by the positions of its keys.

A blank could be any value, one way or both ways. One way (:func:`published_sizes`), a record is counted by its keys
that are not blank, and only records that have these keys count for it. Both ways (:func:`matching_sizes`), a record
with blanks also counts for every record that it could be. Neither kind of matching is transitive, so there are no cells
to add up. Cells are grouped by their pattern of blanks; both ways, a cell of one pattern matches those of another that
agree in the keys that neither leaves blank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays import cells, sparse
from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.arrays.types import Codes, Flags

Sizes = npt.NDArray[Any]  # of int64, or of float64 where weights are summed

_IN_NUMPY = 10  # passes over the classes of what a kernel does in one
_DENSE = 8  # up to this many possible cells per class, an array is cheaper than a hash table


@dataclass(frozen=True, eq=False)
class Classes:
    """The distinct records over some keys: their codes by key, their sizes, and the class of each record.

    ``first`` is the first record of each class. ``sizes`` are numbers of records, or sums of weights. ``blanks[j]`` is
    the code of a blank of key j, below the cardinality whether it occurs or not.
    """

    columns: tuple[Codes, ...]
    cardinalities: tuple[int, ...]
    blanks: tuple[int, ...]
    sizes: Sizes
    first: npt.NDArray[np.int64]
    of_record: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return self.sizes.size

    def is_blank(self, key: int) -> Flags:
        """Flag the classes in which the key is blank."""
        flags: Flags = self.columns[key] == self.blanks[key]
        return flags

    def complete(self, keys: Sequence[int]) -> Flags | None:
        """Flag the classes in which none of these keys is blank; None if no class has a blank."""
        flags = [self.is_blank(key) for key in keys]
        some = [each for each in flags if each.any()]
        return ~np.logical_or.reduce(some) if some else None


@dataclass(frozen=True, eq=False)
class SmallCells:
    """The cells of a combination that are below tolerance.

    ``classes`` holds one class of each such cell, in ascending order, ``sizes`` the sizes of the cells, and
    ``is_small`` flags the classes whose cell is one of them. ``squares`` is the sum of the squared sizes of all cells:
    the same for two combinations that divide the records alike.
    """

    classes: npt.NDArray[np.int64]
    sizes: Sizes
    cells: int  # number of occupied cells
    squares: int | float
    is_small: Flags


def group_records(
    columns: Sequence[Codes],
    cardinalities: Sequence[int],
    blanks: Sequence[int],
    weights: npt.NDArray[np.float64] | None = None,
    ranks: Sequence[Codes] | None = None,
) -> Classes:
    """Return the distinct records, in ascending order of their codes.

    With ``ranks``, a table per column, each code stands for its rank, which is below the cardinality. Only the
    distinct records are translated and sorted, never the columns.

    >>> found = group_records([np.array([1, 0, 1], np.uint8), np.array([0, 1, 0], np.uint8)], [2, 2], [9, 9])
    >>> [column.tolist() for column in found.columns], found.sizes.tolist(), found.of_record.tolist()
    ([[0, 1], [1, 0]], [1, 2], [1, 0, 1])
    """
    tables = [None] * len(columns) if ranks is None else list(ranks)
    sizes = [cardinalities[j] if table is None else table.size for j, table in enumerate(tables)]
    packed, possible = cells.pack(columns, sizes)
    groups = sparse.group(packed)
    codes = _unpack(groups.codes, sizes) if possible == prod(sizes) else [column[groups.first] for column in columns]
    ranked = [
        each.astype(column.dtype) if table is None else table[each]
        for each, table, column in zip(codes, tables, columns, strict=True)
    ]
    merged, possible = cells.pack(ranked, cardinalities)
    values, place = sparse.merge(merged)
    chosen = np.empty(values.size, np.int64)
    chosen[place] = np.arange(place.size)
    first, numbers = groups.first[chosen], groups.sizes[chosen]
    if values.size < place.size:  # some classes have a group in several runs
        np.minimum.at(first, place, groups.first)
        numbers = sparse.add_up(place, groups.sizes, values.size)
    of_record = groups.spread(place.astype(np.uint32))
    is_plain = possible == prod(map(int, cardinalities))
    found = _unpack(values, cardinalities) if is_plain else [column[chosen] for column in ranked]
    return Classes(
        columns=tuple(each.astype(column.dtype) for each, column in zip(found, ranked, strict=True)),
        cardinalities=tuple(cardinalities),
        blanks=tuple(blanks),
        sizes=numbers if weights is None else np.bincount(of_record, weights, values.size),
        first=first,
        of_record=of_record,
    )


def _unpack(codes: Codes, sizes: Sequence[int]) -> list[Codes]:
    """Return the columns of packed codes: calculated, since their first records are all over the file.

    >>> [column.tolist() for column in _unpack(np.array([2, 3, 5], np.uint8), [2, 3])]
    [[0, 1, 1], [2, 0, 2]]
    """
    columns, rest = [], codes.astype(np.uint64)
    for size in reversed(sizes[1:]):
        above = rest // np.uint64(max(1, size))
        columns.append(rest - above * np.uint64(max(1, size)))
        rest = above
    return [rest, *reversed(columns)]


def cell_codes(found: Classes, keys: Sequence[int], only: Flags | None = None) -> tuple[Codes, int]:
    """Return the cell number of each class (of those in ``only``) over some keys, and how many numbers there are.

    Numbers ascend with the codes. If there are too many possible cells for an array, those that occur are ranked.
    """
    columns = [found.columns[key] for key in keys]
    if only is not None:
        columns = [column[only] for column in columns]
    codes, possible = cells.pack(columns, [found.cardinalities[key] for key in keys])
    if possible <= max(1 << 16, _DENSE * codes.size):
        return codes, possible
    return _rank_codes(codes, possible)


def cell_ranks(found: Classes, keys: Sequence[int]) -> tuple[npt.NDArray[np.uint32], int]:
    """Return the rank of each class's cell over some keys among the occupied cells, and their number."""
    codes, possible = cell_codes(found, keys)
    return _rank_codes(codes, possible)


def cell_sizes(codes: npt.NDArray[Any], possible: int, sizes: Sizes) -> Sizes:
    """Return the size of every possible cell, from classes and their sizes.

    >>> cell_sizes(np.array([2, 0, 2], np.uint8), 4, np.array([1, 5, 2])).tolist()
    [5, 0, 3, 0]
    """
    if not is_worth_compiling(_IN_NUMPY * codes.size):
        return np.bincount(codes.astype(np.int64), sizes, possible).astype(sizes.dtype)
    table: Sizes = np.zeros(possible, sizes.dtype)
    _add_up(codes, sizes, table)
    return table


def find_small_cells(found: Classes, keys: Sequence[int], tolerance: float, *, skip_blank: bool = False) -> SmallCells:
    """Return the cells over some keys whose size is above 0 and below tolerance.

    With ``skip_blank`` a class in which one of the keys is blank is in no cell.

    >>> found = group_records([np.array([0, 1, 1, 2], np.uint8)], [3], [2])
    >>> small = find_small_cells(found, [0], 2)
    >>> small.classes.tolist(), small.sizes.tolist(), small.cells
    ([0, 2], [1, 1], 3)
    >>> find_small_cells(found, [0], 2, skip_blank=True).classes.tolist()
    [0]
    """
    only = found.complete(keys) if skip_blank else None
    codes, possible = cell_codes(found, keys, only)
    sizes = found.sizes if only is None else found.sizes[only]
    table = cell_sizes(codes, possible, sizes)
    squares = np.dot(table, table).item()
    is_small = np.zeros(codes.size, np.bool_)
    firsts, small = np.empty(codes.size, np.int64), np.empty(codes.size, sizes.dtype)
    mark = _mark_small if is_worth_compiling(_IN_NUMPY * codes.size) else _mark_in_numpy
    number = mark(codes, table, lowest_safe(tolerance, table), is_small, firsts, small)
    firsts, small = firsts[:number].copy(), small[:number].copy()
    if only is not None:
        places = np.flatnonzero(only)
        firsts, whole = places[firsts], np.zeros(len(found), np.bool_)
        whole[places] = is_small
        is_small = whole
    return SmallCells(firsts, small, int(np.count_nonzero(table)), squares, is_small)


def lowest_safe(tolerance: float, sizes: Sizes) -> np.int64 | np.float64:
    """Return the smallest safe size; sums of weights may fall short by a rounding error."""
    if np.issubdtype(sizes.dtype, np.integer):
        return np.int64(np.ceil(tolerance))
    return np.float64(tolerance * (1 - 1e-9))


def decode_mask(mask: int) -> tuple[int, ...]:
    """Decode a set of keys from the bits of an integer.

    >>> decode_mask(0b1010)
    (1, 3)
    """
    return tuple(_iter_bits(mask))


def mask_of(keys: Sequence[int]) -> int:
    """Encode a set of keys as the bits of an integer.

    >>> mask_of([1, 3])
    10
    """
    return sum(1 << key for key in keys)


def _iter_bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _rank_codes(codes: Codes, possible: int) -> tuple[npt.NDArray[np.uint32], int]:
    """Return the rank of each code among those that occur, and their number."""
    if possible <= max(1 << 16, _DENSE * codes.size):
        occurs = np.zeros(possible, np.bool_)
        occurs[codes] = True
        ranks = np.cumsum(occurs, dtype=np.int64) - 1
        return ranks.astype(np.uint32)[codes], int(np.count_nonzero(occurs))
    ranked, number = sparse.rank_codes(codes)
    return ranked.astype(np.uint32), number


@njit(cache=True, nogil=True)
def _add_up(codes, sizes, table):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        table[codes[i]] += sizes[i]


@njit(cache=True, nogil=True)
def _mark_small(codes, table, lowest, is_small, firsts, sizes):  # type: ignore[no-untyped-def]
    """Flag the classes in small cells; list the first class of each cell (then marked −1 in the table) and its size."""
    number = 0
    for i in range(codes.size):
        size = table[codes[i]]
        if size < lowest:
            is_small[i] = True
            if size >= 0:
                firsts[number] = i
                sizes[number] = size
                number += 1
                table[codes[i]] = -1
    return number


def _mark_in_numpy(
    codes: Codes, table: Sizes, lowest: Any, is_small: Flags, firsts: npt.NDArray[np.int64], sizes: Sizes
) -> int:
    """Do what :func:`_mark_small` does."""
    np.less(table[codes], lowest, out=is_small)
    places = np.flatnonzero(is_small)
    first = places[np.sort(np.unique(codes[places], return_index=True)[1])]
    firsts[: first.size], sizes[: first.size] = first, table[codes[first]]
    table[codes[first]] = -1
    return int(first.size)


_PATTERN_COST = 40  # sorting the cells of a pair of patterns costs about this many comparisons per cell


def published_sizes(found: Classes, keys: Sequence[int]) -> Sizes:
    """Return, for each class, the total size of the classes that agree with it in its non-blank keys, itself included.

    A class that lacks one of these keys does not count: a blanked record protects no other.

    >>> from safeswap.arrays.combinations import group_records
    >>> town, job = np.array([0, 0, 1, 2], np.uint8), np.array([0, 1, 1, 1], np.uint8)
    >>> published_sizes(group_records([town, job], [3, 2], [2, 9]), [0, 1]).tolist()
    [1, 1, 1, 3]
    """
    patterns = sum((found.is_blank(key).astype(np.int64) << place for place, key in enumerate(keys)), start=np.int64(0))
    sizes: Sizes = np.empty_like(found.sizes)
    for pattern in np.unique(patterns):
        here = patterns == pattern
        left = [key for place, key in enumerate(keys) if not int(pattern) >> place & 1]
        if not left:
            sizes[here] = found.sizes.sum()
            continue
        codes, possible = cell_codes(found, left)
        complete = found.complete(left)
        counted = found.sizes if complete is None else np.where(complete, found.sizes, found.sizes.dtype.type(0))
        sizes[here] = cell_sizes(codes, possible, counted)[codes[here]]
    return sizes


def matching_sizes(found: Classes, keys: Sequence[int]) -> Sizes:
    """Return, for each class, the total size of the classes that match it over some keys, itself included.

    >>> from safeswap.arrays.combinations import group_records
    >>> town, job = np.array([0, 0, 1, 2], np.uint8), np.array([0, 1, 1, 1], np.uint8)
    >>> matching_sizes(group_records([town, job], [3, 2], [2, 9]), [0, 1]).tolist()
    [1, 2, 2, 3]
    """
    codes, possible = cell_codes(found, keys)
    sizes = cell_sizes(codes, possible, found.sizes)
    if found.complete(keys) is None:
        return sizes[codes]
    occupied, of_class = np.unique(codes, return_inverse=True)
    first = np.empty(occupied.size, np.int64)
    first[of_class[::-1]] = np.arange(of_class.size - 1, -1, -1)
    columns = [found.columns[key][first] for key in keys]
    blank = np.stack([found.is_blank(key)[first] for key in keys], axis=1)
    patterns = blank @ (1 << np.arange(len(keys), dtype=np.int64))
    distinct = np.unique(patterns)
    starred = int(np.count_nonzero(patterns))
    if distinct.size**2 * _PATTERN_COST < starred:
        matched = _match_by_pattern(columns, [found.cardinalities[key] for key in keys], patterns, sizes[occupied])
    else:
        matched = _match_one_by_one(columns, blank, patterns, sizes[occupied])
    return matched[of_class]


def _match_by_pattern(
    columns: Sequence[Codes], cardinalities: Sequence[int], patterns: npt.NDArray[np.int64], sizes: Sizes
) -> Sizes:
    matched: Sizes = np.zeros_like(sizes)
    groups = {int(pattern): np.flatnonzero(patterns == pattern) for pattern in np.unique(patterns)}
    for mine, here in groups.items():
        for other, there in groups.items():
            shared = [j for j in range(len(columns)) if not (mine | other) >> j & 1]
            matched[here] += _sum_agreeing(columns, cardinalities, shared, here, there, sizes)
    return matched


def _sum_agreeing(
    columns: Sequence[Codes],
    cardinalities: Sequence[int],
    shared: Sequence[int],
    here: npt.NDArray[np.int64],
    there: npt.NDArray[np.int64],
    sizes: Sizes,
) -> Sizes:
    """Return, for each cell here, the total size of the cells there that agree with it in the shared keys."""
    if not shared:
        total: Sizes = np.full(here.size, sizes[there].sum(), sizes.dtype)
        return total
    both = np.concatenate([here, there])
    codes, _ = cells.pack([columns[j][both] for j in shared], [cardinalities[j] for j in shared])
    _, place = np.unique(codes, return_inverse=True)
    table = cell_sizes(place[here.size :], int(place.max()) + 1, sizes[there])
    return table[place[: here.size]]


def _match_one_by_one(
    columns: Sequence[Codes], blank: npt.NDArray[Any], patterns: npt.NDArray[Any], sizes: Sizes
) -> Sizes:
    matrix = np.stack([column.astype(np.int32) for column in columns], axis=1)
    matched = sizes.copy()
    _match(matrix, blank, np.flatnonzero(patterns), patterns != 0, sizes, matched)
    return matched


@njit(cache=True, nogil=True)
def _match(matrix, blank, starred, is_starred, sizes, matched):  # type: ignore[no-untyped-def]
    """Compare each cell that has a blank with all others, and add the sizes of matches on both sides."""
    for s in range(starred.size):
        i = starred[s]
        for k in range(sizes.size):
            if k == i:
                continue
            agree = True
            for j in range(matrix.shape[1]):
                if matrix[i, j] != matrix[k, j] and not blank[i, j] and not blank[k, j]:
                    agree = False
                    break
            if agree:
                matched[i] += sizes[k]
                if not is_starred[k]:
                    matched[k] += sizes[i]
