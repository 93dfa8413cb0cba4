"""A file of households and a file of persons: uploaded, described, masked, and delivered as two files."""

from __future__ import annotations

import csv
import io
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.service.at_work import do_jobs
from tests.service.serving import PASSWORD, Running, running

import safeswap as ss
from safeswap.cli.app import run
from safeswap.files.keyfile import write_key
from safeswap.service.client import Client
from safeswap.service.work.tasks import read_data
from safeswap.workflow.households import merge_households
from safeswap.workflow.project import run_project

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


def send_both(town: Running, folder: Path, homes: bytes, people: bytes) -> str:
    """Write both files, upload them, and return the project that has them."""
    (folder / "homes.csv").write_bytes(homes)
    (folder / "people.csv").write_bytes(people)
    with Client(town.address, name="ana", password=PASSWORD) as ana:
        project = ana.make_project("Two files").id
        files = {"identifier": "person", "households": folder / "homes.csv", "on": "home"}
        sent = ana.send_data(project, folder / "people.csv", **files)
        do_jobs(town.service)
        assert ana.wait(sent).state == "succeeded"
    return project


STEPS = [
    {"method": "swap", "swap": ["tenure"], "fixed": ["town"], "rate": 0.4},
    {"method": "pram", "attributes": ["sex"], "keep": 0.7},
]


def test_the_exported_project_masks_the_same_two_files_in_python_and_on_the_command_line(
    town: Running, tmp_path: Path
) -> None:
    project = send_both(town, tmp_path, *two_files())
    with Client(town.address, name="ana", password=PASSWORD) as ana:
        ana.change_settings(project, version=ana.settings(project).version, steps=STEPS)
        text = ana.project_file(project)
    stated = ss.Project.parse(text)
    assert (stated.data.file, stated.data.households, stated.data.household) == ("people.csv", "homes.csv", "home")
    key = town.service.vault.project_key(project)
    here = ss.mask(read_data(town.service.store, project, 1), stated.pipeline, key=key).data.table
    (tmp_path / "project.toml").write_text(text, encoding="utf-8")
    write_key(key, tmp_path / "key")
    found = []
    for way in ("python", "command line"):
        shutil.rmtree(tmp_path / "confidential", ignore_errors=True)
        shutil.rmtree(tmp_path / ".safeswap", ignore_errors=True)
        if way == "python":
            run_project(tmp_path, key=key)
        else:
            assert run(["run", str(tmp_path), "--key", str(tmp_path / "key"), "--quiet"]) == 0
        files = [tmp_path / "confidential" / f"{name}.masked.parquet" for name in ("homes", "people")]
        found.append([path.read_bytes() for path in files])
        joined = merge_households(*(ss.read(path) for path in files), on="home").table
        assert joined.select(here.column_names).to_pylist() == here.to_pylist()
    assert found[0] == found[1]
    assert stated.text() == text


