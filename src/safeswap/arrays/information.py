"""The information in a column, and the loss when values are coarsened or blanked. In bits."""

from __future__ import annotations

import numpy as np

from safeswap.arrays.types import Counts, Integers


def entropy(counts: Counts) -> float:
    """Return Shannon's entropy of a distribution, per record.

    >>> entropy(np.array([2, 1, 1, 0]))
    1.5
    """
    known = counts[counts > 0].astype(np.float64)
    total = known.sum()
    return float(np.log2(total) - (known @ np.log2(known)) / total) if total else 0.0


def bits_lost(before: Integers, after: Integers, counts: Counts, *, missing: tuple[int, int]) -> tuple[float, int]:
    """Return the information about the values before that is lost after, summed over records; and the number of blanks.

    ``before`` and ``after`` are codes, one pair per kind of record with its number in ``counts``; ``missing`` are the
    codes of a missing value on either side. A record that was x and is y costs −log₂ of the share of x among the
    records that are y: nothing where y determines x, and for a recoding the entropy of the merged values. A blank
    costs −log₂ of the share of x among all known values. A value that was missing costs nothing.

    >>> then, now, each = np.array([0, 1, 2, 2]), np.array([0, 0, 1, 2]), np.array([1, 1, 1, 1])
    >>> bits_lost(then, now, each, missing=(3, 2))  # 0 and 1 are merged: a bit each; one 2 is blank: a bit
    (3.0, 1)
    """
    known = before != missing[0]
    x, y, n = before[known], after[known], counts[known].astype(np.float64)
    if not len(x):
        return 0.0, 0
    of_value = np.bincount(x, n)
    blank = y == missing[1]
    among_alike = np.bincount(y, n)
    shares = np.where(blank, of_value[x] / n.sum(), n / among_alike[y])
    return float(-(n @ np.log2(shares))) + 0.0, int(n[blank].sum())
