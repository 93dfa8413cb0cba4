"""The page's data are the study's, whole or honestly cut, and cannot break out of the page."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.studies import cps_study, hostile_study, impossible_study, published_study

from safeswap.charts.map import map_svg
from safeswap.charts.points import TABLE_MEASURES, Room, map_payload, points_of
from safeswap.charts.scripts import as_json

OTHERS = ({"method": "swap", "swap": ["Sex"], "pairs": 300},)


def test_one_draw_of_each_is_the_table_of_the_study():
    study = published_study()
    specs = map_payload(study)["specs"]
    for i, measure in enumerate(study.spec.measures):
        expected = study.table.column(measure).to_pylist()
        assert [v is None for v in specs["mean"][i]] == [v is None for v in expected]
        known = [(a, b) for a, b in zip(specs["mean"][i], expected, strict=True) if b is not None]
        assert len(known) == 107
        np.testing.assert_allclose(*zip(*known, strict=True), rtol=1e-8)
    assert specs["label"] == study.table.column("label").to_pylist()


def test_the_original_is_a_landmark_with_its_own_figures_and_no_candidate():
    study = published_study()
    found = map_payload(study, choice=study.choose("linear:a=0.1"))
    before = [study.facts["before"][name] for name in study.spec.measures]
    np.testing.assert_allclose(found["original"], np.abs(before), rtol=1e-8)
    assert found["original"][study.spec.measures.index("hellinger")] == 0
    assert found["candidates"] == len(study)
    points = points_of(study)
    assert points.original == (study.facts["before"]["n_rule"], 0.0)
    assert len(points) == 107
    assert "original" not in points.labels
    older = replace(study, facts={name: value for name, value in study.facts.items() if name != "before"})
    assert map_payload(older)["original"] is None
    assert points_of(older).original is None


def test_several_draws_are_told_by_mean_spread_and_how_often_on_the_frontier():
    study = cps_study(attributes=("Race", "Sex", "Age"), replicates=5)
    found = map_payload(study)
    expected = study.summary()
    np.testing.assert_allclose(found["specs"]["mean"][0], expected["risk_mean"].to_numpy(), rtol=1e-8)
    np.testing.assert_allclose(found["specs"]["mean"][1], expected["distortion_mean"].to_numpy(), rtol=1e-8)
    np.testing.assert_allclose(found["specs"]["spread"][1], expected["distortion_sd"].to_numpy(), rtol=1e-5)
    np.testing.assert_allclose(found["specs"]["often"]["0,1"], expected["on_frontier"].to_numpy(), atol=5e-4)
    assert found["draws"]["candidate"] == list(range(len(study)))
    np.testing.assert_allclose(found["draws"]["value"][0], study.scores("n_rule"), rtol=1e-8)


@pytest.mark.parametrize("measure", TABLE_MEASURES)
def test_two_way_tables_are_those_of_the_study(measure):
    study = published_study()
    tables = map_payload(study)["tables"]
    number = int(study.frontier()[0])
    expected = study.distortion_table(number, measure)
    names = [[tables["attributes"][i] for i in pair] for pair in tables["pairs"]]
    assert names == [[row["a"], row["b"]] for row in expected.to_pylist()]
    found = tables["specs"][str(number)][TABLE_MEASURES.index(measure)]
    np.testing.assert_allclose(found, expected[measure].to_numpy(), rtol=1e-4)


def test_two_way_tables_of_several_draws_are_their_mean():
    study = cps_study(attributes=("Race", "Sex", "Age"), replicates=5)
    rows = np.flatnonzero(study.table.column("specification").to_numpy() == 4)
    found = map_payload(study)["tables"]["specs"]["4"]
    np.testing.assert_allclose(found, study.two_way[rows].mean(axis=0).T, rtol=1e-4, atol=1e-9)


def test_what_is_on_a_frontier_is_kept_when_room_is_short():
    study = cps_study(attributes=("Race", "Sex", "Age"), replicates=5)
    choice = study.choose("cap_risk:0.0145")
    found = map_payload(study, choice=choice, room=Room(specifications=5, draws=10))
    assert len(found["specs"]["number"]) < len(study.specs) == found["all_specifications"]
    assert len(found["draws"]["candidate"]) < len(study) == found["candidates"]
    assert found["specs"]["number"][found["chosen"]["spec"]] == study.specs.index(choice.spec)
    assert choice.candidate in found["draws"]["candidate"]
    for distortion in study.spec.distortion:
        kept = {found["draws"]["candidate"][i] for i in range(len(found["draws"]["candidate"]))}
        numbers = study.table.column("specification").to_numpy()
        on_frontier = [i for i in study.frontier(distortion=distortion) if numbers[i] in found["specs"]["number"]]
        assert kept.issuperset(on_frontier)


def test_tables_and_texts_stop_where_their_room_ends():
    study = published_study()
    choice = study.choose("cap_risk:0.0135")
    found = map_payload(study, choice=choice, room=Room(tables=5_000, texts=3_000))
    assert 0 < len(as_json(found["tables"]["specs"])) < 6_000
    assert 0 < len(as_json(found["specs"]["texts"])) < 4_000
    assert str(choice.candidate) in found["tables"]["specs"], "the chosen one comes first"


def test_what_could_not_be_made_is_listed_with_its_reason():
    rejected = map_payload(published_study())["rejected"]
    assert rejected["candidates"] == rejected["all"] == 1
    label, constraint, rate, times, reason = rejected["lines"][0]
    assert (label, constraint, rate, times) == ("RI", "", 0.1, 1)
    assert "pairs" in reason


def test_a_study_without_any_feasible_candidate_has_a_page_too():
    found = map_payload(impossible_study())
    assert found["specs"]["made"] == [0]
    assert found["rejected"]["candidates"] == 1


def test_candidates_without_a_rate_are_on_the_map():
    study = cps_study(attributes=("Race",), rates=(0.02,), others=OTHERS)
    found = map_payload(study, choice=study.choose("cap_risk:1"))
    assert found["rates"] == [0.02]
    assert found["specs"]["rate"] == [0, -1]
    assert found["specs"]["label"] == ["R", "S"]
    assert found["specs"]["pairs"][1] == 300
    assert "pairs=300" in found["specs"]["texts"]["1"][0]
    assert map_svg(study) == map_svg(study)


def test_the_page_does_not_know_the_key():
    study = published_study()
    assert study.facts["key_id"] not in as_json(map_payload(study, choice=study.choose("linear:a=0.1")))


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_in_a_page_holds_no_markup_and_comes_back(values):
    text = as_json(values)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == values


def test_hostile_names_are_in_the_data_as_data():
    text = as_json(map_payload(hostile_study(), choice=hostile_study().choose()))
    assert "<" not in text
    assert "window.harmed" in json.loads(text)["title"]
