"""Logging in and staying logged in: secrets that change, end, and cannot be used by another page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sqlalchemy import delete, select, update
from tests.service.serving import PASSWORD, Running, running

from safeswap.service.keeping.tables import log_ins, users
from safeswap.service.keeping.tables import sessions as session_table
from safeswap.service.people import accounts, sessions
from safeswap.service.people.sessions import StartTokens

SESSION = "/api/v1/session"


@pytest.fixture
def cookie(town: Running) -> str:
    return town.service.settings.cookie


def _log_in(client: httpx.Client, name: str, password: str = PASSWORD, **headers: str) -> httpx.Response:
    answer = client.post(SESSION, json={"name": name, "password": password}, headers=headers)
    if answer.status_code == 201:
        client.headers["X-CSRF-Token"] = answer.json()["csrf_token"]
    return answer


def _somebody(town: Running, name: str, role: str = "analyst") -> httpx.Client:
    town.add_person(name, role)
    client = town.client()
    assert _log_in(client, name).status_code == 201
    return client


def test_log_in_sets_a_cookie_that_no_script_and_no_other_site_can_use(town: Running) -> None:
    answer = _log_in(town.client(), "Vera")
    assert answer.json()["name"] == "vera"
    made, _ = answer.headers.get_list("set-cookie")
    assert made.startswith(f"{town.service.settings.cookie}=")
    for part in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert part in made
    for part in ("Secure", "Max-Age", "Domain"):
        assert part not in made


def test_behind_tls_the_cookie_insists_on_it(tmp_path: Path) -> None:
    with running(tmp_path, trusted_proxy={"addresses": ["127.0.0.1"]}) as here:
        answer = here.client().post(SESSION, json={}, headers={"X-Remote-User": "ana"})
        assert answer.status_code == 201
        assert "Secure" in answer.headers["set-cookie"]
        assert answer.headers["set-cookie"].startswith("__Host-safeswap_session_")
        assert "strict-transport-security" in answer.headers


def test_the_database_holds_no_secret_of_a_session(town: Running, cookie: str) -> None:
    client = town.client()
    answer = _log_in(client, "vera")
    with town.service.database.read() as connection:
        stored = str(connection.execute(select(session_table)).all())
    assert client.cookies[cookie] not in stored
    assert answer.json()["csrf_token"] not in stored


def test_log_in_gives_a_new_secret_and_ends_the_old_one(town: Running, cookie: str) -> None:
    client = _somebody(town, "rita")
    first = client.cookies[cookie]
    _log_in(client, "rita")
    assert client.cookies[cookie] != first
    old = town.client()
    old.cookies.set(cookie, first, domain="127.0.0.1")
    assert old.get(SESSION).status_code == 401
    assert client.get(SESSION).status_code == 200


def test_a_planted_session_is_not_taken_over_by_log_in(town: Running, cookie: str) -> None:
    client = town.client()
    client.cookies.set(cookie, "planted", domain="127.0.0.1")
    _log_in(client, "vera")
    planted = town.client()
    planted.cookies.set(cookie, "planted", domain="127.0.0.1")
    assert planted.get(SESSION).status_code == 401


def test_log_out_ends_the_session_on_the_server(town: Running, cookie: str) -> None:
    client = _somebody(town, "lou")
    secret = client.cookies[cookie]
    assert client.delete(SESSION).status_code == 204
    client.cookies.set(cookie, secret, domain="127.0.0.1")
    assert client.get(SESSION).status_code == 401


@pytest.mark.parametrize("column", ["expires_at", "last_seen_at"])
def test_a_session_ends_by_itself(town: Running, column: str, cookie: str) -> None:
    client = town.client("vera")
    mine = session_table.c.secret_hash == sessions.hash_of(client.cookies[cookie])
    assert client.get(SESSION).status_code == 200
    past = town.service.settings.session_minutes * 60 + 1 if column == "last_seen_at" else 13 * 3600
    with town.service.database.write() as connection:
        connection.execute(update(session_table).where(mine).values({column: session_table.c[column] - past}))
    assert client.get(SESSION).status_code == 401


def test_use_keeps_a_session_alive_but_not_for_ever(town: Running, cookie: str) -> None:
    client = town.client("vera")
    mine = session_table.c.secret_hash == sessions.hash_of(client.cookies[cookie])
    with town.service.database.write() as connection:
        connection.execute(update(session_table).where(mine).values(last_seen_at=session_table.c.last_seen_at - 600))
        before = connection.execute(select(session_table).where(mine)).one()
    client.get(SESSION)
    with town.service.database.read() as connection:
        after = connection.execute(select(session_table).where(mine)).one()
    assert after.last_seen_at > before.last_seen_at + 500
    assert after.expires_at == before.expires_at


@pytest.mark.parametrize(
    "headers",
    [
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "0" * 64},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_change_that_another_page_asks_for_is_refused(town: Running, headers: dict[str, str]) -> None:
    client = town.client("ana")
    body = {"name": "t", "scopes": ["read"]}
    refused = client.post("/api/v1/tokens", json=body, headers=headers)
    assert refused.status_code == 403
    assert refused.json()["code"] in {"csrf", "cross-origin"}
    assert client.post("/api/v1/tokens", json=body, headers={"Origin": town.address}).status_code == 201


def test_nobody_is_logged_in_by_another_page(town: Running) -> None:
    answer = _log_in(town.client(), "vera", Origin="https://evil.example")
    assert (answer.status_code, answer.json()["code"]) == (403, "cross-origin")


def test_another_role_ends_sessions_and_tokens(town: Running) -> None:
    client = _somebody(town, "rolf")
    secret = client.post("/api/v1/tokens", json={"name": "t", "scopes": ["read"]}).json()["secret"]
    program = town.client(headers={"Authorization": f"Bearer {secret}"})
    assert program.get(SESSION).status_code == 200
    admin, address = town.client("adam"), f"/api/v1/users/{town.user_id('rolf')}"
    tag = admin.get(address).headers["etag"]
    assert admin.patch(address, json={"role": "officer"}, headers={"If-Match": tag}).status_code == 200
    assert client.get(SESSION).status_code == 401
    assert program.get(SESSION).status_code == 401
    assert _log_in(client, "rolf").json()["role"] == "officer"


def test_somebody_who_has_left_cannot_come_in(town: Running) -> None:
    client = _somebody(town, "lea")
    admin, address = town.client("adam"), f"/api/v1/users/{town.user_id('lea')}"
    tag = admin.get(address).headers["etag"]
    assert admin.patch(address, json={"active": False}, headers={"If-Match": tag}).status_code == 200
    assert client.get(SESSION).status_code == 401
    assert _log_in(town.client(), "lea").status_code == 401


def test_a_new_password_ends_all_sessions_but_gives_this_one_a_new_secret(town: Running, cookie: str) -> None:
    here, elsewhere = _somebody(town, "pam"), town.client("pam")
    first, new = here.cookies[cookie], "four calling birds sing"
    assert here.put(f"{SESSION}/password", json={"current": "wrong", "new": new}).status_code == 403
    assert here.put(f"{SESSION}/password", json={"current": PASSWORD, "new": "short"}).status_code == 422
    assert here.put(f"{SESSION}/password", json={"current": PASSWORD, "new": new}).status_code == 204
    assert elsewhere.get(SESSION).status_code == 401
    assert here.get(SESSION).status_code == 200
    assert here.cookies[cookie] != first
    assert _log_in(town.client(), "pam").status_code == 401
    assert _log_in(town.client(), "pam", new).status_code == 201


def test_passwords_are_kept_as_argon2id_with_the_stated_cost(town: Running) -> None:
    with town.service.database.read() as connection:
        stored = connection.execute(select(users.c.password_hash).where(users.c.name == "vera")).scalar_one()
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")


def test_an_unknown_name_is_refused_in_the_same_words_and_after_the_same_work(
    town: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from argon2 import PasswordHasher

    compared = []
    verify = PasswordHasher.verify
    monkeypatch.setattr(
        PasswordHasher, "verify", lambda self, stored, given: compared.append(stored) or verify(self, stored, given)
    )
    accounts._dummy_hash()
    known, unknown = _log_in(town.client(), "vera", "wrong"), _log_in(town.client(), "nobody-here", "wrong")
    assert known.json() == unknown.json()
    assert known.status_code == unknown.status_code == 401
    assert len(compared) == 2
    assert all("$m=19456,t=2,p=1$" in each for each in compared)


class Clock:
    """The time as throttling sees it: it passes when the test says so, not while the machine is busy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = time.time()
        monkeypatch.setattr(accounts, "now", lambda: self.at)


