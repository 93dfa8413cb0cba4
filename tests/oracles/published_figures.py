"""What published tables tell about their withheld cells, by trying all tables; for tables of a few cells."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

MOST_TRIED = 200_000


@dataclass(frozen=True)
class Case:
    """Tables of one file of records, each a tuple of axes and its counts."""

    tables: tuple[tuple[tuple[int, ...], np.ndarray], ...]
    tolerance: int
    margins: bool

    @property
    def tried(self) -> int:
        """How many assignments of withheld cells there are."""
        withheld = sum(int(_withheld(counts, self.tolerance).sum()) for _, counts in self.tables)
        return (self.tolerance - 1) ** withheld


def random_case(rng: np.random.Generator) -> Case:
    """A table of two or three variables, or two or three that share some, with 2 to ``MOST_TRIED`` assignments."""
    layouts = [((0, 1),), ((0, 1, 2),), ((0, 1), (1, 2)), ((0, 1), (1, 2), (0, 2)), ((0,), (0, 1)), ((0, 1), (2, 1, 0))]
    while True:
        axes = layouts[rng.integers(len(layouts))]
        sizes = rng.integers(2, 4 if max(map(len, axes)) < 3 else 3, size=3)
        cube = rng.integers(0, rng.integers(2, 8), size=sizes) * (rng.random(sizes) < rng.choice([0.3, 0.6, 1.0]))
        tables = tuple((each, _sum_to(cube, each)) for each in axes)
        case = Case(tables, int(rng.integers(2, 6)), bool(rng.random() < 0.8))
        if 1 < case.tried <= MOST_TRIED:
            return case


def intervals(case: Case) -> list[tuple[np.ndarray, np.ndarray]]:
    """The least and the greatest count of every cell of every table, over all that has the published figures."""
    flat = np.concatenate([counts.ravel() for _, counts in case.tables])
    free = np.flatnonzero(_withheld(flat, case.tolerance))
    grid = np.indices([case.tolerance - 1] * len(free)).reshape(len(free), -1) + 1
    every = np.repeat(flat[:, None], grid.shape[1], axis=1)
    every[free] = grid
    fits = np.ones(grid.shape[1], dtype=bool)
    parts, first = [], 0
    for axes, counts in case.tables:
        parts.append((axes, counts, every[first : first + counts.size].reshape(*counts.shape, -1)))
        first += counts.size
    seen: dict[tuple[int, ...], np.ndarray] = {}
    for axes, counts, tried in parts:
        for size in range(len(axes) + 1):
            for kept in combinations(sorted(axes), size):
                over = tuple(i for i, axis in enumerate(axes) if axis not in kept)
                order = np.argsort(np.argsort([axis for axis in axes if axis in kept]))
                true = np.transpose(counts.sum(axis=over), np.argsort(order))
                now = np.transpose(tried.sum(axis=over), [*np.argsort(order), size])
                fits &= _as_published(true, now, case, kept)
                if kept in seen:
                    fits &= (seen[kept] == now).reshape(-1, now.shape[-1]).all(axis=0)
                seen[kept] = now
    return [(tried[..., fits].min(axis=-1), tried[..., fits].max(axis=-1)) for _, _, tried in parts]


def _as_published(true: np.ndarray, now: np.ndarray, case: Case, kept: tuple[int, ...]) -> np.ndarray:
    if kept and not case.margins and all(set(axes) != set(kept) for axes, _ in case.tables):
        return np.ones(now.shape[-1], dtype=bool)
    hidden = _withheld(true, case.tolerance) if kept else np.zeros((), dtype=bool)
    fits = np.where(hidden[..., None], _withheld(now, case.tolerance), now == true[..., None])
    return fits.reshape(-1, now.shape[-1]).all(axis=0)


def _withheld(counts: np.ndarray, tolerance: int) -> np.ndarray:
    return (counts > 0) & (counts < tolerance)


def _sum_to(cube: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    kept = sorted(axes)
    summed = cube.sum(axis=tuple(axis for axis in range(cube.ndim) if axis not in axes))
    return np.transpose(summed, [kept.index(axis) for axis in axes])
