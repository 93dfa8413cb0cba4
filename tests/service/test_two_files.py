"""A file of households and a file of persons: uploaded, described, masked, and delivered as two files."""

from __future__ import annotations

import csv
import io
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.service.at_work import do_jobs
from tests.service.serving import PASSWORD, Running

from safeswap.service.client import Client

API = "/api/v1/projects"


def two_files(seed: int = 5, homes: int = 90) -> tuple[bytes, bytes]:
    """Households with a town and a tenure, and their persons in another order; some persons live outside."""
    draw = random.Random(seed)
    numbers = draw.sample(range(100, 1000), homes)
    households = [f"{n},{draw.choice('NSEW')},{draw.choice(['own', 'rent', 'other'])}" for n in numbers]
    members = [n for n in numbers for _ in range(draw.randint(1, 4))] + [""] * 5
    draw.shuffle(members)
    persons = [f"{i},{n},{draw.choice('mf')},{draw.randint(0, 5)}" for i, n in enumerate(members)]
    return tuple(
        ("\n".join([head, *rows]) + "\n").encode()
        for head, rows in (("home,town,tenure", households), ("person,home,sex,age", persons))
    )


def params(households: bytes, **more: Any) -> dict[str, Any]:
    return {"name": "p.csv", "household_name": "h.csv", "household_bytes": len(households), "on": "home", **more}


def rows_of(archive: zipfile.ZipFile, name: str) -> list[dict[str, str]]:
    (path,) = [each for each in archive.namelist() if each.endswith(f"/{name}")]
    return list(csv.DictReader(io.StringIO(archive.read(path).decode())))


def test_two_files_go_in_and_two_come_out(town: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes, people = two_files()
    (tmp_path / "homes.csv").write_bytes(homes)
    (tmp_path / "people.csv").write_bytes(people)
    with (
        Client(town.address, name="ana", password=PASSWORD) as ana,
        Client(town.address, name="olga", password=PASSWORD) as olga,
    ):
        project = ana.make_project("Two files").id
        ana.add_member(project, "olga")

        def finish(job: Any) -> Any:
            do_jobs(town.service)
            return ana.wait(job)

        sent = ana.send_data(
            project, tmp_path / "people.csv", identifier="person", households=tmp_path / "homes.csv", on="home"
        )
        finish(sent)
        assert ana.project(project).file_name == "homes.csv + people.csv"
        described = {each["name"]: each for each in ana.description(project).attributes}
        assert list(described) == ["person", "home", "sex", "age", "town", "tenure"]
        assert {name for name, each in described.items() if each["household"]} == {"town", "tenure"}
        assert described["home"]["kind"] == "household"

        script = town.client("ana").post(f"{API}/{project}/script", json={}).json()["script"]
        monkeypatch.chdir(tmp_path)
        found: dict[str, Any] = {}
        exec(script, found)
        schema = found["data"].schema
        assert [(each.name, each.kind.value, each.household) for each in schema.attributes] == [
            (name, each["kind"], each["household"]) for name, each in described.items()
        ]

        spec = {"method": "swap", "swap": ["tenure"], "rate": 0.3}
        masking = finish(ana.mask(project, spec)).result.id
        terms = {"two_files": True, "override": "a test"}
        asked = ana.request_release(project, masking, **terms)
        do_jobs(town.service)
        done = olga.release(project, asked.id)
        assert done.state == "requested", done.reason
        assert {"households.csv", "persons.csv"} <= {each.name for each in done.files}
        assert "data.csv" not in {each.name for each in done.files}
        olga.approve(project, asked.id, manifest_hash=done.manifest_hash, attack_override="a test")
        content = town.client("ana").get(f"{API}/{project}/releases/{asked.id}/bundle.zip").content
    archive = zipfile.ZipFile(io.BytesIO(content))
    households, persons = rows_of(archive, "households.csv"), rows_of(archive, "persons.csv")
    assert list(households[0]) == ["home", "town", "tenure"]
    assert list(persons[0]) == ["person", "home", "sex", "age"]
    numbers = [each["home"] for each in households]
    assert sorted(map(int, numbers)) == list(range(1, 91))
    assert {each["home"] for each in persons} - {""} == set(numbers)
    assert sum(not each["home"] for each in persons) == 5
    before = list(csv.DictReader(io.StringIO(homes.decode())))
    assert sorted(each["town"] for each in households) == sorted(each["town"] for each in before)


BAD = {
    "no-such-household": (b"home,town\n1,N\n", b"person,home\n1,1\n2,7\n"),
    "empty-household": (b"home,town\n1,N\n2,S\n", b"person,home\n1,1\n2,1\n"),
    "household-repeats": (b"home,town\n1,N\n1,S\n", b"person,home\n1,1\n2,1\n"),
    "column-in-both": (b"home,sex\n1,f\n", b"person,home,sex\n1,1,f\n2,1,m\n"),
}


@pytest.mark.parametrize("code", BAD)
def test_files_that_do_not_fit_are_refused_with_counts_and_positions(town: Running, code: str) -> None:
    homes, people = BAD[code]
    with town.client("ana") as ana:
        project = ana.post(API, json={"name": f"Bad {code}"}).json()["id"]
        sent = ana.put(f"{API}/{project}/data", params=params(homes), content=homes + people)
        assert sent.status_code == 202
        do_jobs(town.service)
        error = ana.get(f"/api/v1/jobs/{sent.json()['id']}").json()["error"]
        assert ana.get(f"{API}/{project}").json()["data_version"] == 0
    assert error["code"] == code
    assert error["fields"].get("records") or error["fields"]["columns"] == ["sex"]


def test_an_upload_without_persons_or_with_half_a_request_is_refused(town: Running) -> None:
    homes, people = two_files()
    with town.client("ana") as ana:
        project = ana.post(API, json={"name": "Half"}).json()["id"]
        at = f"{API}/{project}/data"
        assert ana.put(at, params={"name": "p.csv", "on": "home"}, content=people).status_code == 422
        assert ana.put(at, params={"name": "p.csv", "household_name": "h.csv"}, content=people).status_code == 422
        sent = ana.put(at, params=params(homes), content=homes).json()
        do_jobs(town.service)
        assert ana.get(f"/api/v1/jobs/{sent['id']}").json()["error"]["code"] == "empty-file"
        # The project takes the right files afterwards.
        ana.put(at, params=params(homes, household_name="p.csv"), content=homes + people)
        do_jobs(town.service)
        assert ana.get(f"{API}/{project}").json()["file_name"] == "p.csv + p.csv"
