"""What a look at the values finds before they leave: torn groups, numbers that nobody described, columns to join on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.hand_made import KEY
from tests.households import persons, persons_table

import safeswap as ss
from safeswap import datasets
from safeswap.errors import UnsafeRelease
from safeswap.files.identifiers import agreement, numbers_households, split_groups
from safeswap.model.households import mark_household_attributes
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata, code_column
from safeswap.model.schema import Kind
from safeswap.releases.linkage import Linkage


def found(masked: Masked, *, drop: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    names = tuple(name for name in masked.original.attributes if name not in drop)
    return [(remark.code, remark.column) for remark in Linkage(masked, names).remarks() if remark.refuses]


def swapped(data: Any, *swap: str, rate: float = 0.1, **options: Any) -> Masked:
    return ss.swap(data, swap=swap, true_swap="any", rate=rate, key=KEY, **options)


@pytest.mark.parametrize("seed", range(60))
def test_agreement_and_split_groups_are_those_of_plain_counting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    records = int(rng.integers(1, 60))
    group = [None if x == 0 else int(x) for x in rng.integers(0, rng.integers(2, 12), records)]
    value = [None if x == 0 else f"v{x}" for x in rng.integers(0, rng.integers(2, 5), records)]
    coded = [code_column(pa.chunked_array([pa.array(each)])) for each in (group, value)]
    members: dict[int, list[Any]] = {}
    for home, said in zip(group, value, strict=True):
        if home is not None:
            members.setdefault(home, []).append(said)
    told = agreement(*coded)
    assert told.pairs == sum(len(each) - 1 for each in members.values())
    assert told.agreeing == sum(each.count(each[-1]) - 1 for each in members.values())
    known = [said for each in members.values() for said in each]
    if known:
        chance = sum((known.count(said) / len(known)) ** 2 for said in set(known))
        assert told.chance == pytest.approx(chance)
    split = {home for home, each in members.items() if len(set(each)) > 1}
    levels = coded[0].levels.to_pylist()
    assert {levels[place] for place in np.flatnonzero(split_groups(*coded))} == split


@pytest.mark.parametrize(
    ("data", "swap"),
    [
        (datasets.cps8d, ("Race", "Sex")),
        (datasets.cps8d, ("Edu",)),
        (datasets.synthetic_housing_survey, ("REGION",)),
        (datasets.synthetic_housing_survey, ("BEDROOMS", "BATHS")),
    ],
)
def test_ordinary_files_are_not_refused(data: Any, swap: tuple[str, ...]) -> None:
    assert found(swapped(data(), *swap)) == []


@pytest.mark.parametrize("seed", range(12))
def test_generated_files_without_households_are_not_refused(seed: int) -> None:
    """Correlated categories, amounts with ties, and ages, as nobody described them; any attribute may be swapped."""
    rng = np.random.default_rng(seed)
    records = int(rng.integers(60, 1500))
    base = rng.integers(0, 5, records)
    table = pa.table(
        {
            "age": rng.integers(15, 95, records),
            "job": np.where(rng.random(records) < 0.7, base, rng.integers(0, 5, records)).astype(str),
            "pay": np.round(rng.lognormal(7 + base / 3, 0.6, records), int(rng.integers(-1, 2))),
            "tax": np.round(rng.lognormal(5, 1, records)),
            "town": np.array([f"t{x}" for x in rng.integers(0, 40, records)]),
        }
    )
    data = ss.read(table)
    assert {data.schema[name].kind for name in data.attributes} <= {Kind.NUMERIC, Kind.NOMINAL, Kind.GEOGRAPHY}
    for name in data.attributes:
        assert found(swapped(data, name)) == []


def test_the_true_class_beside_a_masked_amount_is_no_reason_to_refuse() -> None:
    rng = np.random.default_rng(1)
    staff = np.round(rng.lognormal(3, 1, 800))
    data = ss.read(pa.table({"staff": staff, "size": np.digitize(staff, [10, 50, 250]).astype(str)}))
    masked = ss.mask(data, {"method": "noise", "attributes": ["staff"], "size": 0.3}, key=KEY)
    assert found(masked) == []


@pytest.mark.parametrize("group", ["hours", "code"])
def test_what_can_be_read_off_another_column_is_refused(group: str) -> None:
    rng = np.random.default_rng(2)
    hours = rng.integers(1, 60, 1200)
    table = {"hours": hours, "code": [f"k{hour // 20}" for hour in hours], "time": (hours // 20).astype(str)}
    data = ss.read(pa.table({name: table[name] for name in (group, "time")}))
    masked = swapped(data, "time")
    assert found(masked) == [("read-off", "time")]
    assert [each.as_dict()["revealed_by"] for each in Linkage(masked, data.attributes).remarks() if each.refuses] == [
        group
    ]
    assert found(masked, drop=(group,)) == found(masked, drop=("time",)) == []


def test_households_are_found_in_any_order_and_whatever_their_name() -> None:
    data = persons(described=False)
    assert data.schema["v2"].kind is Kind.HOUSEHOLD
    assert data.schema["v2"].inferred
    order = np.random.default_rng(3).permutation(len(data))
    shuffled = ss.read(data.table.take(pa.array(order)))
    assert shuffled.schema["v2"].kind is Kind.HOUSEHOLD
    assert shuffled.schema["v3"].household
    unmarked = Microdata(shuffled.table, mark_household_attributes(shuffled.schema, ()))
    assert ("household-split", "v3") in found(swapped(unmarked, "v3"))
    assert ("household-split", "v3") not in found(swapped(shuffled, "v3"))


@pytest.mark.parametrize("as_text", [False, True])
def test_numbers_of_households_and_persons_do_not_leave_by_a_guess(as_text: bool, tmp_path: Path) -> None:
    """The kinds were guessed as numbers, as they were before: the release finds them by their structure."""
    table = persons_table()
    if as_text:
        table = pa.table({name: table.column(name).cast(pa.string()) for name in table.column_names})
    data = ss.read(table)
    guessed = [
        data.schema[name].model_copy(update={"kind": Kind.NUMERIC, "inferred": True}) for name in ("person", "ref")
    ]
    masked = swapped(Microdata(data.table, data.schema.replace(*guessed)), "edu")
    assert sorted(found(masked)) == [("unconfirmed-identifier", "person"), ("unconfirmed-identifier", "ref")]
    with pytest.raises(UnsafeRelease) as caught:
        ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY)
    assert caught.value.code == "unconfirmed-identifier"
    assert "kind" in caught.value.hint
    assert found(masked, drop=("person", "ref")) == []
    stated = [each.model_copy(update={"inferred": False}) for each in guessed]
    confirmed = swapped(Microdata(data.table, data.schema.replace(*stated)), "edu")
    assert found(confirmed) == []


def test_an_age_with_its_groups_is_no_household() -> None:
    rng = np.random.default_rng(4)
    age = rng.integers(0, 90, 300)
    columns = (age, age // 15, (age >= 18).astype(int))
    coded = [code_column(pa.chunked_array([column])) for column in columns]
    assert not numbers_households(coded[0], {"group": coded[1], "adult": coded[2]})


def test_a_declared_household_allows_no_exception() -> None:
    """One household that was split is one too many where the file says what a household is."""
    data = persons()
    rows = np.flatnonzero(np.array(data.table["ref"]) == 4_010)[:1]
    other = np.flatnonzero(np.array(data.table["tenure"]) != data.table["tenure"][int(rows[0])].as_py())[-1:]
    assert len(rows) == len(other) == 1
    from tests.hand_made import masked_by

    from safeswap.model.audit import Exchange

    masked = masked_by(data, Exchange(attributes=("tenure",), pairs=np.array([[rows[0], other[0]]])))
    assert ("household-split", "tenure") in found(masked)


def test_columns_that_are_different_in_every_record_are_listed_unless_masked() -> None:
    data = persons()
    untouched = Linkage(swapped(data, "edu"), data.attributes).remarks()
    assert [(remark.code, remark.column, remark.refuses) for remark in untouched] == [("joinable", "expend", False)]
    noisy = ss.mask(data, {"method": "noise", "attributes": ["expend"], "size": 0.3}, key=KEY)
    assert Linkage(noisy, data.attributes).remarks() == []


def test_the_label_of_an_identifier_stays_inside(tmp_path: Path) -> None:
    data = persons(200)
    labelled = [
        data.schema[name].model_copy(update={"label": f"old {name} of the field office"}) for name in ("person", "ref")
    ]
    masked = swapped(replace(data, schema=data.schema.replace(*labelled)), "edu")
    done = ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY, data_format="sav")
    for path in done.public.iterdir():
        assert b"field office" not in path.read_bytes()
