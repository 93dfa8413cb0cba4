"""A file masked in one project and uploaded into another: the release tells both steps, and no more of the other."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select, text
from tests.hand_made import KEY
from tests.service.at_work import SPEC, do_jobs, project_with_data, request_of, survey
from tests.service.serving import Running, running

from safeswap import workflow
from safeswap.releases.ledger import configured_ledger
from safeswap.service.keeping import ledger, store
from safeswap.service.keeping.database import new_id
from safeswap.service.keeping.tables import maskings
from safeswap.service.keeping.vault import MAGIC
from safeswap.workflow.masking import keep

API = "/api/v1"
SWAP = "Data swapping between random pairs of records"
PRAM = "Post-randomisation of categorical attributes"
BOTH = f"{SWAP}; then {PRAM}"


BY_PRAM = {"method": "pram", "attributes": ["age"], "keep": 0.7}


def mask(town: Running, client: httpx.Client, project: str, spec: dict[str, object]) -> str:
    asked = client.post(f"{API}/projects/{project}/maskings", json={"spec": spec})
    assert asked.status_code == 202, asked.text
    do_jobs(town.service)
    made = client.get(asked.headers["location"]).json()
    assert made["state"] == "succeeded", made
    return str(made["result"]["id"])


def upload(town: Running, content: bytes, name: str = "other.csv", people: tuple[str, ...] = ("ana", "olga")) -> str:
    """Make another project of this file; its first member uploads it."""
    project = town.add_project(*people, owner=people[0])
    stored = town.service.store.uploads(project) / new_id()
    stored.write_bytes(content)
    payload = {"upload": stored.name, "name": name, "reading": {"identifier": "id"}}
    town.service.queue.enqueue("ingest", payload, project_id=project, created_by=town.user_id(people[0]))
    do_jobs(town.service)
    return project


def bundle_of(town: Running, project: str, spec: dict[str, object] = SPEC) -> zipfile.ZipFile:
    """Mask, release, approve and download."""
    ana, olga = town.client("ana"), town.client("olga")
    address = request_of(town, ana, project, mask(town, ana, project, spec), title="Survey")
    told = olga.get(address).json()
    assert told["state"] == "requested", told
    decision = {"manifest_hash": told["manifest_hash"], "override_reason": "a second release on purpose"}
    assert olga.post(f"{address}/approval", json=decision).status_code == 200
    return zipfile.ZipFile(io.BytesIO(ana.get(f"{address}/bundle.zip").content))


def read_from(bundle: zipfile.ZipFile, name: str) -> bytes:
    return bundle.read(next(each for each in bundle.namelist() if each.endswith(name)))


def facts_of(bundle: zipfile.ZipFile) -> dict[str, object]:
    return dict(json.loads(read_from(bundle, "manifest.json"))["facts"])


def by_pram(town: Running, project: str) -> zipfile.ZipFile:
    return bundle_of(town, project, BY_PRAM)


def as_parquet(content: bytes) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa_csv.read_csv(io.BytesIO(content)), out)
    return out.getvalue()


def shuffled(content: bytes) -> bytes:
    head, *lines = content.splitlines(keepends=True)
    random.Random(5).shuffle(lines)
    return b"".join([head, *lines])


FORMS = {"csv": (bytes, "b.csv"), "parquet": (as_parquet, "b.parquet"), "shuffled": (shuffled, "b.csv")}


@pytest.fixture(scope="module")
def released(town: Running) -> tuple[str, bytes]:
    """A project whose file was swapped and released, and what was released."""
    project = project_with_data(town, "ana", "olga", content=survey(seed=700, records=90))
    bundle = bundle_of(town, project)
    assert facts_of(bundle)["method"] == SWAP
    return project, read_from(bundle, "data.csv")


@pytest.mark.parametrize("form", FORMS)
def test_the_release_of_another_project_tells_both_steps(town, released, form):
    change, name = FORMS[form]
    facts = facts_of(bundle := by_pram(town, upload(town, change(released[1]), name)))
    assert facts["method"] == BOTH
    assert facts["kept_exactly"] == []
    assert BOTH in read_from(bundle, "report.html").decode()


def test_a_third_project_is_told_all_three(town, released):
    second = by_pram(town, upload(town, released[1]))
    third = facts_of(
        bundle_of(town, upload(town, read_from(second, "data.csv")), {**SPEC, "swap": ["region"], "fixed": ["tenure"]})
    )
    assert third["method"] == f"{BOTH}; then {SWAP}"


def test_another_description_of_the_same_data_forgets_nothing(town, released):
    ana, project = town.client("ana"), upload(town, released[1])
    address = f"{API}/projects/{project}/description"
    change = {"attributes": [{"name": "age", "label": "Age group"}]}
    asked = ana.patch(address, json=change, headers={"If-Match": ana.get(address).headers["etag"]})
    assert asked.status_code == 202, asked.text
    do_jobs(town.service)
    assert facts_of(by_pram(town, project))["method"] == BOTH


def test_a_file_that_nobody_masked_is_released_as_before(town, released):
    facts = facts_of(by_pram(town, upload(town, survey(seed=701, records=90))))
    assert facts["method"] == PRAM
    assert facts["kept_exactly"]


def test_the_original_of_a_masked_file_counts_as_unmasked(town, released):
    facts = facts_of(by_pram(town, upload(town, survey(seed=700, records=90))))
    assert facts["method"] == PRAM


def test_a_recipe_stands_between_both(town, released):
    ana, project = town.client("ana"), upload(town, released[1])
    recipe = f"{API}/projects/{project}/recipe"
    steps = {"steps": [{"step": "drop", "attributes": ["region"]}]}
    assert ana.put(recipe, json=steps, headers={"If-Match": ana.get(recipe).headers["etag"]}).status_code == 200
    assert facts_of(by_pram(town, project))["method"] == f"{SWAP}; then Recoding; then {PRAM}"


def test_no_answer_says_anything_of_the_other_project(town, released):
    """Nor of its people, its releases and its jobs: only the method is in the report, as it must be."""
    first, content = released
    project = upload(town, content, people=("olga", "vera"))
    olga = town.client("olga")
    masking = mask(town, olga, project, BY_PRAM)
    address = request_of(town, olga, project, masking)
    vera = town.client("vera")
    places = [f"{API}/projects/{project}{rest}" for rest in ("", "/description", "/maskings", "/jobs", "/releases")]
    places += [f"{API}/projects/{project}/maskings/{masking}", address]
    places += [f"{API}/projects/{project}/maskings/{masking}/report.html"]
    answers = [vera.get(place) for place in places]
    assert {answer.status_code for answer in answers} == {200}
    assert not [answer.url for answer in answers if first in answer.text or "Data swapping" in answer.text]


def test_the_tables_of_the_register_can_be_read_by_nobody_without_the_key(town, released):
    with town.service.database.read() as connection:
        rows = connection.execute(select(maskings)).all()
    assert rows
    assert len({len(row.content) for row in rows}) == 1  # no history is longer than another
    sealed = b"".join(row.content.removeprefix(MAGIC) for row in rows)
    assert not [word for word in (b"swap", b"tenure", b"pram") if word in sealed]
    names = (path.read_text() for path in Path(town.service.settings.store).rglob(ledger.NAMES))
    assert all(len(line) == 64 and int(line, 16) for text_ in names for line in text_.split())


def test_an_entry_in_the_place_of_another_fails_instead_of_lying(town):
    project = project_with_data(town, "ana", "olga", content=survey(seed=703, records=95))
    other = upload(town, read_from(bundle_of(town, project), "data.csv"))
    ana, masking = town.client("ana"), None
    with town.service.database.write() as connection:
        kept = connection.execute(select(maskings)).all()
        connection.execute(text("UPDATE maskings SET content = :one"), {"one": kept[0].content})
    try:
        asked = ana.post(f"{API}/projects/{other}/maskings", json={"spec": {"method": "pram", "attributes": ["age"]}})
        do_jobs(town.service)
        masking = ana.get(asked.headers["location"]).json()
    finally:
        with town.service.database.write() as connection:
            for row in kept:
                values = {"content": row.content, "number": row.number}
                connection.execute(text("UPDATE maskings SET content = :content WHERE number = :number"), values)
    assert (masking["state"], masking["error"]["code"]) == ("failed", "seal-broken")


def test_a_job_that_fails_enters_nothing(town):
    def count() -> int:
        with town.service.database.read() as connection:
            return int(connection.scalar(select(func.count()).select_from(maskings)) or 0)

    ana, project = town.client("ana"), project_with_data(town, "ana", "olga", content=survey(seed=704))
    before = count()
    asked = ana.post(f"{API}/projects/{project}/maskings", json={"spec": {"method": "pram", "attributes": ["none"]}})
    do_jobs(town.service)
    assert ana.get(asked.headers["location"]).json()["state"] == "failed"
    assert count() == before
    mask(town, ana, project, SPEC)
    assert count() > before


def test_deleting_the_project_keeps_what_its_file_went_through(tmp_path):
    """The masked file is still out there, and a report about it must still be true."""
    with running(tmp_path) as here:
        project = project_with_data(here, "ana", "olga", content=survey(seed=702, records=85))
        content = read_from(bundle_of(here, project), "data.csv")
        assert store.delete_project(here.service.database, here.service.store, project)
        assert facts_of(by_pram(here, upload(here, content)))["method"] == BOTH


SWAPPED = {"method": "swap", "swap": ["tenure"], "rate": 0.3}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Running]:
    """A service that shares the ledger file of Python and the command line."""
    (tmp_path / "service").mkdir()
    with running(tmp_path / "service", agency_ledger=configured_ledger().path) as here:
        yield here


def test_what_was_done_on_the_command_line_is_told(desk, tmp_path):
    (tmp_path / "survey.csv").write_bytes(survey(seed=705, records=80))
    masked = workflow.mask(workflow.read(tmp_path / "survey.csv", identifier="id"), SWAPPED, key=KEY)
    for form in ("csv", "parquet"):
        path = tmp_path / f"masked.{form}"
        keep(masked, path, audit=tmp_path / "audit", source=tmp_path / "survey.csv")
        assert facts_of(by_pram(desk, upload(desk, path.read_bytes(), path.name)))["method"] == BOTH
    plain = upload(desk, survey(seed=705, records=80))
    assert facts_of(by_pram(desk, plain))["method"] == PRAM


def test_the_command_line_tells_what_was_done_in_the_service(desk, tmp_path):
    project = project_with_data(desk, "ana", "olga", content=survey(seed=706, records=80))
    path = tmp_path / "data.csv"
    path.write_bytes(read_from(bundle_of(desk, project), "data.csv"))
    masked = workflow.mask(workflow.read(path, identifier="id"), BY_PRAM, key=KEY)
    done = workflow.release(masked, tmp_path / "public", audit=tmp_path / "releases", key=KEY)
    assert json.loads((done.public / "manifest.json").read_bytes())["facts"]["method"] == BOTH


def test_a_file_masked_with_a_seed_is_refused_here_too(desk, tmp_path):
    (tmp_path / "survey.csv").write_bytes(survey(seed=707, records=80))
    masked = workflow.mask(workflow.read(tmp_path / "survey.csv", identifier="id"), SWAPPED, insecure_seed=1)
    keep(masked, tmp_path / "masked.csv", audit=tmp_path / "audit", source=tmp_path / "survey.csv")
    ana, project = desk.client("ana"), upload(desk, (tmp_path / "masked.csv").read_bytes())
    refused = ana.get(request_of(desk, ana, project, mask(desk, ana, project, BY_PRAM))).json()
    assert refused["state"] == "failed"
    assert "in a way that anyone can undo" in refused["reason"]
