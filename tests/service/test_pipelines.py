"""A pipeline over HTTP: planned, masked, told step by step, and released with every step named."""

from __future__ import annotations

import io
import json
import zipfile

from tests.service.at_work import do_jobs, project_with_data, request_of, survey
from tests.service.serving import Running

import safeswap as ss

API = "/api/v1"
STEPS = [
    {"step": "drop", "attributes": ["age"]},
    {"method": "suppress", "keys": ["region", "tenure"], "tolerance": 20, "solver": "greedy"},
    {"method": "pram", "attributes": ["tenure"], "keep": 0.6, "name": "draw tenures anew"},
]
PIPELINE = {"method": "pipeline", "steps": STEPS}


def test_a_pipeline_is_planned_masked_told_and_released(town: Running) -> None:
    ana, olga = town.client("ana"), town.client("olga")
    project = project_with_data(town, "ana", "olga", content=survey(seed=77, records=90))
    plan = ana.post(f"{API}/projects/{project}/plan", json={"spec": PIPELINE}).json()
    assert [step["name"] for step in plan["details"]["steps"]] == ["recode", "suppress", "draw tenures anew"]
    asked = ana.post(f"{API}/projects/{project}/maskings", json={"spec": PIPELINE})
    assert asked.status_code == 202, asked.text
    do_jobs(town.service)
    made = ana.get(asked.headers["location"]).json()
    assert made["state"] == "succeeded", made
    masking = str(made["result"]["id"])
    told = ana.get(f"{API}/projects/{project}/maskings/{masking}").json()["summary"]
    assert [step["name"] for step in told["steps"]] == ["recode", "suppress", "draw tenures anew"]
    status = {column["column"]: column["status"] for column in told["columns"]}
    assert status["age"] == "dropped"
    assert status["tenure"] == "perturbed"
    assert told["spec"] == ss.Pipeline(STEPS).as_dict()
    page = ana.get(f"{API}/projects/{project}/maskings/{masking}/report.html")
    assert "Columns, compared with the original" in page.text
    address = request_of(town, ana, project, masking, title="Survey")
    release = olga.get(address).json()
    assert release["state"] == "requested", release
    assert all(check["ok"] for check in release["checks"])
    assert olga.post(f"{address}/approval", json={"manifest_hash": release["manifest_hash"]}).status_code == 200
    bundle = zipfile.ZipFile(io.BytesIO(ana.get(f"{address}/bundle.zip").content))
    root = bundle.namelist()[0].partition("/")[0]
    facts = json.loads(bundle.read(f"{root}/manifest.json"))["facts"]
    assert facts["method"].count("; then ") == 2
    assert b"age" not in bundle.read(f"{root}/data.csv").splitlines()[0]


def test_a_step_that_cannot_be_is_refused_before_a_job_is_made(town: Running) -> None:
    ana = town.client("ana")
    project = project_with_data(town, "ana", content=survey(seed=78))
    wrong = {"method": "pipeline", "steps": [STEPS[0], {"method": "swap", "swap": ["region"]}]}
    answer = ana.post(f"{API}/projects/{project}/maskings", json={"spec": wrong})
    assert answer.status_code == 422, answer.text
    assert "step 2 (swap)" in answer.json()["detail"]
