"""A project of the service and its project.toml are one object: scenarios, steps, study, release."""

from __future__ import annotations

import pytest
from tests.service.at_work import SPEC, do_jobs, project_with_data, survey
from tests.service.serving import Running

import safeswap as ss
from safeswap.service.work.tasks import read_data
from safeswap.workflow.step_table import assess_steps

API = "/api/v1"
NEIGHBOUR = {"name": "nosy neighbour", "keys": ["region", "tenure"], "up_to": 2, "tolerance": 12}
OWN = {"name": "own", "keys": ["region", "age"], "tolerance": 4}
STEPS = [
    {"method": "recode", "steps": [{"step": "truncate", "attribute": "age", "characters": 1}]},
    {"method": "pram", "attributes": ["tenure"], "keep": 0.6, "off": True},
    {"method": "suppress", "scenario": "nosy neighbour", "solver": "greedy"},
    {"method": "swap", "name": "exchange", "swap": ["region"], "rate": 0.2},
]
TOML = """
title = "elsewhere"
[[scenario]]
name = "nosy neighbour"
keys = ["region", "tenure"]
[[step]]
method = "suppress"
scenario = "nosy neighbour"
[[step]]
method = "swap"
swap = ["region"]
rate = 0.1
off = true
[study]
scenario = "nosy neighbour"
attributes = ["region", "tenure"]
rates = [0.1]
[release]
format = "parquet"
require = { "nosy neighbour" = "risky <= 0" }
"""


@pytest.fixture(scope="module")
def project(town: Running) -> str:
    return project_with_data(town, "ana", "vera", content=survey(seed=77, records=80))


@pytest.fixture
def ana(town):
    return town.client("ana")


def change(client, project, **sections):
    place = f"{API}/projects/{project}/settings"
    version = client.get(place).json()["version"]
    return client.patch(place, json=sections, headers={"If-Match": f'"{version}"'})


def import_text(client, project, text):
    version = client.get(f"{API}/projects/{project}/settings").json()["version"]
    place = f"{API}/projects/{project}/project.toml"
    return client.put(place, json={"text": text}, headers={"If-Match": f'"{version}"'})


def result_of(town, client, path, body):
    asked = client.post(path, json=body)
    assert asked.status_code == 202, asked.text
    do_jobs(town.service)
    job = client.get(asked.headers["location"]).json()
    assert job["state"] == "succeeded", job
    return client.get(f"{path}/{job['result']['id']}").json()


def test_settings_are_kept_exported_and_read_back_as_the_same_project(project, ana):
    assert ana.get(f"{API}/projects/{project}/settings").json()["scenarios"] == []
    answer = change(ana, project, scenarios=[NEIGHBOUR, OWN], steps=STEPS, scenario="own")
    assert answer.status_code == 200, answer.text
    kept = ana.get(f"{API}/projects/{project}/settings").json()
    assert kept["scenario"] == "own"
    assert [step["name"] for step in kept["steps"]] == ["recode", "pram", "suppress", "exchange"]
    assert [step.get("off", False) for step in kept["steps"]] == [False, True, False, False]
    assert kept["steps"][2] == {
        "method": "suppress",
        "name": "suppress",
        "scenario": "nosy neighbour",
        "solver": "greedy",
    }
    text = ana.get(f"{API}/projects/{project}/project.toml").text
    made = ss.Project.parse(text)
    assert made == ss.Project.parse(made.text())
    assert made.data.identifier == "id"
    assert made.pipeline.names == ("recode", "suppress", "exchange")
    assert import_text(ana, project, text).json() | {"version": 0} == kept | {"version": 0}
    assert ss.Project.parse(ana.get(f"{API}/projects/{project}/project.toml").text) == made


def test_a_scenario_that_changes_changes_the_steps_that_name_it(project, ana):
    change(ana, project, scenarios=[NEIGHBOUR, OWN], steps=STEPS, scenario="nosy neighbour")
    other = {**NEIGHBOUR, "name": "neighbour", "keys": ["tenure"], "up_to": 1}
    renamed = change(ana, project, scenarios=[other, OWN], renamed={"nosy neighbour": "neighbour"}).json()
    assert (renamed["scenario"], renamed["steps"][2]["scenario"]) == ("neighbour", "neighbour")
    made = ss.Project.parse(ana.get(f"{API}/projects/{project}/project.toml").text)
    assert made.pipeline["suppress"].spec.keys == ("tenure",)
    refused = change(ana, project, scenarios=[OWN])
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown-scenario")


