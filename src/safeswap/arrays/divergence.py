"""Distances between two tables of counts over the same cells, before and after.

The first five are those of Gomatam & Karr (2003), the index of dissimilarity is that of Moore (1996), the ordinal
ones are ours. Conventions, so that every table has a value:

- Two empty tables do not differ; an empty table against a non-empty one is the largest change.
- Cramér's V and the contingency coefficient count the non-empty rows and columns. A table with one such row or column
  has no association to lose: both are 0.
- Ranks are scaled to [0, 1]: one step on a scale of m levels is 1 / (m − 1); on a single level nothing moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.types import Floats, Integers

Counts = npt.NDArray[np.integer[Any]] | npt.NDArray[np.floating[Any]]


def hellinger(before: Counts, after: Counts, alike: Integers | None = None) -> float:
    """Return the Hellinger distance, sqrt(½ Σ (√f − √g)²): 0 for the same table, 1 for no cell in common.

    ``alike``, here and below, is the number of cells with these counts, if they are not listed one by one.

    >>> hellinger(np.array([1, 0]), np.array([0, 1]))
    1.0
    >>> hellinger(np.array([1, 0, 1]), np.array([0, 1, 1]), np.array([9, 9, 0]))
    1.0
    """
    if before.sum() == 0 or after.sum() == 0:
        return _one_is_empty(before, after)
    gaps = np.sqrt(_shares(before, alike)) - np.sqrt(_shares(after, alike))
    return min(1.0, float(np.sqrt(0.5 * _sum_cells(np.square(gaps), alike))))


def total_variation(before: Counts, after: Counts, alike: Integers | None = None) -> float:
    """Return the total variation distance, ½ Σ |f − g|: the share of records that are in another cell.

    >>> total_variation(np.array([2, 2]), np.array([3, 1]))
    0.25
    """
    if before.sum() == 0 or after.sum() == 0:
        return _one_is_empty(before, after)
    if before.dtype.kind == after.dtype.kind == "i" and _total(before, alike) == _total(after, alike):
        # Exact in whole numbers, whatever the order of the cells.
        return float(_total(np.abs(before - after), alike)) / (2 * float(_total(before, alike)))
    return min(1.0, 0.5 * _sum_cells(np.abs(_shares(before, alike) - _shares(after, alike)), alike))


def dissimilarity_within(areas: Integers, before: Counts, after: Counts) -> tuple[Floats, Floats]:
    """Return D of each area 0, 1, …, and the area's weight: its mean share of the records before and after.

    An area that is empty on one side only has D = 1, one that is empty on both sides D = 0.

    >>> areas, before, after = np.array([0, 0, 1, 1]), np.array([4, 0, 2, 2]), np.array([3, 1, 2, 2])
    >>> distances, weights = dissimilarity_within(areas, before, after)
    >>> distances.tolist(), weights.tolist()
    ([0.25, 0.0], [0.5, 0.5])
    """
    f_total, g_total = _sum_by_group(areas, before), _sum_by_group(areas, after)
    f = before / np.where(f_total > 0, f_total, 1.0)[areas]
    g = after / np.where(g_total > 0, g_total, 1.0)[areas]
    one_sided = (f_total == 0) != (g_total == 0)
    distances = np.where(one_sided, 1.0, np.minimum(1.0, 0.5 * _sum_by_group(areas, np.abs(f - g))))
    return distances, (f_total / max(1.0, f_total.sum()) + g_total / max(1.0, g_total.sum())) / 2


def entropy(counts: Counts) -> float:
    """Return Shannon's entropy −Σ p log p in nats.

    >>> round(entropy(np.array([5, 5, 0])), 6)
    0.693147
    """
    return float(_entropy_terms(counts).sum()) + 0.0


def entropy_change(before: Counts, after: Counts, alike: Integers | None = None) -> float:
    """Return H(after) − H(before) in nats; positive where masking added uncertainty.

    >>> round(entropy_change(np.array([10, 0]), np.array([5, 5])), 6)
    0.693147
    """
    # Cell by cell, so that cells that did not change cancel exactly.
    return _sum_cells(_entropy_terms(after, alike) - _entropy_terms(before, alike), alike)


def cramers_v(rows: Integers, columns: Integers, counts: Counts) -> float:
    """Return Cramér's V = sqrt(χ² / (N · min(m − 1, n − 1))): 0 for no association, 1 for a perfect one.

    >>> cramers_v(np.array([0, 1]), np.array([0, 1]), np.array([5, 5]))
    1.0
    """
    statistic, steps = _association(rows, columns, counts)
    return min(1.0, float(np.sqrt(statistic / (counts.sum() * steps)))) if steps > 0 else 0.0


def contingency_c(rows: Integers, columns: Integers, counts: Counts) -> float:
    """Return Pearson's contingency coefficient C = sqrt(χ² / (χ² + N)); its upper limit depends on the table's size.

    >>> round(contingency_c(np.array([0, 1]), np.array([0, 1]), np.array([5, 5])), 6)
    0.707107
    """
    statistic, steps = _association(rows, columns, counts)
    return float(np.sqrt(statistic / (statistic + counts.sum()))) if steps > 0 else 0.0


def wasserstein_ranks(before: Counts, after: Counts) -> float:
    """Return the Wasserstein-1 distance of two distributions over the ranks of one attribute, scaled to [0, 1].

    Swapping keeps every one-way margin, so this is 0 for each single attribute of a swapped file: use
    :func:`conditional_wasserstein` or :func:`ordinal_displacement` there.

    >>> wasserstein_ranks(np.array([1, 0, 0]), np.array([0, 1, 0]))
    0.5
    """
    levels = np.arange(before.size)
    return conditional_wasserstein(np.zeros_like(levels), levels, before, after, levels=before.size)


def conditional_wasserstein(given: Integers, ranks: Integers, before: Counts, after: Counts, *, levels: int) -> float:
    """Return the Wasserstein-1 distance on ranks of an ordinal attribute's distribution *given* the other attributes.

    A cell is (conditioning cell, rank, count before, count after). Each conditioning cell is weighted by its mean share
    of the records before and after; one that is empty on one side only counts as the largest move, 1.

    >>> given, ranks = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> conditional_wasserstein(given, ranks, np.array([4, 0, 0, 4]), np.array([3, 1, 1, 3]), levels=2)
    0.25
    """
    if before.sum() == 0 or after.sum() == 0:
        return _one_is_empty(before, after)
    order = np.lexsort((ranks, given))
    group, rank = np.unique(given[order], return_inverse=True)[1], ranks[order].astype(np.float64)
    f, g = before[order].astype(np.float64), after[order].astype(np.float64)
    f_total, g_total = _sum_by_group(group, f), _sum_by_group(group, g)
    one_sided = (f_total == 0) != (g_total == 0)
    steps = np.append(np.where(group[1:] == group[:-1], np.diff(rank), 0.0), 0.0) / max(1, levels - 1)
    gaps = np.abs(_running_shares(f, group, f_total) - _running_shares(g, group, g_total))
    distance = np.where(one_sided, 1.0, _sum_by_group(group, gaps * steps))
    return min(1.0, float(distance @ (f_total / f_total.sum() + g_total / g_total.sum()) / 2))


def ordinal_displacement(before: Integers, after: Integers, *, levels: int) -> Floats:
    """Return how far each record moved on an ordinal scale: |rank change| / (levels − 1).

    A negative rank means that the value has no rank (missing). A move between a ranked and an unranked value counts as
    the largest, 1; between two unranked values as none.

    >>> ordinal_displacement(np.array([0, 1, -1, 2]), np.array([2, 1, -1, -1]), levels=3).tolist()
    [1.0, 0.0, 0.0, 1.0]
    """
    gap = np.abs(before.astype(np.int64) - after.astype(np.int64)) / max(1, levels - 1)
    moved: Floats = np.where((before < 0) | (after < 0), (before < 0) != (after < 0), gap)
    return moved


def _shares(counts: Counts, alike: Integers | None = None) -> Floats:
    shares: Floats = counts / _total(counts, alike)
    return shares


def _total(counts: Counts, alike: Integers | None) -> Any:
    return counts.sum() if alike is None else counts @ alike


def _sum_cells(terms: Floats, alike: Integers | None) -> float:
    return float(_total(terms, alike))


def _one_is_empty(before: Counts, after: Counts) -> float:
    return float((before.sum() == 0) != (after.sum() == 0))


def _entropy_terms(counts: Counts, alike: Integers | None = None) -> Floats:
    p = _shares(counts, alike) if counts.sum() else np.zeros(counts.size)
    return -p * np.log(np.where(p > 0, p, 1.0))


def _association(rows: Integers, columns: Integers, counts: Counts) -> tuple[float, int]:
    """Return χ², and min(m − 1, n − 1) over the non-empty rows and columns."""
    total = float(counts.sum())
    if total == 0:
        return 0.0, 0
    row_sums, column_sums = _sum_by_group(rows, counts), _sum_by_group(columns, counts)
    expected = row_sums[rows] * column_sums[columns] / total
    held = expected > 0
    gaps = np.square(counts[held] - expected[held]) / expected[held]
    m, n = int(np.count_nonzero(row_sums)), int(np.count_nonzero(column_sums))
    # A cell that is not listed is empty and adds its expected count; all expected counts sum to the total.
    all_listed = np.count_nonzero(held) == m * n
    unlisted = 0.0 if all_listed else max(0.0, total - float(expected.sum()))
    return float(gaps.sum()) + unlisted, min(m, n) - 1


def _sum_by_group(groups: Integers, values: Counts) -> Floats:
    sums: Floats = np.bincount(groups, values).astype(np.float64, copy=False)
    return sums


def _running_shares(counts: Floats, group: Integers, totals: Floats) -> Floats:
    """Return, within each group, the share of its records up to and including each cell."""
    before_group = np.concatenate([[0.0], np.cumsum(totals)[:-1]])
    running: Floats = (np.cumsum(counts) - before_group[group]) / np.where(totals > 0, totals, 1.0)[group]
    return running
