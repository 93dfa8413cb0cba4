"""The figures that Moore (1996) prints for the targeted edit come out of our formulas and our edit."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from tests.dwellings import KEY, column, edit, microdata

from safeswap.arrays import bias, divergence
from safeswap.datasets import HOUSING_ITEMS, HOUSING_KEYS, synthetic_housing_survey
from safeswap.measures.utility.bias import bias_bounds, default_levels, percentage_bias
from safeswap.methods.edit_targeted.method import EditTargetedSpec
from safeswap.methods.edit_targeted.near_optimal import near_optimal_order
from safeswap.model.schema import Kind
from safeswap.model.score import Comparison
from safeswap.workflow.thresholds import thin_to

PAPER = json.loads((Path(__file__).parent / "data" / "moore_1996.json").read_text())
TABLE_5 = PAPER["table_5"]
KEYS = ("REGION", "YR_BLT", "BEDS", "BATHS")


def test_example_2_has_an_index_of_dissimilarity_of_015() -> None:
    before, after = np.array([3, 4, 4, 5, 4]), np.array([2, 5, 3, 7, 3])
    assert divergence.total_variation(before, after) == pytest.approx(0.15, abs=1e-15)


# Example 1: partners have the same key, so exchanging places leaves every count by the key as it was.
LAWYER = {"Whites": 9, "Over18": 4, "Place": "Princeton", "Occupation": "Lawyer", "Income": 95000, "HomeValue": 250000}
CLERK = {"Whites": 9, "Over18": 4, "Place": "Trenton", "Occupation": "Clerk", "Income": 25000, "HomeValue": 125000}


def test_example_1_exchanges_the_places_and_nothing_else() -> None:
    from safeswap.engines.memory import exchange

    kinds = {"Place": Kind.GEOGRAPHY, "Income": Kind.NUMERIC, "HomeValue": Kind.NUMERIC}
    data = microdata({name: [LAWYER[name], CLERK[name]] for name in LAWYER}, **kinds)
    after = exchange(data, ("Place",), np.array([[0, 1]])).table.to_pylist()
    assert after == [{**LAWYER, "Place": "Trenton"}, {**CLERK, "Place": "Princeton"}]


# Example 4.
RECORDS = {
    "State": ["NJ", "NJ"],
    "Whites": [9, 10],
    "Blacks": [10, 0],
    "Place": ["Trenton", "Princeton"],
    "Income": [100, 250],
    "HomeValue": [150, 400],
}
EXCHANGED = {
    1: {"Place": ["Princeton", "Trenton"]},
    2: {"Income": [250, 100], "HomeValue": [400, 150]},
    3: {"Whites": [10, 9]},
}


@pytest.mark.parametrize("variant", ["letter", "keyed"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_example_4_exchanges_what_each_method_exchanges(number: int, variant: str) -> None:
    kinds = {"Place": Kind.GEOGRAPHY, "Income": Kind.NUMERIC, "HomeValue": Kind.NUMERIC}
    data = microdata(RECORDS, **kinds)
    masked = edit(data, keys=("State", "Whites", "Blacks"), exchange=number, variant=variant)
    assert {name: column(masked.data, name) for name in RECORDS} == {**RECORDS, **EXCHANGED[number]}
    assert masked.audit.facts["left"] == 0


@pytest.mark.parametrize("variable", TABLE_5["columns"])
def test_table_5_gives_the_near_optimal_order(variable: str) -> None:
    place = TABLE_5["columns"].index(variable)
    figures = {tuple(keys.split()): row[place] for keys, row in TABLE_5["rows"].items()}
    found = near_optimal_order(figures, KEYS, variable)
    assert list(found.keys) == PAPER["near_optimal"][variable]["order"]
    assert [step.deviation for step in found.steps if step.chosen] == PAPER["near_optimal"][variable]["figures"]


def test_the_printed_order_is_that_of_income_and_its_reverse_order_of_choice() -> None:
    place = TABLE_5["columns"].index("INCOME")
    found = near_optimal_order({tuple(k.split()): row[place] for k, row in TABLE_5["rows"].items()}, KEYS)
    assert found.keys == ("BATHS", "BEDS", "YR_BLT", "REGION")
    assert [step.keys[-1] for step in found.steps if step.chosen] == ["REGION", "YR_BLT", "BEDS"]


@pytest.mark.parametrize(
    ("printed", "difference"), [(70711, 100_000), (141421, 200_000), (3536, 5_000), (63640, 90_000)]
)
def test_table_5_holds_standard_deviations_of_two_records(printed: int, difference: int) -> None:
    """Which tells two things: classes of two are in, and the divisor is n − 1."""
    data = microdata({"BEDS": [1, 1, 2], "BATHS": [1, 2, 3], "INCOME": [0, difference, 7]})
    figures = near_optimal_order(data, ("BEDS", "BATHS"), "INCOME").steps
    assert figures[0].deviation == pytest.approx(printed, abs=0.5)
    assert printed in {figure for row in TABLE_5["rows"].values() for figure in row}


def test_the_acceptable_range_of_income() -> None:
    bounds = bias_bounds(10, 0.01, swapped=582, records=64_998, mean=11_369, deviation=16_572)
    assert bounds.lower == pytest.approx(0.09, abs=0.005)
    assert bounds.upper == pytest.approx(20.67, abs=0.005)
    assert bounds.protects(17.95)
    assert bounds.is_useful(17.95)
    assert not bounds.is_useful(23.4)
    assert not bounds.protects(0.05)


def test_table_7_has_the_levels_that_we_look_at_by_default() -> None:
    before = microdata({name: [1, 2, 1, 2] for name in KEYS})
    after = microdata({**{name: [1, 2, 1, 2] for name in KEYS}, "REGION": [2, 1, 1, 2]})
    levels = default_levels(Comparison(before=before, after=after, attributes=KEYS), KEYS)
    assert {frozenset(level) for level in levels} == {frozenset(row.split()) for row in PAPER["table_7"]["levels"]}
    assert np.mean(PAPER["table_7"]["income"]) == pytest.approx(PAPER["table_7"]["average"], abs=0.005)


def test_theorem_a3_keeps_a_fraction_of_03105_and_explains_table_8() -> None:
    printed = PAPER["table_8"]
    t, n, p = printed["records"]["original"], printed["from_above"], printed["p"]
    assert t == printed["uniques"] + n
    q = bias.compute_corrected_fraction(p, changed=t, above=n)
    assert q == pytest.approx(0.3105, abs=5e-5)
    assert q**0.5 == pytest.approx(0.557, abs=5e-4)
    assert bias.estimate_records(q, changed=t, above=n) == pytest.approx(p * p * t)
    assert round(p * p * t) == printed["records"]["expected"]
    # What was observed lies within 2.5% of what the theorem makes one expect; 4/9 would give 28% more than wanted.
    assert printed["records"]["corrected"] == pytest.approx(p * p * t, rel=0.025)
    first = bias.estimate_records(bias.compute_first_fraction(p), changed=t, above=n)
    assert first == pytest.approx(printed["records"]["first"], rel=0.06)


def test_table_8_expects_two_thirds_of_every_bias() -> None:
    for original, expected, _, _ in PAPER["table_8"]["percentage_bias"].values():
        assert PAPER["table_8"]["p"] * original == pytest.approx(expected, abs=0.051)


@pytest.mark.parametrize("p", [0.1, 0.5, 2 / 3, 0.99])
def test_the_fraction_is_p_squared_where_every_pair_has_one_failing_class(p: float) -> None:
    assert bias.compute_corrected_fraction(p, changed=2 * 109, above=109) == pytest.approx(p * p)


@pytest.mark.parametrize("p", [0.1, 0.5, 2 / 3, 0.99])
@pytest.mark.parametrize(("t", "n"), [(582, 109), (1000, 1), (1000, 499), (4, 1), (10, 0)])
def test_the_fraction_solves_the_equation_of_theorem_a3(t: int, n: int, p: float) -> None:
    q = bias.compute_corrected_fraction(p, changed=t, above=n)
    printed = ((t - n) - ((t - n) ** 2 - p * p * t * (t - 2 * n)) ** 0.5) / (t - 2 * n)
    assert q == pytest.approx(printed)
    assert 0 < q < 1
    assert bias.estimate_records(q, changed=t, above=n) == pytest.approx(p * p * t)


def test_a_longer_list_of_keys_has_a_figure_for_each_set_that_is_looked_at() -> None:
    names = ("a", "b", "c", "d", "e")
    figures = {keys: float(sum(map(ord, keys))) for size in range(1, 5) for keys in combinations(names, size)}
    assert near_optimal_order(figures, names).keys == ("e", "d", "c", "b", "a")


# A file like the paper's: as many records, about as many uniques, the same keys. Who is exchanged with whom is its own.
SORTED = ("BATHS", "BEDROOMS", "YR_BLT", "REGION")


def test_on_a_file_like_the_papers_as_many_records_are_exchanged() -> None:
    printed = PAPER["table_8"]
    masked = edit(synthetic_housing_survey(), keys=SORTED, exchange=2, tolerance=2, variant="letter")
    facts = masked.audit.facts
    assert facts["below_tolerance"] == pytest.approx(printed["uniques"], rel=0.02)
    assert facts["took_part"] == pytest.approx(printed["records"]["original"], rel=0.03)
    assert facts["from_above_tolerance"] == pytest.approx(printed["from_above"], rel=0.1)
    assert facts["took_part"] == facts["below_tolerance"] + facts["from_above_tolerance"]


def test_on_a_file_like_the_papers_thinning_goes_as_in_table_8() -> None:
    printed = PAPER["table_8"]["records"]
    data = synthetic_housing_survey()
    spec = EditTargetedSpec(keys=SORTED, exchange=2, tolerance=2, variant="letter")
    whole = percentage_bias(edit(data, **spec.model_dump(exclude_defaults=True)))
    bounds = {name: PAPER["table_8"]["p"] * whole.pointwise(name) for name in HOUSING_ITEMS}
    found = thin_to(data, spec, bounds, key=KEY)
    trials = {trial.name: trial for trial in found}
    assert trials["A.2"].expected_records == pytest.approx(printed["expected"], rel=0.03)
    assert trials["A.2"].records == pytest.approx(printed["first"], rel=0.06)
    assert trials["A.3"].records == pytest.approx(printed["corrected"], rel=0.08)
    for name in HOUSING_ITEMS:
        assert trials["A.3"].observed[name] == pytest.approx(bounds[name], rel=0.45)
        assert found.chosen.observed[name] <= bounds[name]


def test_on_a_file_like_the_papers_the_near_optimal_order_for_income_is_the_printed_one() -> None:
    assert near_optimal_order(synthetic_housing_survey(), HOUSING_KEYS, "INCOME").keys == SORTED
