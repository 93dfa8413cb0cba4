"""Weights, partners, targets, indicators, models and error multipliers over HTTP, with the figures of Python."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import select
from tests.service.at_work import do_jobs, request_of

import safeswap as ss
from safeswap.measures.utility.indicators import Indicators
from safeswap.service.keeping.tables import audit_log

DROP = ["household", "weight", "stratum", "psu", "region", "district", "municipality", "settlement", "birth_date"]
LINES = [
    {"statistic": "mean", "of": "income", "by": ["education"]},
    {"statistic": "share", "of": "labour_status", "level": "1", "by": ["education", "sex"], "relative": 0.05},
    {"statistic": "regression", "formula": "income ~ age + sex"},
]
INDICATORS = Indicators(lines=LINES).text
MODELS = json.dumps({"models": [{"formula": "income ~ age + education"}, {"formula": "income ~ region + district"}]})
MEASURES = [
    "hellinger:attributes=sex+education", "pmse:attributes=sex+education", "weighted_margins", INDICATORS,
    f"coefficients:{MODELS}", "ci_overlap:formula=income ~ age + education",
]  # fmt: skip
SPECS = {
    "nearest_weight": {"method": "swap", "swap": ["education"], "rate": 0.1, "partner": "nearest_weight"},
    "least_bias": {"method": "swap", "swap": ["education"], "rate": 0.1, "partner": "least_bias"},
    "pps": {
        "method": "swap", "swap": ["education"], "rate": 0.1,
        "targeting": {"keys": ["sex", "education", "marital_status"], "n": 20, "rule": "pps"},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def project(town) -> str:
    made = town.add_project("ana", "olga", owner="ana")
    with town.client("ana") as ana:
        ana.post(f"/api/v1/projects/{made}/data-from-sample", json={"sample": "household_survey"})
    do_jobs(town.service)
    return made


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


@pytest.mark.parametrize("name", SPECS)
def test_partners_and_targets_give_the_figures_of_python(town, project, ana, name) -> None:
    spec = SPECS[name]
    body = {"spec": spec, "measures": MEASURES[:3]}
    kept = result_of(town, ana, f"/api/v1/projects/{project}/maskings", body)
    here = ss.mask(ss.datasets.household_survey(), spec, key=town.service.vault.project_key(project))
    expected = [(score.measure, score.value, score.sentence) for score in ss.assess(here, measures=MEASURES[:3])]
    found = [(score["measure"], score["value"], score["sentence"]) for score in kept["summary"]["scores"]]
    assert [each[0] for each in found] == [each[0] for each in expected]
    assert [each[1] for each in found] == pytest.approx([each[1] for each in expected])
    assert all("without" in sentence for _, _, sentence in found)  # the figure without weights is beside it


@pytest.fixture(scope="module")
def masking(town, project) -> str:
    with town.client("ana") as ana:
        body = {"spec": {"method": "swap", "swap": ["education"], "rate": 0.1}, "measures": MEASURES}
        return str(result_of(town, ana, f"/api/v1/projects/{project}/maskings", body)["id"])


def test_indicators_and_models_are_measured_and_what_cannot_be_fitted_is_named(town, project, ana, masking) -> None:
    shown = ana.get(f"/api/v1/projects/{project}/maskings/{masking}").json()
    scores = {score["measure"]: score for score in shown["summary"]["scores"]}
    assert scores[INDICATORS]["value"] > 0
    assert "Beyond their tolerance" in scores[INDICATORS]["sentence"]
    (models,) = (score for name, score in scores.items() if name.startswith("coefficients"))
    assert "income ~ region + district" in models["sentence"]
    assert models["value"] > 0
    body = {"spec": {"method": "swap", "swap": ["education"], "rate": 0.1}, "measures": ['indicators:{"lines": [{}]}']}
    refused = ana.post(f"/api/v1/projects/{project}/maskings", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "bad-spec")


def test_a_study_of_indicators_evaluates_regressions_on_the_frontier_only(town, project, ana) -> None:
    asked = {"attributes": ["education"], "rates": [0.02, 0.1], "keys": ["sex", "education"]}
    body = {"spec": {**asked, "distortion": [INDICATORS, "hellinger"]}}
    kept = result_of(town, ana, f"/api/v1/projects/{project}/studies", body)
    told = "Key indicators are compared without income ~ age + sex, computed for the candidates on the frontier only."
    base = f"/api/v1/projects/{project}/studies/{kept['id']}"
    assert told in ana.get(f"{base}/report.html").text
    assert ana.get(f"{base}/map").json()["note"] == f"Tables are weighted by weight. {told}"


def test_the_chair_reads_the_errors_and_the_public_only_after_consent(town, project, ana, masking) -> None:
    base = f"/api/v1/projects/{project}"
    with town.client("olga") as olga:
        chair = olga.get(f"{base}/maskings/{masking}/reports/chair").text
        assert "The largest change of a weighted count" in chair
        assert "each estimate before and after" in chair
    silent = request_of(town, ana, project, masking, title="Survey", drop=DROP)
    assert "Multiply" not in ana.get(f"{silent}/reports/public").text
    agreed = request_of(town, ana, project, masking, title="Survey", drop=DROP, publish_errors=INDICATORS)
    shown = ana.get(agreed).json()
    assert any("consent" in remark for remark in shown["remarks"])
    assert "Multiply yours by: " in ana.get(f"{agreed}/reports/public").text
    with town.service.database.read() as connection:
        rows = connection.execute(select(audit_log).where(audit_log.c.subject == shown["id"])).mappings().all()
    assert any("publish_errors" in row["detail"] for row in rows)
    terms = {"masking": masking, "terms": {"publish_errors": "/etc/passwd"}}
    assert ana.post(f"{base}/releases", json=terms).status_code == 422  # only indicators themselves, never a file
