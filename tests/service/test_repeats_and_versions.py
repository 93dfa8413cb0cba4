"""Requests that are repeated, changes that meet, lists that grow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Response
from sqlalchemy import select, update
from tests.service.serving import Running, running

from safeswap.service.http import wire
from safeswap.service.http.problems import Conflict
from safeswap.service.http.wire import write_cursor
from safeswap.service.keeping.tables import replies
from safeswap.service.people.roles import Caller, allow

DONE: list[Any] = []
GO_ON = threading.Event()
BEGUN = threading.Event()


def _counting(app: FastAPI) -> None:
    def count(
        body: dict[str, Any], response: Response, user: Annotated[Caller, Depends(allow("work"))]
    ) -> dict[str, Any]:
        DONE.append(body)
        if body.get("refuse"):
            raise Conflict("not now")
        if body.get("burst"):
            raise RuntimeError("unforeseen")
        if body.get("wait"):
            BEGUN.set()
            GO_ON.wait(10)
        response.headers["Location"] = f"/things/{len(DONE)}"
        return {"number": len(DONE), "by": user.name}

    def look(body: dict[str, Any], _: Annotated[Caller, Depends(allow("read"))]) -> dict[str, Any]:
        DONE.append(body)
        return {"rarest": "Mr Miller"}

    app.add_api_route("/look", look, methods=["POST"])
    app.add_api_route("/count", count, methods=["POST"], status_code=202)


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("counting"), change=_counting) as here:
        yield here


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()
    GO_ON.clear()
    BEGUN.clear()


def test_the_same_request_with_the_same_key_is_carried_out_once(counting: Running) -> None:
    client = counting.client("ana")
    key = {"Idempotency-Key": "one"}
    first, second = (client.post("/count", json={"a": 1}, headers=key) for _ in range(2))
    assert len(DONE) == 1
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert first.headers["location"] == second.headers["location"]
    assert second.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers


def test_without_a_key_each_request_is_carried_out(counting: Running) -> None:
    client = counting.client("ana")
    assert [client.post("/count", json={}).json()["number"] for _ in range(2)] == [1, 2]


def test_a_key_belongs_to_one_request_and_one_person(counting: Running) -> None:
    client, key = counting.client("ana"), {"Idempotency-Key": "two"}
    client.post("/count", json={"a": 1}, headers=key)
    other = client.post("/count", json={"a": 2}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
    assert counting.client("olga").post("/count", json={"a": 2}, headers=key).json()["by"] == "olga"
    assert len(DONE) == 2


@pytest.mark.parametrize("body", [{"refuse": 1}, {"burst": 1}])
def test_what_was_refused_may_be_tried_again(counting: Running, body: dict[str, int]) -> None:
    client, key = counting.client("ana"), {"Idempotency-Key": f"again {body}"}
    answers = [client.post("/count", json=body, headers=key).status_code for _ in range(2)]
    assert answers in ([409, 409], [500, 500])
    assert len(DONE) == 2


def test_who_may_not_do_it_does_not_see_the_answer_either(counting: Running) -> None:
    key = {"Idempotency-Key": "three"}
    counting.client("ana").post("/count", json={}, headers=key)
    assert counting.client("vera").post("/count", json={}, headers=key).status_code == 403
    assert counting.client().post("/count", json={}, headers=key).status_code == 401


def test_a_repetition_while_the_first_is_under_way_is_turned_away(counting: Running) -> None:
    key, answers = {"Idempotency-Key": "four"}, []
    client, other = counting.client("ana"), counting.client("ana")
    first = threading.Thread(target=lambda: answers.append(client.post("/count", json={"wait": 1}, headers=key)))
    first.start()
    assert BEGUN.wait(10)
    meanwhile = other.post("/count", json={"wait": 1}, headers=key)
    GO_ON.set()
    first.join()
    assert (meanwhile.status_code, meanwhile.json()["code"]) == (409, "in-flight")
    assert answers[0].status_code == 202
    assert other.post("/count", json={"wait": 1}, headers=key).json() == answers[0].json()
    assert len(DONE) == 1


def test_a_claim_that_a_killed_server_left_does_not_last(counting: Running) -> None:
    client, key = counting.client("ana"), {"Idempotency-Key": "five"}
    client.post("/count", json={}, headers=key)
    mine = replies.c.key == "five"
    with counting.service.database.write() as connection:
        past = replies.c.created_at - wire.ABANDONED_SECONDS - 1
        connection.execute(update(replies).where(mine).values(status=None, created_at=past))
    assert client.post("/count", json={}, headers=key).status_code == 202
    assert len(DONE) == 2


def test_keys_are_sensible_and_for_json(counting: Running) -> None:
    client = counting.client("ana")
    assert client.post("/count", json={}, headers={"Idempotency-Key": "x" * 201}).status_code == 422
    headers = {"Idempotency-Key": "six", "Content-Type": "text/csv"}
    assert client.post("/count", content=b"a,b", headers=headers).status_code == 422


def test_answers_that_tell_about_the_data_are_not_kept(counting: Running) -> None:
    client, key = counting.client("vera"), {"Idempotency-Key": "seven"}
    assert [client.post("/look", json={}, headers=key).status_code for _ in range(2)] == [200, 200]
    assert len(DONE) == 2
    with counting.service.database.read() as connection:
        assert "Miller" not in str(connection.execute(select(replies)).all())


def test_answers_that_hold_a_secret_are_not_kept(town: Running) -> None:
    client, key = town.client("ana"), {"Idempotency-Key": "token"}
    made = [client.post("/api/v1/tokens", json={"name": "t", "scopes": ["read"]}, headers=key).json() for _ in range(2)]
    assert made[0]["id"] != made[1]["id"]
    with town.service.database.read() as connection:
        assert made[0]["secret"] not in str(connection.execute(select(replies)).all())


def test_a_change_has_to_say_what_it_changes(town: Running) -> None:
    admin = town.client("adam")
    address = f"/api/v1/users/{town.add_person('ella', 'viewer')}"
    tag = admin.get(address).headers["etag"]
    assert admin.patch(address, json={"display_name": "Ella"}).status_code == 428
    assert admin.patch(address, json={"display_name": "E"}, headers={"If-Match": '"99"'}).status_code == 412
    changed = admin.patch(address, json={"display_name": "Ella"}, headers={"If-Match": tag})
    assert changed.json()["display_name"] == "Ella"
    assert admin.patch(address, json={"display_name": "E"}, headers={"If-Match": tag}).status_code == 412
    assert admin.get(address).headers["etag"] == changed.headers["etag"] != tag


def test_who_has_the_newest_version_gets_no_body(town: Running) -> None:
    admin = town.client("adam")
    address = f"/api/v1/users/{town.user_id('vera')}"
    tag = admin.get(address).headers["etag"]
    known = admin.get(address, headers={"If-None-Match": tag})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
    assert admin.get(address, headers={"If-None-Match": '"0"'}).status_code == 200


def test_a_name_is_given_once_however_it_is_written(town: Running) -> None:
    admin = town.client("adam")
    first = admin.post("/api/v1/users", json={"name": "Nora", "role": "viewer"})
    assert (first.status_code, first.json()["has_password"]) == (201, False)
    assert admin.get(first.headers["location"]).json()["name"] == "nora"
    again = admin.post("/api/v1/users", json={"name": " nORA", "role": "viewer"})
    assert (again.status_code, again.json()["code"]) == (409, "name-taken")
    weak = admin.post("/api/v1/users", json={"name": "nils", "role": "viewer", "password": "nils-nils-nils"})
    assert (weak.status_code, weak.json()["code"]) == (422, "weak-password")
    assert "nils-nils" not in weak.text


def test_the_last_administrator_stays(town: Running) -> None:
    admin, address = town.client("adam"), f"/api/v1/users/{town.user_id('adam')}"
    for change in ({"active": False}, {"role": "viewer"}):
        tag = admin.get(address).headers["etag"]
        refused = admin.patch(address, json=change, headers={"If-Match": tag})
        assert (refused.status_code, refused.json()["code"]) == (409, "last-administrator")


def test_a_list_in_pages_shows_everything_once(town: Running) -> None:
    client = town.client("adam")
    whole = [each["name"] for each in client.get("/api/v1/users", params={"limit": 200}).json()["items"]]
    paged, cursor = [], ""
    while True:
        page = client.get("/api/v1/users", params={"limit": 2, "cursor": cursor}).json()
        paged += [each["name"] for each in page["items"]]
        assert len(page["items"]) <= 2
        if page["next"] is None:
            break
        cursor = page["next"]
    assert paged == whole == sorted(whole)
    assert len(whole) >= 6


def test_a_list_that_grows_meanwhile_shows_nothing_twice(town: Running) -> None:
    client = town.client("adam")
    first = client.get("/api/v1/audit-log", params={"limit": 3}).json()
    town.client("vera").delete("/api/v1/session")
    second = client.get("/api/v1/audit-log", params={"limit": 3, "cursor": first["next"]}).json()
    numbers = [each["number"] for each in first["items"] + second["items"]]
    assert numbers == sorted(set(numbers), reverse=True)


HUGE = write_cursor([10**30])


def test_a_cursor_beyond_all_numbers_is_refused(town: Running) -> None:
    for path in ("audit-log", "tokens"):
        assert town.client("adam").get(f"/api/v1/{path}", params={"cursor": HUGE}).status_code == 422


@pytest.mark.parametrize("cursor", ["x", "bnVsbA", "e30", "WzFd", "W251bGxd", "WyJhIiwiYiJd", HUGE])
def test_a_cursor_of_somebody_elses_making_is_refused(town: Running, cursor: str) -> None:
    answer = town.client("adam").get("/api/v1/users", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad-cursor")
