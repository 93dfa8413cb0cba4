"""A WebSwap project, run from the command line."""

import pytest

from safeswap import workflow
from safeswap.projects.webswap import new_project


@pytest.fixture
def project(place):
    data = workflow.read(place.survey, identifier="id")
    return new_project(data, place.folder, name="toy", swap=["Race"], fixed=["Sex"], rate=0.1)


def call(place, *more):
    return ["swap", "--project", place.folder / "toy.specs", "--key", place.key, *more]


def test_a_project_writes_output_and_log(safeswap, place, project):
    run = safeswap(*call(place))
    assert run.code == 0, run.said
    assert "pairs-made = 20" in project.path("log").read_text()
    assert project.path("output").read_text() != project.path("data").read_text()
    assert "neither released nor undone" in run.stderr


def test_a_project_with_an_audit_record_can_be_released(safeswap, place, project):
    document = safeswap(*call(place, "--audit", place.audit, "--json")).document
    assert document["spec"]["fixed"] == ["Sex"]
    files = [project.path("data"), project.path("output"), "--audit", place.audit]
    assert safeswap("release", *files, "--key", place.key, "--output", place.bundle).code == 0


def test_results_of_a_project_are_not_overwritten_unasked(safeswap, place, project):
    assert safeswap(*call(place)).code == 0
    assert safeswap(*call(place)).code == 8
    assert safeswap(*call(place, "--force")).code == 0


def test_a_project_that_fails_leaves_neither_output_nor_log(safeswap, place, project, listing):
    before = listing()
    (place.folder / "audit").write_text("in the way")
    assert safeswap(*call(place, "--audit", place.audit)).code == 8
    place.audit.unlink()
    assert listing() == before


@pytest.mark.parametrize("more", [["--rate", "0.1"], ["--swap", "Race"], ["--output", "x.csv"], ["--identifier", "id"]])
def test_a_project_and_what_it_says_itself_are_not_both_given(safeswap, place, project, more):
    assert safeswap(*call(place, *more)).code == 2


def test_a_missing_project_is_an_input_error(safeswap, place):
    assert safeswap(*call(place)).code == 3
