"""The same scenario gives the same figures in Python, on the command line and over HTTP."""

from __future__ import annotations

import json

import pytest
from tests.service.at_work import SPEC, do_jobs, project_with_data, survey
from typer.testing import CliRunner

import safeswap as ss
from safeswap import workflow
from safeswap.cli.app import app
from safeswap.files.keyfile import write_key
from safeswap.model.scenario import Scenario
from safeswap.projects.toml import write_scenarios

SCENARIO = Scenario(
    name="nosy neighbour", keys=["region", "tenure"], up_to=2, tolerance=12, sensitive=["age"], missing="none"
)
MEASURES = ["k_anonymity", "k_anonymity:k=3", "n_rule", "individual_risk", "suda2", "l_diversity", "unsafe_share"]


@pytest.fixture(scope="module")
def project(town):
    return project_with_data(town, "ana", "vera", content=survey(seed=77, records=80))


@pytest.fixture
def ana(town):
    return town.client("ana")


def result_of(town, client, path, body):
    asked = client.post(path, json=body)
    assert asked.status_code == 202, asked.text
    do_jobs(town.service)
    job = client.get(asked.headers["location"]).json()
    assert job["state"] == "succeeded", job
    return client.get(f"{path}/{job['result']['id']}").json()


@pytest.fixture
def files(town, project, tmp_path):
    """The survey, its masking under the project's own key, and the scenario, as files."""
    original, masked, scenarios = (tmp_path / name for name in ("survey.csv", "masked.csv", "scenarios.toml"))
    original.write_bytes(survey(seed=77, records=80))
    data = workflow.read(original, identifier="id")
    made = ss.mask(data, SPEC, key=town.service.vault.project_key(project))
    made.data.table.to_pandas().to_csv(masked, index=False)
    write_scenarios([SCENARIO, Scenario(keys=["age"])], scenarios)
    return made, original, masked, f"{scenarios}:nosy neighbour"