def test_steps_are_undone_and_redone(project, ana):
    change(ana, project, scenarios=[NEIGHBOUR], steps=[])
    change(ana, project, steps=STEPS[:1])
    change(ana, project, steps=[STEPS[3], STEPS[0]])
    place = f"{API}/projects/{project}/settings"
    assert [s["name"] for s in ana.post(f"{place}/undo", json={}).json()["steps"]] == ["recode"]
    redone = ana.post(f"{place}/redo", json={}).json()
    assert ([s["name"] for s in redone["steps"]], redone["can_redo"]) == (["exchange", "recode"], False)
    assert ana.post(f"{place}/redo", json={}).json()["code"] == "nothing-to-redo"


def test_a_file_is_imported_without_its_data(project, ana):
    kept = import_text(ana, project, TOML).json()
    assert kept["steps"][1]["off"] is True
    assert (kept["study"]["scenario"], kept["release"]["format"]) == ("nosy neighbour", "parquet")
    here = ss.Project.parse_alone(TOML)
    there = ss.Project.parse(ana.get(f"{API}/projects/{project}/project.toml").text)
    for name in ("scenarios", "pipeline", "aside", "study", "release"):
        assert getattr(here, name) == getattr(there, name), name


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[[scenario]]\nname = 3", "bad-project-file"),
        ('[[scenario]]\nkeys = ["regio"]', "unknown-attribute"),
        ('[[step]]\nmethod = "swop"', "unknown-method"),
        ('[[step]]\nmethod = "pram"\nattributes = ["tenure"]\noff = 3', "bad-spec"),
        ('schema = "/etc/passwd"', "bad-project-file"),
        ('step = "../../x.toml"', "bad-project-file"),
        ('[[step]]\nstep = "hierarchy"\nattribute = "region"\nfile = "/etc/passwd"', "bad-project-file"),
        ("[[[", "bad-project-file"),
        ('[release]\nrequire = { nobody = "risky <= 0" }', "unknown-scenario"),
    ],
)
def test_a_bad_file_is_refused_and_changes_nothing(project, ana, text, code):
    place = f"{API}/projects/{project}/settings"
    before = ana.get(place).json()
    answer = import_text(ana, project, text)
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == code or code == "bad-project-file", answer.text
    assert "root:" not in answer.text
    assert ana.get(place).json() == before


def test_a_change_needs_the_version_that_was_read(project, ana):
    place = f"{API}/projects/{project}/settings"
    assert ana.patch(place, json={"steps": []}, headers={"If-Match": '"0"'}).status_code == 412
    assert ana.patch(place, json={"steps": []}).status_code == 428
    assert ana.patch(place, json={"stops": []}, headers={"If-Match": '"0"'}).status_code == 422


def test_the_scenario_in_use_is_the_default_of_every_figure(town, project, ana):
    both = [NEIGHBOUR, OWN]  # the one in use first
    change(ana, project, scenarios=[OWN, NEIGHBOUR], scenario="nosy neighbour", steps=[], study={})
    base = f"{API}/projects/{project}"
    assert ana.post(f"{base}/risky", json={}).json()["scenario"] == "nosy neighbour"
    assert "advice" in ana.post(f"{base}/advice", json={"most": 1}).json()
    data = read_data(town.service.store, project, 1)
    key = town.service.vault.project_key(project)
    masked = ss.mask(data, SPEC, key=key)
    here = ss.assess(masked, scenario=both, measures=["k_anonymity", "n_rule"]).as_dict()["scores"]
    kept = result_of(town, ana, f"{base}/maskings", {"spec": SPEC, "measures": ["k_anonymity", "n_rule"]})
    assert [(s["scenario"], s["value"], s["before"]) for s in kept["summary"]["scores"]] == [
        (s["scenario"], s["value"], s["before"]) for s in here
    ]
    again = result_of(town, ana, f"{base}/assessments", {"masking": kept["id"], "measures": ["k_anonymity"]})
    assert again["summary"]["scores"][0]["scenario"] == "nosy neighbour"
    plot = result_of(town, ana, f"{base}/confidentiality", {"masking": kept["id"]})
    assert plot["summary"]["scenario"] == "nosy neighbour"
    blanked = result_of(town, ana, f"{base}/maskings", {"spec": {"method": "suppress"}})
    assert blanked["spec"]["spec"]["keys"] == NEIGHBOUR["keys"]
    study = result_of(town, ana, f"{base}/studies", {"spec": {"attributes": ["tenure", "region"], "rates": [0.1]}})
    assert study["spec"]["spec"]["scenario"]["name"] == "nosy neighbour"


