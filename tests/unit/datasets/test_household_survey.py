"""The synthetic household survey: pinned, consistent, and the same through every file format."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap import datasets

DIGEST = "311273773a3fe56996bfbfe75e4ea81c3e47e208dfc1db67e17f3d62561789bb"


@pytest.fixture(scope="module")
def persons():
    return datasets.household_survey().table.to_pylist()


@pytest.fixture(scope="module")
def homes(persons):
    found = defaultdict(list)
    for person in persons:
        found[person["household"]].append(person)
    return found


def spell(table: pa.Table) -> str:
    return "\n".join("|".join(str(value) for value in row.values()) for row in table.to_pylist())


def test_the_file_never_drifts():
    table = datasets.household_survey().table
    assert table.num_rows == 4_939
    assert hashlib.sha256(spell(table).encode()).hexdigest() == DIGEST


def test_the_schema_declares_every_column_and_says_that_nobody_is_real():
    data = datasets.household_survey()
    kinds = {a.name: a.kind.value for a in data.schema.attributes}
    assert data.schema.identifier.name == "person_id"
    assert (kinds["household"], kinds["weight"]) == ("household", "weight")
    assert [data.schema[name].geography_level for name in datasets.SURVEY_GEOGRAPHY] == [0, 1, 2, 3]
    assert set(datasets.SURVEY_KEYS) <= set(kinds)
    assert "not real people" in data.schema.label
    assert all(a.label for a in data.schema.attributes)
    assert data.table.schema.field("birth_date").type == data.table.schema.field("interview_date").type == pa.date32()


def test_codes_and_levels_are_all_described():
    data = datasets.household_survey()
    for attribute in data.schema.attributes:
        if attribute.labels and attribute.name != "region":
            used = {str(value) for value in data.table[attribute.name].unique().to_pylist() if value is not None}
            assert used <= set(attribute.labels), attribute.name


def test_areas_and_sampling_units_nest(persons):
    of_psu, settlements, units = {}, {}, defaultdict(set)
    for person in persons:
        names = [person[name] for name in datasets.SURVEY_GEOGRAPHY]
        assert [len(name) for name in names] == [1, 2, 4, 6]
        assert all(fine.startswith(coarse) for coarse, fine in pairwise(names))
        assert of_psu.setdefault(person["psu"], (person["stratum"], person["settlement"])) == (
            person["stratum"],
            person["settlement"],
        )
        assert settlements.setdefault(person["settlement"], person["stratum"]) == person["stratum"]
        units[person["stratum"]].add(person["psu"])
    assert len(units) == 8
    assert min(map(len, units.values())) >= 2
    assert [len({p[name] for p in persons}) for name in datasets.SURVEY_GEOGRAPHY] == [4, 12, 64, 208]


def test_areas_differ_in_size(persons):
    sizes = sorted(np.unique([p["settlement"] for p in persons], return_counts=True)[1])
    assert sizes[-1] > 8 * sizes[len(sizes) // 2] > 8 * sizes[0]


def test_households_share_what_is_theirs(homes):
    shared = ("weight", "stratum", "psu", *datasets.SURVEY_GEOGRAPHY, "interview_date", "household_size", "tenure")
    assert len(homes) == 1_560
    for members in homes.values():
        assert all(len({member[name] for member in members}) == 1 for name in (*shared, "expenditure"))
        assert members[0]["household_size"] == len(members)
        assert [member["relationship"] for member in members].count(1) == 1


def test_ages_follow_from_the_dates(persons):
    for person in persons:
        birth, day = person["birth_date"], person["interview_date"]
        passed = (day.month, day.day) >= (birth.month, birth.day)
        assert person["age"] == day.year - birth.year - (not passed)
    assert {dt.date(2023, 1, 1) <= person["interview_date"] <= dt.date(2023, 12, 31) for person in persons} == {True}


def test_edit_rules_hold(persons, homes):
    for person in persons:
        if person["age"] < 18:
            assert person["marital_status"] == 1
        if person["age"] < 15:
            assert {person[name] for name in ("education", "labour_status", "occupation", "income")} == {None}
        else:
            assert None not in (person["education"], person["labour_status"])
            assert (person["occupation"] is not None) == (person["labour_status"] in (1, 2))
        if (person["income"] or 0) < 0:
            assert person["labour_status"] == 2
    for members in homes.values():
        heads = [m for m in members if m["relationship"] < 3]
        assert len({m["marital_status"] == 2 for m in heads}) == 1, "both partners are married, or neither"
        assert min(m["age"] for m in heads) >= 18
        for child in (m for m in members if m["relationship"] == 3):
            assert min(m["birth_date"].year for m in heads) + 16 <= child["birth_date"].year
            assert all((child["birth_date"] - m["birth_date"]).days > 17 * 365.2 for m in heads)


def test_weights_add_up_to_the_population(persons):
    total = defaultdict(float)
    for person in persons:
        total[person["region"]] += person["weight"]
    assert total == pytest.approx({"1": 480_000, "2": 360_000, "3": 240_000, "4": 120_000}, abs=0.1)
    means = [np.mean([p["weight"] for p in persons if p["stratum"] == s]) for s in {p["stratum"] for p in persons}]
    assert max(means) > 1.5 * min(means)


def test_answers_depend_on_each_other_as_in_a_survey(persons):
    earners = [p for p in persons if p["labour_status"] == 1 and p["income"] is not None and p["education"] != 9]
    level = np.log([p["income"] for p in earners])
    design = np.array([[1, p["education"], p["age"], p["age"] ** 2, p["sex"] == 2] for p in earners], dtype=float)
    effects = np.linalg.lstsq(design, level, rcond=None)[0]
    assert 0.1 < effects[1] < 0.4
    assert effects[2] > 0 > effects[3]
    assert -0.35 < effects[4] < -0.05


def test_some_answers_are_missing_zero_negative_or_rare(persons):
    adults = [p for p in persons if p["age"] >= 15]
    assert 0.02 < np.mean([p["income"] is None for p in adults]) < 0.12
    assert sum(p["income"] == 0 for p in adults) > 100
    assert sum((p["income"] or 0) < 0 for p in adults) > 5
    codes, counts = np.unique([p["occupation"] for p in adults if p["occupation"]], return_counts=True)
    assert len(codes) > 30
    assert np.count_nonzero(counts < 5) >= 5


def test_immigrants_live_in_few_places(persons):
    for country in ("XB", "XC", "XD"):
        places = [p["settlement"] for p in persons if p["country_of_birth"] == country]
        counts = np.sort(np.unique(places, return_counts=True)[1])
        assert counts[-2:].sum() > 0.4 * len(places), country


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".sav", ".dta"])
def test_a_file_holds_the_same(tmp_path, suffix):
    path = tmp_path / f"survey{suffix}"
    datasets.write_household_survey(path)
    data, read = datasets.household_survey(), ss.read(path, schema=datasets.household_survey_schema())
    assert read.attributes == data.attributes
    for name in data.attributes:
        before, after = (each.table[name].to_pylist() for each in (data, read))
        assert [_plain(value) for value in after] == [_plain(value) for value in before], name


def _plain(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value) if value else None


def test_a_file_is_not_overwritten_unasked(tmp_path):
    path = tmp_path / "survey.csv"
    datasets.write_household_survey(path)
    with pytest.raises(ss.errors.OutputError):
        datasets.write_household_survey(path)
    datasets.write_household_survey(path, force=True)
