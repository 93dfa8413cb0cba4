"""Counts of areas add up to those of the areas around them: no small one comes back by subtraction, on any level."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import LinearConstraint, milp

from safeswap.arrays.hiding import hide_levels
from safeswap.files import describe as describing
from safeswap.files.read import read

NAMES = ("region", "district", "ward")
Path = tuple[str | None, ...]
Shown = list[dict[str | None, int | None]]
"""For each attribute the named levels, None for missing, with their counts or None."""


def random_file(draw: random.Random) -> list[Path]:
    """Records of areas in areas in areas; of some, a finer area is not known."""
    rows: list[Path] = []
    for region in range(draw.randint(2, 4)):
        for district in range(draw.randint(1, 4)):
            for ward in range(draw.randint(1, 3)):
                place = (f"r{region}", f"r{region}d{district}", f"r{region}d{district}w{ward}")
                rows += [place] * draw.choice([1, 1, 2, 3, 4, 6, 9, 30, 60])
                rows += [(*place[:2], None)] * draw.choice([0, 0, 0, 0, 1, 7])
        rows += [(f"r{region}", None, None)] * draw.choice([0, 0, 0, 2, 8])
    return rows + [(None, None, None)] * draw.choice([0, 0, 1, 12])


def described(rows: list[Path], tolerance: int, order: tuple[int, ...]) -> Shown:
    columns = {NAMES[i]: [row[i] for row in rows] for i in order}
    data = read(pa.table(columns), kinds=dict.fromkeys(NAMES, "geography"))
    found = describing.describe(data, tolerance=tolerance)
    return [
        {**{each.level: each.count for each in found[name].levels}, None: found[name].missing}  # type: ignore[dict-item]
        for name in NAMES
    ]


class Attack:
    """What somebody who knows which area lies in which can say of the counts that are not shown."""

    def __init__(self, rows: list[Path], shown: Shown, tolerance: int) -> None:
        known = set(rows) | {row[:end] + (None,) * (len(row) - end) for row in rows for end in range(len(row))}
        self.paths = sorted(known, key=str)
        self.sums, self.low, self.high = [np.ones(len(self.paths))], [len(rows)], [float(len(rows))]
        counts = [Counter(row[level] for row in rows) for level in range(len(NAMES))]
        places = [(level, area) for level, found in enumerate(counts) for area in {*found, None}]
        unnamed = [counts[level][area] for level, area in places if area is not None and area not in shown[level]]
        is_believed = all(count < tolerance for count in unnamed)  # that unnamed areas have fewer records
        self.small: list[tuple[int, int]] = []
        for level, area in places:
            truth, count, is_named = counts[level][area], shown[level].get(area), area in shown[level]
            assert count in (None, truth)
            most = tolerance - 1 if is_believed and not is_named else np.inf
            self.sums.append(np.array([float(path[level] == area) for path in self.paths]))
            self.low.append(count if count is not None else tolerance if area is not None and is_named else 0)
            self.high.append(float(count) if count is not None else most)
            if 0 < truth < tolerance:
                self.small.append((len(self.sums) - 1, truth))

    def recovered(self) -> int:
        """Count the small counts that can only be what they are."""
        others = [(number, [value for value in range(4) if value != truth]) for number, truth in self.small]
        return sum(not any(self._is_possible(number, value) for value in values) for number, values in others)

    def _is_possible(self, number: int, value: int) -> bool:
        least, most, columns = list(map(float, self.low)), list(self.high), len(self.paths)
        if not least[number] <= value <= most[number]:
            return False
        least[number] = most[number] = value
        limits = LinearConstraint(self.sums, least, most)
        return bool(milp(np.zeros(columns), integrality=np.ones(columns), constraints=limits).success)


def attack(draw: random.Random) -> int:
    rows, tolerance = random_file(draw), draw.choice([2, 3, 4])
    order = tuple(draw.sample(range(3), 3))  # nobody says which level is the coarser one
    return Attack(rows, described(rows, tolerance, order), tolerance).recovered()


def test_no_small_area_is_known_from_the_others_and_the_areas_around_them() -> None:
    draw = random.Random(4)
    assert sum(attack(draw) for _ in range(30)) == 0


def test_the_attack_works_where_each_list_hides_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(data: object, name: str, tolerance: int) -> object:
        coded = data.coded(name)  # type: ignore[attr-defined]
        return hide_levels(np.bincount(coded.codes, minlength=len(coded.levels) + 1), tolerance)

    monkeypatch.setattr(describing, "hide_levels_of", alone)
    draw = random.Random(4)
    assert sum(attack(draw) for _ in range(10)) > 5


def test_an_area_of_few_small_ones_is_small() -> None:
    sizes = {"a1": 2, "a2": 2, "b1": 20, "b2": 90, "c1": 40}
    rows: list[Path] = [(name[0], name, name) for name, number in sizes.items() for _ in range(number)]
    region, district, _ = described(rows, 3, (0, 1, 2))
    assert region == {"b": 110, "c": None, None: 0}  # two of fewer than 3 that add up to 4 have 2 each
    assert district == {"b1": 20, "b2": 90, "c1": None, None: 0}


def test_the_district_of_a_region_is_not_what_is_left_of_it() -> None:
    sizes = {"a1": 2, "a2": 40, "a3": 60, "b1": 20, "b2": 90}
    rows: list[Path] = [(name[0], name, name) for name, number in sizes.items() for _ in range(number)]
    region, district, _ = described(rows, 3, (0, 1, 2))
    assert region == {"a": 102, "b": 110, None: 0}
    assert district == {"a2": None, "a3": 60, "b1": 20, "b2": 90, None: 0}  # 102 − 40 − 60 was a1