def test_the_table_of_steps_tells_each_step_and_the_one_that_does_not_fit(town, project, ana):
    change(ana, project, scenarios=[NEIGHBOUR], steps=STEPS)
    place = f"{API}/projects/{project}/step-table"
    found = ana.post(place, json={}).json()
    assert found["problem"] is None
    keys = len(NEIGHBOUR["keys"])
    assert found["spreads"] == {"nosy neighbour": round(2 * 3 * (2 * (2**keys - 1)) ** 0.5)}
    assert [row["name"] for row in found["steps"]] == ["recode", "suppress", "exchange"]
    known = town.service.data_cache.table_of(project)
    exact = assess_steps(known.masked, scenarios=[NEIGHBOUR])
    assert [row["blanked"] for row in found["steps"]] == [row.blanked for row in exact.rows]
    assert [row["information_loss"] for row in found["steps"]] == [row.information_loss for row in exact.rows]
    assert found["steps"][1]["figures"][0]["after"] == exact.rows[1].figures[0].after == 0
    change(ana, project, steps=[*STEPS, {"method": "swap", "swap": ["nowhere"], "rate": 0.1}])
    broken = ana.post(place, json={}).json()
    assert broken["steps"] == found["steps"]
    assert (broken["problem"]["position"], broken["problem"]["step"]) == (4, "swap")
    assert broken["problem"]["code"] == "unknown-attribute"
    now = town.service.data_cache.table_of(project)
    assert all(mine is theirs for mine, theirs in zip(now.masked.stages, known.masked.stages, strict=True))
    spec = {"method": "swap", "swap": ["age"], "rate": 0.1}
    plan = ana.post(f"{API}/projects/{project}/plan", json={"spec": spec, "after_steps": 1})
    assert plan.status_code == 200, plan.text  # age is banded by the first step


def test_steps_name_levels_by_the_labels_of_the_data(town, ana):
    labelled = project_with_data(town, "ana", content=survey(seed=5, records=90))
    place = f"{API}/projects/{labelled}"
    version = ana.get(f"{place}/description").headers["etag"]
    words = {"name": "region", "kind": "nominal", "labels": {"N": "North", "S": "South"}}
    assert ana.patch(f"{place}/description", json={"attributes": [words]}, headers={"If-Match": version}).is_success
    do_jobs(town.service)
    merge = {"step": "recode", "attribute": "region", "groups": {"all": ["N", "S"]}}
    again = {**merge, "groups": {"here": ["all"]}}
    steps = [{"method": "recode", "steps": [merge], "off": True}, {"method": "recode", "steps": [merge, again]}]
    told = change(ana, labelled, steps=steps).json()["sentences"]
    assert told == [
        "recode: recode region: North, South to all",
        "recode-2: recode region: North, South to all; recode region: all to here",
    ]
    assert ana.get(f"{place}/settings").json()["sentences"] == told


def test_a_scenario_below_the_tolerance_of_the_project_is_not_counted(project, ana):
    low = {"name": "low", "keys": ["region"], "tolerance": 2}
    changed = change(ana, project, scenarios=[low], steps=STEPS[:1], release={})
    assert changed.status_code == 200, changed.text
    figure = ana.post(f"{API}/projects/{project}/step-table", json={}).json()["steps"][0]["figures"][0]
    assert figure["after"] is None
    assert "tolerance of this project" in figure["note"]
