"""Shares of agreement levels, pair by pair in plain Python; for files of a few records."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Case:
    """One key before and after masking, record by record; a number or a text, None where missing."""

    before: list
    after: list
    levels: tuple[float, ...]


def random_case(rng: np.random.Generator) -> Case:
    """Up to 30 records of a numeric or a categorical key, some masked, some missing."""
    size = int(rng.integers(4, 31))
    numeric = bool(rng.random() < 0.6)
    values = [float(x) for x in rng.integers(1, 60, size)] if numeric else [str(x) for x in rng.integers(0, 4, size)]
    order = np.where(rng.random(size) < 0.6, np.arange(size), rng.integers(0, size, size))
    after = [values[i] for i in order]
    blank = rng.random((2, size)) < rng.choice([0.0, 0.2])
    blank[:, :2] = False
    sides = [
        [None if gone else x for x, gone in zip(side, gaps, strict=True)]
        for side, gaps in zip((values, after), blank, strict=True)
    ]
    return Case(sides[0], sides[1], (0.01, 0.05, 0.25) if numeric else ())


def shares(case: Case) -> tuple[list[float], list[float]]:
    """m and u of each level, best first."""
    counts = {True: [0] * (len(case.levels) + 2), False: [0] * (len(case.levels) + 2)}
    for i, before in enumerate(case.before):
        for j, after in enumerate(case.after):
            if before is not None and after is not None:
                counts[i == j][_level(before, after, case.levels)] += 1
    return tuple([n / max(1, math.fsum(each)) for n in each] for each in (counts[True], counts[False]))


def _level(before, after, levels: tuple[float, ...]) -> int:
    if before == after:
        return 0
    for number, level in enumerate(levels):
        if abs(before - after) <= level * max(abs(before), abs(after)):
            return number + 1
    return len(levels) + 1