@pytest.fixture
def clock(town: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    yield Clock(monkeypatch)
    with town.service.database.write() as connection:
        connection.execute(delete(log_ins))  # nobody is to wait for a time that has not come


def test_guessing_has_to_wait_longer_and_longer(town: Running, clock: Clock) -> None:
    town.add_person("gwen", "viewer")
    client, waits = town.client(), []
    for _ in range(5):
        assert _log_in(client, "gwen", "wrong").status_code == 401
    for _ in range(4):
        refused = _log_in(client, "gwen")
        assert (refused.status_code, refused.json()["code"]) == (429, "throttled")
        waits.append(int(refused.headers["retry-after"]))
        clock.at += waits[-1]
        assert _log_in(client, "gwen", "wrong").status_code == 401
    assert waits == [1, 2, 4, 8]
    assert _log_in(town.client(), "vera").status_code == 201, "others are not locked out"
    clock.at += 16
    assert _log_in(client, "gwen").status_code == 201
    assert _log_in(client, "gwen", "wrong").status_code == 401, "a right password clears what was counted"


def test_many_guesses_at_the_same_moment_all_count(town: Running, clock: Clock) -> None:
    clients = [town.client() for _ in range(9)]
    with ThreadPoolExecutor(9) as pool:
        answers = list(pool.map(lambda client: _log_in(client, "otto", "wrong").status_code, clients))
    assert (answers.count(401), answers.count(429)) == (5, 4)
    clock.at += accounts.REMEMBERED_SECONDS + 1
    assert _log_in(clients[0], "otto").status_code == 201


def test_guessing_many_names_from_one_address_has_to_wait_too(
    town: Running, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.at += 2 * accounts.REMEMBERED_SECONDS
    monkeypatch.setattr(accounts, "BY_ADDRESS", accounts.Backoff(free=4))
    for number in range(4):
        accounts.count_attempt(town.service, name=f"name-{number}", address="127.0.0.1")
    assert _log_in(town.client(), "vera").status_code == 429
    with town.service.database.read() as connection:
        assert "name-1" not in str(connection.execute(select(log_ins)).all())
    clock.at += accounts.REMEMBERED_SECONDS + 1
    assert _log_in(town.client(), "vera").status_code == 201


def test_two_instances_on_one_host_do_not_log_each_other_out(town: Running, tmp_path: Path) -> None:
    with running(tmp_path) as other:
        client = other.client()
        for here in (town, other):
            assert (
                client.post(f"{here.address}{SESSION}", json={"name": "vera", "password": PASSWORD}).status_code == 201
            )
        assert [client.get(f"{here.address}{SESSION}").status_code for here in (town, other)] == [200, 200]
        assert client.delete(f"{town.address}{SESSION}").status_code == 403  # no token against forged requests
        assert town.service.settings.cookie != other.service.settings.cookie


def test_on_ones_own_machine_a_start_token_opens_the_door_once(tmp_path: Path) -> None:
    with running(tmp_path, single_user=True) as here:
        client, tokens = here.client(), here.service.start_tokens
        assert client.get(f"{SESSION}/ways").json()["single_user"] is True
        assert client.get(SESSION).status_code == 401
        assert client.get(f"{SESSION}/start", params={"token": "of-another"}).status_code == 401
        assert client.post(SESSION, json={"name": "local", "password": "anything at all"}).status_code == 401
        token = tokens.issue()
        opened = client.get(f"{SESSION}/start", params={"token": token})
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        found = client.get(SESSION).json()
        assert (found["name"], found["role"], found["single_user"]) == ("local", "officer", True)
        assert here.client().post(SESSION, json={"start_token": token}).json()["code"] == "wrong-token"
        assert here.client().post(SESSION, json={"start_token": tokens.issue()}).status_code == 201


def test_a_start_token_is_good_for_a_minute() -> None:
    at = [0.0]
    tokens = StartTokens(clock=lambda: at[0])
    first, second = tokens.issue(), tokens.issue()
    at[0] = 59.0
    assert tokens.redeem(first)
    at[0] = 61.0
    assert not tokens.redeem(second)


def test_where_there_are_accounts_no_start_token_opens_anything(town: Running) -> None:
    token = town.service.start_tokens.issue()
    assert town.client().get(f"{SESSION}/start", params={"token": token}).status_code == 401
    assert town.client().post(SESSION, json={"start_token": token}).status_code == 422


@pytest.mark.parametrize(
    "password", ["Password1234", "qwertyuiop123", "123456789012", "WelcomeWelcome!", "summer-2026-summer"]
)
def test_a_password_that_everybody_tries_first_is_refused(town: Running, password: str) -> None:
    refused = town.client("adam").post("/api/v1/users", json={"name": "new", "role": "viewer", "password": password})
    assert (refused.status_code, refused.json()["code"]) == (422, "common-password")


@pytest.mark.parametrize("keep", [False, True])
def test_a_new_password_ends_tokens_unless_one_says_otherwise(town: Running, keep: bool) -> None:
    name = "tess" if keep else "tom"
    here = _somebody(town, name)
    secret = here.post("/api/v1/tokens", json={"name": "t", "scopes": ["read"]}).json()["secret"]
    change = {"current": PASSWORD, "new": "four calling birds sing"} | ({"revoke_tokens": False} if keep else {})
    assert here.put(f"{SESSION}/password", json=change).status_code == 204
    program = town.client(headers={"Authorization": f"Bearer {secret}"})
    assert program.get(SESSION).status_code == (200 if keep else 401)


def test_a_throttled_name_does_not_lock_out_a_known_device(town: Running) -> None:
    known, stranger = _somebody(town, "dora"), town.client()
    for _ in range(accounts.BY_NAME.free):
        _log_in(stranger, "dora", "a wrong guess of mine")
    assert _log_in(stranger, "dora").status_code == 429
    assert _log_in(known, "dora").status_code == 201
    for _ in range(accounts.BY_NAME.free):
        _log_in(known, "dora", "a wrong guess of mine")
    assert _log_in(known, "dora").status_code == 429  # it guesses no faster than anybody else


def test_a_device_is_known_for_one_name_and_cannot_be_made_up(town: Running) -> None:
    town.add_person("dirk", "viewer")
    device = town.service.settings.device_cookie
    for value in (_somebody(town, "doro").cookies[device], "made.up", "x"):
        answers = set()
        for _ in range(accounts.BY_NAME.free + 8):  # on a busy machine the first waits may be over
            client = town.client()
            client.cookies.set(device, value, domain="127.0.0.1")
            answers.add(_log_in(client, "dirk", "a wrong guess of mine").status_code)
        assert 429 in answers
