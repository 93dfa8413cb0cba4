"""Risk from several sides after the pipeline, advice that names no rare level, and undoing a masking."""

from __future__ import annotations

import pytest
from tests.service.at_work import do_jobs, masking_of, project_with_data
from tests.service.serving import Running

from safeswap.service.work import rare

API = "/api/v1"
LEVELS = ["own"] * 70 + ["rent"] * 40 + ["free"] * 9 + ["rare1", "rare2"]
# Counted by hand, after and before: both rare levels are unique; the nine of "free" are in groups of at most ten too.
AT_RISK = {"groups": (0, 2), "individual": (9, 11), "suda": (0, 2)}
KEYS = {"name": "neighbour", "keys": ["region", "tenure"], "tolerance": 3}


@pytest.fixture(scope="module")
def project(town: Running) -> str:
    rows = [f"{1000 + i},{'NS'[i % 2]},{tenure},{'young' if i % 3 else 'old'}" for i, tenure in enumerate(LEVELS)]
    content = "id,region,tenure,age\n" + "\n".join(rows) + "\n"
    return project_with_data(town, "ana", "vera", content=content.encode())


def put_steps(client, project, *steps):
    place = f"{API}/projects/{project}/settings"
    version = client.get(place).json()["version"]
    answer = client.patch(place, json={"scenarios": [KEYS], "steps": list(steps)}, headers={"If-Match": f'"{version}"'})
    assert answer.status_code == 200, answer.text


def test_the_pipeline_is_what_risk_and_advice_look_at(
    town: Running, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, at = town.client("ana"), f"{API}/projects/{project}"
    put_steps(ana, project)
    before = ana.post(f"{at}/risky", json={"pipeline": True}).json()
    assert before["unsafe_combinations"] > 0
    assert len(before["stages"]) == 1
    assert before["spread"] == round(2 * 3 * 6**0.5)  # of three totals: two keys, and both together
    advice = ana.post(f"{at}/advice", json={"pipeline": True, "most": 100}).json()
    assert "rare1" not in str(advice)
    assert "rare2" not in str(advice)
    joined = next(each["step"] for each in advice["advice"] if "others" in each["step"])
    put_steps(ana, project, {"method": "recode", "steps": [joined]}, {"method": "suppress", "scenario": "neighbour"})
    after = ana.post(f"{at}/risky", json={"pipeline": True}).json()
    assert (after["unsafe_combinations"], after["scenario"]) == (0, "neighbour")
    assert after["stages"][0]["unsafe_combinations"] == before["unsafe_combinations"]
    for view in ("groups", "individual", "suda"):
        found = ana.post(f"{at}/risk-views/{view}", json={}).json()
        assert found["steps"] == 2
        assert found["sentence"].endswith(".")
        assert "rare1" not in str(found)
        assert ana.post(f"{at}/risk-views/{view}", json={}).json() == found  # the noise does not wear off
        with monkeypatch.context() as without_noise:
            without_noise.setattr(rare, "perturb", lambda count, spread, word: count)
            exact = ana.post(f"{at}/risk-views/{view}", json={}).json()
        assert (exact["at_risk"], exact["at_risk_before"]) == AT_RISK[view], view
    for view, lack in (("households", "household"), ("population", "population")):
        found = ana.post(f"{at}/risk-views/{view}", json={}).json()
        assert (found["sentence"], found["bars"]) == ("", [])
        assert lack in found["problem"].lower()
    asked = {"spec": {"attributes": ["tenure"], "rates": [0.2], "up_to": 1}}
    assert ana.post(f"{at}/studies", json=asked).status_code == 202
    do_jobs(town.service)
    study = ana.get(f"{at}/studies?limit=1").json()["items"][0]["spec"]["spec"]
    assert [step["steps"] for step in study["first"]] == [[joined]]  # the recodes, not the suppression
    low = {"scenario": {**KEYS, "tolerance": 2}}
    assert ana.post(f"{at}/risk-views/groups", json=low).json()["code"] == "tolerance-floor"
    assert town.client("vera").post(f"{at}/risk-views/groups", json={}).status_code == 403


def test_a_masking_is_undone_unless_its_release_was_requested(town: Running, project: str) -> None:
    ana, at = town.client("ana"), f"{API}/projects/{project}/maskings"
    undone, kept = masking_of(town, ana, project), masking_of(town, ana, project)
    told = ana.get(f"{at}/{undone}").json()["summary"]["done"]
    assert told.endswith("pairs exchange tenure")
    folder = town.service.store.result(project, undone)
    assert any(folder.iterdir())
    assert ana.delete(f"{at}/{undone}").status_code == 204
    assert ana.get(f"{at}/{undone}").status_code == 404
    assert not folder.exists() or not any(folder.iterdir())
    body = {"masking": kept, "terms": {"title": "t"}}
    assert ana.post(f"{API}/projects/{project}/releases", json=body).status_code == 202
    assert ana.delete(f"{at}/{kept}").json()["code"] == "masking-in-use"
    do_jobs(town.service)
