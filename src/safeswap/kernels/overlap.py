"""The share of records that two files have in common, from their sketches alone.

Claim. Let a cell have n1 records in one file and n2 in the other, m = n1 + n2, q = N1/(N1 + N2). If the files are
independent samples of one population, n1 given m is binomial(m, q), so with d = n1 - m·q the sum of m·q·(1-q) - d² has
mean 0, however fine or coarse the cells are. If M records are in both files its mean is 2·M·q·(1-q). Therefore

    signal / weight,  signal = Σ w·(m·q·(1-q) - d²),  weight = Σ w·m·q·(1-q),

estimates 2M/(N1 + N2), and z = signal / (its standard deviation under independence) says whether it can be chance.
w = 1/max(m - 1, 1) weighs cells by what they tell: all alike where each holds one record, less where they hold many.

Why it is safe: differences between the populations, clusters and households only add to d², so they lower the estimate.

For a file that is part of the other a second statistic counts *hits*: records of the smaller file in cells that occur
in the larger one. By the Cauchy–Schwarz inequality strangers hit at most at the root of the product of both files' own
rates of coincidence, times the ratio of sizes, whatever the two populations are.

For a narrow file, of which all cells are listed, neither can be sure. There the files are taken for the same one only
if every count agrees and a binomial would do that with a probability below ``CHANCE``.

Columns can agree by design: a record number, a quota, a list of sampling points. So an alarm needs a tenth of the views
that can be compared, and views that no single column, nor one nest of columns, explains; or half of all of them, some
of more than one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma, log, sqrt
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from safeswap.kernels.sketch import Sketch
from safeswap.kernels.threads import run_all

ALARM_SHARE = 0.5
CHANCE = 3e-7  # of five standard deviations

_ALARM_Z = 5.0
_AGREE, _NEARLY_ALL = 0.1, 0.5
_FEWEST_HELD, _MOST_BY_CHANCE = 12, 0.3
_ENOUGH, _FEWEST_COMMON = 48, 2
_LOG_CHANCE, _LOG_TWO = log(CHANCE), log(2.0)
_LAST = np.uint64(2**64 - 1)


class Overlap(NamedTuple):
    """The estimated ``share`` of the smaller file's records in the other, and what it rests on."""

    share: float
    z: float
    agreeing: int  # views
    compared: int  # views
    alarm: bool
    closeness: float  # mean share over the views that could be compared: tells which of two files is nearer


def estimate_overlap(one: Sketch, other: Sketch, *, alarm_share: float = ALARM_SHARE) -> Overlap:
    """The share of records in common, and whether it is at least ``alarm_share`` beyond doubt."""
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
    told = agreeing if alarm else np.argsort(-z)[:1]
    estimate = float(np.median(share[told])) if len(told) else 0.0
    closeness = float(np.clip(share, 0.0, 1.0).sum()) / max(compared, 1)
    return Overlap(min(max(estimate, 0.0), 1.0), float(z.max(initial=0.0)), len(agreeing), compared, alarm, closeness)


def has_content(sketch: Sketch) -> bool:
    """Whether some view has enough cells to recognise the file after it was changed, and not only as it is."""
    return bool((sketch.counts > 0).sum(axis=1).max(initial=0) >= _ENOUGH)


def _is_alarm(sketch: Sketch, agreeing: npt.NDArray[np.intp], compared: int) -> bool:
    if not len(agreeing) or len(agreeing) < _AGREE * compared:
        return False
    kinds = [set(sketch.groups[row[row >= 0]].tolist()) for row in sketch.views[agreeing]]
    if len(agreeing) >= _NEARLY_ALL * compared:
        return any(len(kind) > 1 for kind in kinds)
    return not set.intersection(*kinds)


def share_of_identifiers(one: Sequence[npt.NDArray[np.uint64]], other: Sequence[npt.NDArray[np.uint64]]) -> float:
    """The share of the shorter list's identifiers in the longer one, from the lowest words and the ceiling of each.

    >>> low, high = np.arange(4, dtype=np.uint64), np.array([9], np.uint64)
    >>> share_of_identifiers((low, high), (low[:2], high))
    1.0
    """
    top = min(one[1][0], other[1][0])
    mine, theirs = (words[words < top] for words in (one[0], other[0]))
    fewer = min(len(mine), len(theirs))
    return len(np.intersect1d(mine, theirs)) / fewer if fewer else 0.0


@numba.njit(cache=True, nogil=True)
def _compare_views(cells1, counts1, tops1, n1, cells2, counts2, tops2, n2, best):  # type: ignore[no-untyped-def]
    """For each view of the second sketch: share, z and common cells with the view of the first that fits best."""
    for j in range(len(cells2)):
        for i in range(len(cells1)):
            share, z, common = _compare(cells1[i], counts1[i], tops1[i], n1, cells2[j], counts2[j], tops2[j], n2)
            if common > 0 and (z > best[j, 1] or best[j, 2] == 0):
                best[j, 0], best[j, 1], best[j, 2] = share, z, common


@numba.njit(cache=True, nogil=True)
def _log_chance(counts):  # type: ignore[no-untyped-def]
    """The log-probability that two independent files have the same counts, given the sum of both in each cell."""
    total = 0.0
    for count in counts:
        total += lgamma(2.0 * count + 1.0) - 2.0 * lgamma(count + 1.0) - 2.0 * count * _LOG_TWO
    return total


@numba.njit(cache=True, nogil=True)
def _compare(cells1, counts1, top1, n1, cells2, counts2, top2, n2):  # type: ignore[no-untyped-def]
    """The share of the smaller file that is in the other, by the statistic that is surest: (share, z, common cells)."""
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
