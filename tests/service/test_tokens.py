"""Tokens of programs: shown once, limited, ending."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update
from tests.service.serving import Running

from safeswap.service.keeping.tables import tokens

TOKENS, SESSION = "/api/v1/tokens", "/api/v1/session"


def test_a_token_is_told_once_and_kept_as_a_hash(town: Running) -> None:
    client = town.client("ana")
    made = client.post(TOKENS, json={"name": "nightly", "scopes": ["write", "read"], "days": 3}).json()
    assert made["secret"].startswith("ssw_")
    assert len(made["secret"]) >= 4 + 43
    assert made["scopes"] == ["read", "write"]
    listed = client.get(TOKENS, params={"limit": 1}).json()["items"]
    assert listed[0]["id"] == made["id"]
    assert listed[0]["secret"] is None
    with town.service.database.read() as connection:
        assert made["secret"] not in str(connection.execute(select(tokens)).all())


def test_a_token_ends_on_its_day_or_when_it_is_revoked(town: Running) -> None:
    client = town.client("ana")
    first, second = (client.post(TOKENS, json={"name": "t", "scopes": ["read"]}).json() for _ in range(2))
    programs = [town.client(headers={"Authorization": f"Bearer {each['secret']}"}) for each in (first, second)]
    assert [program.get(SESSION).status_code for program in programs] == [200, 200]
    assert client.delete(f"{TOKENS}/{first['id']}").status_code == 204
    assert client.delete(f"{TOKENS}/{first['id']}").status_code == 404
    with town.service.database.write() as connection:
        connection.execute(update(tokens).where(tokens.c.id == second["id"]).values(expires_at=1.0))
    assert [program.get(SESSION).status_code for program in programs] == [401, 401]


def test_nobody_ends_the_token_of_somebody_else(town: Running) -> None:
    made = town.client("ana").post(TOKENS, json={"name": "t", "scopes": ["read"]}).json()
    assert town.client("vera").delete(f"{TOKENS}/{made['id']}").status_code == 404
    assert made["id"] not in str(town.client("vera").get(TOKENS).json())


def test_with_a_token_nobody_makes_another_one(town: Running) -> None:
    program = town.token_client("ana", "read", "write", "release")
    refused = program.post(TOKENS, json={"name": "t", "scopes": ["read"]})
    assert (refused.status_code, refused.json()["code"]) == (403, "not-by-token")


def test_a_token_needs_no_csrf_token_and_is_not_helped_by_a_cookie(town: Running) -> None:
    client = town.client("ana")
    client.headers["Authorization"] = "Bearer ssw_wrong"
    assert client.get(SESSION).status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        {"name": "t", "scopes": []},
        {"name": "t", "scopes": ["everything"]},
        {"name": "t", "scopes": ["read"], "days": 0},
        {"name": "t", "scopes": ["read"], "days": 367},
        {"name": "", "scopes": ["read"]},
    ],
)
def test_a_token_without_limits_is_not_made(town: Running, body: dict[str, object]) -> None:
    assert town.client("ana").post(TOKENS, json=body).status_code == 422
