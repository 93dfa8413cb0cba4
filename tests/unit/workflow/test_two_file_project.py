"""A project of a household file and a person file: run, kept, reported and released as one job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.households import persons

import safeswap as ss
from safeswap.errors import SafeswapError
from safeswap.files.keyfile import write_key
from safeswap.files.write import write
from safeswap.model.households import mark_household_attributes
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.on_disk.masking import digest_of_both
from safeswap.workflow import project as running
from safeswap.workflow.households import mask_households, merge_households, split_households
from safeswap.workflow.project import release_project, report_project, run_project
from safeswap.workflow.project_status import project_status

KEY = ss.Key(bytes(range(32)))
STEPS: list[dict[str, Any]] = [
    {"method": "swap", "swap": ["tenure"], "rate": 0.3},
    {"method": "pram", "attributes": ["edu"], "keep": 0.8},
]
CONSENT: dict[str, Any] = {"override": "a test", "second_release": "a test"}
_PLAIN = persons(80)
HOMES, PEOPLE = split_households(
    Microdata(_PLAIN.table, mark_household_attributes(_PLAIN.schema, ("region", "county", "tenure")))
)
"""The rent is the household's too, and stays in the file of persons."""


class Job:
    """A folder with both files, a key and a project file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.homes, self.people = folder, folder / "homes.csv", folder / "people.csv"
        write(HOMES, self.homes)
        write(PEOPLE, self.people)
        write_key(KEY, folder / "secret.key")
        self.state()

    def state(self, **data: Any) -> None:
        stated = {"file": "people.csv", "households": "homes.csv", "identifier": "person", "household": "ref", **data}
        release = {"key": "secret.key", "public": "public", "audit": "confidential"}
        project = ss.Project(title="Two", data=stated, pipeline=STEPS, release=release)
        project.save(self.folder / "project.toml", force=True)

    def edit(self, old: str, new: str) -> None:
        file = self.folder / "project.toml"
        assert file.read_text().count(old) == 1
        file.write_text(file.read_text().replace(old, new))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def rows(path: Path | None) -> list[dict[str, Any]]:
    assert path is not None
    return pq.read_table(path).to_pylist()


def by_hand(job: Job) -> Any:
    return mask_households(job.homes, ss.read(job.people, identifier="person"), ss.Pipeline(STEPS), on="ref", key=KEY)


def test_a_run_masks_both_files_in_one_job(job: Job) -> None:
    done, expected = run_project(job.folder), by_hand(job)
    assert rows(done.output) == expected.persons.table.to_pylist()
    assert rows(done.households) == expected.households.table.to_pylist()
    assert done.output.name == "people.masked.parquet"
    assert [each["ref"] for each in rows(done.households)] == HOMES.table["ref"].cast("string").to_pylist()
    assert "rent" in pq.read_schema(done.output).names
    assert done.as_dict()["households"] == str(done.households)
    status = project_status(job.folder)
    assert (status.data, status.masked, status.is_current) == ("unchanged", "in place", True)
    again = run_project(job.folder)  # replaces its own files
    assert all(each.kept for each in again.steps)
    assert rows(again.households) == rows(done.households)


def test_a_schema_of_the_joined_file_gives_the_same(job: Job) -> None:
    first = run_project(job.folder)
    before = rows(first.output), rows(first.households)
    stated = merge_households(job.homes, ss.read(job.people, identifier="person"), on="ref").schema
    project = ss.Project.read(job.folder / "project.toml")
    replace(project, schema=stated).save(job.folder / "project.toml", force=True)
    assert project_status(job.folder).steps == (("swap", "stale"), ("pram", "stale"))
    done = run_project(job.folder)
    assert (rows(done.output), rows(done.households)) == before
    assert done.masked.data.attributes == stated.names


def test_what_was_run_is_reported_and_released_as_two_files(job: Job) -> None:
    run_project(job.folder)
    told = {each.column: each.status for each in report_project(job.folder).changes}
    assert told["tenure"] == told["edu"] == "perturbed"
    published = release_project(job.folder, **CONSENT)
    assert {path.name for path in published.public.glob("*.csv")} >= {"households.csv", "persons.csv"}
    assert project_status(job.folder).release == "current"


def test_a_release_in_one_file_is_a_setting(job: Job) -> None:
    job.edit("[release]", "[release]\ntwo_files = false\n#")
    run_project(job.folder)
    assert (release_project(job.folder, **CONSENT).public / "data.csv").is_file()
    assert project_status(job.folder).ready == "ready"


def test_a_project_tells_that_two_files_cannot_be_released_without_their_number(job: Job) -> None:
    job.edit("[release]", '[release]\ndrop = ["ref"]\n#')
    done = run_project(job.folder)
    assert "two files cannot be released" in " ".join(done.failures)


def test_other_households_are_other_data(job: Job) -> None:
    job.state(sha256=digest_of_both(job.people, job.homes))
    run_project(job.folder)
    lines = job.homes.read_text().splitlines()
    job.homes.write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    assert project_status(job.folder).data == "changed"
    with pytest.raises(SafeswapError) as caught:
        run_project(job.folder)
    assert caught.value.code == "data-changed"
    job.homes.unlink()
    assert project_status(job.folder).data == "missing"
    with pytest.raises(SafeswapError) as caught:
        run_project(job.folder)
    assert caught.value.code == "missing-file"


def test_the_layout_of_a_text_file_holds_for_both(job: Job) -> None:
    expected = by_hand(job).households.table.to_pylist()
    for path in (job.homes, job.people):
        path.write_text(path.read_text().replace(",", "|"))
    job.state(delimiter="|", encoding="utf-8")
    assert rows(run_project(job.folder).households) == expected
    release_project(job.folder, **CONSENT)
    pq.write_table(HOMES.table, job.folder / "homes.parquet")  # a format without a delimiter
    job.state(delimiter="|", households="homes.parquet")
    assert [str(each["ref"]) for each in rows(run_project(job.folder).households)] == [e["ref"] for e in expected]


def test_a_run_killed_between_the_two_files_goes_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_project(job.folder)
    kept = rows(first.output), rows(first.households)
    noted = running._Job.note

    def stop(self: Any, **facts: Any) -> None:
        if "output" in facts:
            raise KeyboardInterrupt
        noted(self, **facts)

    job.edit("rate = 0.3", "rate = 0.2")
    with monkeypatch.context() as patched:
        patched.setattr(running._Job, "note", stop)
        with pytest.raises(KeyboardInterrupt):
            run_project(job.folder)
    first.output.unlink()  # the household file is in place, the other is not
    assert rows(run_project(job.folder).output) == kept[0]  # the swap changes households only
    job.edit("rate = 0.2", "rate = 0.3")
    assert rows(run_project(job.folder).households) == kept[1]


def test_a_file_that_no_run_has_written_is_not_replaced(job: Job) -> None:
    (job.folder / "confidential").mkdir()
    other = job.folder / "confidential" / "homes.masked.parquet"
    other.write_bytes(b"mine")
    with pytest.raises(SafeswapError) as caught:
        run_project(job.folder)
    assert caught.value.code == "exists"
    assert [path.name for path in (job.folder / "confidential").iterdir()] == [other.name]


@pytest.mark.parametrize("code", ["schema-mismatch", "no-household"])
def test_a_schema_that_does_not_fit_two_files_is_refused(job: Job, code: str) -> None:
    schema = merge_households(job.homes, ss.read(job.people, identifier="person"), on="ref").schema
    if code == "schema-mismatch":
        schema = schema.replace(schema["tenure"].model_copy(update={"household": False}))
    else:
        schema = schema.replace(schema["ref"].model_copy(update={"kind": Kind.NOMINAL}))
        job.state(household=None)
    project = ss.Project.read(job.folder / "project.toml")
    replace(project, schema=schema).save(job.folder / "project.toml", force=True)
    with pytest.raises(SafeswapError) as caught:
        run_project(job.folder)
    assert caught.value.code == code
    assert not (job.folder / "confidential").exists()


def test_a_proposal_names_both_files_and_guesses_what_they_hold(job: Job) -> None:
    project = ss.Project.start(job.people, folder=job.folder / "job", households=job.homes, on="ref")
    assert (project.data.file, project.data.households) == ("../people.csv", "../homes.csv")
    assert project.data.sha256 == digest_of_both(job.people, job.homes)
    assert ss.Project.parse(project.text()) == project
    assert project.schema is not None
    assert {each.name for each in project.schema.attributes if each.household} == {"region", "county", "tenure", "rent"}
    assert "schema.region" in project.guesses  # its kind is a guess
    assert "changed for all or none" in project.guesses["schema.rent"]
    assert "changed for all or none" not in project.guesses["schema.region"]
