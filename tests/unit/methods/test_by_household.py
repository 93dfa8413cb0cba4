"""A household attribute is changed for all members of a household or for none, by every method."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.households import persons

import safeswap as ss
from safeswap import registry
from safeswap.errors import EngineError, InfeasibleError, InputError, SpecError
from safeswap.model.households import mark_household_attributes
from safeswap.model.invariant import verify
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEY = ss.Key(bytes(range(32)))
SHARED = ("region", "county", "tenure", "rent")
PLACES = {"swap": ["region", "county"]}
SPECS: dict[str, dict[str, Any]] = {
    "swap": {"method": "swap", **PLACES, "rate": 0.2},
    "swap within composition": {"method": "swap", **PLACES, "rate": 0.2, "fixed": ["sex"]},
    "swap, targeted": {"method": "swap", **PLACES, "rate": 0.2, "targeting": {"keys": ["sex", "tenure"]}},
    "swap, one after the other": {"method": "swap", "swap": ["tenure", "rent"], "rate": 0.2, "mode": "sequential"},
    "swap_permutation": {"method": "swap_permutation", "swap": ["tenure"], "probability": 0.5},
    "rank_swap": {"method": "rank_swap", "attributes": ["rent"]},
    "rank_swap with ends": {"method": "rank_swap", "attributes": ["rent"], "top": 0.05, "bottom": 0.05},
    "pram": {"method": "pram", "attributes": ["tenure"]},
    "noise": {"method": "noise", "attributes": ["rent"]},
    "microaggregation": {"method": "microaggregation", "attributes": ["rent"]},
    "top_bottom": {"method": "top_bottom", "attributes": ["rent"], "top_share": 0.05},
    "suppress": {"method": "suppress", "keys": ["county", "tenure", "sex"]},
    "edit_1990": {"method": "edit_1990", "keys": ["tenure"], "geography": ["region", "county"], "rate": 0.1},
    "edit_targeted": {"method": "edit_targeted", "keys": ["tenure", "sex"], "geography": ["region", "county"]},
}


def marked(data: Microdata, *names: str) -> Microdata:
    return Microdata(data.table, mark_household_attributes(data.schema, names))


DATA = marked(persons(150), *SHARED)


def columns(data: Microdata, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(data.table.column(name).to_pylist() for name in names), strict=True))


def broken(masked: Masked) -> list[str]:
    promises = registry.method(masked.spec.method).invariants(masked.original, masked.spec)
    found = verify(promises, before=masked.original, after=masked.data, audit=masked.audit)
    return [finding.problem for finding in found if not finding.ok]


@pytest.mark.parametrize("name", SPECS)
def test_all_members_or_none(name: str) -> None:
    masked = ss.mask(DATA, SPECS[name], key=KEY)
    homes = defaultdict(set)
    for home, *told in columns(masked.data, "ref", *SHARED):
        homes[home].add(tuple(told))
    assert all(len(told) == 1 for told in homes.values())
    assert masked.audit.changed_attributes
    assert broken(masked) == []
    assert masked.undo().table.equals(DATA.table)
    assert ss.mask(DATA, SPECS[name], key=KEY).data.table.equals(masked.data.table)


@pytest.mark.parametrize("name", [name for name in SPECS if name != "suppress"])
def test_the_result_is_that_of_the_file_of_households(name: str) -> None:
    """Where nothing of the members is looked at: one record per household, masked by itself, in the same way."""
    spec = SPECS[name]
    if "sex" in str(spec):
        pytest.skip("looks at members")
    first = {home: row for row, (home,) in reversed(list(enumerate(columns(DATA, "ref"))))}
    rows = sorted(first.values())
    table = DATA.table.select(["ref", *SHARED]).take(pa.array(rows))
    kinds = [DATA.schema["ref"].model_copy(update={"kind": Kind.IDENTIFIER}), *(DATA.schema[n] for n in SHARED)]
    alone = ss.mask(Microdata(table, Schema(name="persons", attributes=tuple(kinds))), spec, key=KEY)
    told = {home: rest for home, *rest in columns(alone.data, "ref", *SHARED)}
    masked = ss.mask(DATA, spec, key=KEY)
    assert [list(rest) for _, *rest in columns(masked.data, "ref", *SHARED)] == [
        told[home] for (home,) in columns(DATA, "ref")
    ]
    assert masked.audit.made == alone.audit.made


@pytest.mark.parametrize("name", SPECS)
def test_the_order_of_records_does_not_matter(name: str) -> None:
    order = np.random.default_rng(5).permutation(len(DATA))
    shuffled = Microdata(DATA.table.take(pa.array(order)), DATA.schema)
    one, other = (ss.mask(data, SPECS[name], key=KEY).data for data in (DATA, shuffled))
    assert sorted(map(str, columns(one, "person", *SHARED))) == sorted(map(str, columns(other, "person", *SHARED)))


def test_counts_of_persons_stay_within_a_composition() -> None:
    masked = ss.mask(DATA, SPECS["swap within composition"], key=KEY)
    before, after = (Counter(columns(data, "county", "sex")) for data in (DATA, masked.data))
    assert before == after
    effects = registry.method("swap").effects(DATA.schema, masked.spec)
    assert effects[0].within == ("sex",)


def test_without_marks_nothing_is_as_if_there_were_households() -> None:
    plain = persons(150)
    spec = {"method": "swap", **PLACES, "rate": 0.2}
    nominal = plain.schema.replace(plain.schema["ref"].model_copy(update={"kind": Kind.NOMINAL}))
    tables = [ss.mask(Microdata(plain.table, schema), spec, key=KEY).data.table for schema in (plain.schema, nominal)]
    assert tables[0].equals(tables[1])
    own = {"method": "swap", "swap": ["edu"], "rate": 0.2, "fixed": ["region"]}
    assert ss.mask(DATA, own, key=KEY).data.table.equals(ss.mask(plain, own, key=KEY).data.table)


def tiny() -> Microdata:
    schema = Schema(
        attributes=(Attribute(name="home", kind="household"), Attribute(name="region", household=True)),
    )
    return Microdata(pa.table({"home": ["A", "A", "B", "B"], "region": [1, 1, 2, 2]}), schema)


def test_two_households_of_two_exchange_their_region() -> None:
    """One pair of households, four persons change, the margin by persons stays."""
    masked = ss.swap(tiny(), swap=["region"], rate=1.0, key=KEY)
    assert masked.data.table["region"].to_pylist() == [2, 2, 1, 1]
    assert masked.audit.made == 1
    assert int(masked.audit.touched().sum()) == 4
    assert broken(masked) == []


def test_exchanging_one_person_of_each_is_refused() -> None:
    from safeswap.model.audit import Audit, Exchange

    data = tiny()
    alone = Exchange(attributes=("region",), pairs=np.array([[0, 2]]))
    after = data.with_columns({"region": pa.chunked_array([[2, 1, 1, 2]])}, {})
    spec = ss.SwapSpec(swap=["region"], pairs=1)
    promises = registry.method("swap").invariants(data, spec)
    found = verify(promises, before=data, after=after, audit=Audit(records=4, exchanges=(alone,)))
    assert any("several values of region" in finding.problem for finding in found)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("fm")), min_size=2, max_size=14), st.integers(0, 99))
def test_compositions_are_multisets(members: list[tuple[int, str]], seed: int) -> None:
    from safeswap.model.households import compositions, find_households

    schema = Schema(attributes=(Attribute(name="home", kind="household"), Attribute(name="sex")))
    homes, sexes = zip(*members, strict=True)
    numbers = [None if home == 5 else home for home in homes]
    data = Microdata(pa.table({"home": pa.array(numbers, pa.int64()), "sex": list(sexes)}), schema)
    units = find_households(data)
    groups: dict[Any, list[int]] = {}
    for row, home in enumerate(numbers):
        groups.setdefault(("alone", row) if home is None else home, []).append(row)
    assert [sorted(np.flatnonzero(units.of_record == h).tolist()) for h in range(len(units))] == list(groups.values())
    found = compositions(data, ["sex"], units).to_pylist()
    truth = [tuple(sorted(sexes[row] for row in rows)) for rows in groups.values()]
    for i, one in enumerate(truth):
        for j, other in enumerate(truth):
            assert (found[i] == found[j]) == (one == other), seed


def test_persons_outside_households_are_units_of_their_own() -> None:
    table = pa.table({"home": ["1", "1", "0", "0", None], "region": ["a", "a", "b", "c", "a"]})
    kinds = (Attribute(name="home", kind="household", missing=("0",)), Attribute(name="region", household=True))
    data = Microdata(table, Schema(attributes=kinds))
    masked = ss.swap(data, swap=["region"], pairs=2, key=KEY)
    told = masked.data.table["region"].to_pylist()
    assert told[0] == told[1]
    assert masked.plan.details["households"] == 4
    assert broken(masked) == []
    assert masked.undo().table.equals(table)


MIXED: dict[str, dict[str, Any]] = {
    "noise": {"method": "noise", "attributes": ["income", "rent"]},
    "pram": {"method": "pram", "attributes": ["tenure", "edu"]},
    "rank_swap": {"method": "rank_swap", "attributes": ["rent", "expend"]},
    "microaggregation": {"method": "microaggregation", "attributes": ["rent", "income"], "groups": "univariate"},
    "top_bottom": {"method": "top_bottom", "attributes": ["rent", "income"], "top_share": 0.05},
    "swap": {"method": "swap", "swap": ["tenure", "edu"], "rate": 0.2, "mode": "sequential"},
}


@pytest.mark.parametrize("name", MIXED)
def test_what_is_treated_by_itself_is_masked_on_its_own_level(name: str) -> None:
    spec = MIXED[name]
    where = "swap" if name == "swap" else "attributes"
    masked = ss.mask(DATA, spec, key=KEY)
    for attribute in spec[where]:
        alone = ss.mask(DATA, {**spec, where: [attribute]}, key=KEY).data.table[attribute]
        assert masked.data.table[attribute].to_pylist() == alone.to_pylist()
    assert broken(masked) == []
    assert masked.undo().table.equals(DATA.table)
    assert "household" in masked.plan.sentence


def test_mixtures_are_refused_and_named() -> None:
    with pytest.raises(SpecError) as caught:
        ss.swap(DATA, swap=["tenure", "edu"], rate=0.1, key=KEY)
    assert caught.value.code == "household-and-person"
    assert (caught.value.fields["household"], caught.value.fields["person"]) == (["tenure"], ["edu"])
    with pytest.raises(SpecError) as caught:
        ss.swap(DATA, swap=["tenure"], differ=["sex"], rate=0.1, key=KEY)
    assert caught.value.code == "household-and-person"
    with pytest.raises(SpecError) as caught:
        ss.mask(DATA, {"method": "safe", "tables": [["region", "sex"]]}, key=KEY)
    assert caught.value.code == "household-not-supported"


def test_what_varies_within_households_is_refused_with_its_place() -> None:
    wrong = marked(persons(150), *SHARED, "edu")
    with pytest.raises(InputError) as caught:
        ss.swap(wrong, swap=["tenure"], rate=0.1, key=KEY)
    assert caught.value.code == "household-attribute-varies"
    assert caught.value.fields["households"] > 0
    assert caught.value.fields["records"][0] > 1
    county = DATA.table["county"].to_pylist()
    homes = DATA.table["ref"].to_pylist()
    row = next(i for i in range(1, len(homes)) if homes[i] == homes[i - 1])
    county[row] = "elsewhere"
    split = DATA.with_columns({"county": pa.chunked_array([county])}, {})
    with pytest.raises(InputError) as caught:
        ss.swap(split, swap=["tenure"], rate=0.1, key=KEY)
    assert (caught.value.code, caught.value.fields["households"]) == ("household-split-over-areas", 1)
    assert "elsewhere" not in f"{caught.value}{caught.value.fields}"


@pytest.mark.parametrize("households", [["A", "A"], ["A", "B"]])
def test_one_household_and_one_area_are_refused(households: list[str]) -> None:
    data = replace(tiny(), table=pa.table({"home": households, "region": [1, 1]}))
    with pytest.raises(InfeasibleError) as caught:
        ss.swap(Microdata(data.table, data.schema), swap=["region"], rate=1.0, key=KEY)
    assert caught.value.code in ("constant-attribute", "one-household")


def test_reading_marks_what_members_share() -> None:
    data = ss.read(persons(150).table, kinds={"ref": "household"})
    assert tuple(each.name for each in data.schema.attributes if each.household) == SHARED
    assert any("all members of every household" in each for each in ss.describe(data).warnings)
    assert not any(each.household for each in ss.read(persons(4).table, kinds={"ref": "household"}).schema.attributes)


def test_parquet_files_are_masked_in_memory_and_other_engines_refuse(tmp_path: Path) -> None:
    from pyarrow import parquet

    from safeswap.workflow import mask_file, undo

    parquet.write_table(DATA.table, tmp_path / "people.parquet")
    places = {"audit": tmp_path / "audit", "schema": DATA.schema, "name": "persons", "key": KEY}
    spec = SPECS["swap"]
    done = mask_file(tmp_path / "people.parquet", tmp_path / "masked.parquet", spec, **places)
    masked = parquet.read_table(tmp_path / "masked.parquet")
    assert masked.to_pydict() == ss.mask(DATA, spec, key=KEY).data.table.to_pydict()
    assert undo(tmp_path / "masked.parquet", done.audit).table.to_pydict() == DATA.table.to_pydict()
    for engine in ("duckdb", "spark"):
        with pytest.raises(EngineError) as caught:
            mask_file(tmp_path / "people.parquet", tmp_path / f"{engine}.parquet", spec, engine=engine, **places)
        assert caught.value.code == "not-supported"


# Gaps in household attributes, and weights that differ between members


def with_gaps(seed: int = 3) -> Microdata:
    """Tenure and rent unknown for some households, rents with ties, a weight of persons and one of households."""
    rng = np.random.default_rng(seed)
    plain = persons(150)
    table, homes = plain.table, plain.table["ref"].to_numpy()
    gaps = {name: np.isin(homes, rng.choice(np.unique(homes), 25, replace=False)) for name in ("tenure", "rent")}
    columns = {
        "tenure": pa.array(table["tenure"].to_pylist(), mask=gaps["tenure"]),
        "rent": pa.array(np.round(table["rent"].to_numpy(), -2), mask=gaps["rent"]),
    }
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column)
    table = table.append_column("w", pa.array(rng.integers(1, 9, len(table)).astype(float)))
    table = table.append_column("hw", pa.array((homes % 7 + 1).astype(float)))
    weights = (Attribute(name="w", kind=Kind.WEIGHT), Attribute(name="hw", kind=Kind.WEIGHT))
    schema = Schema(name="persons", attributes=(*plain.schema.attributes, *weights))
    return marked(Microdata(table, schema), *SHARED, "hw")


GAPS = with_gaps()
WEIGHTED = {
    f"{partner} by {weight}": {"method": "swap", "swap": ["rent"], "rate": 0.2, "partner": partner, "weight": weight}
    for partner in ("nearest_weight", "least_bias")
    for weight in ("w", "hw")
}
EDITS = ("edit_1990", "edit_targeted")


@pytest.mark.parametrize("name", [*(name for name in SPECS if name not in EDITS), *WEIGHTED])
def test_gaps_and_weights_of_persons_leave_households_whole(name: str) -> None:
    """Everybody who took part has another value than before: nobody moves to where they were."""
    masked = ss.mask(GAPS, {**SPECS, **WEIGHTED}[name], key=KEY)
    homes = defaultdict(set)
    for home, *told in columns(masked.data, "ref", *SHARED):
        homes[home].add(tuple(told))
    assert all(len(told) == 1 for told in homes.values())
    assert broken(masked) == []
    assert masked.undo().table.equals(GAPS.table)
    changed = [
        old != new for old, new in zip(*(columns(d, *GAPS.attributes) for d in (GAPS, masked.data)), strict=True)
    ]
    assert masked.audit.touched().tolist() == changed


@pytest.mark.parametrize("name", EDITS)
def test_gaps_are_refused_in_households(name: str) -> None:
    homes = dict(zip(GAPS.table["ref"].to_pylist(), GAPS.table["tenure"].to_pylist(), strict=True))
    gaps = sum(tenure is None for tenure in homes.values())
    for call in (ss.plan, lambda data, spec: ss.mask(data, spec, key=KEY)):
        with pytest.raises(InputError) as caught:
            call(GAPS, SPECS[name])
        assert f"{gaps} households" in caught.value.message
        assert "record" not in caught.value.message
        assert caught.value.fields["households"] == 150


@pytest.mark.parametrize("name", [name for name in SPECS if name != "suppress"])
def test_plans_count_households_as_households(name: str) -> None:
    sentence = ss.plan(DATA, SPECS[name]).sentence
    assert sentence.startswith("of 150 households, each changed as a whole: ")
    assert "record" not in sentence


def test_the_weight_of_a_household_is_the_mean_of_those_known() -> None:
    from safeswap.model.households import find_households, household_weights

    rng = np.random.default_rng(5)
    homes = rng.integers(0, 12, 40)
    weights = [None if rng.random() < 0.3 else float(rng.integers(1, 4)) for _ in range(40)]
    schema = Schema(attributes=(Attribute(name="home", kind=Kind.HOUSEHOLD), Attribute(name="w", kind=Kind.WEIGHT)))
    data = Microdata(pa.table({"home": homes, "w": weights}), schema)
    found = household_weights(data, "w", find_households(data)).to_pylist()
    for home, told in zip(dict.fromkeys(homes.tolist()), found, strict=True):
        known = [w for h, w in zip(homes.tolist(), weights, strict=True) if h == home and w is not None]
        assert told == (pytest.approx(sum(known) / len(known)) if known else None)


def blanked_least(homes: list[int], town: list[str], sex: list[str], tolerance: int) -> int:
    """The fewest blanks of a household's town and a person's sex after which every pair occurs often enough."""
    numbers = sorted(set(homes))
    best = len(homes) * 2
    for towns in product((False, True), repeat=len(numbers)):
        gone = dict(zip(numbers, towns, strict=True))
        for sexes in product((False, True), repeat=len(homes)):
            cost = sum(gone[home] for home in homes) + sum(sexes)
            if cost < best:
                left = [
                    (t, s)
                    for home, t, s, blank in zip(homes, town, sex, sexes, strict=True)
                    if not gone[home] and not blank
                ]
                best = cost if all(left.count(cell) >= tolerance for cell in left) else best
    return best


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_of_suppression_is_below_the_least_found_by_trying_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    homes = np.sort(rng.integers(0, 4, 8)).tolist()
    town = [("a", "b")[number] for number in rng.integers(0, 2, 4)[homes]]
    sex = [("f", "m")[number] for number in rng.integers(0, 2, 8)]
    kinds = (Attribute(name="home", kind=Kind.HOUSEHOLD), Attribute(name="town", household=True), Attribute(name="sex"))
    data = Microdata(pa.table({"home": homes, "town": town, "sex": sex}), Schema(attributes=kinds))
    spec = {"method": "suppress", "combinations": [["town", "sex"]], "tolerance": 3}
    facts = ss.mask(data, spec, key=KEY).audit.facts
    least = blanked_least(homes, town, sex, 3)
    assert facts["least_possible"] <= least <= facts["values_blanked"]
    assert (facts["least_possible"] > 0) == (least > 0)


def count_changed_homes(masked: Masked) -> int:
    """Households with another value than before, one by one."""
    names = [name for name in SHARED if masked.original.table[name] != masked.data.table[name]]
    before, after = (columns(data, "ref", *names) for data in (masked.original, masked.data))
    return len({was[0] for was, now in zip(before, after, strict=True) if was != now})


@pytest.mark.parametrize("name", [name for name in SPECS if name != "suppress"])  # which counts values
def test_households_that_get_the_value_they_had_do_not_count_as_changed(name: str) -> None:
    masked = ss.mask(DATA, SPECS[name], key=KEY)
    assert masked.audit.facts["households_changed"] == count_changed_homes(masked)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("replicate", range(3))
def test_a_permutation_records_the_households_that_changed_and_no_others(probability: float, replicate: int) -> None:
    spec = {**SPECS["swap_permutation"], "fixed": ["region"], "probability": probability}
    masked = ss.mask(DATA, spec, key=KEY, replicate=replicate)
    (moved,) = masked.audit.exchanges
    takers, givers = ([DATA.table["ref"][row].as_py() for row in side] for side in moved.pairs.T)
    before, after = (dict(columns(data, "ref", "tenure")) for data in (DATA, masked.data))
    changed = {home for home, value in before.items() if after[home] != value}
    region = dict(columns(DATA, "ref", "region"))
    assert sorted(takers) == sorted(givers) == sorted(changed)
    assert [after[home] for home in takers] == [before[home] for home in givers]
    assert [region[home] for home in takers] == [region[home] for home in givers]
    assert masked.audit.made > masked.audit.facts["households_changed"] == len(changed) > 0  # some move to equal ones
    assert f"{masked.audit.made} households exchanged" in repr(masked)
    assert broken(masked) == []


def test_the_published_share_is_that_of_persons_in_households_that_took_part(tmp_path: Path) -> None:
    masked = ss.mask(DATA, SPECS["swap"], key=KEY)
    out = ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY, publish_rate=True, override="test")
    homes = {DATA.table["ref"][row].as_py() for row in masked.audit.exchanges[0].pairs.ravel()}
    share = sum(home in homes for (home,) in columns(DATA, "ref")) / len(DATA)
    assert ss.workflow.verify(out.public).facts["rate"] == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("method", ["swap", "swap_permutation"])
def test_counts_by_a_code_of_no_answer_are_not_claimed(method: str) -> None:
    """A household with a code of "no answer" exchanges with one that has a blank: by that column counts differ."""
    homes = [home for home in range(40) for _ in range(2)]
    table = pa.table(
        {
            "home": homes,
            "tenure": [str(home % 3) for home in homes],
            "school": ["9" if home % 2 else None for home in homes],
            "sex": ["f", "m"] * 40,
        }
    )
    described = (Attribute(name="home", kind="household"), Attribute(name="tenure", household=True))
    schema = Schema(attributes=(*described, Attribute(name="school", missing=("9",)), Attribute(name="sex")))
    drawn = {"probability": 0.5} if method == "swap_permutation" else {"rate": 0.6}
    spec = {"method": method, "swap": ["tenure"], "fixed": ["school", "sex"], **drawn}
    masked = ss.mask(Microdata(table, schema), ss.Pipeline([spec, {**spec, "swap": ["sex"], "fixed": []}]), key=KEY)
    one, other = (Counter(columns(data, "school", "tenure")) for data in (masked.original, masked.data))
    assert one != other  # the counts that nobody may claim
    assert [finding for finding in masked.account.findings if not finding.ok] == []
    assert "The counts by tenure are exactly those collected." in [each.sentence for each in masked.account.statements]


@pytest.mark.parametrize("name", [name for name in SPECS if name not in ("suppress", "swap within composition")])
def test_persons_whom_no_household_file_describes_neither_give_nor_get_household_attributes(name: str) -> None:
    rng = np.random.default_rng(7)
    alone = rng.random(len(DATA)) < 0.1
    table = DATA.table
    for column in ("ref", *SHARED):
        place, values = table.column_names.index(column), table.column(column).combine_chunks()
        table = table.set_column(place, column, values.take(pa.array(np.arange(len(DATA)), mask=alone)))
    data = Microdata(table, DATA.schema)
    masked = ss.mask(data, {**SPECS[name], **({"rate": 0.8} if "rate" in SPECS[name] else {})}, key=KEY)
    after = columns(masked.data, *SHARED)
    assert all(after[row] == (None,) * len(SHARED) for row in np.flatnonzero(alone))
    assert masked.audit.facts["households_changed"] > 0
    assert broken(masked) == []
    assert masked.undo().table.equals(data.table)


def test_gaps_are_counted_by_attribute_in_households() -> None:
    sex = DATA.table["sex"].combine_chunks()
    gone = np.isin(DATA.table["ref"].to_numpy(), DATA.table["ref"].to_numpy()[[0, 50]])
    data = Microdata(
        DATA.table.set_column(DATA.attributes.index("sex"), "sex", sex.take(pa.array(np.arange(len(sex)), mask=gone))),
        DATA.schema,
    )
    spec = {"method": "edit_targeted", "keys": ["sex", "edu"], "geography": ["region", "county"]}
    with pytest.raises(InputError) as caught:
        ss.mask(data, spec, key=KEY)
    assert (caught.value.code, caught.value.fields["records"]) == ("missing-keys", {"sex": 2})
    assert "sex (2 households)" in caught.value.message
    assert "edu" not in caught.value.message


RECODED: dict[str, dict[str, Any]] = {
    "round": {"step": "round", "attribute": "rent", "base": 100},
    "top_bottom_code": {"step": "top_bottom_code", "attribute": "rent", "top": 900},
    "truncate": {"step": "truncate", "attribute": "tenure", "characters": 1},
}


@pytest.mark.parametrize("step", RECODED)
def test_a_recoded_household_attribute_stays_the_households(step: str) -> None:
    name = RECODED[step]["attribute"]
    later = {"method": "pram", "attributes": [name]} if name == "tenure" else {"method": "noise", "attributes": [name]}
    spec = {"method": "pipeline", "steps": [{"method": "recode", "steps": [RECODED[step]]}, later]}
    masked = ss.mask(DATA, spec, key=KEY)
    assert masked.data.schema[name].household
    assert all(len(set(told)) == 1 for told in members_of(masked, name).values())
    assert masked.data.table[name] != DATA.table[name]


def members_of(masked: Masked, name: str) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for home, value in columns(masked.data, "ref", name):
        found[home].append(value)
    return found