def test_a_column_of_the_persons_that_is_the_households_stays_theirs(
    town: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes, people = two_files()
    lines = people.decode().splitlines()
    rent = [f"{line},{line.split(',')[1] and int(line.split(',')[1]) % 7}" for line in lines[1:]]
    project = send_both(town, tmp_path, homes, "\n".join([f"{lines[0]},rent", *rent, ""]).encode())
    with town.client("ana") as ana:
        described = {each["name"]: each for each in ana.get(f"{API}/{project}/description").json()["attributes"]}
        assert {name for name, each in described.items() if each["household"]} == {"rent", "town", "tenure"}
        script = ana.post(f"{API}/{project}/script", json={}).json()["script"]
        version = ana.get(f"{API}/{project}/description").headers["etag"]
        change = {"attributes": [{"name": "age", "kind": "ordinal"}]}
        ana.patch(f"{API}/{project}/description", json=change, headers={"If-Match": version})
        do_jobs(town.service)
        again = ana.post(f"{API}/{project}/script", json={}).json()["script"]
    monkeypatch.chdir(tmp_path)
    for text in (script, again):
        found: dict[str, Any] = {}
        exec(text, found)
        assert found["people"].attributes == ("person", "home", "sex", "age", "rent")
        assert found["data"].attributes == tuple(described)


def test_long_names_of_two_files_are_kept(town: Running, tmp_path: Path) -> None:
    homes, people = two_files()
    names = {"name": f"{'p' * 100}.csv", "household_name": f"{'h' * 90} + {'i' * 20}.csv"}
    with town.client("ana") as ana:
        project = ana.post(API, json={"name": "Long"}).json()["id"]
        ana.put(f"{API}/{project}/data", params=params(homes, **names), content=homes + people)
        do_jobs(town.service)
        stated = ss.Project.parse(ana.get(f"{API}/{project}/project.toml").text).data
    assert (stated.file, stated.households) == (names["name"], f"{'h' * 90}_{'i' * 20}.csv")


def test_two_files_are_taken_from_an_allowed_folder(tmp_path: Path) -> None:
    shared, homes_and_people = tmp_path / "shared", two_files()
    (shared / "deep").mkdir(parents=True)
    (tmp_path / "town").mkdir()
    for name, content in zip(("homes.csv", "deep/homes.csv"), homes_and_people, strict=True):  # one name, two folders
        (shared / name).write_bytes(content)
    (tmp_path / "secret.csv").write_bytes(homes_and_people[0])
    with running(tmp_path / "town", folders=(shared,)) as town:
        project, ana = town.add_project("ana"), town.client("ana")
        at = f"{API}/{project}/data-from-folder"
        asked = {"path": "deep/homes.csv", "households": "homes.csv", "on": "home", "reading": {"identifier": "person"}}
        for wrong in ("../secret.csv", str(tmp_path / "secret.csv"), "nothing.csv"):
            assert ana.post(at, json={**asked, "households": wrong}).status_code == 404
        assert ana.post(at, json={"path": "deep/homes.csv", "on": "home"}).status_code == 422
        assert ana.post(at, json=asked).status_code == 202
        do_jobs(town.service)
        found = ana.get(f"{API}/{project}").json()
        assert (found["state"], found["file_name"]) == ("ready", "homes.csv + homes.csv")
        here = read_data(town.service.store, project, 1)
        people = ss.read(shared / "deep" / "homes.csv", identifier="person")
        expected = merge_households(shared / "homes.csv", people, on="home")
        assert here.table.to_pylist() == expected.table.to_pylist()
        assert here.schema.attributes == expected.schema.attributes
        # A household file that becomes a link after it was looked at leads nowhere.
        other = town.add_project("ana")
        assert ana.post(f"{API}/{other}/data-from-folder", json=asked).status_code == 202
        (shared / "homes.csv").unlink()
        (shared / "homes.csv").symlink_to(tmp_path / "secret.csv")
        do_jobs(town.service)
        assert ana.get(f"{API}/{other}").json()["state"] == "broken"
        # Files that do not fit are refused, and the project takes others afterwards.
        (shared / "homes.csv").unlink()
        (shared / "homes.csv").write_bytes(homes_and_people[0].rsplit(b"\n", 2)[0] + b"\n")
        job = ana.post(f"{API}/{other}/data-from-folder", json=asked).json()
        do_jobs(town.service)
        error = ana.get(f"/api/v1/jobs/{job['id']}").json()["error"]
        assert error["code"] == "no-such-household"
        assert error["fields"]["records"]


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


def test_the_layout_stated_for_both_files_is_in_project_file_script_and_archive(
    town: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without its layout neither file can be read: bars delimit, dots split every line evenly too, and ü is no UTF-8.
    contents = [each.decode().replace(",", "|").replace("own", "für.sich").encode("cp1252") for each in two_files()]
    for name, content in zip(("homes.csv", "people.csv"), contents, strict=True):
        (tmp_path / name).write_bytes(content)
    with Client(town.address, name="ana", password=PASSWORD) as ana:
        project = ana.make_project("Bars").id
        files = {"identifier": "person", "households": tmp_path / "homes.csv", "on": "home"}
        ana.send_data(project, tmp_path / "people.csv", delimiter="|", encoding="cp1252", decimal=",", **files)
        ana.add_member(project, "olga")
        do_jobs(town.service)
    with town.client("olga") as olga:
        exported = olga.post(f"{API}/{project}/exports", json={}).json()
        do_jobs(town.service)
        archive = olga.get(f"/api/v1/jobs/{exported['id']}").json()["result"]["id"]
        content = olga.get(f"{API}/{project}/exports/{archive}/file").content
    with town.client("ana") as ana:
        taken = ana.put("/api/v1/imports", params={"name": "bars.zip"}, content=content).json()
        do_jobs(town.service)
        copied = ana.get(f"/api/v1/jobs/{taken['id']}").json()["project"]
        monkeypatch.chdir(tmp_path)
        for each in (project, copied):
            stated = ss.Project.parse(ana.get(f"{API}/{each}/project.toml").text).data
            assert (stated.delimiter, stated.encoding, stated.quote, stated.decimal) == ("|", "cp1252", None, ",")
            found: dict[str, Any] = {}
            exec(ana.post(f"{API}/{each}/script", json={}).json()["script"], found)
            assert found["data"].table.to_pylist() == read_data(town.service.store, each, 1).table.to_pylist()


def test_members_cannot_be_said_to_differ_in_a_column_of_the_file_of_households(town: Running, tmp_path: Path) -> None:
    project = send_both(town, tmp_path, *two_files())
    with town.client("ana") as ana:
        version = ana.get(f"{API}/{project}/description").headers["etag"]
        change = {"attributes": [{"name": "tenure", "household": False}]}
        answer = ana.patch(f"{API}/{project}/description", json=change, headers={"If-Match": version})
        assert (answer.status_code, answer.json()["code"]) == (422, "household-column")
        fits = {"attributes": [{"name": "tenure", "kind": "ordinal", "household": True}]}
        assert ana.patch(f"{API}/{project}/description", json=fits, headers={"If-Match": version}).status_code == 202
        do_jobs(town.service)
        text = ana.get(f"{API}/{project}/project.toml").text
    (tmp_path / "project.toml").write_text(text, encoding="utf-8")
    data = ss.Project.parse(text)
    assert data.data.read(tmp_path, data.schema).schema["tenure"].household
