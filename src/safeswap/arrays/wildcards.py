"""Count combinations in which a blank could be any value, one way or both ways.

One way (:func:`published_sizes`), a record is counted by its keys that are not blank, and only records that have these
keys count for it. Both ways (:func:`matching_sizes`), a record with blanks also counts for every record that it could
be. Neither kind of matching is transitive, so there are no cells to add up. Cells are grouped by their pattern of
blanks; both ways, a cell of one pattern matches those of another that agree in the keys that neither leaves blank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays import cells
from safeswap.arrays.combinations import Classes, Sizes, cell_codes, cell_sizes
from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Codes

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
