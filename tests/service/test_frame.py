"""What holds for every request and every answer, over real HTTP."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from tests.service.serving import Running, running, settings_of

from safeswap.errors import ERROR_CLASSES, InternalError
from safeswap.service.app import create_app, install_contract
from safeswap.service.http.headers import SMALL_BODY
from safeswap.service.http.problems import MEDIA_TYPE
from safeswap.service.people.roles import allow

SECRET = "Mr-Miller-of-12-High-Street"


def _trouble(app: FastAPI) -> None:
    """Routes that fail in every way there is."""
    kinds = {kind.__name__: kind for kind in ERROR_CLASSES}

    def fail(name: str, _: Annotated[None, Depends(allow("public"))]) -> None:
        raise kinds[name](f"{name} happened", code="made-up", hint="none", file="/srv/secret/place/data.csv")

    def burst(_: Annotated[None, Depends(allow("public"))]) -> None:
        raise ValueError(SECRET)

    async def take(request: Request, _: Annotated[None, Depends(allow("public"))]) -> int:
        return len(await request.body())

    app.add_api_route("/fail/{name}", fail)
    app.add_api_route("/burst", burst)
    app.add_api_route("/take", take, methods=["POST"])


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("trouble"), change=_trouble) as here:
        yield here


def test_every_answer_carries_the_headers_that_bind_a_browser(town: Running) -> None:
    client = town.client()
    for path in ("/health/live", "/api/v1/session", "/nothing", "/api/docs"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script-src" not in policy


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_request_to_another_name_is_refused(town: Running, host: str) -> None:
    answer = town.client().get("/health/live", headers={"Host": host})
    assert answer.status_code == 400
    assert answer.headers["x-content-type-options"] == "nosniff" or host == ""


def test_a_name_that_the_administrator_allows_is_answered(tmp_path: Path) -> None:
    with running(tmp_path, hosts=("sdc.agency.example",)) as here:
        client = here.client()
        assert client.get("/health/live", headers={"Host": "sdc.agency.example"}).status_code == 200
        assert client.get("/health/live", headers={"Host": "other.agency.example"}).status_code == 400


@pytest.mark.parametrize("kind", ERROR_CLASSES)
def test_errors_keep_the_status_of_the_one_table(trouble: Running, kind: type) -> None:
    answer = trouble.client().get(f"/fail/{kind.__name__}")
    assert answer.status_code == kind.http_status
    assert answer.headers["content-type"] == MEDIA_TYPE
    problem = answer.json()
    assert (problem["status"], problem["code"], problem["hint"]) == (kind.http_status, "made-up", "none")
    assert problem["fields"] == {"file": "data.csv"}
    assert "/srv" not in answer.text


def test_what_nobody_foresaw_is_answered_with_an_incident_number_and_nothing_else(
    trouble: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        answer = trouble.client().get("/burst")
    assert answer.status_code == 500
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text
    incident = answer.json()["fields"]["incident"]
    noted = [record.safeswap for record in caplog.records if getattr(record, "safeswap", {}).get("incident")]
    assert [each["incident"] for each in noted] == [incident]
    assert noted[0]["error"] == "ValueError"
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "content", [b"{" + SECRET.encode(), f'{{"{SECRET}": 1}}'.encode(), f'{{"name": ["{SECRET}"]}}'.encode()]
)
def test_a_request_that_is_not_understood_is_not_repeated(town: Running, content: bytes) -> None:
    answer = town.client().post("/api/v1/session", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert SECRET not in answer.text
    assert answer.json()["fields"]["errors"]


def test_unknown_addresses_and_methods_are_problems_too(town: Running) -> None:
    client = town.client()
    assert client.get("/api/v1/nothing").json()["code"] == "not-found"
    refused = client.put("/api/v1/session")
    assert (refused.status_code, refused.json()["code"]) == (405, "method-not-allowed")


def test_a_large_body_is_refused_whether_or_not_it_says_so(trouble: Running) -> None:
    client = trouble.client()
    assert client.post("/take", content=b"x" * SMALL_BODY).json() == SMALL_BODY
    declared = client.post("/take", headers={"Content-Length": str(SMALL_BODY + 1)}, content=b"x" * (SMALL_BODY + 1))
    assert declared.status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(5):
            yield b"x" * (SMALL_BODY // 4)

    silent = client.post("/take", content=pieces())
    assert (silent.status_code, silent.json()["code"]) == (413, "too-large")


def test_a_route_without_a_permission_stops_the_service_from_being_made(tmp_path: Path) -> None:
    app = create_app(settings_of(tmp_path))
    app.add_api_route("/open", lambda: 1)
    with pytest.raises(InternalError) as caught:
        install_contract(app)
    assert caught.value.code == "undeclared-route"


def test_the_contract_says_who_may_do_what_and_shows_an_example_of_every_body(town: Running) -> None:
    found = town.client().get("/api/openapi.json").json()
    for path, operations in found["paths"].items():
        for operation in operations.values():
            assert operation["x-permission"], path
            assert "4XX" in operation["responses"], path
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if "$ref" in body:
                assert found["components"]["schemas"][body["$ref"].rpartition("/")[2]].get("examples"), path
    assert "HTTPValidationError" not in found["components"]["schemas"]


def test_the_page_of_the_contract_needs_nothing_from_elsewhere(town: Running) -> None:
    client = town.client()
    page = client.get("/api/docs").text
    assert "http" not in page
    assert "<script>" not in page
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "start.js"):
        assert client.get(f"/api/docs/{name}").status_code == 200


def test_metrics_count_routes_and_no_addresses(town: Running) -> None:
    client = town.client("ana")
    project = town.add_project("ana")
    client.get(f"/api/v1/projects/{project}/members")
    text = client.get("/metrics").text
    assert 'route="/api/v1/projects/{project_id}/members"' in text
    assert "safeswap_free_bytes" in text
    assert project not in text
    assert "ana" not in text.replace("analyst", "")


def test_ready_says_so_only_with_a_database(tmp_path: Path) -> None:
    with running(tmp_path) as here:
        assert here.client().get("/health/ready").status_code == 200
        (here.service.settings.store / "safeswap.db").rename(tmp_path / "gone")
        answer = here.client().get("/health/ready")
        assert answer.status_code >= 500
        assert answer.headers["content-type"] == MEDIA_TYPE
        assert here.client().get("/health/live").status_code == 200
    assert isinstance(answer, httpx.Response)
