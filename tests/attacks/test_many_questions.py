"""An attacker asks for the same small count again and again, in other words, and puts the answers together.

A figure with noise must be the same however the question is put, or the mean of many answers is the count. A table in
which small counts are hidden with others must hide the same others whatever file it is shown beside, or each of these
is shown in turn and the small count is what the total leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap import workflow
from safeswap.measures.risk.suggest_keys import perturb_suggestions, rank_keys
from safeswap.service.routes.argus import summarise_risky
from safeswap.service.work import rare
from safeswap.service.work.rare import before_after
from safeswap.workflow.recode_advice import advice
from safeswap.workflow.session import ArgusSession

TOLERANCE = 3
KEY = ss.Key(bytes(range(32)))
NOISE = rare.Noise(key=KEY, tolerance=TOLERANCE)
SPARE = tuple("uvwxyz")


def make_file(seed: int, *, small: int = 2) -> ss.Microdata:
    """Two attributes with one small cell, and six more."""
    draw = np.random.default_rng(seed)
    a, b = draw.choice(["a1", "a2"], 300), draw.choice(["b1", "b2"], 300)
    inside = np.flatnonzero((a == "a1") & (b == "b1"))
    rows = np.setdiff1d(np.arange(300), inside[small:])
    more = {name: draw.choice(["p", "q", "r"], len(rows)) for name in SPARE}
    columns = {"id": np.arange(len(rows)), "a": a[rows], "b": b[rows], **more}
    return ss.read(pa.table(columns), identifier="id", kinds=dict.fromkeys(("a", "b", *SPARE), "nominal"))


def ask(data: ss.Microdata, lists: list[tuple[str, ...]], recipe: list[dict[str, Any]]) -> dict[str, Any]:
    asked = {"combinations": [{"keys": list(keys)} for keys in lists], "tolerance": TOLERANCE, "missing": "own"}
    return summarise_risky(ArgusSession.start(data, asked, recipe=recipe, key=KEY), NOISE)


def ways_to_ask() -> Iterator[tuple[list[tuple[str, ...]], list[dict[str, Any]]]]:
    """The same cells: with keys that a recipe made constant, in another order, beside other combinations."""
    constant = [{"step": "recode", "attribute": name, "groups": {"all": ["p", "q", "r"]}} for name in SPARE]
    for number in range(3):
        for keys in combinations(SPARE, number):
            yield [("a", "b", *keys)], constant
            yield [(*reversed(keys), "b", "a")], constant
    yield from (([("a", "b"), (other,)], []) for other in SPARE)
    yield [("a", "b")], [{"step": "recode", "attribute": "a", "map": {"a1": "one", "a2": "two"}}]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_cells_have_the_same_totals_however_they_are_asked_for(seed: int) -> None:
    data = make_file(seed)
    seen = set()
    for lists, recipe in ways_to_ask():
        answer = ask(data, lists, recipe)
        first = answer["combinations"][0]
        keys = {each["key"]: (each["records"], each["alone"]) for each in answer["keys"]}
        seen.add((first["occupied"], first["unsafe"], first["records"], keys["a"], keys["b"]))
    assert len(seen) == 1


def test_other_cells_have_other_noise() -> None:
    """Or whoever knows one total would know the noise of all."""
    differences = {ask(make_file(seed), [("a", "b")], [])["unsafe_records"] for seed in range(40)}
    assert len(differences) > 3


def test_weights_missing_codes_and_tolerances_that_change_nothing_give_no_second_answer() -> None:
    data = make_file(1)
    table = data.table.append_column("weight", pa.array(np.full(len(data), 2.0)))
    kinds = {**dict.fromkeys(("a", "b", *SPARE), "nominal"), "weight": "weight"}
    weighted = ss.read(table, identifier="id", kinds=kinds)
    seen = set()
    for stated in (
        {"tolerance": 3, "missing": "any"},
        {"tolerance": 3, "missing": "none"},
        {"tolerance": 9},
        {"tolerance": 6, "weight": "weight"},
    ):
        asked = {"combinations": [{"keys": ["a", "b"]}], **stated}
        answer = summarise_risky(ArgusSession.start(weighted, asked, key=KEY), NOISE)
        first = answer["combinations"][0]
        seen.add((first["occupied"], first["unsafe"], first["records"], answer["unsafe_records"]))
    assert len(seen) == 1


def test_a_table_check_of_dependent_variables_gives_no_second_answer() -> None:
    data = make_file(1)
    same = ss.read(
        data.table.append_column("c", pa.array(["k"] * len(data))).append_column("a again", data.table.column("a")),
        identifier="id",
        kinds=dict.fromkeys(("a", "b", "c", "a again"), "nominal"),
    )
    names = (["a", "b"], ["b", "a"], ["a", "b", "c"], ["a again", "b"])
    answers = [rare.perturb_check(workflow.check_tables(same, [each], TOLERANCE), NOISE)["tables"][0] for each in names]
    assert len({(each["small"], each["occupied"]) for each in answers}) == 1


def test_one_combination_asked_for_many_times_is_not_known_better() -> None:
    """The total of many combinations would be that many times the count, with the noise of one."""
    data = make_file(2)
    constant = [{"step": "recode", "attribute": name, "groups": {"all": ["p", "q", "r"]}} for name in SPARE]
    recoded = workflow.recode(data, constant)
    lists = [("a", "b", *keys) for number in range(5) for keys in combinations(SPARE, number)]
    asked = {"combinations": [{"keys": list(keys)} for keys in lists], "tolerance": TOLERANCE, "missing": "own"}
    rename = {"step": "recode", "attribute": "a", "map": {"a1": "one", "a2": "two"}}
    found, risky = advice(recoded, asked, candidates=[rename]), workflow.risky(recoded, asked)
    assert found[0].unsafe == risky.unsafe >= len(lists)
    shown = set()
    for number in range(60):
        noise = rare.Noise(key=ss.Key(bytes([number]) * 32), tolerance=TOLERANCE)
        shown.add(round(rare.perturb_advice(found, risky, noise)[0].unsafe / len(lists)))
    assert len(shown) > 2


def test_another_description_of_the_identifier_gives_no_second_sample() -> None:
    table = make_file(1).table.append_column("other", pa.array(np.arange(1000, 1000 + len(make_file(1)))))
    found = [rare.Sample(ss.read(table, identifier=name), KEY) for name in ("id", "other", None)]
    for other in found[1:]:
        assert np.array_equal(found[0].weights, other.weights)
        assert np.array_equal(found[0].rows("a"), other.rows("a"))


def file_of_two(seed: int) -> ss.Microdata:
    draw = np.random.default_rng(seed)
    columns = {
        "id": np.arange(250),
        "a": draw.choice(list("abcd"), 250, p=[0.4, 0.3, 0.2, 0.1]),
        "b": draw.choice(list("wxyz"), 250, p=[0.5, 0.3, 0.15, 0.05]),
        "c": draw.choice(list("pq"), 250),
    }
    return ss.read(pa.table(columns), identifier="id", kinds=dict.fromkeys("abc", "nominal"))


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_a_table_hides_the_same_counts_of_the_original_beside_every_result(seed: int) -> None:
    """With 60 results, 3 of 12 small counts came back from such files when each result chose other cells to hide."""
    data = file_of_two(seed)
    plain = ss.swap(data, swap=["a"], pairs=0, insecure_seed=1)
    hidden = {
        cell.levels for cell in before_after(plain, ("a", "b"), tolerance=TOLERANCE, key=KEY).cells if not cell.before
    }
    assert hidden
    for number in range(40):
        masked = ss.swap(data, swap=["a"], rate=(0.02, 0.1, 0.3, 0.5)[number % 4], insecure_seed=number)
        for names in (("a", "b"), ("b", "a")):
            for cell in before_after(masked, names, tolerance=TOLERANCE, key=KEY).cells:
                levels = cell.levels if names[0] == "a" else cell.levels[::-1]
                assert cell.before is None or levels not in hidden


def counts_of(data: ss.Microdata, name: str) -> dict[str, int | None]:
    """The counts of a list of levels as they are shown, and that of missing values."""
    mine = next(e for e in workflow.describe(data, tolerance=TOLERANCE).as_dict()["attributes"] if e["name"] == name)
    return {**{level["level"]: level["count"] for level in mine["levels"] or ()}, "missing": mine["missing"]}


def test_missing_values_that_hide_a_rare_level_are_hidden_whatever_the_kind() -> None:
    """As a number, 9 values were missing of 61; as a category, 50 had the one level that was named: 2 were left."""
    table = pa.table({"a": [1] * 50 + [2] * 2 + [None] * 9})
    for kind in ("nominal", "ordinal", "numeric", "weight", "date"):
        assert counts_of(ss.read(table, kinds={"a": kind}), "a")["missing"] is None
    assert (
        counts_of(ss.read(pa.table({"a": [*range(50), None, None, None]}), kinds={"a": "numeric"}), "a")["missing"] == 3
    )


@pytest.mark.parametrize("kind", ["nominal", "ordinal", "geography"])
def test_the_levels_of_a_coarser_attribute_are_protected_whatever_their_kind(kind: str) -> None:
    """As categories, 90 were in a region and 40 and 48 in two of its three districts; as areas, others were hidden."""
    districts = ["d1"] * 2 + ["d2"] * 40 + ["d3"] * 48 + ["d4"] * 30 + ["d5"] * 41
    table = pa.table({"district": districts, "region": ["R"] * 90 + ["S"] * 71})
    data = ss.read(table, kinds={"district": kind, "region": kind})
    assert counts_of(data, "district") == {"d3": 48, "d5": 41, "d4": 30, "d2": None, "missing": 0}
    assert counts_of(data, "region") == {"R": 90, "S": 71, "missing": 0}


def test_no_small_sampling_unit_of_the_shipped_survey_is_what_its_stratum_leaves() -> None:
    """With each list hidden for itself, 2 of 12 counts of small units were what the count of their stratum left."""
    data = ss.datasets.household_survey()
    shown = {name: counts_of(data, name) for name in ("psu", "stratum")}
    rows = data.table.select(["psu", "stratum"]).to_pylist()
    units = {str(row["psu"]): str(row["stratum"]) for row in rows}
    for stratum, count in shown["stratum"].items():
        inside = [unit for unit, around in units.items() if around == stratum]
        unknown = [unit for unit in inside if shown["psu"].get(unit) is None]
        assert count is None or len(unknown) != 1, stratum


PLANS: tuple[dict[str, Any], ...] = (
    {"method": "suppress", "keys": ["a", "b"]},
    {"method": "edit_targeted", "keys": ["a", "b"], "exchange": "categorical"},
    {"method": "safe", "tables": [["a", "b"]]},
    {"method": "pipeline", "steps": [{"method": "suppress", "keys": ["a", "b"]}]},
)


@pytest.mark.parametrize("spec", PLANS, ids=lambda spec: spec["method"])
def test_a_plan_has_noise_in_what_it_counts_of_small_cells(spec: dict[str, Any]) -> None:
    plan = ss.plan(make_file(1), spec)
    assert plan.least_tolerance == TOLERANCE
    shown = [plan.blur(rare.Noise(key=ss.Key(bytes([number]) * 32), tolerance=TOLERANCE).add) for number in range(30)]
    assert len({each.asked for each in shown}) > 3
    assert len({each.sentence for each in shown}) > 3
    assert all(each.is_feasible == plan.is_feasible for each in shown)
    assert plan.blur(NOISE.add).as_dict() == plan.blur(NOISE.add).as_dict()


def test_a_fraction_to_be_kept_gives_no_second_figure() -> None:
    data = file_of_two(0)
    shown = set()
    for part in (1.0, 0.97, 0.9, 0.8):
        shown.add(
            ss.plan(
                data, {"method": "edit_targeted", "keys": ["a", "b"], "exchange": "categorical", "keep_fraction": part}
            )
            .blur(NOISE.add)
            .below
        )
    assert len(shown) == 1


def test_suggested_keys_of_other_names_have_the_same_figures() -> None:
    table = make_file(1).table
    seen = set()
    for names in (("a", "b"), ("c", "b"), ("z", "y")):
        renamed = table.select(["id", "a", "b"]).rename_columns(["id", *names])
        data = ss.read(renamed, identifier="id", kinds=dict.fromkeys(names, "nominal"))
        ranked = perturb_suggestions(rank_keys(data, among=names, most=2, below=TOLERANCE), NOISE.add)
        seen.add(tuple((each.unique, each.found) for each in ranked.suggestions))
    assert len(seen) == 1
