"""A release takes two people, one manifest hash, and a place in the ledger."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from tests.service.at_work import Case, do_jobs, masking_of, project_with_data, request_of
from tests.service.serving import Running, running

from safeswap import workflow
from safeswap.errors import InputError
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.ledger import ELSEWHERE
from safeswap.service.keeping.tables import audit_log, jobs, ledger, members, projects, releases, results
from safeswap.service.routes.releases.task import record_context


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("office")) as here:
        yield here


def alarms(case: Case) -> list[dict]:
    """What the officer is shown of earlier releases of the same records; equal numbers alone are no alarm."""
    found = case.shown()["differencing"]
    assert all("no alarm" in each["sentence"] for each in found if not each["alarm"])
    return [each for each in found if each["alarm"]]


SEEDS = iter(range(1, 100))


@pytest.fixture
def case(office: Running) -> Case:
    return Case(office, next(SEEDS))


@pytest.fixture(scope="module")
def approved(office: Running) -> Case:
    """A release that another person has approved; the tests only look at it."""
    found = Case(office, next(SEEDS))
    assert found.approve(found.olga).status_code == 200
    return found


def test_a_request_shows_what_would_leave_and_what_was_verified(approved: Case) -> None:
    found = approved.shown()
    assert found["requested_by"] == "ana"
    assert found["checks"]
    assert all(check["ok"] for check in found["checks"])
    assert {each["name"] for each in found["files"]} == {"data.csv", "dictionary.csv", "dictionary.json", "report.html"}
    page = approved.vera.get(f"{approved.address}/documents/report.html")
    assert page.status_code == 200
    assert page.headers["content-security-policy"].startswith("sandbox")
    assert approved.olga.get(f"{approved.address}/documents/data.csv").status_code == 422


def test_a_release_that_waits_is_announced_and_data_that_were_replaced_end_it(office: Running, case: Case) -> None:
    project = f"/api/v1/projects/{case.project}"
    listed = {each["id"]: each["waiting"] for each in case.olga.get("/api/v1/projects?limit=200").json()["items"]}
    assert listed[case.project] == case.ana.get(project).json()["waiting"] == 1
    assert {each["waiting"] for each in office.client("adam").get("/api/v1/projects").json()["items"]} == {0}
    ways = ("is_stale", "may_approve", "may_reject")
    assert [case.olga.get(case.address).json()[way] for way in ways] == [False, True, True]
    job = case.ana.post(f"{project}/data-from-sample", json={"sample": "household_survey"}).json()
    do_jobs(office.service)
    assert case.ana.get(f"/api/v1/jobs/{job['id']}").json()["state"] == "succeeded"
    described = case.ana.get(f"{project}/description").json()
    assert (described["records"], case.ana.get(project).json()["file_name"]) == (4939, "household_survey (sample)")
    assert {each["name"]: each["kind"] for each in described["attributes"]}["household"] == "household"
    assert not any(each["inferred"] for each in described["attributes"])
    assert [case.olga.get(case.address).json()[way] for way in ways] == [True, False, True]
    assert [case.ana.get(case.address).json()[way] for way in ways] == [True, False, False]
    refused = case.approve(case.olga)
    assert (refused.status_code, refused.json()["code"]) == (409, "old-data")


def test_every_reader_gets_the_report_made_for_them_and_no_other(approved: Case) -> None:
    masking = f"{approved.address.partition('/releases/')[0]}/maskings/{approved.shown()['masking']}"
    may = {
        "public": {"vera", "ana", "olga"},
        "analyst": {"ana", "olga"},
        "five-safes": {"ana", "olga"},
        "members": {"olga"},
        "chair": {"olga"},
    }
    for reader, people in may.items():
        for place in (approved.address, masking):
            for person in ("vera", "ana", "olga"):
                answer = getattr(approved, person).get(f"{place}/reports/{reader}")
                assert answer.status_code == (200 if person in people else 403), (reader, place, person)
    # The public report of the release is the one in the bundle, byte for byte.
    public = approved.vera.get(f"{approved.address}/reports/public")
    assert public.content == approved.vera.get(f"{approved.address}/documents/report.html").content
    chair = approved.olga.get(f"{approved.address}/reports/chair").text
    assert "Approved for release" in chair
    assert "Decided by olga" in chair
    facts = approved.olga.get(f"{approved.address}/reports/chair?format=json").json()
    assert f"{facts['touched']:,} of {facts['records']:,} records" in chair
    told = [approved.olga.get(f"{approved.address}/reports/members{form}").text for form in ("", "?format=json")]
    share = f"{facts['touched'] / facts['records']:.2%}"
    assert share in chair
    assert facts["touched"] > 0
    assert not any(share in text or "touched" in text for text in (*told, public.text))


def test_nothing_can_be_downloaded_before_somebody_else_has_approved_it(case: Case) -> None:
    bundle = f"{case.address}/bundle.zip"
    for client in (case.ana, case.olga, case.vera):
        assert (client.get(bundle).status_code, client.get(bundle).json()["code"]) == (409, "not-approved")
    assert case.approve(case.ana).status_code == 403
    assert case.approve(case.olga, manifest_hash="0" * 64).json()["code"] == "other-manifest"
    assert case.shown()["state"] == "requested"
    done = case.approve(case.olga)
    assert (done.status_code, done.json()["decided_by"]) == (200, "olga")
    assert case.ana.get(bundle).status_code == 200
    assert case.otto.get(bundle).status_code == 200
    assert case.vera.get(bundle).status_code == 403
    again = case.approve(case.otto)
    assert (again.status_code, again.json()["code"]) == (409, "not-requested")


def test_the_bundle_that_is_downloaded_is_the_one_that_was_approved(approved: Case, tmp_path: Path) -> None:
    answer = approved.ana.get(f"{approved.address}/bundle.zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    verified = workflow.verify(folder)
    assert verified.records == approved.content.count(b"\n") - 1
    assert hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest() == approved.shown()["manifest_hash"]


def test_an_officer_cannot_approve_what_she_asked_for_herself(case: Case) -> None:
    case.address = request_of(case.here, case.olga, case.project, case.masking, title="Survey of Olga")
    refused = case.approve(case.olga)
    assert (refused.status_code, refused.json()["code"]) == (403, "four-eyes")
    assert case.shown(case.olga)["may_approve"] is False
    assert case.shown(case.otto)["may_approve"] is True
    assert case.approve(case.otto).status_code == 200


def test_consent_to_publish_the_rate_is_shown_with_the_release_and_logged(case: Case) -> None:
    silent = case.shown(case.olga)["remarks"]
    assert "No scenario was in use: what an intruder may know has not been stated." in silent
    asked = {"title": "Survey with its rate", "publish_rate": True}
    case.address = request_of(case.here, case.ana, case.project, case.masking, **asked)
    shown = case.shown(case.olga)["remarks"]
    assert [any("consents" in remark for remark in remarks) for remarks in (silent, shown)] == [False, True]
    assert case.approve(case.olga).status_code == 200
    with case.here.service.database.read() as connection:
        mine = audit_log.c.subject == case.address.rsplit("/", 1)[1]
        entries = connection.execute(select(audit_log).where(mine)).mappings().all()
    consents = {entry["action"]: entry["actor"] for entry in entries if "publish_rate" in entry["detail"]}
    assert consents == {"release.request": "ana", "release.approve": "olga"}


def test_a_rejected_release_stays_rejected(case: Case) -> None:
    reason = {"reason": "too detailed"}
    assert case.ana.post(f"{case.address}/rejection", json=reason).status_code == 403
    assert case.olga.post(f"{case.address}/rejection", json=reason).json()["state"] == "rejected"
    assert case.approve(case.otto).json()["code"] == "not-requested"
    assert case.ana.get(f"{case.address}/bundle.zip").status_code == 409


def test_a_bundle_that_was_changed_after_it_was_prepared_is_not_approved(case: Case) -> None:
    found = case.shown()
    (data,) = case.here.service.store.release(case.project, str(found["id"])).glob("*/bundle/data.csv")
    data.write_bytes(data.read_bytes() + b"x\n")
    refused = case.approve(case.olga)
    assert (refused.status_code, refused.json()["code"]) == (409, "bundle-changed")
    manifest = data.with_name("manifest.json")
    manifest.write_bytes(manifest.read_bytes().replace(b"Survey", b"Surveys"))
    assert case.approve(case.olga).status_code == 409
    assert case.shown()["state"] == "requested"


def test_a_bundle_that_was_changed_after_it_was_approved_is_not_handed_out(case: Case) -> None:
    assert case.approve(case.olga).status_code == 200
    (data,) = case.here.service.store.release(case.project, str(case.shown()["id"])).glob("*/bundle/data.csv")
    data.write_bytes(data.read_bytes() + b"x\n")
    assert case.ana.get(f"{case.address}/bundle.zip").status_code == 409


def test_a_second_release_of_the_same_records_is_refused_with_what_it_would_tell(case: Case) -> None:
    assert case.approve(case.olga).status_code == 200
    first = str(case.shown()["id"])
    # The same records in another project, under another name, in another order and with another key.
    lines = case.content.splitlines(keepends=True)
    other = project_with_data(
        case.here, "ana", "olga", "otto", content=b"".join([lines[0], *sorted(lines[1:], reverse=True)])
    )
    case.masking = masking_of(case.here, case.ana, other, rate=0.3)
    case.address = request_of(case.here, case.ana, other, case.masking)
    shown = alarms(case)
    assert [each["release_id"] for each in shown] == [first]
    refused = case.approve(case.olga)
    assert (refused.status_code, refused.json()["code"]) == (409, "second-release")
    assert shown[0]["sentence"] in refused.json()["detail"]
    assert "About 100% of these records" in shown[0]["sentence"]
    assert "Comparing this release" in shown[0]["sentence"]
    assert "100% of the identifiers agree too" in shown[0]["sentence"]
    assert case.approve(case.olga, override_reason="   ").status_code == 409
    allowed = case.approve(case.olga, override_reason="The first one had the wrong title.")
    assert allowed.status_code == 200
    with case.here.service.database.read() as connection:
        mine = select(ledger).where(ledger.c.release_id == allowed.json()["id"])
        entry = connection.execute(mine).one()
    assert entry.override_reason == "The first one had the wrong title."
    entries = case.olga.get(f"/api/v1/projects/{other}/audit-log").json()["items"]
    (logged,) = [each for each in entries if each["action"] == "release.approve"]
    assert logged["detail"]["override_reason"] == "The first one had the wrong title."


def test_in_the_same_order_the_records_that_differ_are_counted(case: Case) -> None:
    assert case.approve(case.olga).status_code == 200
    masking = masking_of(case.here, case.ana, case.project, rate=0.4)
    case.address = request_of(case.here, case.ana, case.project, masking)
    (shown,) = alarms(case)
    assert shown["differ"] > 0
    assert f"{shown['differ']:,} records with different values" in shown["sentence"]


def test_of_two_that_were_prepared_together_only_one_leaves(case: Case) -> None:
    first = case.address
    second = request_of(case.here, case.ana, case.project, masking_of(case.here, case.ana, case.project, rate=0.3))
    assert case.approve(case.olga).status_code == 200
    case.address = second
    refused = case.approve(case.otto, override_reason="both are good")
    assert (refused.status_code, refused.json()["code"]) == (409, "differencing-unknown")
    with case.here.service.database.read() as connection:
        taken = connection.execute(select(ledger.c.release_id)).scalars().all()
    assert first.rpartition("/")[2] in taken
    assert second.rpartition("/")[2] not in taken


def test_two_officers_at_the_same_moment_release_it_once(case: Case) -> None:
    body = {"manifest_hash": case.shown()["manifest_hash"]}
    clients = [case.here.client(name) for name in ("olga", "otto") * 3]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda c: c.post(f"{case.address}/approval", json=body).status_code, clients))
    assert sorted(answers) == [200, 409, 409, 409, 409, 409]
    with case.here.service.database.read() as connection:
        mine = select(ledger).where(ledger.c.release_id == str(case.shown()["id"]))
        assert len(connection.execute(mine).all()) == 1


def test_the_ledger_remembers_what_a_deleted_project_has_released(case: Case) -> None:
    assert case.approve(case.olga).status_code == 200
    with case.here.service.database.write() as connection:
        for table in (releases, results, jobs, members):
            connection.execute(delete(table).where(table.c.project_id == case.project))
        connection.execute(delete(projects).where(projects.c.id == case.project))
    case.here.service.store.delete(case.project)
    project = project_with_data(case.here, "ana", "olga", content=case.content)
    case.address = request_of(case.here, case.ana, project, masking_of(case.here, case.ana, project))
    shown = case.shown()
    assert (alarms(case), shown["needs_reason"], shown["ledger"]) == ([], True, ELSEWHERE)
    refused = case.approve(case.olga).json()
    assert (refused["code"], refused["detail"]) == ("second-release", ELSEWHERE)


def test_data_that_were_replaced_meanwhile_are_not_released(case: Case) -> None:
    with case.here.service.database.write() as connection:
        mine = projects.c.id == case.project
        connection.execute(update(projects).where(mine).values(data_version=projects.c.data_version + 1))
    refused = case.ana.post(f"/api/v1/projects/{case.project}/releases", json={"masking": case.masking})
    assert (refused.status_code, refused.json()["code"]) == (409, "old-data")


def test_a_release_that_cannot_be_prepared_says_why(case: Case) -> None:
    address = request_of(case.here, case.ana, case.project, case.masking, drop=["no such column"])
    found = case.olga.get(address).json()
    assert found["state"] == "failed"
    assert found["reason"]
    body = {"manifest_hash": "0" * 64}
    assert case.olga.post(f"{address}/approval", json=body).json()["code"] == "not-requested"


def test_a_release_whose_job_is_cancelled_fails_and_can_be_asked_for_again(case: Case) -> None:
    address = f"/api/v1/projects/{case.project}/releases"
    asked = case.ana.post(address, json={"masking": case.masking}).json()
    assert case.ana.delete(f"/api/v1/jobs/{asked['job_id']}").json()["state"] == "cancelled"
    found = case.olga.get(f"{address}/{asked['id']}").json()
    assert (found["state"], bool(found["reason"])) == ("failed", True)
    assert case.olga.get(f"{address}/{asked['id']}/documents/report.html").status_code == 409
    again = request_of(case.here, case.ana, case.project, case.masking)
    assert case.olga.get(again).json()["state"] == "requested"


def test_the_record_that_undoes_a_release_lies_sealed(approved: Case) -> None:
    service = approved.here.service
    folder = service.store.release(approved.project, str(approved.shown()["id"]))
    sealed = [path for path in folder.glob("*/audit/**/*") if path.is_file()]
    assert sealed
    assert all(path.suffix == ".sealed" for path in sealed)
    assert not any(b"PAR1" in path.read_bytes() or b"notes" in path.read_bytes() for path in sealed)
    left = [path for path in (service.settings.store / "scratch").rglob("*") if path.is_file()]
    assert left == []
    with pytest.raises(InputError):
        service.vault.open_folder(sealed[0].parent, folder.parent / "opened", record_context("another"))


def test_every_step_of_a_release_is_in_the_audit_log(approved: Case) -> None:
    approved.ana.get(f"{approved.address}/bundle.zip")
    entries = approved.olga.get(f"/api/v1/projects/{approved.project}/audit-log", params={"limit": 200}).json()["items"]
    subject = approved.shown()["id"]
    told = [(each["actor"], each["action"]) for each in reversed(entries) if each["subject"] == subject]
    assert told[:3] == [("ana", "release.request"), ("worker", "release.prepared"), ("olga", "release.approve")]
    assert ("ana", "release.download") in told
    assert auditlog.verify(approved.here.service.database).ok


def test_a_token_decides_only_with_the_scope_for_it(case: Case) -> None:
    reading = case.here.token_client("olga", "read", "write")
    assert case.approve(reading).json()["code"] == "scope"
    deciding = case.here.token_client("olga", "release")
    assert case.approve(deciding).status_code == 200


def test_alone_on_ones_own_machine_one_approves_ones_own_and_the_log_says_so(tmp_path: Path) -> None:
    with running(tmp_path, single_user=True) as here:
        here.client().post("/api/v1/session", json={"start_token": here.service.start_tokens.issue()})
        local = here.client("local")
        project = project_with_data(here, "local", owner="local")
        address = request_of(here, local, project, masking_of(here, local, project))
        found = local.get(address).json()
        assert found["may_approve"] is True
        done = local.post(f"{address}/approval", json={"manifest_hash": found["manifest_hash"]})
        assert done.status_code == 200
        assert local.get(f"{address}/bundle.zip").status_code == 200
        entries = local.get(f"/api/v1/projects/{project}/audit-log").json()["items"]
        (approval,) = [each for each in entries if each["action"] == "release.approve"]
        assert approval["detail"]["single_user"] is True


def test_the_ledgers_key_refuses_a_place_that_is_taken(approved: Case) -> None:
    """What decides between two servers at the same moment is the database."""
    with approved.here.service.database.read() as connection:
        entry = connection.execute(select(ledger)).mappings().first()
    assert entry is not None
    with pytest.raises(IntegrityError), approved.here.service.database.write() as connection:
        connection.execute(insert(ledger).values({**entry, "release_id": "another"}))
