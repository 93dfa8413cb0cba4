"""Every route × everybody: who gets in is what this table says, and a route that is not in it fails the build.

The table is written by hand, apart from the program: what a route declares in its code is not asked here, only what it
does when somebody really comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from tests.service.serving import Running

WHO = ("anonymous", "other tenant", "viewer", "analyst", "officer", "admin", "read token", "write token")
MEMBERS = {"viewer": "vera", "analyst": "ana", "officer": "olga", "other tenant": "oscar", "admin": "adam"}

LOG_IN, NO, HIDDEN, YES = "401", "403", "404", "in"

RULES = {
    #                    anonymous, other tenant, viewer, analyst, officer, admin, read token, write token
    "public":           (YES,       YES,          YES,    YES,     YES,     YES,   YES,        YES),
    "self":             (LOG_IN,    YES,          YES,    YES,     YES,     YES,   YES,        NO),
    "self, no program": (LOG_IN,    YES,          YES,    YES,     YES,     YES,   NO,         NO),
    "everybody's own":  (LOG_IN,    YES,          YES,    YES,     YES,     YES,   YES,        NO),
    "administer":       (LOG_IN,    NO,           NO,     NO,      NO,      YES,   NO,         NO),
    "govern":           (LOG_IN,    YES,          NO,     NO,      YES,     YES,   NO,         NO),
    "work":             (LOG_IN,    YES,          NO,     YES,     YES,     NO,    NO,         YES),
    "project people":   (LOG_IN,    HIDDEN,       YES,    YES,     YES,     YES,   YES,        NO),
    "project invite":   (LOG_IN,    HIDDEN,       NO,     YES,     YES,     YES,   NO,         NO),
    "project read":     (LOG_IN,    HIDDEN,       YES,    YES,     YES,     NO,    YES,        NO),
    "project work":     (LOG_IN,    HIDDEN,       NO,     YES,     YES,     NO,    NO,         YES),
    "project export":   (LOG_IN,    HIDDEN,       NO,     NO,      YES,     NO,    NO,         NO),
    "project decide":   (LOG_IN,    HIDDEN,       NO,     NO,      YES,     NO,    NO,         NO),
}  # fmt: skip

PROJECT = "/api/v1/projects/{project_id}"

TABLE = {
    "GET /health/live": "public",
    "GET /health/ready": "public",
    "GET /metrics": "public",
    "GET /api/v1/session/ways": "public",
    "POST /api/v1/session": "public",
    "GET /api/v1/session/start": "public",
    "GET /api/v1/session/provider": "public",
    "GET /api/v1/session/provider/return": "public",
    "GET /api/v1/session": "self",
    "DELETE /api/v1/session": "self, no program",
    "PUT /api/v1/session/password": "self, no program",
    "GET /api/v1/tokens": "self",
    "POST /api/v1/tokens": "self, no program",
    "DELETE /api/v1/tokens/{token_id}": "self, no program",
    "GET /api/v1/users": "administer",
    "POST /api/v1/users": "administer",
    "GET /api/v1/users/{user_id}": "administer",
    "PATCH /api/v1/users/{user_id}": "administer",
    "GET /api/v1/administration/projects": "administer",
    "GET /api/v1/audit-log": "administer",
    "GET /api/v1/audit-log/verification": "administer",
    "GET /api/v1/methods": "self",
    "GET /api/v1/methods/{name}": "self",
    "GET /api/v1/measures": "self",
    "GET /api/v1/attacks": "self",
    "GET /api/v1/release-policy": "self",
    "PUT /api/v1/release-policy": "govern",
    "GET /api/v1/projects": "everybody's own",
    "POST /api/v1/projects": "work",
    f"GET {PROJECT}": "project people",
    f"PATCH {PROJECT}": "project work",
    f"DELETE {PROJECT}": "project work",
    f"GET {PROJECT}/members": "project people",
    f"PUT {PROJECT}/members/{{user_name}}": "project invite",
    f"DELETE {PROJECT}/members/{{user_name}}": "project invite",
    f"PUT {PROJECT}/data": "project work",
    f"POST {PROJECT}/data-from-folder": "project work",
    f"POST {PROJECT}/data-from-sample": "project work",
    f"POST {PROJECT}/exports": "project export",
    f"GET {PROJECT}/exports": "project export",
    f"GET {PROJECT}/exports/{{result_id}}/file": "project export",
    f"GET {PROJECT}/specifications": "project read",
    "PUT /api/v1/imports": "work",
    f"GET {PROJECT}/description": "project read",
    f"PATCH {PROJECT}/description": "project work",
    f"GET {PROJECT}/jobs": "project read",
    f"POST {PROJECT}/plan": "project read",
    f"POST {PROJECT}/maskings": "project work",
    f"GET {PROJECT}/maskings": "project read",
    f"GET {PROJECT}/maskings/{{result_id}}": "project read",
    f"DELETE {PROJECT}/maskings/{{result_id}}": "project work",
    f"GET {PROJECT}/maskings/{{result_id}}/report.html": "project read",
    f"GET {PROJECT}/maskings/{{result_id}}/table": "project read",
    f"POST {PROJECT}/mask-below": "project work",
    f"GET {PROJECT}/mask-below": "project work",
    f"GET {PROJECT}/mask-below/{{result_id}}": "project work",
    f"POST {PROJECT}/assessments": "project work",
    f"GET {PROJECT}/assessments": "project read",
    f"GET {PROJECT}/assessments/{{result_id}}": "project read",
    f"POST {PROJECT}/study-size": "project read",
    f"POST {PROJECT}/studies": "project work",
    f"GET {PROJECT}/studies": "project read",
    f"GET {PROJECT}/studies/{{result_id}}": "project read",
    f"GET {PROJECT}/studies/{{result_id}}/map": "project read",
    f"GET {PROJECT}/studies/{{result_id}}/candidates": "project read",
    f"GET {PROJECT}/studies/{{result_id}}/candidates/{{number}}": "project read",
    f"GET {PROJECT}/studies/{{result_id}}/candidates/{{number}}/table": "project read",
    f"POST {PROJECT}/studies/{{result_id}}/choice": "project read",
    f"GET {PROJECT}/studies/{{result_id}}/report.html": "project read",
    f"POST {PROJECT}/attacks": "project work",
    f"GET {PROJECT}/attacks": "project work",
    f"GET {PROJECT}/attacks/{{result_id}}": "project work",
    f"PUT {PROJECT}/control-file": "project work",
    f"GET {PROJECT}/control-file": "project work",
    f"GET {PROJECT}/households": "project read",
    f"GET {PROJECT}/geography": "project read",
    f"POST {PROJECT}/confidentiality": "project work",
    f"GET {PROJECT}/confidentiality": "project read",
    f"GET {PROJECT}/confidentiality/{{result_id}}": "project read",
    f"GET {PROJECT}/confidentiality/{{result_id}}/plot": "project read",
    f"GET {PROJECT}/confidentiality/{{result_id}}/plot.html": "project read",
    f"GET {PROJECT}/suggested-keys": "project read",
    f"POST {PROJECT}/risky": "project read",
    f"POST {PROJECT}/risk-views/{{view}}": "project work",
    f"POST {PROJECT}/risky-lists": "project work",
    f"GET {PROJECT}/risky-lists": "project read",
    f"GET {PROJECT}/risky-lists/{{result_id}}": "project read",
    f"GET {PROJECT}/settings": "project read",
    f"PATCH {PROJECT}/settings": "project work",
    f"POST {PROJECT}/settings/{{way}}": "project work",
    f"GET {PROJECT}/project.toml": "project read",
    f"PUT {PROJECT}/project.toml": "project work",
    f"POST {PROJECT}/step-table": "project read",
    f"GET {PROJECT}/bands": "project read",
    f"GET {PROJECT}/recipe": "project read",
    f"PUT {PROJECT}/recipe": "project work",
    f"POST {PROJECT}/recipe/{{way}}": "project work",
    f"POST {PROJECT}/advice": "project read",
    f"POST {PROJECT}/table-checks": "project read",
    f"POST {PROJECT}/safe-tables": "project work",
    f"GET {PROJECT}/safe-tables": "project read",
    f"GET {PROJECT}/safe-tables/{{result_id}}": "project read",
    f"GET {PROJECT}/safe-tables/{{result_id}}/report.html": "project decide",
    f"POST {PROJECT}/script": "project read",
    f"GET {PROJECT}/log": "project read",
    f"POST {PROJECT}/log": "project work",
    f"GET {PROJECT}/log.txt": "project read",
    f"POST {PROJECT}/releases": "project work",
    f"GET {PROJECT}/releases": "project read",
    f"GET {PROJECT}/releases/{{release_id}}": "project read",
    f"GET {PROJECT}/releases/{{release_id}}/documents/{{name}}": "project read",
    f"POST {PROJECT}/releases/{{release_id}}/approval": "project decide",
    f"POST {PROJECT}/releases/{{release_id}}/rejection": "project decide",
    f"GET {PROJECT}/releases/{{release_id}}/bundle.zip": "project read",
    f"GET {PROJECT}/maskings/{{result_id}}/reports/public": "project read",
    f"GET {PROJECT}/maskings/{{result_id}}/reports/members": "project decide",
    f"GET {PROJECT}/maskings/{{result_id}}/reports/chair": "project decide",
    f"GET {PROJECT}/maskings/{{result_id}}/reports/analyst": "project work",
    f"GET {PROJECT}/maskings/{{result_id}}/reports/five-safes": "project work",
    f"GET {PROJECT}/releases/{{release_id}}/reports/public": "project read",
    f"GET {PROJECT}/releases/{{release_id}}/reports/members": "project decide",
    f"GET {PROJECT}/releases/{{release_id}}/reports/chair": "project decide",
    f"GET {PROJECT}/releases/{{release_id}}/reports/analyst": "project work",
    f"GET {PROJECT}/releases/{{release_id}}/reports/five-safes": "project work",
    f"GET {PROJECT}/audit-log": "project decide",
    "GET /api/v1/jobs/{job_id}": "project read",
    "DELETE /api/v1/jobs/{job_id}": "project work",
}

PARTS = {
    "number": "0",
    "way": "undo",
    "view": "groups",
    "name": "report.html",
    "user_name": "vera",
    "user_id": "none",
    "token_id": "none",
}


def test_every_route_of_the_contract_is_in_the_table(town: Running) -> None:
    contract = town.client().get("/api/openapi.json").json()
    found = {f"{verb.upper()} {path}" for path, operations in contract["paths"].items() for verb in operations}
    assert found - set(TABLE) == set(), "a new route: say in the table who may use it"
    assert set(TABLE) - found == set(), "a route has gone: take it out of the table"


ENDS_THE_SESSION = {"DELETE /api/v1/session", "PUT /api/v1/session/password"}


def _come(town: Running, who: str) -> httpx.Client:
    if who == "anonymous":
        return town.client()
    if who.endswith("token"):
        return town.token_client("ana", who.removesuffix(" token"))
    return town.client(MEMBERS[who])


@pytest.fixture(scope="module")
def everybody(town: Running) -> dict[str, httpx.Client]:
    return {who: _come(town, who) for who in WHO}


@pytest.fixture(scope="module")
def quiet_project(town: Running) -> str:
    """A project that is only looked at."""
    return town.add_project("vera", "ana", "olga")


@contextmanager
def _address(town: Running, method: str, path: str, quiet_project: str) -> Iterator[str]:
    """The path with a project that is there; what it should hold is not, except a job."""
    changing = method in {"DELETE", "PUT"} and "{project_id}" in path
    project = town.add_project("vera", "ana", "olga") if changing else quiet_project
    parts = {**PARTS, "project_id": project, "result_id": "none", "release_id": "none"}
    if "{job_id}" in path:
        parts["job_id"] = town.service.queue.enqueue("mask", {}, project_id=project, created_by=None)
    if path.endswith("/methods/{name}"):
        parts["name"] = "swap"
    yield path.format(**parts)
    if "{job_id}" in path:  # whoever does jobs in this town next would find it, and no data
        town.service.queue.cancel(parts["job_id"])


def _outcome(answer: httpx.Response) -> str:
    if answer.status_code in {401, 403}:
        told = answer.json()["code"]
        assert told in {"not-logged-in", "role", "scope", "not-by-token", "wrong-token", "provider", "wrong-password"}
        # A public route may refuse a wrong proof: whoever asks has come in.
        return YES if told in {"wrong-token", "provider", "wrong-password"} else str(answer.status_code)
    if answer.status_code == 404 and answer.json()["detail"] in {"there is no such project", "there is no such job"}:
        return HIDDEN
    assert answer.status_code < 500, answer.text
    return YES


@pytest.mark.parametrize("route", sorted(TABLE))
def test_everybody_gets_in_where_the_table_says_so_and_nowhere_else(
    town: Running, everybody: dict[str, httpx.Client], quiet_project: str, route: str
) -> None:
    method, path = route.split(" ", 1)
    found = {}
    for who in WHO:
        client = _come(town, who) if route in ENDS_THE_SESSION else everybody[who]
        with _address(town, method, path, quiet_project) as address:
            found[who] = _outcome(client.request(method, address))
    assert found == dict(zip(WHO, RULES[TABLE[route]], strict=True))


def test_a_project_of_others_looks_exactly_like_one_that_does_not_exist(town: Running) -> None:
    project = town.add_project("vera", "ana", "olga")
    client = town.client("oscar")
    for path in ("", "/members", "/releases", "/maskings", "/audit-log"):
        there, nowhere = (client.get(f"/api/v1/projects/{each}{path}") for each in (project, "nowhere"))
        assert (there.status_code, there.json()) == (nowhere.status_code, nowhere.json())


def test_a_member_who_was_taken_out_sees_nothing_from_then_on(town: Running) -> None:
    project = town.add_project("vera", "ana", "olga")
    vera, olga = town.client("vera"), town.client("olga")
    assert vera.get(f"/api/v1/projects/{project}/members").status_code == 200
    assert olga.delete(f"/api/v1/projects/{project}/members/vera").status_code == 204
    assert vera.get(f"/api/v1/projects/{project}/members").status_code == 404
    assert olga.put(f"/api/v1/projects/{project}/members/Vera").json()["name"] == "vera"
    assert vera.get(f"/api/v1/projects/{project}/members").status_code == 200


def test_an_analyst_lets_others_into_her_own_project_only(town: Running) -> None:
    own, other = town.add_project("ana", owner="ana"), town.add_project("ana", owner="olga")
    ana = town.client("ana")
    assert ana.put(f"/api/v1/projects/{own}/members/olga").status_code == 200
    assert ana.put(f"/api/v1/projects/{other}/members/olga").status_code == 403
    assert ana.put(f"/api/v1/projects/{own}/members/adam").json()["code"] == "administrator"
    assert ana.put(f"/api/v1/projects/{own}/members/nobody").status_code == 404
