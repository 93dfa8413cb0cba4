"""Household mates and nested areas do no better than a blind guess on what any method makes of a person file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.households import persons

import safeswap as ss
from safeswap import registry
from safeswap.errors import SpecError
from safeswap.model.households import mark_household_attributes
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEY = ss.Key(bytes(range(32)))
SHARED = ("region", "county", "tenure", "rent")
ASKED = ("household_mates", "geography_nesting")
PLAIN = persons(300)
DATA = Microdata(PLAIN.table, mark_household_attributes(PLAIN.schema, SHARED))
PLACES = ["region", "county"]
SPECS: dict[str, dict[str, Any]] = {
    "swap": {"swap": PLACES, "rate": 0.2},
    "swap_permutation": {"swap": PLACES, "probability": 0.3},
    "household_swap": {"geography": PLACES, "similar": [["tenure"]], "risk_variables": ["age", "sex"], "rate": 0.2},
    "edit_1990": {"keys": ["tenure"], "geography": PLACES, "rate": 0.1},
    "edit_targeted": {"keys": ["tenure", "sex"], "geography": PLACES},
    "rank_swap": {"attributes": ["rent", "income"]},
    "pram": {"attributes": ["tenure", "edu"]},
    "noise": {"attributes": ["rent", "income"]},
    "microaggregation": {"attributes": ["rent"]},
    "top_bottom": {"attributes": ["rent"], "top_share": 0.05},
    "recode": {"steps": [{"step": "round", "attribute": "rent", "base": 100}]},
    "suppress": {"keys": ["county", "tenure", "sex"]},
    "safe": {"tables": [["age", "sex", "edu"]]},
    "pipeline": {"steps": [{"method": "swap", "swap": PLACES, "rate": 0.2}, {"method": "pram", "attributes": ["edu"]}]},
}


@pytest.mark.parametrize("name", [*registry.method_names(), "pipeline"])
def test_mates_and_areas_do_no_better_than_a_blind_guess(name: str, tmp_path: Path) -> None:
    """Of household attributes nothing is restored; else the interval of the advantage begins at or below 0."""
    masked = ss.mask(DATA, {"method": name, **SPECS[name]}, key=KEY)
    assert masked.audit.touched().any()
    ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY)
    (record,) = (tmp_path / "audit").glob("release-*")
    inside = ss.attack(masked, attacks=ASKED)
    outside = ss.attack(tmp_path / "public", DATA, audit=record, attacks=ASKED)
    for outcome in (*inside, *outside):
        assert outcome.interval[0] <= 0
        assert outcome.success == 0 or outcome.detail["attribute"] not in SHARED
    for found in (inside, outside):
        assert {each.attack for each in (*found, *found.skipped)} == set(ASKED)


def test_a_method_that_cannot_treat_households_refuses() -> None:
    with pytest.raises(SpecError) as caught:
        ss.mask(DATA, {"method": "safe", "tables": [["tenure", "sex", "age"]]}, key=KEY)
    assert caught.value.code == "household-not-supported"


def test_mates_undo_what_was_swapped_person_by_person() -> None:
    masked = ss.mask(PLAIN, {"method": "swap", **SPECS["swap"]}, key=KEY)
    assert ss.attack(masked, attacks=ASKED)["household_mates"].interval[0] > 0.3


def ask_by_hand(before: list[Any], after: list[Any], homes: list[Any]) -> tuple[float, int]:
    """The share of changed values that most mates tell, drawn among equals; of households of three or more."""
    right, asked = 0.0, 0
    sizes = Counter(home for home in homes if home is not None)
    common = Counter(value for value, home in zip(after, homes, strict=True) if value is not None and home is not None)
    top = [value for value, count in common.items() if count == max(common.values())]
    for row, (truth, seen, home) in enumerate(zip(before, after, homes, strict=True)):
        if truth == seen or home is None or sizes[home] < 3:
            continue
        asked += 1
        votes = Counter(v for i, (v, h) in enumerate(zip(after, homes, strict=True)) if h == home and i != row and v)
        best = [value for value, count in votes.items() if count == max(votes.values())] if votes else top
        right += (truth in best) / len(best)
    return right / max(asked, 1), asked


@pytest.mark.parametrize("seed", range(40))
def test_persons_outside_and_gaps_do_not_vote(seed: int) -> None:
    rng = np.random.default_rng(seed)
    homes = np.sort(rng.integers(0, 12, 60))
    town = np.array(["a", "b", "c"])[rng.integers(0, 3, 12)][homes].tolist()
    after = [rng.choice(["a", "b", None]) if rng.random() < 0.15 else value for value in town]
    outside = [None if home < 3 else int(home) for home in homes]
    schema = Schema(attributes=(Attribute(name="home", kind=Kind.HOUSEHOLD), Attribute(name="town")))
    sides = [Microdata(pa.table({"home": outside, "town": values}), schema) for values in (town, after)]
    rows = [row for row in range(60) if town[row] != after[row]]
    expected, asked = ask_by_hand(town, after, outside)
    found = ss.attack(sides[1], sides[0], attacks=["household_mates"])
    assert rows
    if found.outcomes:
        assert (found["household_mates"].success, found["household_mates"].trials) == (pytest.approx(expected), asked)
    else:
        assert asked == 0


def test_attacks_under_a_scenario_of_households_say_that_they_look_for_persons() -> None:
    masked = ss.mask(DATA, {"method": "swap", **SPECS["swap"]}, key=KEY)
    stated = {"name": "neighbour", "keys": ["region", "tenure", "sex"], "sensitive": ["edu"]}
    told = {}
    for unit in ("person", "household"):
        scenario = ss.Scenario(**stated, unit=unit)
        assert ("whole households" in scenario.sentence) == (unit == "household")
        found = ss.attack(masked, scenario=scenario, attacks=["linkage", "attribute_inference", "household_mates"])
        told[unit] = {outcome.attack: outcome for outcome in found}
    for attack, outcome in told["household"].items():
        by_keys = attack != "household_mates"
        assert outcome.sentence.startswith("Looking for persons, though the scenario is for households: ") == by_keys
        assert outcome.success == told["person"][attack].success
