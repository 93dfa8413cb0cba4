"""Raw data leave only through people who may export them; small counts are shown only where an officer says so."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import select
from tests.service.at_work import do_jobs, masking_of, project_with_data, request_of
from tests.service.serving import Running, running

from safeswap.service.keeping.tables import audit_log

SCOPES = ("read", "write", "release")


def log_of(here: Running, project: str) -> list[tuple[str, str, dict[str, object]]]:
    mine = select(audit_log).where(audit_log.c.project_id == project).order_by(audit_log.c.number)
    with here.service.database.read() as connection:
        return [(row.actor, row.action, json.loads(row.detail)) for row in connection.execute(mine)]


def test_an_analyst_exports_nothing_unless_the_administrator_says_so(town, tmp_path):
    project = project_with_data(town, "ana", "olga")
    refused = town.client("ana").post(f"/api/v1/projects/{project}/exports", json={})
    assert (refused.status_code, refused.json()["code"]) == (403, "role")
    assert "export" not in town.client("ana").get("/api/v1/session").json()["permissions"]
    with running(tmp_path, analysts_export=True) as here:
        own = project_with_data(here, "ana")
        assert "export" in here.client("ana").get("/api/v1/session").json()["permissions"]
        assert here.client("ana").post(f"/api/v1/projects/{own}/exports", json={}).status_code == 202


@pytest.mark.parametrize("name", ["ana", "olga"])
def test_no_token_exports_whatever_its_scopes(tmp_path_factory, name):
    with running(tmp_path_factory.mktemp("exports"), analysts_export=True) as here:
        project = project_with_data(here, "ana", "olga")
        refused = here.token_client(name, *SCOPES).post(f"/api/v1/projects/{project}/exports", json={})
        assert (refused.status_code, refused.json()["code"]) == (403, "not-by-token")


def test_who_asks_for_an_export_and_who_fetches_it_stand_in_the_log(town):
    project = project_with_data(town, "ana", "olga")
    olga = town.client("olga")
    asked = olga.post(f"/api/v1/projects/{project}/exports", json={})
    do_jobs(town.service)
    made = olga.get(asked.headers["location"]).json()["result"]["id"]
    assert olga.get(f"/api/v1/projects/{project}/exports/{made}/file").status_code == 200
    entries = [(who, what) for who, what, _ in log_of(town, project)]
    assert ("olga", "export.request") in entries
    assert ("olga", "export.fetch") in entries


def test_the_tolerance_of_the_settings_is_default_and_floor(tmp_path):
    with running(tmp_path, tolerance=5) as here:
        ana, olga = here.client("ana"), here.client("olga")
        assert ana.post("/api/v1/projects", json={"name": "a"}).json()["tolerance"] == 5
        refused = ana.post("/api/v1/projects", json={"name": "a", "tolerance": 4})
        assert (refused.status_code, refused.json()["code"]) == (403, "tolerance-floor")
        assert ana.post("/api/v1/projects", json={"name": "a", "tolerance": 9}).json()["tolerance"] == 9
        made = olga.post("/api/v1/projects", json={"name": "a", "tolerance": 2}).json()
        assert made["tolerance"] == 2
        assert log_of(here, made["id"])[0][2] == {"tolerance": 2, "floor": 5}


def test_lowering_the_tolerance_takes_an_officer_is_logged_and_shown_with_the_release(town):
    project = project_with_data(town, "ana", "olga")
    address = f"/api/v1/projects/{project}"
    ana, olga = town.client("ana"), town.client("olga")
    match = {"If-Match": ana.get(address).headers["etag"]}
    refused = ana.patch(address, json={"tolerance": 1}, headers=match)
    assert (refused.status_code, refused.json()["code"]) == (403, "tolerance-floor")
    assert olga.patch(address, json={"tolerance": 1}, headers=match).json()["tolerance"] == 1
    assert ("olga", "project.change", {"tolerance": 1, "tolerance_before": 3}) in log_of(town, project)
    release = request_of(town, ana, project, masking_of(town, ana, project))
    (remark,) = [each for each in olga.get(release).json()["remarks"] if "floor" in each]
    assert remark == "The tolerance of this project is 1; the agency's floor is 3. An officer has lowered it."
    match = {"If-Match": ana.get(address).headers["etag"]}
    assert ana.patch(address, json={"tolerance": 7}, headers=match).json()["tolerance"] == 7
    match = {"If-Match": ana.get(address).headers["etag"]}
    assert ana.patch(address, json={"tolerance": 6}, headers=match).status_code == 403


def test_the_tolerance_of_a_project_is_the_floor_for_its_tables_too(town):
    project = project_with_data(town, "ana", "olga")
    ana, olga = town.client("ana"), town.client("olga")
    address, body = f"/api/v1/projects/{project}", {"tables": [["region", "tenure"]]}
    assert ana.post(f"{address}/table-checks", json=body).json()["tolerance"] == 3
    for path in ("table-checks", "safe-tables"):
        refused = ana.post(f"{address}/{path}", json=body | {"tolerance": 2})
        assert (refused.status_code, refused.json()["code"]) == (422, "tolerance-floor")
    asked = ana.post(f"{address}/safe-tables", json=body)
    do_jobs(town.service)
    report = f"{address}/safe-tables/{ana.get(asked.headers['location']).json()['result']['id']}/report.html"
    assert [client.get(report).status_code for client in (ana, olga)] == [403, 200]
