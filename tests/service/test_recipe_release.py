"""A release after a recipe: what leaves says what was done to the file, and promises no more than holds."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from tests.service.at_work import masking_of, project_with_data, request_of, survey
from tests.service.serving import Running

from safeswap.service.routes.releases import task

API = "/api/v1"
BAND = {"step": "drop", "attributes": ["age"]}
SUPPRESS = {"method": "suppress", "combinations": [["region", "tenure"]], "tolerance": 8}


def released(town: Running, steps: list[dict], seed: int) -> tuple[dict, zipfile.ZipFile, str]:
    ana, olga = town.client("ana"), town.client("olga")
    project = project_with_data(town, "ana", "olga", content=survey(seed=seed, records=70 + seed))
    recipe = f"{API}/projects/{project}/recipe"
    set_to = ana.put(recipe, json={"steps": steps}, headers={"If-Match": ana.get(recipe).headers["etag"]})
    assert set_to.status_code == 200, set_to.text
    address = request_of(town, ana, project, masking_of(town, ana, project), title="Survey")
    told = olga.get(address).json()
    assert told["state"] == "requested", told
    assert olga.post(f"{address}/approval", json={"manifest_hash": told["manifest_hash"]}).status_code == 200
    bundle = zipfile.ZipFile(io.BytesIO(ana.get(f"{address}/bundle.zip").content))
    root = bundle.namelist()[0].partition("/")[0]
    return told, bundle, root


@pytest.mark.parametrize(
    ("steps", "method", "kept"),
    [([BAND], "Recoding; then ", True), ([SUPPRESS], "; then ", False), ([], "", True)],
    ids=["recode", "suppress", "none"],
)
def test_the_bundle_and_the_officer_are_told_of_the_recipe(town, steps, method, kept):
    told, bundle, root = released(town, steps, seed=len(str(steps)) % 40 + 200)
    facts = json.loads(bundle.read(f"{root}/manifest.json"))["facts"]
    assert method in facts["method"]
    assert (";" in facts["method"]) == bool(steps)
    assert bool(facts["kept_exactly"]) == kept
    assert any("the recipe was applied" in remark for remark in told["remarks"]) == bool(steps)
    assert facts["method"] in bundle.read(f"{root}/report.html").decode()
    assert all(check["ok"] for check in told["checks"])


def test_a_second_release_by_another_recipe_is_one_of_the_same_records(town):
    ana, olga = town.client("ana"), town.client("olga")
    project = project_with_data(town, "ana", "olga", content=survey(seed=900, records=81))
    addresses = [request_of(town, ana, project, masking_of(town, ana, project))]
    told = olga.get(addresses[0]).json()
    assert olga.post(f"{addresses[0]}/approval", json={"manifest_hash": told["manifest_hash"]}).status_code == 200
    recipe = f"{API}/projects/{project}/recipe"
    ana.put(recipe, json={"steps": [BAND]}, headers={"If-Match": ana.get(recipe).headers["etag"]})
    again = request_of(town, ana, project, masking_of(town, ana, project))
    told = olga.get(again).json()
    refused = olga.post(f"{again}/approval", json={"manifest_hash": told["manifest_hash"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "second-release")
    assert told["differencing"][0]["sentence"]


def test_an_attempt_that_was_overtaken_leaves_the_later_bundle_alone(tmp_path):
    for fence in (1, 3):
        (tmp_path / f"attempt-{fence}").mkdir()
    assert task._new_folder(tmp_path, 2).name == "attempt-2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-2", "attempt-3"]


def test_a_masking_that_changed_nothing_is_released_only_if_stated(town):
    ana, olga = town.client("ana"), town.client("olga")
    project = project_with_data(town, "ana", "olga", content=survey(seed=901, records=83))
    masking = masking_of(town, ana, project, rate=0.001)
    failed = ana.get(request_of(town, ana, project, masking)).json()
    assert failed["state"] == "failed"
    assert "nothing was masked" in failed["reason"]
    told = olga.get(request_of(town, ana, project, masking, unmasked=True)).json()
    assert told["state"] == "requested"
    assert any("nothing was masked" in remark for remark in told["remarks"])
