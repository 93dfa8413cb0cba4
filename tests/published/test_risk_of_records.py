"""The worked example of the World Bank's practice guide, and the figures with which sdcMicro tests itself."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from safeswap import workflow
from safeswap.measures.risk.by_record import record_risk, special_uniques, suda

GUIDE = json.loads((Path(__file__).parent / "data" / "sdc_practice_guide.json").read_text())
KEYS = GUIDE["keys"]


@pytest.fixture
def people() -> pd.DataFrame:
    return pd.DataFrame(GUIDE["columns"])


def figures(data: pd.DataFrame, measure: str) -> dict[str, object]:
    read = workflow.read(data, kinds={"Weight": "weight"})
    return workflow.assess(read, read, measures=[measure]).scores[0].detail.to_pylist()[0]


def test_counts_and_franconi_polettini_risks_are_those_of_table_4_1(people: pd.DataFrame) -> None:
    found = record_risk(people, KEYS, weight="Weight")
    assert found["sample_count"].tolist() == GUIDE["sample_count"]
    assert found["population_count"].tolist() == GUIDE["population_count"]
    assert found["risk"].round(4).tolist() == GUIDE["risk"]


def test_four_records_violate_2_anonymity_and_all_violate_3_anonymity(people: pd.DataFrame) -> None:
    keys = "+".join(KEYS)
    two, three = (figures(people, f"k_anonymity:keys={keys},k={k}") for k in (2, 3))
    assert (two["unsafe_records"], three["unsafe_records"]) == (4, 10)
    assert (two["cells"], two["unsafe_cells"], two["smallest_cell"]) == (7, 4, 1)


def test_a_missing_value_that_matches_all_both_ways_is_counted_as_in_table_4_2() -> None:
    few = pd.DataFrame(GUIDE["missing"]["columns"])
    found = record_risk(few, ["Gender", "Education", "Labor"], missing="vouching")
    assert found["sample_count"].tolist() == GUIDE["missing"]["sample_count"]


def test_cells_of_one_health_status_are_those_of_table_4_3(people: pd.DataFrame) -> None:
    told = figures(people, f"l_diversity:keys={'+'.join(KEYS)},sensitive=Health,l=2")
    assert told["unsafe_records"] == GUIDE["l_diversity"].count(1)
    assert told["least_diversity"] == 1


def test_one_unique_of_size_1_and_three_of_size_2_score_12(people: pd.DataFrame) -> None:
    found = suda(people, KEYS, max_size=3)
    assert found["score"].tolist() == GUIDE["suda"]
    assert found.loc[4, ["minimal_uniques", "smallest", "score"]].tolist() == [4, 1, 12]


def test_dis_scores_are_those_of_table_4_5(people: pd.DataFrame) -> None:
    # The table shows Elliot's scores beside the DIS scores that the older scoring led to.
    found = suda(people, KEYS, max_size=3, scoring="ihsn", sampling_fraction=0.01)
    assert found["dis"].round(4).tolist() == GUIDE["dis_suda"]
    assert sorted(found["score"].unique()) == [0, 1.75, 2.75, 3.25]


@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "a", "b"]])
def test_keys_contribute_as_in_the_tests_of_sdcmicro(order: list[str]) -> None:
    small = pd.DataFrame({"a": [2, 1, 1], "b": [0, 3, 0], "c": [0, 6, 0]}).astype(str)
    by_key = special_uniques(small, order).by_key.to_pylist()
    assert {row["key"]: row["share_of_score"] for row in by_key} == {"a": 0.5, "b": 0.375, "c": 0.375}
