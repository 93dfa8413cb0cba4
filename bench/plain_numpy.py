"""The plain NumPy way to score a candidate: permute, swap, `bincount`, every measure vectorised."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np


class PlainWay:
    """A file as an array of codes, attributes by records, with its tables before.

    ``by_margins`` takes the 2-way tables as sums of the 8-way table instead of counting the records for each: what
    somebody does who has noticed that the 8-way table is small.
    """

    def __init__(self, columns: list[np.ndarray], sizes: list[int], *, by_margins: bool = False) -> None:
        self.data = np.stack([column.astype(np.int64) for column in columns])
        self.sizes = sizes
        self.records = self.data.shape[1]
        self.by_margins = by_margins
        self.pairs = list(combinations(range(len(sizes)), 2))
        code = np.ravel_multi_index(tuple(self.data), self.sizes)
        self.before = np.bincount(code, minlength=prod(sizes))
        self.tables = {pair: self._table(self.data, self.before, pair) for pair in self.pairs}
        self.association = {pair: association(table) for pair, table in self.tables.items()}

    def draw(self, swapped: tuple[int, ...], wanted: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Pair consecutive records of a random permutation; keep the pairs that differ in a swapped attribute."""
        order = rng.permutation(self.records)
        a, b = order[0 : self.records - 1 : 2], order[1 : self.records : 2]
        differs = np.zeros(len(a), dtype=bool)
        for s in swapped:
            differs |= self.data[s][a] != self.data[s][b]
        return a[differs][:wanted], b[differs][:wanted]

    def figures(self, swapped: tuple[int, ...], a: np.ndarray, b: np.ndarray) -> tuple[list[float], np.ndarray]:
        """n-rule and the three divergences over all attributes; all five measures of all 2-way tables."""
        after = self.data.copy()
        for s in swapped:
            after[s][a], after[s][b] = self.data[s][b], self.data[s][a]
        code = np.ravel_multi_index(tuple(after), self.sizes)
        counts = np.bincount(code, minlength=len(self.before))
        unswapped = np.ones(self.records, dtype=bool)
        unswapped[a] = unswapped[b] = False
        at_risk = (counts > 0) & (counts < 3)
        scores = [float(at_risk[code[unswapped]].mean()), *divergences(self.before, counts)]
        tables = np.empty((len(self.pairs), 5))
        for i, pair in enumerate(self.pairs):
            table = self._table(after, counts, pair)
            tables[i, :3] = divergences(self.tables[pair], table)
            tables[i, 3:] = np.subtract(self.association[pair], association(table))
        return scores, tables

    def _table(self, data: np.ndarray, counts: np.ndarray, pair: tuple[int, int]) -> np.ndarray:
        a, b = pair
        if self.by_margins:
            others = tuple(i for i in range(len(self.sizes)) if i not in pair)
            return counts.reshape(self.sizes).sum(axis=others)
        code = data[a] * self.sizes[b] + data[b]
        return np.bincount(code, minlength=self.sizes[a] * self.sizes[b]).reshape(self.sizes[a], self.sizes[b])


def divergences(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """Hellinger distance, total variation, entropy change."""
    f, g = before / before.sum(), after / after.sum()
    hellinger = np.sqrt(0.5 * np.square(np.sqrt(f) - np.sqrt(g)).sum())
    return float(hellinger), float(0.5 * np.abs(f - g).sum()), entropy(g) - entropy(f)


def entropy(p: np.ndarray) -> float:
    held = p[p > 0]
    return float(-(held * np.log(held)).sum())


def association(table: np.ndarray) -> tuple[float, float]:
    """Cramér's V and Pearson's contingency coefficient."""
    total = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    statistic = (np.square(table - expected) / expected).sum()
    return float(np.sqrt(statistic / (total * (min(table.shape) - 1)))), float(np.sqrt(statistic / (statistic + total)))
