"""Risk and suppression where the household is the unit, against counts that share no code with them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safeswap as ss
from safeswap import registry
from safeswap.errors import InfeasibleError, SpecError
from safeswap.measures.risk.risky import risky
from safeswap.model.invariant import verify
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario
from safeswap.model.schema import Attribute, Schema

KEY = ss.Key(bytes(range(32)))
KEYS = ("region", "sex", "age")
SCHEMA = Schema(
    attributes=(
        Attribute(name="home", kind="household"),
        Attribute(name="region", household=True),
        Attribute(name="sex"),
        Attribute(name="age"),
    )
)
Person = tuple[Any, ...]


@st.composite
def files(draw: st.DrawFn) -> Microdata:
    """Some households of one to four, persons outside any, and missing answers."""
    rows: list[Person] = []
    for home in range(draw(st.integers(2, 7))):
        region = draw(st.sampled_from("ab"))
        number = home if draw(st.integers(0, 5)) else None
        for _ in range(draw(st.integers(1, 4)) if number is not None else 1):
            rows.append((number, region, draw(st.sampled_from("fm")), draw(st.sampled_from(["1", "2", None]))))
    order = draw(st.permutations(rows))
    columns = zip(*order, strict=True)
    types = (pa.int64(), pa.string(), pa.string(), pa.string())
    arrays = [pa.array(list(values), kind) for values, kind in zip(columns, types, strict=True)]
    return Microdata(pa.table(dict(zip(SCHEMA.names, arrays, strict=True))), SCHEMA)


def homes_of(data: Microdata) -> list[list[Person]]:
    """The members of each household; a person without one alone."""
    groups: dict[Any, list[Person]] = {}
    for row, person in enumerate(zip(*(c.to_pylist() for c in data.table.columns), strict=True)):
        groups.setdefault(("alone", row) if person[0] is None else person[0], []).append(person)
    return list(groups.values())


def cell_of(home: list[Person], keys: tuple[str, ...] = KEYS) -> tuple[Any, ...]:
    places = [SCHEMA.names.index(name) for name in keys if name != "region"]
    own = home[0][1] if "region" in keys else ""
    return own, tuple(sorted(tuple(str(person[place]) for place in places) for person in home)) if places else ()


def scored(data: Microdata, measure: str, **more: Any) -> Any:
    scenario = Scenario(keys=KEYS, unit="household", **more)
    return ss.assess(data, data, measures=[measure], scenario=scenario).scores[0]


@settings(max_examples=40, deadline=None)
@given(files(), st.integers(2, 4))
def test_k_anonymity_counts_households_of_one_composition(data: Microdata, k: int) -> None:
    homes = homes_of(data)
    sizes = Counter(map(cell_of, homes))
    unsafe = sum(sizes[cell_of(home)] < k for home in homes)
    score = scored(data, "k_anonymity", tolerance=k)
    assert score.value == pytest.approx(unsafe / len(homes))
    assert "household" in score.sentence


@settings(max_examples=40, deadline=None)
@given(files())
def test_the_risk_of_a_household_is_that_of_finding_any_member(data: Microdata) -> None:
    homes = homes_of(data)
    everyone = [person for home in homes for person in home]

    def risk(person: Person) -> float:
        """One over the persons who agree in all keys that are known of this one, and have these keys."""
        known = [place for place in (1, 2, 3) if person[place] is not None]
        return 1 / sum(all(other[place] == person[place] for place in known) for other in everyone)

    risks = [1 - prod(1 - risk(person) for person in home) for home in homes]
    mean = sum(each * len(home) for each, home in zip(risks, homes, strict=True)) / len(everyone)
    score = scored(data, "individual_risk")
    assert score.value == pytest.approx(mean)
    (detail,) = score.detail.to_pylist()
    assert detail["highest"] == pytest.approx(max(risks))
    assert detail["expected_households"] == pytest.approx(sum(risks))
    assert detail["households"] == len(homes)


@settings(max_examples=30, deadline=None)
@given(files())
def test_special_unique_households_are_unique_in_few_keys(data: Microdata) -> None:
    homes = homes_of(data)
    described = [tuple(cell_of(home, (name,)) for name in KEYS) for home in homes]
    special = 0
    for one in described:
        sets = (c for size in (1, 2, 3) for c in combinations(range(3), size))
        special += any(sum(all(o[i] == one[i] for i in chosen) for o in described) == 1 for chosen in sets)
    assert scored(data, "suda2", up_to=3).value == pytest.approx(special / len(homes))


@settings(max_examples=30, deadline=None)
@given(files(), st.integers(2, 3))
def test_unsafe_combinations_of_households_are_counted_with_members_together(data: Microdata, tolerance: int) -> None:
    homes = homes_of(data)
    if tolerance > len(homes):
        return
    expected = 0
    for size in (1, 2, 3):
        for keys in combinations(KEYS, size):
            sizes = Counter(cell_of(home, keys) for home in homes)
            expected += sum(number < tolerance for number in sizes.values())
    assert risky(data, Scenario(keys=KEYS, unit="household", tolerance=tolerance)).unsafe == expected


def test_the_n_rule_counts_households_that_took_no_part() -> None:
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 4, 80)
    home = np.repeat(np.arange(80), sizes)
    region = rng.choice(list("abc"), 80)[home]
    table = {"home": home, "region": region, "sex": rng.choice(list("fm"), len(home)), "age": ["1"] * len(home)}
    data = Microdata(pa.table(table), SCHEMA)
    masked = ss.swap(data, swap=["region"], rate=0.3, key=KEY)
    homes = homes_of(masked.data)
    counts = Counter(cell_of(each, ("region", "sex")) for each in homes)
    took = {int(number) for number in np.array(table["home"])[masked.audit.touched()]}
    left = [each for each in homes if each[0][0] not in took]
    expected = sum(counts[cell_of(each, ("region", "sex"))] < 3 for each in left) / len(left)
    scenario = {"keys": ["region", "sex"], "unit": "household"}
    score = ss.assess(masked, measures=["n_rule"], scenario=scenario).scores[0]
    assert score.value == pytest.approx(expected)
    assert score.before == pytest.approx(
        sum(number for number in Counter(cell_of(e, ("region", "sex")) for e in homes_of(data)).values() if number < 3)
        / len(homes)
    )


def test_measures_that_count_persons_are_refused() -> None:
    data = Microdata(
        pa.table({"home": [1, 1, 2], "region": list("aab"), "sex": list("fmf"), "age": list("121")}), SCHEMA
    )
    for measure in ("l_diversity:sensitive=age", "unsafe_share"):
        with pytest.raises(SpecError) as caught:
            ss.assess(data, data, measures=[measure], scenario={"keys": ["region", "sex"], "unit": "household"})
        assert caught.value.code == "unit-not-supported"


def unsafe_by_hand(data: Microdata, tolerance: int, *, households: bool) -> int:
    """Combinations of up to three keys that occur with too few persons, or in too few households."""
    found = 0
    homes = homes_of(data)
    for size in (1, 2, 3):
        for keys in combinations((1, 2, 3), size):
            seen: dict[Any, list[int]] = {}
            for number, home in enumerate(homes):
                for person in home:
                    values = tuple(person[place] for place in keys)
                    if None not in values:
                        seen.setdefault(values, []).append(number)
            found += sum(len(set(each) if households else each) < tolerance for each in seen.values())
    return found


@settings(max_examples=50, deadline=None)
@given(files(), st.integers(2, 3), st.booleans())
def test_suppression_blanks_for_all_members_and_leaves_nothing_unsafe(
    data: Microdata, tolerance: int, households: bool
) -> None:
    spec = {"method": "suppress", "keys": list(KEYS), "tolerance": tolerance}
    spec |= {"unit": "household" if households else "person"}
    if tolerance > len(data):
        return
    masked = ss.mask(data, spec, key=KEY)
    assert unsafe_by_hand(masked.data, tolerance, households=households) == 0
    for home in homes_of(masked.data):
        assert len({person[1] for person in home}) == 1
    for name in KEYS:
        both = zip(data.table[name].to_pylist(), masked.data.table[name].to_pylist(), strict=True)
        assert all(now in (None, was) for was, now in both)
    promises = registry.method("suppress").invariants(data, masked.spec)
    assert all(found.ok for found in verify(promises, before=data, after=masked.data, audit=masked.audit))
    assert masked.undo().table.equals(data.table)
    if unsafe_by_hand(data, tolerance, households=households) == 0:
        assert masked.data.table.equals(data.table)


def test_a_blank_of_a_large_household_costs_more_than_one_of_a_member() -> None:
    """One unsafe member of five: a blank of the member's own key, not of the region of all five."""
    table = {
        "home": [1] * 5 + [2] * 5,
        "region": list("a" * 5 + "b" * 5),
        "sex": list("fffmm" + "ffffm"),
        "age": ["1"] * 10,
    }
    masked = ss.mask(
        Microdata(pa.table(table), SCHEMA), {"method": "suppress", "keys": ["region", "sex"], "tolerance": 2}, key=KEY
    )
    assert masked.data.table["region"].null_count == 0
    assert masked.data.table["sex"].null_count == 1


def test_a_scenario_gives_suppression_its_unit() -> None:
    spec = registry.make_spec({"method": "suppress", "scenario": {"keys": ["region"], "unit": "household"}})
    assert spec.unit == "household"
    data = Microdata(
        pa.table({"home": [1, 1, 2, 2], "region": list("aabb"), "sex": list("fmfm"), "age": ["1"] * 4}), SCHEMA
    )
    with pytest.raises(InfeasibleError) as caught:
        ss.mask(
            data, {"method": "suppress", "keys": ["region", "sex"], "keep": ["region"], "unit": "household"}, key=KEY
        )
    assert caught.value.code == "cannot-be-safe"
    with pytest.raises(SpecError) as refused:
        ss.mask(data, {"method": "suppress", "keys": ["region"], "missing": "own"}, key=KEY)
    assert refused.value.code == "household-not-supported"
