"""Whole households change places: what is promised of the result, what is refused, and what sdcMicro's tests ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.household_strategies import example, inputs, persons

import safeswap as ss
from safeswap import datasets
from safeswap.errors import InfeasibleError, InputError, SpecError
from safeswap.methods.household_swap import households
from safeswap.methods.household_swap.method import HouseholdPlan, HouseholdsStayTogether, HouseholdSwap, KeptHouseholds
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.methods.household_swap.swapping import Population
from safeswap.model.invariant import verify
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.on_disk.audit_record import read_audit_record

KEY = ss.Key(bytes(range(32)))
LEVELS = ("level0", "level1", "level2")


def swapped_households(masked: Masked, household: str = "hh", level: str = "level2") -> set[Any]:
    before, after = masked.original.table, masked.data.table
    rows = zip(before[household].to_pylist(), before[level].to_pylist(), after[level].to_pylist(), strict=True)
    return {number for number, old, new in rows if old != new}


def areas_of(data: Microdata, level: str = "level2") -> dict[Any, set[Any]]:
    found: dict[Any, set[Any]] = {}
    for number, area in zip(data.table["hh"].to_pylist(), data.table[level].to_pylist(), strict=True):
        found.setdefault(number, set()).add(area)
    return found


def required_levels(data: Microdata, names: tuple[str, ...], k: int) -> dict[Any, int]:
    """Return the topmost level at which a member of a household has fewer than k like it, counted by hand."""
    columns = [data.table[name].to_pylist() for name in names]
    found: dict[Any, int] = {}
    for place, level in reversed(list(enumerate(LEVELS))):
        cells = list(zip(data.table[level].to_pylist(), *columns, strict=True))
        counts: dict[Any, int] = {}
        for cell in cells:
            counts[cell] = counts.get(cell, 0) + 1
        for number, cell in zip(data.table["hh"].to_pylist(), cells, strict=True):
            if counts[cell] < k:
                found[number] = place
    return found


@settings(max_examples=15, deadline=None)
@given(tried=inputs(), match_size=st.booleans())
def test_promises_hold_and_undoing_restores_the_file(
    tried: tuple[Microdata, HouseholdSwapSpec],
    match_size: bool,
) -> None:
    data, spec = tried
    spec = spec.replace(match_size=match_size)
    masked = HouseholdSwap().apply(data, spec, key=KEY)
    promises = HouseholdSwap().invariants(data, spec)
    found = verify(promises, before=data, after=masked.data, audit=masked.audit)
    assert [finding for finding in found if not finding.ok] == []
    assert masked.undo().table.equals(data.table)
    facts = masked.audit.facts
    assert facts["at_risk_swapped"] + facts["at_risk_left"] == facts["households_at_risk"]
    assert facts["largest_number_proved"]


@pytest.mark.parametrize("match_size", [True, False])
def test_households_at_risk_leave_the_area_in_which_they_are_rare(match_size: bool) -> None:
    data, spec = example()
    spec = spec.replace(rate=0.0, rounds=1, k=2, match_size=match_size)
    masked = ss.mask(data, spec, key=KEY)
    required = required_levels(data, ("origin", "age"), 2)
    assert masked.audit.facts["households_at_risk"] == len(required)
    assert masked.audit.facts["at_risk_left"] == 0
    for level, name in enumerate(LEVELS):
        before, after = areas_of(data, name), areas_of(masked.data, name)
        for number, topmost in required.items():
            if level >= topmost:
                assert before[number] != after[number]


def test_partners_get_each_others_whole_path_and_what_is_carried_along() -> None:
    data, spec = example()
    masked = ss.mask(data, spec, key=KEY)
    names = (*LEVELS, "grid")
    rows = list(zip(*(data.table[name].to_pylist() for name in names), strict=True))
    after = list(zip(*(masked.data.table[name].to_pylist() for name in names), strict=True))
    (exchange,) = masked.audit.exchanges
    assert set(exchange.attributes) == set(names)
    for one, other in exchange.pairs.tolist():
        assert after[one] == rows[other]
        assert after[other] == rows[one]
    untouched = set(range(len(rows))) - set(exchange.pairs.ravel().tolist())
    assert all(rows[row] == after[row] for row in untouched)


@pytest.mark.parametrize("order", ["reversed", "shuffled"])
def test_the_order_of_the_rows_plays_no_part_without_an_identifier(order: str) -> None:
    data = persons(4, 120, identified=False)
    rows = np.arange(len(data))[::-1] if order == "reversed" else np.random.default_rng(0).permutation(len(data))
    spec = HouseholdSwapSpec(risk_variables=("origin",), rate=0.1)
    other = Microdata(data.table.take(pa.array(rows)), data.schema)
    one, two = (ss.mask(each, spec, key=KEY).data.table for each in (data, other))
    assert one.take(pa.array(rows)).select(LEVELS).to_pydict() == two.select(LEVELS).to_pydict()


@pytest.mark.parametrize("seed", [6, 8, 9, 14])
def test_the_order_of_the_rows_plays_no_part_where_areas_are_unknown(seed: int) -> None:
    """A household without an area has no say in the order of the areas, whichever was read first."""
    data = persons(seed, 60, identified=False)
    for row in range(0, len(data), 9):
        data = changed(data, "level2", row, None)
    spec = HouseholdSwapSpec(risk_variables=("origin",), rate=1.0, rounds=1, missing_geography="immovable")
    rows = pa.array(np.arange(len(data))[::-1])
    one, two = (
        ss.mask(each, spec, key=KEY).data.table for each in (data, Microdata(data.table.take(rows), data.schema))
    )
    assert one.take(rows).select(LEVELS).to_pydict() == two.select(LEVELS).to_pydict()


def test_later_rounds_leave_fewer_rare_and_in_their_true_area() -> None:
    data, spec = example()
    once, often = (ss.mask(data, spec.replace(rounds=rounds), key=KEY).audit.facts for rounds in (1, 3))
    assert often["rare_and_true"]["level2"] < once["rare_and_true"]["level2"]
    assert often["required_by_later_rounds"][0] > 0


def test_the_figures_by_level_are_those_counted_by_hand() -> None:
    data, spec = example()
    masked = ss.mask(data, spec, key=KEY)
    facts = masked.audit.facts
    for level in LEVELS:
        moved = {n for n, was in areas_of(data, level).items() if areas_of(masked.data, level)[n] != was}
        assert facts["crossing"][level] == pytest.approx(len(moved) / facts["households_swapped"])
        rare = _rare_rows(masked.data, level, 3)
        stayed = [
            a == b for a, b in zip(data.table[level].to_pylist(), masked.data.table[level].to_pylist(), strict=True)
        ]
        assert facts["rare_before"][level] == sum(_rare_rows(data, level, 3))
        assert facts["rare_after"][level] == sum(rare)
        assert facts["rare_and_true"][level] == sum(r and s for r, s in zip(rare, stayed, strict=True))
        assert facts["misplaced"][level] == pytest.approx(_misplaced(data, masked.data, level))
    assert [row["rare and in the true area"] for row in facts["by_level"]] == list(facts["rare_and_true"].values())
    assert facts["by_profile"] == _pairs_by_profile(masked, [("tenure", "kind"), ("tenure",)])
    assert sum(row["pairs"] for row in facts["by_profile"]) * 2 == facts["households_swapped"]
    assert 0 <= facts["undoing"]["baseline"] < facts["undoing"]["intruder"] <= 1


@pytest.mark.parametrize("table", [True, False])
def test_persons_outside_of_households_count_in_the_figures(table: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not table:
        monkeypatch.setattr(Population, "_fits_table", False)
    data, spec = example()
    for row in range(0, len(data), 20):
        data = changed(data, "hh", row, None)
    masked = ss.mask(data, spec.replace(missing_household="outside"), key=KEY)
    facts = masked.audit.facts
    for level in LEVELS:
        before, after = (each.table[level].to_pylist() for each in (data, masked.data))
        rare = _rare_rows(masked.data, level, 3)
        assert facts["rare_before"][level] == sum(_rare_rows(data, level, 3))
        assert facts["rare_after"][level] == sum(rare)
        assert facts["rare_and_true"][level] == sum(r and a == b for r, a, b in zip(rare, before, after, strict=True))
        assert facts["misplaced"][level] == pytest.approx(_misplaced(data, masked.data, level))


def _pairs_by_profile(masked: Masked, profiles: list[tuple[str, ...]]) -> list[dict[str, Any]]:
    table = masked.original.table
    numbers = table["hh"].to_pylist()
    partners = {
        frozenset((numbers[a], numbers[b])): (a, b) for e in masked.audit.exchanges for a, b in e.pairs.tolist()
    }
    counts = dict.fromkeys(profiles, 0)
    for one, other in partners.values():
        counts[next(p for p in profiles if all(table[name][one] == table[name][other] for name in p))] += 1
    return [{"partners agree in": ", ".join((*p, "number of persons")), "pairs": n} for p, n in counts.items()]


def _cells(data: Microdata, level: str) -> list[Any]:
    return list(zip(*(data.table[name].to_pylist() for name in (level, "origin", "age")), strict=True))


def _rare_rows(data: Microdata, level: str, k: int) -> list[bool]:
    cells = _cells(data, level)
    counts: dict[Any, int] = {}
    for cell in cells:
        counts[cell] = counts.get(cell, 0) + 1
    topmost = LEVELS.index(level)
    above = [False] * len(cells) if topmost == 0 else _rare_rows(data, LEVELS[topmost - 1], k)
    return [a or counts[cell] < k for a, cell in zip(above, cells, strict=True)]


def _misplaced(before: Microdata, after: Microdata, level: str) -> float:
    change: dict[Any, int] = {}
    for cell in _cells(before, level):
        change[cell] = change.get(cell, 0) - 1
    for cell in _cells(after, level):
        change[cell] = change.get(cell, 0) + 1
    return sum(map(abs, change.values())) / 2 / len(before)


def test_the_plan_tells_what_will_be_needed() -> None:
    data, spec = example()
    plan = ss.plan(data, spec.replace(rate=0.01, rounds=1))
    assert isinstance(plan, HouseholdPlan)
    required = required_levels(data, ("origin", "age"), 3)
    assert plan.asked == len(required) == sum(plan.at_risk.values())
    assert plan.at_risk["level0"] == sum(level == 0 for level in required.values())
    assert plan.rate_needed > 0.01
    assert "because of those at risk" in plan.sentence
    assert f"({plan.crossing['level0']:.1%} of them to another level0, " in plan.sentence
    assert set(plan.needing_less) == {
        "k=2",
        "origin left out of the risk variables",
        "age left out of the risk variables",
        "the riskiest only, up to the rate",
    }
    assert plan.needing_less["the riskiest only, up to the rate"] <= 0.01
    assert all(rate < plan.rate_needed for rate in plan.needing_less.values())
    masked = ss.mask(data, spec.replace(rate=0.01, rounds=1), key=KEY)
    assert masked.audit.facts["at_risk_swapped"] == plan.feasible


def test_the_plan_says_what_would_help_if_some_have_no_partner() -> None:
    data = persons(11, 60)
    spec = HouseholdSwapSpec(risk_variables=("origin", "age"), similar=(("tenure", "kind"),), k=4)
    plan = ss.plan(data, spec)
    assert not plan.is_feasible
    changes = {each.change: each.feasible for each in plan.relaxations}
    assert changes["match_size=False"] > plan.feasible
    assert set(changes) == {"drop kind in a further profile", "match_size=False", "k=3"}


def test_the_riskiest_come_first_if_the_rate_is_a_limit() -> None:
    data, spec = example()
    spec = spec.replace(rate=0.05, over_rate="riskiest", rounds=1)
    masked = ss.mask(data, spec, key=KEY)
    assert masked.audit.facts["households_swapped"] <= 0.05 * 400
    required = required_levels(data, ("origin", "age"), 3)
    tops = {number for number, level in required.items() if level < 2}
    assert len(tops) > 10  # more than the rate allows
    assert len(swapped_households(masked) & tops) >= 10


# What cannot be swapped


def with_column(data: Microdata, name: str, values: list[Any], kind: Kind = Kind.NOMINAL) -> Microdata:
    if name in data.attributes:
        return Microdata(data.table.set_column(data.attributes.index(name), name, pa.array(values)), data.schema)
    schema = Schema(name="population", attributes=(*data.schema.attributes, Attribute(name=name, kind=kind)))
    return Microdata(data.table.append_column(name, pa.array(values)), schema)


SPEC = HouseholdSwapSpec(risk_variables=("origin",), similar=(("tenure",),), rate=0.1)


def changed(data: Microdata, name: str, row: int, value: Any) -> Microdata:
    values = data.table[name].to_pylist()
    values[row] = value
    return with_column(data, name, values)


def a_row_of_a_large_household(data: Microdata) -> int:
    numbers = data.table["hh"].to_pylist()
    return next(row for row, number in enumerate(numbers) if numbers.count(number) > 1)


def test_a_household_in_two_areas_is_refused() -> None:
    data = persons(1, 40, depth=1)
    row = a_row_of_a_large_household(data)
    other = next(a for a in data.table["level0"].to_pylist() if a != data.table["level0"][row].as_py())
    with pytest.raises(InputError, match="1 household live in more than one area") as caught:
        ss.mask(changed(data, "level0", row, other), SPEC, key=KEY)
    assert caught.value.code == "household-split"
    assert caught.value.fields["households"] == 1
    assert len(caught.value.fields["records"]) >= 2


def test_areas_that_do_not_nest_are_refused() -> None:
    data = persons(1, 40)
    other = next(a for a in data.table["level0"].to_pylist() if a != data.table["level0"][0].as_py())
    with pytest.raises(SpecError, match="do not nest") as caught:
        ss.mask(changed(data, "level0", 0, other), SPEC, key=KEY)
    assert caught.value.code == "geography-not-nested"
    assert caught.value.fields["areas"] == 1
    first = data.table["level1"].to_pylist().index(data.table["level1"][0].as_py(), 1)  # the first not in its area
    assert caught.value.fields["records"][0] == first + 1


def test_profiles_that_do_not_nest_are_refused() -> None:
    with pytest.raises(SpecError, match="profiles do not nest: profile 2 adds 'kind' to profile 1"):
        SPEC.replace(similar=(("tenure",), ("kind",)))
    with pytest.raises(SpecError, match="profiles do not nest: profile 2 adds 'kind' to profile 1"):
        SPEC.replace(similar=(("tenure",), ("tenure", "kind")))
    with pytest.raises(SpecError, match="profiles do not nest: profile 3 is profile 2"):
        SPEC.replace(similar=(("tenure", "kind"), ("tenure",), ("tenure",)))


@pytest.mark.parametrize("role", ["carry_along", "similar"])
def test_what_varies_within_a_household_is_refused(role: str) -> None:
    data = persons(1, 40)
    names: Any = ("grid",) if role == "carry_along" else (("tenure", "kind"),)
    row, name = a_row_of_a_large_household(data), "grid" if role == "carry_along" else "kind"
    broken = changed(data, name, row, -1.0 if name == "grid" else 7)
    with pytest.raises(InputError, match=f"differ in '{name}'") as caught:
        ss.mask(broken, SPEC.replace(**{role: names}), key=KEY)
    assert (caught.value.code, caught.value.fields["attribute"]) == ("varies-within-household", name)


def test_missing_household_numbers_are_refused_or_left_where_they_are() -> None:
    data = persons(1, 40)
    broken = changed(changed(data, "hh", 3, None), "hh", 9, "")
    with pytest.raises(InputError, match="2 persons have no household number 'hh', the first in records 4, 10") as e:
        ss.mask(broken, SPEC, key=KEY)
    assert e.value.code == "missing-household"
    masked = ss.mask(broken, SPEC.replace(missing_household="outside"), key=KEY)
    assert masked.audit.facts["persons_outside_households"] == 2
    for level in LEVELS:
        assert all(masked.data.table[level][row] == broken.table[level][row] for row in (3, 9))


@pytest.mark.parametrize("area", [None, "a"])
def test_persons_without_any_household_are_refused_or_left_alone(area: str | None) -> None:
    schema = Schema(attributes=(Attribute(name="hh", kind=Kind.HOUSEHOLD), Attribute(name="area", kind=Kind.GEOGRAPHY)))
    table = pa.table({"hh": pa.nulls(3, pa.string()), "area": pa.array(["a", "b", area])})
    spec = HouseholdSwapSpec(missing_household="outside", missing_geography="immovable", rate=0.5)
    for some in (table, table.slice(0, 0)):
        data = Microdata(some, schema)
        with pytest.raises(InfeasibleError, match="there is no household to swap"):
            ss.mask(data, spec, key=KEY)
        assert ss.mask(data, spec.replace(rate=0.0), key=KEY).data.table.equals(some)


def test_missing_geography_is_refused_or_immovable() -> None:
    data = persons(1, 60)
    row = a_row_of_a_large_household(data)
    broken = changed(data, "level1", row, None)
    with pytest.raises(
        InputError, match=f"1 person lacks a code of the geography, the first in record {row + 1}$"
    ) as caught:
        ss.mask(broken, SPEC, key=KEY)
    assert (caught.value.code, caught.value.fields["records"]) == ("missing-geography", [row + 1])
    masked = ss.mask(broken, SPEC.replace(missing_geography="immovable", rate=1.0), key=KEY)
    assert masked.audit.facts["without_geography"] == 1
    number = data.table["hh"][row].as_py()
    mates = [r for r, n in enumerate(data.table["hh"].to_pylist()) if n == number]
    assert all(masked.data.table["level2"][r] == data.table["level2"][r] for r in mates)


def test_one_household_and_one_area_are_refused() -> None:
    data = persons(1, 40, depth=1)
    first = data.table["hh"][0].as_py()
    alone = Microdata(data.table.filter(pa.compute.equal(data.table["hh"], first)), data.schema)
    with pytest.raises(InfeasibleError, match="one household") as caught:
        ss.mask(alone, SPEC, key=KEY)
    assert caught.value.code == "single-household"
    one = with_column(data, "level0", ["a"] * len(data))
    with pytest.raises(InfeasibleError, match="one area") as caught:
        ss.mask(one, SPEC, key=KEY)
    assert (caught.value.code, caught.value.fields["households"]) == ("single-area", 40)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"risk": ("grid",)}, "threshold"),
        ({"threshold": 0.5}, "threshold needs risk"),
        ({"risk": ("grid",), "threshold": 0.5}, "not both"),
        ({"communal": "kind"}, "belong together"),
        ({"units": "communal"}, "marks them"),
        ({"carry_along": ("level0",)}, "anyway"),
        ({"carry_along": ("tenure",)}, "another role"),
        ({"similar": (("tenure", "tenure"),)}, "twice"),
        ({"geography": ("level0", "level0")}, "twice"),
    ],
)
def test_contradictions_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        HouseholdSwapSpec(**{"geography": LEVELS, **SPEC.model_dump(exclude_unset=True), **values})


def test_a_file_without_households_or_geography_is_refused() -> None:
    table = pa.table({"hh": [1, 2], "a": ["x", "y"]})
    plain = Microdata(table, Schema(attributes=(Attribute(name="hh"), Attribute(name="a"))))
    with pytest.raises(SpecError, match="no household number") as caught:
        ss.mask(plain, {"method": "household_swap", "rate": 0.1}, key=KEY)
    assert caught.value.code == "no-household"
    with pytest.raises(SpecError, match="no geography") as caught:
        ss.mask(plain, {"method": "household_swap", "household": "hh", "rate": 0.1}, key=KEY)
    assert caught.value.code == "no-geography"


def test_communal_establishments_stay_and_are_swapped_in_a_run_of_their_own() -> None:
    people = datasets.synthetic_population(20_000)
    spec = HouseholdSwapSpec(
        risk_variables=("ORIGIN", "AGE"), rate=0.3, communal="HTYPE", communal_values=("communal",), match_size=False
    )
    masked = ss.mask(people, spec, key=KEY)
    kinds = dict(zip(people.table["HID"].to_pylist(), people.table["HTYPE"].to_pylist(), strict=True))
    moved = swapped_households(masked, "HID", "AREA")
    assert masked.audit.facts["communal_establishments"] == sum(kind == "communal" for kind in kinds.values()) > 5
    assert {kinds[number] for number in moved} == {"private"}
    own = swapped_households(ss.mask(people, spec.replace(units="communal"), key=KEY), "HID", "AREA")
    assert {kinds[number] for number in own} == {"communal"}


def test_codes_that_restart_in_each_coarser_area_name_areas_together() -> None:
    data, spec = example()
    table = data.table
    for level in LEVELS[1:]:
        last = pa.array([text[-1] for text in table[level].to_pylist()])
        table = table.set_column(data.attributes.index(level), level, last)
    local = Microdata(table, data.schema)
    masked = ss.mask(local, spec.replace(geography_codes="local"), key=KEY)
    promises = HouseholdSwap().invariants(local, masked.spec)
    assert all(f.ok for f in verify(promises, before=local, after=masked.data, audit=masked.audit))
    with pytest.raises(SpecError, match="do not nest"):
        ss.mask(local, spec, key=KEY)


def test_a_promise_finds_a_household_torn_apart() -> None:
    data, spec = example()
    masked = ss.mask(data, spec, key=KEY)
    row = int(masked.audit.exchanges[0].pairs[0, 0])
    torn = changed(masked.data, "level2", row, "nowhere")
    for promise in (HouseholdsStayTogether((*LEVELS, "grid"), "hh"), KeptHouseholds(("level2", "tenure"), "hh")):
        size = data.table["hh"].to_pylist().count(data.table["hh"][row].as_py())
        found = promise.check(data, torn, masked.audit)
        assert not found.ok or (size == 1 and isinstance(promise, HouseholdsStayTogether))
        assert promise.check(data, masked.data, masked.audit).ok


# Files


def test_a_parquet_file_is_masked_as_in_memory_and_undone(tmp_path: Path) -> None:
    datasets.write_synthetic_population(tmp_path / "people.parquet", 4_000)
    schema = datasets.synthetic_population_schema()
    spec = HouseholdSwapSpec(risk_variables=("ORIGIN", "AGE"), similar=(("TENURE",),), rate=0.05)
    people = ss.read(tmp_path / "people.parquet", schema=schema)
    expected = ss.mask(people, spec, key=KEY)
    done = ss.workflow.mask_file(
        tmp_path / "people.parquet",
        tmp_path / "masked.parquet",
        spec,
        audit=tmp_path / "audit",
        key=KEY,
        schema=schema,
    )
    after = ss.read(tmp_path / "masked.parquet", schema=schema)
    for level in datasets.POPULATION_GEOGRAPHY:
        assert after.table[level].to_pylist() == expected.data.table[level].to_pylist()
    assert done.facts["households_swapped"] == expected.audit.facts["households_swapped"]
    assert all(finding.ok for finding in done.findings)
    record = read_audit_record(done.audit)
    assert ss.undo(after, record.audit).table.select(["AREA"]).equals(people.table.select(["AREA"]))


# What sdcMicro's own tests of recordSwap ask (tests/testthat/test_recordSwap_outputs.R of sdcMicro 5.8), for ours


@pytest.fixture(scope="module")
def plain() -> Microdata:
    return persons(21, 600)


def record_swap(data: Microdata, **more: Any) -> Masked:
    given = {"hid": "hh", "hierarchy": LEVELS, "similar": ["kind"], "risk_variables": ["origin"], "key": KEY}
    return ss.record_swap(data, **{**given, **more})


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.2])
def test_as_many_households_are_swapped_as_the_rate_says(plain: Microdata, rate: float) -> None:
    swapped = swapped_households(record_swap(plain, swaprate=rate, k_anonymity=0))
    assert abs(len(swapped) - 600 * rate) < 2


def test_geography_stays_constant_within_households_and_others_are_unchanged(plain: Microdata) -> None:
    masked = record_swap(plain, carry_along=["grid"])
    assert all(len(found) == 1 for level in LEVELS for found in areas_of(masked.data, level).values())
    names = [name for name in plain.attributes if name not in (*LEVELS, "grid")]
    assert masked.data.table.select(names).equals(plain.table.select(names))
    swapped = swapped_households(masked)
    rows = [i for i, number in enumerate(plain.table["hh"].to_pylist()) if number not in swapped]
    assert masked.data.table.take(pa.array(rows)).equals(plain.table.take(pa.array(rows)))


def test_the_new_region_is_the_old_one_of_the_partner(plain: Microdata) -> None:
    masked = record_swap(plain, carry_along=["grid"])
    old, new = areas_of(plain, "grid"), areas_of(masked.data, "grid")
    owner = {next(iter(grid)): number for number, grid in old.items()}  # the grid is different for every household
    swapped = swapped_households(masked)
    partner = {number: owner[next(iter(new[number]))] for number in swapped}
    assert all(partner[partner[number]] == number for number in swapped)
    assert all(areas_of(masked.data)[number] == areas_of(plain)[partner[number]] for number in swapped)


def test_a_larger_k_swaps_no_fewer(plain: Microdata) -> None:
    sizes = [len(swapped_households(record_swap(plain, swaprate=0.0, k_anonymity=k))) for k in (0, 2, 3, 4)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
    assert sizes[2] > sizes[1]


def test_households_at_risk_at_the_top_level_leave_the_top_area(plain: Microdata) -> None:
    variables = ["origin", "age", "tenure", "kind"]
    masked = record_swap(plain, risk_variables=variables, swaprate=0.0)
    tops = [n for n, level in required_levels(plain, tuple(variables), 3).items() if level == 0]
    assert tops
    before, after = areas_of(plain, "level0"), areas_of(masked.data, "level0")
    assert all(before[number] != after[number] for number in tops)


def test_a_risk_matrix_and_no_rate_swaps_those_at_risk_and_their_partners_only(plain: Microdata) -> None:
    numbers = plain.table["hh"].to_pylist()
    chosen = set(sorted(set(numbers))[:40])
    matrix = np.array([[0.9 if number in chosen else 0.01] * 3 for number in numbers])
    masked = record_swap(plain, risk=matrix, risk_threshold=0.5, swaprate=0.0, similar=[])
    swapped = swapped_households(masked)
    assert swapped >= chosen
    assert len(swapped) == masked.audit.facts["households_swapped"] <= 2 * len(chosen)
    assert masked.data.attributes == plain.attributes
    assert masked.undo().table.equals(plain.table)
    only = record_swap(plain, risk=matrix, risk_threshold=0.5, swaprate=0.0, similar=[], carry_along=["grid"])
    assert swapped_households(only) == chosen  # forty find partners among themselves


def test_a_risk_column_works_as_a_matrix_does(plain: Microdata) -> None:
    values = np.random.default_rng(3).random(len(plain)) ** 6
    wide = with_column(plain, "own", values.tolist(), Kind.NUMERIC)
    one = record_swap(wide, risk="own", risk_threshold=0.5, swaprate=0.0)
    other = record_swap(plain, risk=np.stack([values] * 3, axis=1), risk_threshold=0.5, swaprate=0.0)
    assert one.data.table.select(LEVELS).equals(other.data.table.select(LEVELS))
    risky = {n for n, value in zip(plain.table["hh"].to_pylist(), values, strict=True) if value >= 0.5}
    assert swapped_households(one) >= risky


def test_codes_of_a_dataframe_are_areas_and_categories_as_named(plain: Microdata) -> None:
    """Numbers that nobody has described are what the arguments say; what the schema states is kept."""
    numbered = [pa.array(data.coded(name).codes) for data, name in ((plain, each) for each in plain.attributes)]
    frame = pl.DataFrame(dict(zip(plain.attributes, numbered, strict=True))).with_columns(pl.col("level2") * 1000)
    assert ss.read(frame).schema["level2"].kind is Kind.NUMERIC
    masked = record_swap(frame, risk_variables=["origin", "age"])
    assert {masked.data.schema[name].kind for name in LEVELS} == {Kind.GEOGRAPHY}
    assert 0 < len(swapped_households(masked)) < 200
    assert isinstance(ss.to_frame(masked.data), pl.DataFrame)
    stated = ss.read(frame).schema["level2"].model_copy(update={"inferred": False})
    data = ss.read(frame)
    with pytest.raises(SpecError) as caught:
        record_swap(Microdata(data.table, data.schema.replace(stated)))
    assert caught.value.code == "not-geography"
    assert 'the kind "geography"' in str(caught.value.hint)


@pytest.mark.parametrize("risk", [np.zeros((3, 3)), "text that names no column", [["x"]]])
def test_a_risk_that_does_not_fit_is_refused(plain: Microdata, risk: Any) -> None:
    with pytest.raises(SpecError):
        record_swap(plain, risk=risk, risk_threshold=0.5)


def test_persons_without_a_risk_are_counted_and_named(plain: Microdata) -> None:
    risk = np.zeros((len(plain), 3))
    risk[[4, 7], 1] = np.nan
    with pytest.raises(InputError) as caught:
        record_swap(plain, risk=risk, risk_threshold=0.5)
    found = caught.value
    assert (found.code, found.fields["persons"], found.fields["records"]) == ("missing-risk", 2, [5, 8])


def test_a_threshold_without_a_risk_is_refused(plain: Microdata) -> None:
    with pytest.raises(SpecError) as caught:
        record_swap(plain, risk_threshold=0.5)
    assert caught.value.fields["argument"] == "risk_threshold"


def test_profiles_of_record_swap_must_nest(plain: Microdata) -> None:
    masked = record_swap(plain, similar=[["kind", "tenure"], ["kind"]])
    assert len(masked.audit.facts["by_profile"]) == 2
    with pytest.raises(SpecError, match="do not nest"):
        record_swap(plain, similar=[["kind"], ["tenure"]])
    alone = record_swap(plain, similar="kind")
    assert alone.data.table.equals(record_swap(plain, similar=["kind"]).data.table)


def test_equal_draws_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.array([[5, 2], [5, 1], [3, 9]], dtype=np.uint64)
    monkeypatch.setattr(households.keyed, "encrypt", lambda blocks, key: words)
    draws = households._draw(pa.array([1, 2, 3]), KEY, bytes(32))
    assert draws.argsort().tolist() == [2, 1, 0]


@pytest.mark.parametrize("persons_wanted", [1, 7, 1_000, 60_000])
def test_a_synthetic_population_nests_and_is_the_same_each_time(persons_wanted: int) -> None:
    one, other = datasets.synthetic_population(persons_wanted), datasets.synthetic_population(persons_wanted)
    assert one.table.equals(other.table)
    assert len(one) == persons_wanted
    table = one.table
    for coarse, fine in zip(datasets.POPULATION_GEOGRAPHY, datasets.POPULATION_GEOGRAPHY[1:], strict=False):
        pairs = table.group_by([coarse, fine]).aggregate([]).num_rows
        assert pairs == len(table[fine].unique())
    for name in ("AREA", "HSIZE", "HTYPE", "TENURE", "WEIGHT"):
        assert table.group_by(["HID", name]).aggregate([]).num_rows == len(table["HID"].unique())


@pytest.mark.parametrize("match_size", [True, False])
def test_wide_numbers_of_large_files_give_the_same_records(match_size: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data, spec = example()
    spec = spec.replace(match_size=match_size)
    narrow = ss.mask(data, spec, key=KEY)
    counted = households._count_members
    monkeypatch.setattr(households, "_profile_type", lambda _: np.int32)
    monkeypatch.setattr(households, "_count_members", lambda *given: counted(*given).astype(np.uint32))
    wide = ss.mask(Microdata(data.table, data.schema), spec, key=KEY)
    assert wide.data.table.equals(narrow.data.table)
    assert not wide.data.table.equals(data.table)
