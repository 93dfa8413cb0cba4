"""How distributions in areas moved, and how far records did: recounted by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import safeswap as ss
from safeswap import datasets
from safeswap.errors import SpecError
from safeswap.measures.geography_report import areas_changed_most, geography_report

KEY = ss.Key(bytes(range(32)))


@pytest.fixture(scope="module")
def masked():
    census = datasets.synthetic_census(20_000)
    spec = {
        "method": "edit_1990",
        "keys": list(datasets.CENSUS_KEYS),
        "geography": list(datasets.CENSUS_GEOGRAPHY),
        "across": "PLACE",
        "rate": 0.05,
    }
    return ss.mask(census, spec, key=KEY)


def by_hand(masked, level, name):
    """D of each area, with its share of the records."""
    counts = []
    for data in (masked.original, masked.data):
        pairs = zip(data.table[level].to_pylist(), data.table[name].to_pylist(), strict=True)
        counts.append(Counter(pairs))
    areas = Counter(masked.original.table[level].to_pylist())
    found = {}
    for (area, category), _ in (counts[0] | counts[1]).items():
        difference = abs(counts[0][area, category] - counts[1][area, category]) / areas[area]
        found[area] = found.get(area, 0.0) + difference / 2
    return found, {area: size / len(masked.original) for area, size in areas.items()}


@pytest.mark.parametrize("level", ["COUNTY", "BLOCK"])
@pytest.mark.parametrize("name", ["OCCUPATION", "TENURE", "WHITE"])
def test_dissimilarity_is_what_counting_by_hand_gives(masked, level, name):
    found, shares = by_hand(masked, level, name)
    (row,) = geography_report(masked, [name], levels=[level]).dissimilarity.to_pylist()
    assert row["areas"] == len(found)
    assert row["areas_changed"] == sum(value > 1e-12 for value in found.values())
    assert row["mean"] == pytest.approx(sum(found[area] * shares[area] for area in found))
    assert row["largest"] == pytest.approx(max(found.values()))


def test_keys_do_not_move_anywhere_and_nothing_moves_in_a_state(masked):
    report = geography_report(masked)
    rows = report.dissimilarity.to_pylist()
    assert {row["level"] for row in rows} == set(datasets.CENSUS_GEOGRAPHY)
    assert {row["distribution"] for row in rows} == {*datasets.CENSUS_KEYS, "TENURE", "OCCUPATION"}
    for row in rows:
        still = row["distribution"] in datasets.CENSUS_KEYS or row["level"] == "STATE"
        assert (row["mean"] == 0) == still
    assert [line for line in report.sentences if "of the pairs lie within one area of STATE" in line] == [
        "100.0% of the pairs lie within one area of STATE."
    ]
    assert set(report.as_dict()) == {"dissimilarity", "distance"}


def test_the_finer_the_level_the_more_is_moved(masked):
    rows = geography_report(masked, ["OCCUPATION"]).dissimilarity.to_pylist()
    means = [row["mean"] for row in rows]
    assert means == sorted(means)


def test_distances_are_the_pairs_in_one_area(masked):
    pairs = masked.audit.exchanges[0].pairs
    for row in geography_report(masked, ["TENURE"]).distance.to_pylist():
        codes = masked.original.table[row["level"]].to_numpy()[pairs]
        assert row["pairs_within"] == int((codes[:, 0] == codes[:, 1]).sum())
        assert row["share"] == row["pairs_within"] / len(pairs)
        assert row["pairs_within"] == masked.audit.facts["pairs_within"][row["level"]]


def test_several_attributes_can_name_a_level(masked):
    one = geography_report(masked, ["TENURE"], levels=["BLOCK"]).dissimilarity.to_pylist()[0]
    two = geography_report(masked, ["TENURE"], levels=[("PLACE", "BLOCK")]).dissimilarity.to_pylist()[0]
    assert two.pop("level") == "PLACE × BLOCK"
    assert one.pop("level") == "BLOCK"
    assert two == pytest.approx(one)


def test_the_areas_that_changed_most_are_shown_with_their_counts(masked):
    found, _ = by_hand(masked, "TRACT", "OCCUPATION")
    table = areas_changed_most(masked, "OCCUPATION", "TRACT", most=3)
    shown = list(dict.fromkeys(table["TRACT"].to_pylist()))
    assert len(shown) == 3
    assert sorted((found[area] for area in shown), reverse=True) == pytest.approx(sorted(found.values())[-1:-4:-1])
    for row in table.to_pylist():
        for side, data in (("before", masked.original), ("after", masked.data)):
            there = data.table["TRACT"].to_numpy() == row["TRACT"]
            occupation = np.array(data.table["OCCUPATION"].to_pylist())
            assert row[side] == int((there & (occupation == row["OCCUPATION"])).sum())
        assert row["D"] == pytest.approx(found[row["TRACT"]])


def test_a_file_without_geography_is_refused():
    masked = ss.swap(datasets.cps8d(), swap=["Race"], rate=0.01, key=KEY)
    with pytest.raises(SpecError) as refused:
        geography_report(masked)
    assert refused.value.code == "no-geography"
    report = geography_report(masked, ["Race"], levels=["Sex"])
    assert 0 < report.distance["share"][0].as_py() < 1
