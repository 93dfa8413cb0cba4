"""A table before and after, with the lists of levels beside it: what an attacker who solves for the rest finds out."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import linprog

import safeswap
from safeswap import workflow
from safeswap.service.http.problems import Unprocessable
from safeswap.service.work.rare import MISSING, RARE, Noise, Sample, before_after, check_tolerance

TOLERANCE = 3
KEY = safeswap.Key(bytes(range(32)))


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
    answer = before_after(masked, ("town", "work"), tolerance=TOLERANCE, key=KEY)
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
    cells = {cell.levels[0]: cell.before for cell in before_after(masked, ("town",), tolerance=3, key=KEY).cells}
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


def three_ways(records: int = 3_000) -> safeswap.Microdata:
    draw = random.Random(2)
    columns = {name: [draw.choice("xyyz") for _ in range(records)] for name in "abcd"}
    return safeswap.read(
        pa.table({"id": range(records), **columns}), identifier="id", kinds=dict.fromkeys("abcd", "nominal")
    )


def test_all_tables_of_three_attributes_are_counts_of_one_sample():
    data = three_ways()
    masked = safeswap.swap(data, swap=["a"], rate=0.1, insecure_seed=1)
    sums = []
    for names in (("a", "b", "c"), ("a", "b", "d")):
        table = before_after(masked, names, tolerance=TOLERANCE, key=KEY)
        assert table.is_sampled
        assert all(cell.before is not None for cell in table.cells)
        found: dict[tuple[str, ...], int] = {}
        for cell in table.cells:
            found[cell.levels[:2]] = found.get(cell.levels[:2], 0) + cell.before
        sums.append(found)
    assert sums[0] == sums[1]
    exact = {cell.levels: cell.before for cell in before_after(masked, ("a", "b"), tolerance=TOLERANCE, key=KEY).cells}
    assert sums[0] != exact
    assert sum(sums[0].values()) == pytest.approx(3_000, abs=250)
    assert before_after(masked, ("a", "b", "c"), tolerance=TOLERANCE, key=KEY) == before_after(
        masked, ("a", "b", "c"), tolerance=TOLERANCE, key=KEY
    )


def test_a_rare_level_is_not_the_difference_of_a_recoded_and_an_original_count():
    towns = [*"A" * 40, *"B" * 30, *"C" * 9, *"XX"]
    data = safeswap.read(pa.table({"id": range(81), "town": towns}), identifier="id", kinds={"town": "nominal"})
    plain = safeswap.swap(data, swap=["town"], pairs=1, insecure_seed=1)
    shown = {cell.levels[0]: cell.before for cell in before_after(plain, ("town",), tolerance=3, key=KEY).cells}
    assert (shown["A"], shown["C"]) == (40, None)
    # The count of the group less that of A would be the count of the rare level.
    step = {"step": "recode", "attribute": "town", "groups": {"A or X": ["A", "X"]}, "otherwise": "keep"}
    recoded = workflow.recode(data, [step])
    by_recipe = safeswap.swap(recoded, swap=["town"], pairs=1, insecure_seed=1)
    by_method = safeswap.mask(data, {"method": "recode", "steps": [step]}, insecure_seed=1)
    for masked in (by_recipe, by_method):
        assert before_after(masked, ("town",), tolerance=3, key=KEY).is_sampled
    assert not before_after(plain, ("town",), tolerance=3, key=KEY).is_sampled


def test_the_sample_has_poisson_numbers_and_a_sixteenth_of_the_values_from_others():
    data = three_ways(20_000)
    sample = Sample(data, KEY)
    shares = np.bincount(sample.weights, minlength=4)[:4] / len(data)
    assert shares == pytest.approx([0.3679, 0.3679, 0.1839, 0.0613], abs=0.015)
    assert (sample.rows("a") != np.arange(len(data))).mean() == pytest.approx(1 / 16, abs=0.008)
    assert (sample.rows("a") != sample.rows("b")).any()


def test_totals_of_unsafe_combinations_have_noise_and_0_is_exact():
    noise = Noise(key=KEY, tolerance=TOLERANCE)
    shown = [noise.add(500, "subject", number) for number in range(4000)]
    assert noise.add(500, "subject", 7) == shown[7]
    assert np.mean(shown) == pytest.approx(500, abs=0.5)
    assert np.std(shown) == pytest.approx(4.2, abs=0.6)
    assert noise.add(0, "subject") == 0
    assert min(noise.add(1, "subject", number) for number in range(100)) == 1


def test_combinations_below_the_projects_tolerance_are_not_counted():
    check_tolerance({"keys": ["a", "b"], "tolerance": 3}, 3)
    for stated in (
        {"keys": ["a"], "tolerance": 2},
        {"combinations": [{"keys": ["a"], "tolerance": 1}], "tolerance": 5},
    ):
        with pytest.raises(Unprocessable) as refused:
            check_tolerance(stated, 3)
        assert refused.value.code == "tolerance-floor"
