"""A quick answer where a blank matches nothing: each record keeps keys that enough others keep too.

A record that shares the keys it keeps with enough others, who keep them as well, is safe in every combination that it
still has. So it suffices to look at one count per record, however many combinations are on the list. Sets of keys are
tried in the order of their cost. Those who together are enough, with records that have been settled before and keep at
least the same keys, blank the set and are settled; nothing that comes later takes their company away. In the end values
are given back, one key after the other, where that leaves their records safe.
"""

from __future__ import annotations

from math import inf
from time import monotonic

import numpy as np

from safeswap.kernels.blanking import Blanking, Problem, gathered
from safeswap.kernels.combinations import cell_codes, cell_sizes, positions
from safeswap.kernels.types import Flags, Floats, Int64s

_OPEN = -1


def by_published_keys(problem: Problem, *, end: float = inf) -> Blanking | None:
    """An answer that leaves nothing unsafe, or None where kept keys are in the way.

    When the time is over, at ``end`` of the clock that only goes forward, all keys of the records that are left go.
    """
    settling = _Settling(problem)
    for number, mask in enumerate(problem.candidates.tolist()):
        if number + 1 < problem.candidates.size and monotonic() >= end:
            continue
        for blank in np.unique(settling.blank[settling.is_open]).tolist():
            if not mask & blank:
                settling.settle(mask, blank)
    if settling.is_open.any():
        return None
    for key in sorted(positions(problem.allowed), key=lambda key: -problem.costs[key]):
        if monotonic() < end:
            settling.give_back(key)
    return gathered(np.arange(problem.members.size), settling.missing & ~settling.blank, problem.members)


class _Settling:
    """By class the keys that it will lack, or that this is open."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.keys = problem.keys
        self.needed = max(problem.needed)
        self.blank: Int64s = problem.blank & self.keys
        self.missing: Int64s = np.full(problem.members.size, _OPEN, np.int64)

    @property
    def is_open(self) -> Flags:
        flags: Flags = self.missing == _OPEN
        return flags

    def settle(self, mask: int, blank: int) -> None:
        """Let classes with these blanks blank these keys too, where enough then share what is left."""
        asking = self.is_open & (self.blank == blank)
        left = self.keys & ~(mask | blank)
        counted = asking | (~self.is_open & ((self.missing & left) == 0))
        enough = asking & (self._sizes(left, counted) >= self.needed)
        self.missing[enough] = mask | blank

    def give_back(self, key: int) -> None:
        """Give a key back to the classes that are safe with it; that makes no other class less safe."""
        bit = 1 << key
        able = ((self.missing & ~self.blank) & bit) != 0
        for missing in np.unique(self.missing[able]).tolist():
            asking = able & (self.missing == missing)
            left = self.keys & ~(missing ^ bit)
            sizes = self._sizes(left, (self.missing & left) == 0) + self.problem.classes.sizes
            self.missing[asking & (sizes >= self.needed)] = missing ^ bit

    def _sizes(self, keys: int, counted: Flags) -> Floats:
        """For each class the size of the counted ones that agree with it in these keys."""
        found = self.problem.classes
        sizes = np.where(counted, found.sizes, 0).astype(np.float64)
        if not keys:
            return np.full(sizes.size, sizes.sum())
        codes, possible = cell_codes(found, positions(keys))
        total: Floats = cell_sizes(codes, possible, sizes)[codes]
        return total
