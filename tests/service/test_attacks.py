"""What somebody tries who means harm, or who is just unlucky: projects that go away meanwhile, files that change."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import delete, select, update
from tests.service.at_work import Case, do_jobs, masking_of, project_with_data, survey
from tests.service.serving import Running, running

from safeswap.service import state
from safeswap.service.app import create_app
from safeswap.service.http.wire import write_cursor
from safeswap.service.keeping import store
from safeswap.service.keeping.store import delete_project, free_projects
from safeswap.service.keeping.tables import jobs, projects
from safeswap.service.routes import data as data_routes
from safeswap.service.settings import Limits

API = "/api/v1"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the administrator allows, and into which people write."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Iterator[Running]:
    limits = Limits(reserve_bytes=0, project_bytes=200_000)
    with running(tmp_path_factory.mktemp("here"), folders=(shared,), limits=limits) as service:
        yield service


def state_of(here: Running, project: str) -> str:
    with here.service.database.read() as connection:
        return str(connection.execute(select(projects.c.state).where(projects.c.id == project)).scalar_one())


def set_state(here: Running, project: str, state: str) -> None:
    with here.service.database.write() as connection:
        connection.execute(update(projects).where(projects.c.id == project).values(state=state))


# --- Projects that go away, or get other data, meanwhile


def test_a_file_whose_project_was_deleted_while_it_was_sent_is_not_kept(here):
    project, ana = here.add_project("ana"), here.client("ana")

    def body() -> Iterator[bytes]:
        yield survey()
        assert ana_too.delete(f"{API}/projects/{project}").status_code == 204

    ana_too = here.client("ana")
    sent = ana.put(f"{API}/projects/{project}/data", params={"name": "survey.csv"}, content=body())
    # 409 where it was deleted before the server had begun to take the file, 404 where afterwards.
    assert sent.status_code in {404, 409}
    assert state_of(here, project) == "deleted"
    assert not [path for path in (here.service.store.root / "projects" / project).rglob("*") if path.is_file()]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_file_whose_project_is_deleted_before_it_is_written_is_not_kept(here, monkeypatch, is_made_again):
    project, ana, write = here.add_project("ana"), here.client("ana"), data_routes._write_upload

    async def late(request, access, stored):
        await run_in_threadpool(delete_project, here.service.database, here.service.store, project)
        if is_made_again:  # by a request that comes a moment later
            here.service.store.uploads(project)
        await write(request, access, stored)

    monkeypatch.setattr(data_routes, "_write_upload", late)
    sent = ana.put(f"{API}/projects/{project}/data", params={"name": "survey.csv"}, content=survey())
    assert (sent.status_code, sent.json()["code"]) == (404, "not-found")
    assert state_of(here, project) == "deleted"
    assert not (here.service.store.root / "projects" / project).exists()


def test_a_job_that_reads_for_a_deleted_project_does_not_bring_it_back(here):
    project = here.add_project("ana")
    upload = here.service.store.uploads(project) / "0a"
    upload.write_bytes(survey())
    payload = {"upload": "0a", "name": "survey.csv", "reading": {}}
    here.service.queue.enqueue("ingest", payload, project_id=project, created_by=here.user_id("ana"))
    set_state(here, project, "deleted")
    with pytest.raises(Exception, match="no longer exists"):
        do_jobs(here.service)
    assert state_of(here, project) == "deleted"
    with here.service.database.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.project_id == project))


def test_a_masking_of_earlier_data_is_not_measured_on_the_new_ones(here):
    project, ana = project_with_data(here, "ana"), here.client("ana")
    masking = masking_of(here, ana, project)
    ana.put(f"{API}/projects/{project}/data", params={"name": "other.csv"}, content=survey(seed=9))
    do_jobs(here.service)
    for path, body in {
        "assessments": {"masking": masking},
        "confidentiality": {"masking": masking, "keys": ["tenure"]},
        "releases": {"masking": masking, "terms": {}},
    }.items():
        asked = ana.post(f"{API}/projects/{project}/{path}", json=body)
        assert (asked.status_code, asked.json()["code"]) == (409, "old-data"), path


def test_a_project_whose_file_was_cut_off_with_its_server_is_free_after_the_next_start(here):
    empty, full = here.add_project("ana"), project_with_data(here, "ana")
    read = here.add_project("ana", state="reading")
    here.service.queue.enqueue("ingest", {}, project_id=read, created_by=here.user_id("ana"))
    for project in (empty, full):
        set_state(here, project, "reading")
    assert free_projects(here.service.database) == 2
    assert [state_of(here, project) for project in (empty, full, read)] == ["empty", "ready", "reading"]
    with here.service.database.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.project_id == read))


def test_data_that_nobody_asks_about_do_not_stay_in_memory(here, monkeypatch):
    project, ana = project_with_data(here, "ana"), here.client("ana")
    spec = {"method": "swap", "swap": ["tenure"], "rate": 0.2}
    assert ana.post(f"{API}/projects/{project}/plan", json={"spec": spec}).status_code == 200
    assert here.service.data_cache.used > 0
    monkeypatch.setattr(state, "IDLE_SECONDS", -1.0)
    assert here.service.data_cache.used == 0


def test_a_deleted_project_is_forgotten_at_once(here):
    project, ana = project_with_data(here, "ana"), here.client("ana")
    before = here.service.data_cache.used
    ana.post(f"{API}/projects/{project}/plan", json={"spec": {"method": "swap", "swap": ["tenure"], "rate": 0.2}})
    assert here.service.data_cache.used > before
    ana.delete(f"{API}/projects/{project}")
    assert here.service.data_cache.used == before


# --- Files


def take(here: Running, project: str, path: Path) -> httpx.Response:
    return here.client("ana").post(f"{API}/projects/{project}/data-from-folder", json={"path": str(path)})


def test_a_file_is_taken_from_an_allowed_folder(here, shared):
    project = here.add_project("ana")
    (shared / "deep").mkdir()
    (shared / "deep" / "survey.csv").write_bytes(survey())
    assert take(here, project, Path("../../etc/passwd")).status_code == 404
    assert take(here, project, Path("deep/survey.csv")).status_code == 202
    do_jobs(here.service)
    assert state_of(here, project) == "ready"


@pytest.mark.parametrize("part", ["file", "folder", "pipe"])
def test_a_path_that_becomes_a_link_after_it_was_looked_at_leads_nowhere(here, shared, tmp_path, part):
    project = here.add_project("ana")
    folder = shared / f"swapped-{part}"
    folder.mkdir()
    file = folder / "survey.csv"
    file.write_bytes(survey())
    secret = tmp_path / "survey.csv"
    secret.write_bytes(survey(seed=77, records=7))
    assert take(here, project, file).status_code == 202
    file.unlink()
    if part == "file":
        file.symlink_to(secret)
    elif part == "pipe":
        os.mkfifo(file)
    else:
        folder.rmdir()
        folder.symlink_to(tmp_path)
    do_jobs(here.service)
    (job,) = here.client("ana").get(f"{API}/projects/{project}/jobs").json()["items"]
    assert (job["state"], job["error"]["code"]) == ("failed", "folder-not-allowed")


def test_a_path_with_two_points_is_not_opened(shared):
    assert store.open_in(shared / ".." / "x.csv", (shared,)) is None
    assert store.open_in(shared, (shared,)) is None


def test_a_file_that_does_not_say_how_large_it_is_still_meets_the_quota(here, monkeypatch):
    from safeswap.service.routes import data

    monkeypatch.setattr(data, "_CHECK_EVERY", 50_000)
    project = here.add_project("ana")
    pieces = (b"x" * 10_000 for _ in range(100))
    sent = here.client("ana").put(f"{API}/projects/{project}/data", params={"name": "a.csv"}, content=pieces)
    assert (sent.json()["code"], state_of(here, project)) == ("over-quota", "empty")
    assert not list(here.service.store.uploads(project).iterdir())


@pytest.mark.parametrize("key", ["data", "description"])
def test_an_archive_of_webswap_cannot_name_files_elsewhere(here, tmp_path, key):
    names = {"data": "a.orig", "description": "a.desc", "specification": "a.specs", "log": "a.log", "output": "a.out"}
    names[key] = "../../../../../../../etc/passwd"
    specs = "records = 1\nswap-rate = 0.5\n" + "".join(f'{name} = "{file}"\n' for name, file in names.items())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.specs", specs + 'S "x"\n')
        archive.writestr("a.desc", 'nominal "x"\n')
        archive.writestr("a.orig", "x\n1\n")
    ana = here.client("ana")
    job = ana.put(f"{API}/imports", params={"name": "a.zip"}, content=packed.getvalue())
    assert job.status_code == 202
    do_jobs(here.service)
    told = ana.get(job.headers["location"]).json()
    assert told["state"] == "failed"
    assert "without a folder" in told["error"]["detail"], told


# --- What has been approved is what leaves


def test_a_file_that_is_exchanged_while_it_is_downloaded_does_not_leave(here, monkeypatch):
    from safeswap.service.routes.releases import four_eyes

    case = Case(here, seed=31)
    assert case.approve(case.olga).status_code == 200
    checked = four_eyes.check_bundle

    def exchanged(folder: Path, manifest_hash: str) -> dict[str, str]:
        sums = checked(folder, manifest_hash)
        (folder / "data.csv").write_bytes(case.content)  # the original, after everything was looked at
        return sums

    monkeypatch.setattr(four_eyes, "check_bundle", exchanged)
    with pytest.raises(httpx.RemoteProtocolError):
        case.ana.get(f"{case.address}/bundle.zip")


# --- People


def test_an_administrator_reads_no_notes(here):
    project = here.add_project("ana", "olga")
    here.client("ana").post(f"{API}/projects/{project}/log", json={"text": "Person 1007 is the only one."})
    told = here.client("adam").get(f"{API}/audit-log", params={"limit": 5})
    assert any(entry["action"] == "note" for entry in told.json()["items"])
    assert "Person 1007" not in told.text
    assert "1007" in here.client("olga").get(f"{API}/projects/{project}/audit-log").text


def test_guessing_at_an_open_session_is_throttled_like_logging_in(here):
    here.add_person("gina", "viewer")
    gina = here.client("gina")
    body = {"current": "not the right one", "new": "a quite long new sentence"}
    codes = [gina.put(f"{API}/session/password", json=body).status_code for _ in range(7)]
    assert (codes[0], codes[-1]) == (403, 429)


@pytest.mark.parametrize("place", [["x", "y"], [1, 2, 3], [1e300, "a"], [float("inf"), "a"]])
def test_a_cursor_that_was_made_up_is_refused(here, place):
    project = here.add_project("ana")
    answer = here.client("ana").get(f"{API}/projects/{project}/jobs", params={"cursor": write_cursor(place)})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad-cursor")


def test_a_service_without_tls_is_reached_through_its_proxy_only(tmp_path):
    from tests.service.serving import settings_of

    proxy = {"addresses": ["10.9.8.7"]}
    settings = settings_of(tmp_path, host="10.0.0.1", hosts=("sdc.agency.example",), trusted_proxy=proxy)
    app = create_app(settings)
    for peer, status in {"10.9.8.7": 200, "127.0.0.1": 200, "10.0.0.99": 403}.items():
        answer = _asked(app, peer)
        assert answer.status_code == status, peer


def _asked(app: object, peer: str) -> httpx.Response:
    import anyio

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, client=(peer, 1234))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://sdc.agency.example") as client:
            return await client.get("/health/live")

    # In a thread of its own: the browsers of other tests hold the loop of this one.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, ask).result()
