"""The choices of a study as rows of integers, for a search that recombines them.

A row holds ``up_to`` places for attributes (0: none), then the constraint set, then the rate. In its canonical form the
attributes ascend, none occurs twice and none is constrained: two rows mean the same candidate only if they are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safeswap.kernels.types import Names, Rows
from safeswap.model.study import ConstraintSet, StudySpec


@dataclass(frozen=True)
class Space:
    """All candidates of a study.

    >>> space = Space(StudySpec(up_to=3, rates=(0.01, 0.1)), ("A", "B", "C"))
    >>> space.canonical(np.array([[3, 1, 3, 0, 1]])).tolist()
    [[1, 3, 0, 0, 1]]
    >>> space.candidate(np.array([1, 3, 0, 0, 1]))[0]
    ('A', 'C')
    """

    study: StudySpec
    names: Names

    @property
    def places(self) -> int:
        """How many attributes a row has room for."""
        return min(self.study.up_to, len(self.names))

    @property
    def upper(self) -> Rows:
        """The largest value in each place."""
        last = [len(self.study.constraints) - 1, len(self.study.rates) - 1]
        return np.array([len(self.names)] * self.places + last, dtype=np.int64)

    @property
    def size(self) -> int:
        """How many candidates there are, replicates not counted."""
        return self.study.number_of_groups(self.names) * len(self.study.rates)

    def candidate(self, row: Rows) -> tuple[Names, ConstraintSet, float]:
        """The swap attributes, the constraints and the rate of a canonical row."""
        names = tuple(self.names[place - 1] for place in row[: self.places] if place > 0)
        return names, self.study.constraints[row[-2]], self.study.rates[row[-1]]

    def random(self, number: int, generator: np.random.Generator) -> Rows:
        """Rows with every number of attributes alike, since good candidates often swap few."""
        rows = generator.integers(0, self.upper + 1, size=(number, len(self.upper)))
        sizes = generator.integers(1, self.places + 1, size=number)
        for row, size in zip(rows, sizes, strict=True):
            row[: self.places] = 0
            row[:size] = generator.choice(len(self.names), size, replace=False) + 1
        return self.canonical(rows)

    def mutated(self, rows: Rows, generator: np.random.Generator) -> Rows:
        """Each place drawn anew with a probability of one place per row; a rate moves to a neighbouring one."""
        fresh = generator.integers(0, self.upper + 1, size=rows.shape)
        steps = generator.choice(np.array([-1, 1]), size=len(rows))
        fresh[:, -1] = np.clip(rows[:, -1] + steps, 0, self.upper[-1])
        return self.canonical(np.where(generator.random(rows.shape) < 1 / rows.shape[1], fresh, rows))

    def canonical(self, rows: Rows) -> Rows:
        """The same candidates in the one form that they have. A row without an attribute gets one."""
        result = np.array(rows, dtype=np.int64)
        for row in result:
            free = self._free(int(row[-2]))
            kept = sorted(set(row[: self.places].tolist()) & set(free)) or [free[int(row.sum()) % len(free)]]
            row[: self.places] = 0
            row[: len(kept)] = kept
        return result

    def _free(self, constraint: int) -> list[int]:
        constrained = {*self.study.constraints[constraint].fixed, *self.study.constraints[constraint].differ}
        return [place + 1 for place, name in enumerate(self.names) if name not in constrained]
