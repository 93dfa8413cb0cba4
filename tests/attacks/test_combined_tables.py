"""An attacker collects every table that the service shows of a file and solves for the counts that are hidden.

Unknown are the counts of all cells of all attributes together. Each answer is a set of linear constraints on them. A
small count is recovered if its least and its greatest value under all constraints are the same.
``python -m tests.attacks.test_combined_tables`` prints how many small counts come back, with the answers as they are
and with exact ones.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

import safeswap as ss
from safeswap import workflow
from safeswap.service.routes.argus import summarise_risky
from safeswap.service.work import rare
from safeswap.service.work.rare import MISSING, RARE, Sample, before_after
from safeswap.workflow.session import ArgusSession

TOLERANCE, MOST = 3, 500
NAMES = ("a", "b", "c", "d")
KEY = ss.Key(bytes(range(32)))
NOISE = rare.Noise(key=KEY, tolerance=TOLERANCE)
Place = tuple[str, ...]


def make_file(seed: int) -> ss.Microdata:
    """Some 60 records with four attributes, rare levels, few missing values and empty cells."""
    draw = random.Random(seed)
    rows = []
    for number in range(draw.randint(40, 90)):
        a = draw.choices(["p", "q", "r", None], [6, 4, draw.choice([0.3, 2]), draw.choice([0, 0.3])])[0]
        b = draw.choices("uv", [5, 3 if a == "p" else 0.4])[0]
        c = draw.choices("xy", [5, 2 if b == "v" else 0.5])[0]
        rows.append({"id": number, "a": a, "b": b, "c": c, "d": draw.choices("mn", [3, 1 if c == "x" else 4])[0]})
    return ss.read(pa.Table.from_pylist(rows), identifier="id", kinds=dict.fromkeys(NAMES, "nominal"))


@dataclass
class Attack:
    """Linear constraints on the counts of all cells, on those of a sample, and on which cells are small."""

    cells: list[Place]
    extra: int = 0
    rows: list[tuple[dict[int, float], float, float]] = field(default_factory=list)

    def add(self, terms: dict[int, float], low: float, high: float) -> None:
        self.rows.append((terms, low, high))

    def new(self, number: int = 1) -> int:
        self.extra += number
        return len(self.cells) + self.extra - number

    def places(self, names: Place, levels: Place, first: int = 0) -> dict[int, float]:
        """The cells of all attributes that make up one cell of a table."""
        at = [NAMES.index(name) for name in names]
        mine = (i for i, cell in enumerate(self.cells) if tuple(cell[j] for j in at) == levels)
        return {first + i: 1.0 for i in mine}

    def classify(self, terms: dict[int, float]) -> tuple[int, int]:
        """Variables that say whether a cell is small, and how many records it then has."""
        small, large, records = self.new(), self.new(), self.new()
        self.add({small: 1, large: 1}, 0, 1)
        self.add({**terms, small: 1 - TOLERANCE, large: -MOST}, -np.inf, 0)
        self.add({**terms, small: -1, large: -TOLERANCE}, 0, np.inf)
        self.add({records: 1, small: 1 - TOLERANCE}, -np.inf, 0)
        self.add({records: 1, **{i: -v for i, v in terms.items()}}, -np.inf, 0)
        self.add({records: 1, large: MOST, **{i: -v for i, v in terms.items()}}, 0, np.inf)
        return small, records

    def is_known(self, terms: dict[int, float]) -> bool:
        """Whether one sum of counts has a single value."""
        number = len(self.cells) + self.extra
        entries = [(r, i, v) for r, (row, _, _) in enumerate(self.rows) for i, v in row.items()]
        at_row, at_column, values = zip(*entries, strict=True)
        matrix = csr_array((values, (at_row, at_column)), shape=(len(self.rows), number))
        lows, highs = zip(*((low, high) for _, low, high in self.rows), strict=True)
        goal = np.zeros(number)
        for i, value in terms.items():
            goal[i] = value
        ends = []
        for sign in (1, -1):
            found = milp(
                sign * goal,
                integrality=np.ones(number),
                bounds=Bounds(0, MOST),
                constraints=LinearConstraint(matrix, lows, highs),
                options={"time_limit": 20},
            )
            if found.x is None:
                assert found.status != 2, "no file agrees with the answers: the attacker's model is wrong"
                return False
            ends.append(round(float(goal @ found.x)))
        return ends[0] == ends[1]


def ask_description(data: ss.Microdata) -> dict[str, Any]:
    described = workflow.describe(data, tolerance=TOLERANCE)
    return {**described.as_dict(), "cells": rare.perturb_cells(described.cells, NOISE)}


def ask_risky(data: ss.Microdata) -> list[dict[str, Any]]:
    session = ArgusSession.start(data, {"keys": NAMES, "tolerance": TOLERANCE, "missing": "own"}, key=KEY)
    return summarise_risky(session, NOISE)["combinations"]


def label_records(data: ss.Microdata) -> list[Place]:
    """The records as the screens name their levels."""
    hidden = {name: rare.rare_texts(data, name, TOLERANCE) for name in NAMES}
    rows = data.table.select(NAMES).to_pylist()
    return [tuple(MISSING if v is None else RARE if v in hidden[n] else v for n, v in row.items()) for row in rows]


class Collected:
    """The attacker's constraints from all answers; ``exact`` are those of a service that hides small cells only."""

    def __init__(self, data: ss.Microdata, *, exact: bool = False) -> None:
        self.records, self.exact, self.data = label_records(data), exact, data
        description = ask_description(data)
        axes = [self._labels(description, name) for name in NAMES]
        self.attack = Attack(list(product(*axes)))
        self.attack.add(dict.fromkeys(range(len(self.attack.cells)), 1.0), len(data), len(data))
        for name in NAMES:
            self._add_levels(description, name)
        # Cells of the sample: any number of records may be behind each, also none, since values are replaced.
        self.sample = self.attack.new(len(self.attack.cells))
        masked = ss.swap(data, swap=["a"], pairs=0, insecure_seed=1)
        for number in (1, 2, 3):
            for names in combinations(NAMES, number):
                self._add_table(masked, names)
        self._add_risky()

    def _labels(self, description: dict[str, Any], name: str) -> list[str]:
        mine = next(each for each in description["attributes"] if each["name"] == name)
        named = [level["level"] for level in mine["levels"]]
        return [
            *named,
            *([RARE] if mine["levels_below_tolerance"]["number"] else []),
            *([] if mine["missing"] == 0 else [MISSING]),
        ]

    def _add_levels(self, description: dict[str, Any], name: str) -> None:
        mine = next(each for each in description["attributes"] if each["name"] == name)
        known = {level["level"]: level["count"] for level in mine["levels"]} | {MISSING: mine["missing"]}
        if self.exact:
            known[MISSING] = sum(record[NAMES.index(name)] == MISSING for record in self.records)
        for level, number in known.items():
            terms = self.attack.places((name,), (level,))
            if number is not None and terms:
                self.attack.add(terms, number, number)
            elif number is None and level != MISSING:
                self.attack.add(terms, TOLERANCE, np.inf)
        if rare_terms := self.attack.places((name,), (RARE,)):
            least = mine["levels_below_tolerance"]["number"]
            self.attack.add(rare_terms, least, (TOLERANCE - 1) * least)

    def _add_table(self, masked: Any, names: Place) -> None:
        try:
            if self.exact and len(names) > 2:
                cells = {each.levels: each.before for each in exact_cells(masked, names)}
            else:
                cells = {
                    each.levels: each.before for each in before_after(masked, names, tolerance=TOLERANCE, key=KEY).cells
                }
        except ss.SafeswapError:  # too sparse: nothing is shown
            return
        first = self.sample if len(names) > 2 and not self.exact else 0
        axes = [sorted({cell[NAMES.index(name)] for cell in self.attack.cells}) for name in names]
        assert not set(cells) - set(product(*axes))
        for levels in product(*axes):
            number = cells.get(levels, 0)
            if number is not None:
                self.attack.add(self.attack.places(names, levels, first), number, number)

    def _add_risky(self) -> None:
        for each in ask_risky(self.data):
            names = tuple(each["keys"])
            at = [NAMES.index(name) for name in names]
            if any(RARE in {record[i] for record in self.records} for i in at):
                continue  # levels that have no name of their own
            true = [
                n for n in Counter(tuple(record[i] for i in at) for record in self.records).values() if n < TOLERANCE
            ]
            cells = product(*(sorted({cell[i] for cell in self.attack.cells}) for i in at))
            flags = [self.attack.classify(self.attack.places(names, levels)) for levels in cells]
            shown = {"unsafe": len(true), "records": sum(true)} if self.exact else each
            for which, figure in ((0, shown["unsafe"]), (1, shown["records"])):
                # Behind a positive figure with noise there may be any positive number.
                low, high = (figure, figure) if self.exact or not figure else (1, MOST)
                self.attack.add({flag[which]: 1.0 for flag in flags}, low, high)

    def recovered(self) -> tuple[int, int]:
        """The small counts of tables of one and two attributes, and how many of them are known."""
        small = known = 0
        for names in [(name,) for name in NAMES] + list(combinations(NAMES, 2)):
            at = [NAMES.index(name) for name in names]
            for levels, number in Counter(tuple(record[i] for i in at) for record in self.records).items():
                if number < TOLERANCE:
                    small += 1
                    known += self.attack.is_known(self.attack.places(names, levels))
        return small, known


