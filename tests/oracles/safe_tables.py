"""The nearest safe tables by trying all; for tables of a few cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

MOST_TRIED = 300_000


@dataclass(frozen=True)
class Case:
    """One or several tables of the same records, and what is asked of them."""

    axes: tuple[tuple[int, ...], ...]
    counts: tuple[np.ndarray, ...]
    tolerance: int
    keep: tuple[tuple[int, ...], ...] | None
    objective: str
    soft: bool
    options: dict = field(default_factory=dict)

    @property
    def top(self) -> int:
        """A count that no cell of a nearest table exceeds.

        In one table no figure is larger than the total, and above it every step down helps. Of linked tables one may
        have to follow the other, in which every cell is raised to the tolerance at most.
        """
        total = int(self.counts[0].sum())
        if len(self.counts) == 1:
            return max(total, self.tolerance)
        return total + (self.tolerance - 1) * max(each.size for each in self.counts)

    def kept(self, table: int) -> list[tuple[int, ...]]:
        """The margins kept in a table, without those that are sums of another."""
        axes = self.axes[table]
        if self.keep is None:
            return list(combinations(axes, len(axes) - 1))
        own = [set(each) for each in self.keep if set(each) <= set(axes)]
        return [tuple(sorted(each)) for each in own if not any(each < other for other in own)]


def random_case(rng: np.random.Generator) -> Case:
    """A table of one to three variables, or two that are linked, small enough to try all."""
    layouts = [((0,),), ((0, 1),), ((0, 1),), ((0, 1),), ((0, 1, 2),), ((0,), (0, 1)), ((0,), (1,)), ((0, 1), (1,))]
    while True:
        axes = layouts[rng.integers(len(layouts))]
        sizes = rng.integers(1, 4, size=3)
        cube = rng.integers(0, rng.integers(2, 8), size=sizes)
        if max(map(len, axes)) < 3:
            cube[:, :, 1:] = 0
        case = _asked(rng, axes, cube)
        if cube.sum() and (case.top - case.tolerance + 2) ** sum(each.size for each in case.counts) <= MOST_TRIED:
            return case


def _asked(rng: np.random.Generator, axes: tuple[tuple[int, ...], ...], cube: np.ndarray) -> Case:
    counts = tuple(cube.sum(axis=tuple(axis for axis in range(3) if axis not in each)) for each in axes)
    known = sorted({axis for each in axes for axis in each})
    margins = [each for size in range(len(known)) for each in combinations(known, size)]
    some = tuple(each for each in margins if rng.random() < 0.4 and any(set(each) <= set(own) for own in axes))
    soft = bool(rng.random() < 0.5)
    objective = str(rng.choice(["total", "weighted"] if soft else ["total", "largest", "weighted"]))
    options = {}
    if objective == "weighted":
        options["weights"] = [rng.integers(1, 5, size=each.shape) for each in counts]
    if rng.random() < 0.2:
        options["bounds"] = [(np.maximum(each - 3, 0), each + rng.integers(2, 6)) for each in counts]
    if rng.random() < 0.2:
        options["structural_zeros"] = [each == 0 for each in counts]
    keep = None if rng.random() < 0.6 else some
    return Case(axes, counts, int(rng.integers(2, 5)), keep, objective, soft, options)


def best(case: Case) -> tuple[int, float] | None:
    """The least violation of kept margins and with it the least of the objective; None where no table is safe."""
    tried = _every_table(case)
    off = np.zeros(tried[0].shape[-1], dtype=np.int64)
    fits = np.ones(off.size, dtype=bool)
    for number, (axes, counts) in enumerate(zip(case.axes, case.counts, strict=True)):
        for kept in case.kept(number):
            off += np.abs(_margin(tried[number], axes, kept) - _margin(counts[..., None], axes, kept)).sum(axis=0)
    for one, other in combinations(range(len(tried)), 2):
        shared = tuple(sorted(set(case.axes[one]) & set(case.axes[other])))
        fits &= (_margin(tried[one], case.axes[one], shared) == _margin(tried[other], case.axes[other], shared)).all(
            axis=0
        )
    fits &= case.soft | (off == 0)
    if not fits.any():
        return None
    least = int(off[fits].min())
    return least, float(_value(case, tried)[fits & (off == least)].min())


def _every_table(case: Case) -> list[np.ndarray]:
    """Every safe value of every cell within its bounds, combined; the last axis numbers the combinations."""
    values = []
    for number, counts in enumerate(case.counts):
        low, high = case.options.get("bounds", [(np.zeros_like(counts), np.full_like(counts, case.top))] * 9)[number]
        zeros = case.options.get("structural_zeros", [np.zeros(counts.shape, bool)] * 9)[number]
        for least, most, only_zero in zip(low.ravel(), high.ravel(), zeros.ravel(), strict=True):
            safe = [0, *range(case.tolerance, case.top + 1)]
            values.append([0] if only_zero else [x for x in safe if least <= x <= most])
    grid = np.stack(np.meshgrid(*values, indexing="ij")).reshape(len(values), -1)
    starts = np.cumsum([0, *(counts.size for counts in case.counts)])
    return [grid[a:b].reshape(*c.shape, -1) for a, b, c in zip(starts, starts[1:], case.counts, strict=False)]


def _margin(tables: np.ndarray, axes: tuple[int, ...], kept: tuple[int, ...]) -> np.ndarray:
    summed = tables.sum(axis=tuple(i for i, axis in enumerate(axes) if axis not in kept))
    return summed.reshape(-1, tables.shape[-1])


def _value(case: Case, tried: list[np.ndarray]) -> np.ndarray:
    weights = case.options.get("weights", [1] * len(tried))
    moves = [
        (np.abs(x - counts[..., None]) * np.asarray(w)[..., None]).reshape(-1, x.shape[-1])
        for x, counts, w in zip(tried, case.counts, weights, strict=True)
    ]
    every = np.concatenate(moves)
    return every.max(axis=0) if case.objective == "largest" else every.sum(axis=0)