def run(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def told(scores):
    return [(s["measure"], s["scenario"], s["before"], s["value"], s["sentence"]) for s in scores]


def test_assess(town, project, ana, files):
    made, original, masked, place = files
    here = told(ss.assess(made, scenario=SCENARIO, measures=MEASURES).as_dict()["scores"])
    assert {name for _, name, *_ in here} == {"nosy neighbour"}
    assert len({(before, value) for _, _, before, value, _ in here}) >= 3
    options = [word for measure in MEASURES for word in ("--measure", measure)]
    typed = run("assess", original, masked, "--identifier", "id", "--scenario", place, *options, "--json")
    assert told(typed["scores"]) == here
    body = {"spec": SPEC, "measures": MEASURES, "scenario": SCENARIO.as_dict()}
    kept = result_of(town, ana, f"/api/v1/projects/{project}/maskings", body)
    assert told(kept["summary"]["scores"]) == here
    assert kept["spec"]["scenario"]["name"] == "nosy neighbour"
    again = {"masking": kept["id"], "measures": MEASURES, "scenario": SCENARIO.as_dict()}
    assert told(result_of(town, ana, f"/api/v1/projects/{project}/assessments", again)["summary"]["scores"]) == here


def test_confidentiality(town, project, ana, files):
    made, original, masked, place = files
    here = workflow.confidentiality(made, scenario=SCENARIO).as_dict()
    assert (here["scenario"], here["policy"]["k"]) == ("nosy neighbour", 12.0)
    typed = run("confidentiality", original, masked, "--identifier", "id", "--scenario", place, "--json")
    assert typed["plots"][0] == here
    masking = result_of(town, ana, f"/api/v1/projects/{project}/maskings", {"spec": SPEC})["id"]
    path, body = f"/api/v1/projects/{project}/confidentiality", {"masking": masking}
    found = result_of(town, ana, path, {**body, "scenario": SCENARIO.as_dict()})["summary"]
    assert (found["scenario"], found["unsafe_share"]) == ("nosy neighbour", here["unsafe_share"])
    assert ana.post(path, json=body).json()["code"] == "bad-keys"


def test_study(town, project, ana, files):
    made, original, *_, place = files
    asked = {"attributes": ["tenure", "age"], "rates": [0.1], "risk": ["n_rule", "k_anonymity"]}
    here = ss.study(made.original, scenario=SCENARIO, key=town.service.vault.project_key(project), **asked)
    body = {"spec": {**asked, "scenario": SCENARIO.as_dict()}}
    kept = result_of(town, ana, f"/api/v1/projects/{project}/studies", body)
    assert kept["spec"]["spec"]["scenario"] == SCENARIO.as_dict()
    page = ana.get(f"/api/v1/projects/{project}/studies/{kept['id']}/candidates").json()
    figures = [each["scores"]["k_anonymity"] for each in page["items"]]
    assert figures == here.table.column("k_anonymity").to_pylist()
    words = ["--attributes", "tenure,age", "--rates", "0.1", "--scenario", place]
    counted = run("study", original, "--identifier", "id", *words, "--plan-only", "--json")
    assert counted["candidates"] == len(here)


def test_risky_names_the_scenario_and_the_keys_that_are_gone(town, project, ana, files):
    made, original, *_, place = files
    here = workflow.risky(made.original, scenario=SCENARIO)
    typed = run("risky", original, "--identifier", "id", "--scenario", place, "--json")
    assert {name: typed[name] for name in here.as_dict()} == here.as_dict()
    path, body = f"/api/v1/projects/{project}/risky", {"scenario": SCENARIO.as_dict()}
    found = ana.post(path, json=body).json()
    assert (found["scenario"], found["note"], found["protected"]) == ("nosy neighbour", "", here.asked.protected)
    assert len(found["combinations"]) == len(here.combinations)
    recipe = f"/api/v1/projects/{project}/recipe"
    version = ana.get(recipe).json()["version"]
    steps = {"steps": [{"step": "drop", "attributes": ["tenure"]}]}
    assert ana.put(recipe, json=steps, headers={"If-Match": f'"{version}"'}).status_code == 200
    try:
        assert ana.post(path, json=body).json()["note"] == "Without tenure, which is not released."
        listed = result_of(town, ana, f"/api/v1/projects/{project}/risky-lists", body)
        assert listed["spec"]["scenario"]["name"] == listed["summary"]["scenario"] == "nosy neighbour"
    finally:
        assert ana.post(f"{recipe}/undo", json={}).status_code == 200


def test_risk(files):
    from safeswap.measures.risk.by_record import file_risk

    made, original, *_, place = files
    here = told(file_risk(made.original, scenario=SCENARIO).as_dict()["scores"])
    typed = run("risk", original, "--identifier", "id", "--scenario", place, "--json")
    assert told(typed["scores"]) == here
    other = run("risk", original, "--identifier", "id", "--scenario", place, "--keys", "tenure", "--json")
    assert other["scores"][0]["sentence"].endswith("instead of by the scenario: keys.")


def test_suppress(files, tmp_path):
    made, original, *_, place = files
    spec = {"method": "suppress", "scenario": SCENARIO}
    here = ss.mask(made.original, spec, insecure_seed=1)
    target = tmp_path / "blanked.parquet"
    words = ["--scenario", place, "--insecure-seed", 1, "--output", target, "--audit", tmp_path / "audit"]
    typed = run("mask", "suppress", original, "--identifier", "id", *words, "--json")
    assert typed["spec"] == here.spec.as_dict()
    assert typed["spec"]["scenario"] == "nosy neighbour"


@pytest.mark.parametrize(
    ("scenario", "status"),
    [({"keys": ["region"], "unit": "village"}, 422), ({"kees": ["region"]}, 422), ({}, 422), ("prosecutor", 422)],
)
def test_a_bad_scenario_is_refused_before_a_job_is_made(project, ana, scenario, status):
    for path, body in (("maskings", {"spec": SPEC}), ("risky-lists", {})):
        answer = ana.post(f"/api/v1/projects/{project}/{path}", json={**body, "scenario": scenario})
        assert answer.status_code == status, answer.text


def test_an_unknown_key_fails_the_job_and_names_the_scenario(town, project, ana):
    body = {"spec": SPEC, "scenario": {"name": "journalist", "keys": ["job"]}}
    asked = ana.post(f"/api/v1/projects/{project}/maskings", json=body)
    do_jobs(town.service)
    job = ana.get(asked.headers["location"]).json()
    assert job["state"] == "failed"
    assert job["error"]["code"] == "unknown-attribute"
    assert "journalist" in job["error"]["detail"] + str(job["error"])


def test_suggested_keys(town, project, files):
    made, original, *_ = files
    vera = town.client("vera")
    here = ss.suggest_keys(made.original)
    typed = run("suggest-keys", original, "--identifier", "id", "--json")
    assert {name: typed[name] for name in here.as_dict()} == json.loads(json.dumps(here.as_dict()))
    path = f"/api/v1/projects/{project}/suggested-keys"
    found = vera.get(path).json()
    assert [each["name"] for each in found["suggestions"]] == list(here.names)
    assert found == vera.get(path).json(), "the noise is that of the question"
    assert len(vera.get(path, params={"most": 1}).json()["suggestions"]) == 1
    assert vera.get(path, params={"most": 0}).status_code == 422


def test_strata_and_sampling_units_are_not_among_the_suggested_keys(town, ana):
    project = project_with_data(town, "ana", content=survey(seed=9, records=90))
    path = f"/api/v1/projects/{project}"
    assert {"region", "tenure"} < {each["name"] for each in ana.get(f"{path}/suggested-keys").json()["suggestions"]}
    design = [{"name": "region", "design": "stratum"}, {"name": "tenure", "design": "psu"}]
    headers = {"If-Match": ana.get(f"{path}/description").headers["etag"]}
    assert ana.patch(f"{path}/description", json={"attributes": design}, headers=headers).is_success
    do_jobs(town.service)
    left = ana.get(f"{path}/suggested-keys").json()
    assert [each["name"] for each in left["suggestions"]] == ["age"]


NEIGHBOUR = Scenario(name="journalist", keys=["region", "age"], tolerance=4)


def count_below(table, keys, k):
    """The share of records whose keys fewer than k records share, counted from the values."""
    rows = list(zip(*(table[name].to_pylist() for name in keys), strict=True))
    return sum(rows.count(row) < k for row in rows) / len(rows)


def test_several_scenarios_have_their_own_figures_and_utility_is_told_once(town, project, ana, files, tmp_path):
    made, original, *_ = files
    both, measures = [SCENARIO, NEIGHBOUR], ["k_anonymity", "l_diversity", "hellinger"]
    found = ss.assess(made, scenario=both, measures=measures)
    figures = [(score.measure, score.scenario) for score in found]
    assert figures == [
        ("k_anonymity", "nosy neighbour"),
        ("k_anonymity", "journalist"),
        ("l_diversity:sensitive=age", "nosy neighbour"),
        ("hellinger", ""),
    ]
    told_of = [("l_diversity", "scenario journalist: l-diversity needs a sensitive attribute")]
    assert [(each.measure, each.reason) for each in found.left_out] == told_of
    for scenario, score in zip(both, found, strict=False):
        keys = (scenario.names, scenario.least)
        assert score.before == pytest.approx(count_below(made.original.table, *keys))
        assert score.value == pytest.approx(count_below(made.data.table, *keys))
    here = told(found.as_dict()["scores"])
    # The command line, from a file with both.
    places = [tmp_path / name for name in ("both.toml", "again.csv", "key", "audit")]
    write_scenarios(both, places[0])
    key = town.service.vault.project_key(project)
    write_key(key, places[2])
    options = [word for measure in measures for word in ("--measure", measure)]
    words = [
        "--swap",
        *SPEC["swap"],
        "--fixed",
        *SPEC["fixed"],
        "--rate",
        SPEC["rate"],
        "--key",
        places[2],
        "--scenario",
        places[0],
        *options,
    ]
    words += ["--identifier", "id", "--output", places[1], "--audit", places[3], "--json"]
    assert told(run("swap", original, *words)["scores"]) == here
    # The service, from the scenarios of the project; the report of the masking has them all.
    path = f"/api/v1/projects/{project}"
    settings = ana.get(f"{path}/settings")
    stated = {"scenarios": [each.as_dict() for each in both], "scenario": "nosy neighbour"}
    match = {"If-Match": settings.headers["etag"]}
    assert ana.patch(f"{path}/settings", json=stated, headers=match).status_code == 200
    try:
        kept = result_of(town, ana, f"{path}/maskings", {"spec": SPEC, "measures": measures})
        assert told(kept["summary"]["scores"]) == here
        script = ana.post(f"{path}/script", json={"spec": SPEC, "measures": measures}).json()["script"]
        shown: list[object] = []
        names = {"ss": ss, "masked": made, "print": shown.append}
        exec(script[script.index("scenarios = ") :], names)
        assert repr(shown[0]) == repr(found)
        facts = ana.get(f"{path}/maskings/{kept['id']}/reports/analyst", params={"format": "json"}).json()
        assert [each["name"] for each in facts["scenarios"]] == ["nosy neighbour", "journalist"]
        assert {each["scenario"] for each in facts["figures"] if each["axis"] == "risk"} == {
            "nosy neighbour",
            "journalist",
        }
    finally:
        match = {"If-Match": ana.get(f"{path}/settings").headers["etag"]}
        assert ana.patch(f"{path}/settings", json={"scenarios": []}, headers=match).status_code == 200


def test_reports_of_a_masking_show_the_study_and_which_candidate_it_is(town, project, ana):
    path = f"/api/v1/projects/{project}"
    asked = {"attributes": ["tenure", "age"], "rates": [0.1, 0.2], "objective": "linear:a=1"}
    study = result_of(town, ana, f"{path}/studies", {"spec": asked})
    candidates = ana.get(f"{path}/studies/{study['id']}/candidates").json()["items"]
    specs = [ana.get(f"{path}/studies/{study['id']}/candidates/{each['number']}").json() for each in candidates]
    taken = next(each for each in specs if each["label"] == "tenure" and each["rate"] == 0.2)
    is_candidate = {"spec": taken["spec"], "measures": ["hellinger"]}
    none_of_them = {"spec": {**taken["spec"], "rate": 0.3}, "measures": ["hellinger"], "study": study["id"]}
    for body, chosen in ((is_candidate, "candidate"), (none_of_them, "none")):
        kept = result_of(town, ana, f"{path}/maskings", body)
        assert kept["spec"]["study"] == study["id"]
        tried = ana.get(f"{path}/maskings/{kept['id']}/reports/analyst", params={"format": "json"}).json()["tried"]
        page = ana.get(f"{path}/maskings/{kept['id']}/reports/analyst").text
        assert page.index("<svg") < page.index("What was tried")
        if chosen == "none":
            assert (tried["chosen"], tried["map"]["chosen"]) == ("", None)
            assert tried["details"][-1].startswith(
                "The release is not one of these candidates. By its rule the study would choose "
            )
        else:
            ring = tried["map"]["chosen"]
            assert (tried["map"]["labels"][ring], tried["map"]["rates"][ring]) == ("tenure", 0.2)
            assert f"candidate {taken['number']}: risk" in tried["chosen"]
    other = ana.post(f"{path}/maskings", json={**none_of_them, "study": "0" * 32})
    assert other.status_code == 404


def test_what_the_project_requires_is_in_the_reports_and_refuses_a_release(town, project, ana):
    path = f"/api/v1/projects/{project}"

    def state(**sections):
        match = {"If-Match": ana.get(f"{path}/settings").headers["etag"]}
        assert ana.patch(f"{path}/settings", json=sections, headers=match).status_code == 200

    blank = {"method": "suppress", "keys": ["region", "tenure"], "tolerance": 12, "solver": "greedy"}
    rule = {"nosy neighbour": ["risky <= 0"]}
    state(scenarios=[SCENARIO.as_dict()], release={"require": rule})
    try:
        for spec, ok in ((SPEC, False), (blank, True)):
            kept = result_of(town, ana, f"{path}/maskings", {"spec": spec, "measures": ["hellinger"]})
            facts = ana.get(f"{path}/maskings/{kept['id']}/reports/analyst", params={"format": "json"}).json()
            figure = next(each for each in facts["figures"] if each["measure"] == "risky")
            assert (figure["limit"], figure["ok"], figure["after"] == 0) == ("≤ 0", ok, ok)
            asked = ana.post(f"{path}/releases", json={"masking": kept["id"]})
            assert asked.status_code == 202, asked.text
            do_jobs(town.service)
            release = ana.get(asked.headers["location"]).json()
            unmet = "requirement not met: nosy neighbour: risky <= 0, found "
            assert release["reason"].startswith(unmet) is not ok, release
            assert release["state"] == ("requested" if ok else "failed")
    finally:
        state(scenarios=[], release={})
