"""A table before and after, with the lists of levels beside it: what an attacker who solves for the rest finds out."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import linprog

import safeswap
from safeswap import workflow
from safeswap.service.work.rare import MISSING, RARE, before_after

TOLERANCE = 3


def microdata(seed: int) -> safeswap.Microdata:
    draw = random.Random(seed)
    towns = [*"AAAAABBBBCCC"] * 8 + [*"XYYZZ"][: draw.randint(1, 5)]
    work = [draw.choices("pqrs", [5, 4, 2, draw.choice([0.1, 1])])[0] for _ in towns]
    table = pa.table({"id": range(len(towns)), "town": towns, "work": work})
    return safeswap.read(table, identifier="id", kinds={"town": "nominal", "work": "nominal"})


@pytest.mark.parametrize("seed", range(12))
def test_neither_a_small_cell_nor_the_records_of_rare_levels_can_be_worked_out(seed):
    data = microdata(seed)
    description = workflow.describe(data, tolerance=TOLERANCE)
    masked = safeswap.swap(data, swap=["town"], rate=0.1, insecure_seed=seed)
    answer = before_after(masked, ("town", "work"), tolerance=TOLERANCE)
    for which in ("before", "after"):
        places = [cell.levels for cell in answer.cells]
        shown = [getattr(cell, which) for cell in answer.cells]
        attack = Attack(places, shown, description if which == "before" else None, len(data))
        true = _true(masked.original if which == "before" else masked.data, description)
        for at, place in enumerate(places):
            if shown[at] is None and 0 < true.get(place, 0) < TOLERANCE:
                assert attack.width([at]) >= 1, (place, which)
        if which == "before":
            rare = [at for at, place in enumerate(places) if place[0] == RARE]
            assert attack.width(rare) >= 1


def test_a_list_of_one_attribute_does_not_give_the_rare_level_by_subtraction():
    data = safeswap.read(pa.table({"town": [*"AAAAABBBBBBX"]}), kinds={"town": "nominal"})
    masked = safeswap.swap(data, swap=["town"], rate=0.2, insecure_seed=1)
    cells = {cell.levels[0]: cell.before for cell in before_after(masked, ("town",), tolerance=3).cells}
    assert cells == {"A": None, "B": 6, RARE: None}
    town = workflow.describe(data, tolerance=3)["town"]
    assert [(each.level, each.count) for each in town.levels] == [("B", 6), ("A", None)]
    assert town.levels_below == 1
    assert workflow.describe(data, tolerance=3).cells.small == ()


class Attack:
    """All that is known: cells that are shown, totals of levels that are listed with a count, and of the file."""

    def __init__(self, places, shown, description, records):
        self.number = len(places)
        self.bounds = [(0, None) if each is None else (each, each) for each in shown]
        self.rows, self.sums = [[1.0] * self.number], [float(records)]
        for axis, name in enumerate(("town", "work")) if description else ():
            for level in description[name].levels:
                mine = [float(place[axis] == level.level) for place in places]
                if level.count is not None:
                    self.rows.append(mine)
                    self.sums.append(float(level.count))

    def width(self, which: list[int]) -> float:
        goal = np.zeros(self.number)
        goal[which] = 1.0
        low, high = (linprog(s * goal, A_eq=self.rows, b_eq=self.sums, bounds=self.bounds) for s in (1, -1))
        return np.inf if high.status else -high.fun - low.fun + 1e-9


def _true(data, description) -> dict[tuple[str, str], int]:
    named = {name: {level.level for level in description[name].levels} for name in ("town", "work")}
    found: dict[tuple[str, str], int] = {}
    for row in data.table.select(["town", "work"]).to_pylist():
        place = tuple((MISSING if v is None else v if v in named[n] else RARE) for n, v in row.items())
        found[place] = found.get(place, 0) + 1
    return found
