"""People, rules and releases on PostgreSQL, where two writers really meet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select
from tests.service.at_work import Case, masking_of, project_with_data, request_of, survey
from tests.service.postgres import Cluster, programs
from tests.service.serving import PASSWORD, Running, running
from tests.service.test_register import BOTH, bundle_of, by_pram, facts_of, read_from, upload

from safeswap.model.microdata import PastStep
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.ledger import NewMaskings, insert_new
from safeswap.service.keeping.tables import ledger, maskings, projects
from safeswap.service.people import accounts


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = programs()
    if found is None:
        pytest.skip("NOT TESTED ON POSTGRESQL: no initdb and pg_ctl on this machine; run tools/install-postgres")
    cluster = Cluster.make(found)
    try:
        cluster.start()
        with running(tmp_path_factory.mktemp("office"), database_url=cluster.address) as here:
            yield here
    finally:
        cluster.remove()


def test_log_in_throttling_and_pages_work_there_too(office: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "now", lambda: 1e9)
    clients = [office.client() for _ in range(7)]

    def attempt(client: httpx.Client) -> int:
        return client.post("/api/v1/session", json={"name": "vera", "password": "wrong"}).status_code

    with ThreadPoolExecutor(7) as pool:
        answers = list(pool.map(attempt, clients))
    assert (answers.count(401), answers.count(429)) == (5, 2)
    opened = clients[0].post("/api/v1/session", json={"name": "Ana", "password": PASSWORD})
    assert opened.status_code == 201
    taken = office.client("adam").post("/api/v1/users", json={"name": "ana", "role": "viewer"})
    assert taken.json()["code"] == "name-taken"
    names, cursor = [], ""
    while cursor is not None:
        page = office.client("adam").get("/api/v1/users", params={"limit": 2, "cursor": cursor}).json()
        names, cursor = names + [each["name"] for each in page["items"]], page["next"]
    assert names == sorted(set(names))


def test_what_the_database_cannot_hold_is_refused(office: Running) -> None:
    admin, ana = office.client("adam"), office.client("ana")
    assert admin.get("/api/v1/users/%00").status_code == 422
    assert ana.get("/api/v1/projects/%00/members").status_code == 422
    added = admin.post("/api/v1/users", json={"name": "nul", "role": "viewer", "display_name": "a\x00b"})
    assert (added.status_code, added.json()["code"]) == (422, "bad-request-body")


def test_many_writers_make_one_chain_there_too(office: Running) -> None:
    before = auditlog.end(office.service.database).number

    def write() -> None:
        for _ in range(10):
            with office.service.database.write() as connection:
                auditlog.record(connection, "ada", "act", detail={"share": 0.1})

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = auditlog.verify(office.service.database)
    assert (found.ok, found.entries) == (True, before + 40)


def test_the_same_request_at_the_same_moment_is_carried_out_once_there_too(office: Running) -> None:
    clients = [office.client("ana") for _ in range(5)]

    def ask(client: httpx.Client) -> httpx.Response:
        return client.post("/api/v1/projects", json={"name": "once"}, headers={"Idempotency-Key": "once"})

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(ask, clients))
    assert {answer.status_code for answer in answers} <= {201, 409}
    with office.service.database.read() as connection:
        made = connection.execute(select(projects.c.id).where(projects.c.name == "once")).scalars().all()
    assert len(made) == 1
    assert {answer.json()["id"] for answer in answers if answer.status_code == 201} == set(made)


def test_of_two_releases_of_the_same_records_approved_at_the_same_moment_one_leaves(office: Running) -> None:
    case = Case(office, 40)
    second = request_of(office, case.ana, case.project, masking_of(office, case.ana, case.project, rate=0.3))
    wanted = [(address, case.olga.get(address).json()["manifest_hash"]) for address in (case.address, second)]

    def approve(place: int) -> int:
        address, manifest_hash = wanted[place % 2]
        client = office.client("olga" if place % 2 else "otto")
        return client.post(f"{address}/approval", json={"manifest_hash": manifest_hash}).status_code

    with ThreadPoolExecutor(6) as pool:
        answers = sorted(pool.map(approve, range(6)))
    assert answers == [200, 409, 409, 409, 409, 409]
    with office.service.database.read() as connection:
        taken = connection.execute(select(ledger).where(ledger.c.project_id == case.project)).all()
    assert len(taken) == 1


def test_the_release_of_another_project_tells_both_steps_there_too(office: Running) -> None:
    project = project_with_data(office, "ana", "olga", content=survey(seed=710, records=90))
    other = upload(office, read_from(bundle_of(office, project), "data.csv"))
    assert facts_of(by_pram(office, other))["method"] == BOTH


def test_jobs_that_enter_the_same_names_at_once_neither_block_nor_repeat(office: Running, tmp_path: Path) -> None:
    names = [bytes([number]) * 32 for number in range(40)]
    folders = [tmp_path / str(number) for number in range(6)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        past = (PastStep(method="swap", attributes=(str(number),)),)
        some = names[number:] if number % 2 else names[::-1]
        NewMaskings(office.service.vault, folder).write(dict.fromkeys(some, past))

    def enter(folder: Path) -> None:
        with office.service.database.write() as connection:
            insert_new(connection, folder)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(enter, folders))
    with office.service.database.read() as connection:
        found = connection.scalars(select(maskings.c.name).where(maskings.c.name.in_([each.hex() for each in names])))
        assert sorted(found) == [each.hex() for each in names]
