"""Cells counted by an engine: how many have which counts before and after; of no cell is it known which it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from safeswap.kernels.cells import JointCounts
from safeswap.kernels.types import Int64s


@dataclass(frozen=True, eq=False, kw_only=True)
class TalliedCells:
    """What becomes of the cells in counts: from these come all measures that are sums over cells."""

    joint: JointCounts
    small_cells: Int64s
    small_untouched: Int64s


def tallied(kinds: Iterable[tuple[int, int, int, int]], *, limit: int) -> TalliedCells:
    """From kinds of cells as (count before, count after, untouched records, how many such cells).

    Cells whose count did not change are thrown together; small ones are listed by their size up to ``limit``.

    >>> found = tallied([(2, 3, 1, 5), (4, 4, 16, 4)], limit=5)
    >>> found.joint.before.tolist(), found.joint.after.tolist(), found.joint.alike.tolist()
    ([2, 16], [3, 16], [5, 1])
    >>> found.small_cells.tolist(), found.small_untouched.tolist()
    ([0, 0, 0, 5, 4, 0], [0, 0, 0, 1, 16, 0])
    """
    before, after, untouched, number = np.array(sorted(kinds), dtype=np.int64).reshape(-1, 4).T
    moved = before != after
    rest = int((before * number)[~moved].sum())
    small = (after > 0) & (after <= limit)
    sizes = {"minlength": limit + 1}
    return TalliedCells(
        joint=JointCounts(
            codes=np.arange(np.count_nonzero(moved) + 1, dtype=np.uint64),
            before=np.append(before[moved], rest),
            after=np.append(after[moved], rest),
            cells=int(number.sum()),
            alike=np.append(number[moved], 1),
        ),
        small_cells=np.bincount(after[small], weights=number[small], **sizes).astype(np.int64),
        small_untouched=np.bincount(after[small], weights=untouched[small], **sizes).astype(np.int64),
    )