def exact_cells(masked: Any, names: Place) -> Any:
    """A table of three attributes as it is protected by itself: small counts and some others hidden."""
    kept, rare._MOST_EXACT = rare._MOST_EXACT, len(NAMES)
    try:
        return before_after(masked, names, tolerance=TOLERANCE, key=KEY).cells
    finally:
        rare._MOST_EXACT = kept


def attack_files(seeds: range, *, exact: bool) -> tuple[int, int]:
    found = [Collected(make_file(seed), exact=exact).recovered() for seed in seeds]
    return sum(small for small, _ in found), sum(known for _, known in found)


def guess_from_sample(seeds: range) -> tuple[float, float]:
    """How often a small count of three attributes is guessed by who knows the whole sample, and blindly."""
    seen: Counter[tuple[int, int]] = Counter()
    for seed in seeds:
        data = make_file(seed)
        records, sample = data.table.select(NAMES).to_pylist(), Sample(data, ss.Key(bytes([seed]) * 32))
        for names in combinations(NAMES, 3):
            rows = [sample.rows(name) for name in names]
            drawn: Counter[Place] = Counter()
            for place, times in enumerate(sample.weights.tolist()):
                levels = (records[row[place]][name] for name, row in zip(names, rows, strict=True))
                drawn[tuple(levels)] += times
            true = Counter(tuple(record[name] for name in names) for record in records)
            seen.update((number, min(drawn[levels], 4)) for levels, number in true.items() if number < TOLERANCE)
    every = sum(seen.values())
    of_count = [sum(seen[number, figure] for figure in range(5)) for number in range(1, TOLERANCE)]
    best = [max(seen[number, figure] for number in range(1, TOLERANCE)) for figure in range(5)]
    return sum(best) / every, max(of_count) / every


def test_no_small_count_comes_back_from_all_answers_together() -> None:
    small, known = attack_files(range(6), exact=False)
    assert small > 20
    assert known == 0


def test_exact_totals_and_tables_of_three_attributes_would_give_small_counts_back() -> None:
    small, known = attack_files(range(3, 4), exact=True)
    assert known == small > 0


def test_the_whole_sample_tells_little_more_than_a_blind_guess() -> None:
    guessed, blind = guess_from_sample(range(60))
    assert blind > 0.5
    assert guessed < blind + 0.08


def main() -> None:
    """Print how many small counts come back."""
    for exact in (True, False):
        small, known = attack_files(range(10), exact=exact)
        print(f"{'exact totals' if exact else 'as answered':14} {known} of {small} small counts recovered", flush=True)
    guessed, blind = guess_from_sample(range(120))
    print(f"small counts of three attributes guessed: {guessed:.0%} from the whole sample, {blind:.0%} blindly")


if __name__ == "__main__":
    main()
