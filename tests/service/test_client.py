"""The client against the contract: every call is one of the contract's, and the journey of two people works with it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import httpx
import pytest
from tests.service.at_work import SPEC, do_jobs, survey
from tests.service.serving import PASSWORD, Running

from safeswap.service.client import Client, Connection, Refused

KEYS = {"keys": ["region", "tenure", "age"], "up_to": 2}


class Heard:
    """Which routes of the contract were called, by what was really sent."""

    def __init__(self, town: Running) -> None:
        contract = httpx.get(f"{town.address}/api/openapi.json").json()
        self.routes = {
            (method.upper(), template): re.compile(re.sub(r"\{[^}]+\}", "[^/]+", template) + "$")
            for template, methods in contract["paths"].items()
            for method in methods
        }
        self.called: set[tuple[str, str]] = set()
        self.unknown: set[tuple[str, str]] = set()

    def listen(self, client: Connection) -> None:
        client._http.event_hooks["request"].append(self._note)

    def _note(self, request: httpx.Request) -> None:
        found = [
            route
            for route, pattern in self.routes.items()
            if route[0] == request.method and pattern.match(request.url.path)
        ]
        self.called.update(found)
        if not found:
            self.unknown.add((request.method, request.url.path))


@pytest.fixture
def heard(town: Running) -> Heard:
    return Heard(town)


def person(town: Running, name: str, heard: Heard) -> Client:
    client = Client(town.address, name=name, password=PASSWORD)
    heard.listen(client)
    return client


def waited(town: Running, client: Client, job):
    do_jobs(town.service)
    return client.wait(job).result.id


def test_two_people_take_a_file_from_its_arrival_to_its_release(town, heard, tmp_path):
    file = tmp_path / "survey.csv"
    file.write_bytes(survey(seed=501, records=90))
    with person(town, "ana", heard) as ana, person(town, "olga", heard) as olga:
        project = ana.make_project("By two programs").id
        assert project in {each.id for each in ana.projects()}
        waited(town, ana, ana.send_data(project, file, identifier="id"))
        assert ana.description(project).records == 90
        ana.add_member(project, "olga")
        assert [each.name for each in ana.members(project)] == ["ana", "olga"]

        before = ana.risky(project, **KEYS)
        assert ana.risky_list(project, waited(town, ana, ana.count_risky(project, **KEYS))) == before
        assert ana.advice(project, **KEYS).unsafe == before.unsafe_combinations
        recipe = ana.set_recipe(project, [{"step": "drop", "attributes": ["age"]}], version=ana.recipe(project).version)
        assert len(recipe.steps) == 1
        assert ana.step_through_recipe(project, "undo").steps == ()

        assert ana.check_tables(project, [["region", "tenure"]]).tolerance == 3
        tables = waited(town, ana, ana.make_tables_safe(project, [["region", "tenure"]]))
        assert ana.safe_tables(project, tables).kind == "safe_tables"
        masking = waited(town, ana, ana.mask(project, SPEC))
        plot = waited(town, ana, ana.plot_confidentiality(project, masking, ["region", "tenure"]))
        assert ana.confidentiality(project, plot).summary["records"] == 90

        tried = waited(town, ana, ana.attack(project, masking, scenario={"keys": ["region", "tenure"]}, full=False))
        assert "linkage" in {each["attack"] for each in ana.attacked(project, tried).summary["attacks"]}

        asked = ana.request_release(project, masking, title="Survey")
        do_jobs(town.service)
        shown = olga.release(project, asked.id)
        assert shown.state == "requested"
        assert "row_order" in {each["attack"] for each in shown.attacks}
        with pytest.raises(Refused) as refused:
            ana.download(project, asked.id, tmp_path / "too-early.zip")
        assert refused.value.problem.code == "not-approved"
        assert not (tmp_path / "too-early.zip").exists()
        assert olga.approve(project, asked.id, manifest_hash=shown.manifest_hash).state == "approved"
        bundle = ana.download(project, asked.id, tmp_path / "bundle.zip")
        assert len(zipfile.ZipFile(bundle).namelist()) == 5
        again = ana.request_release(project, masking)
        do_jobs(town.service)
        assert olga.reject(project, again.id, reason="Once is enough.").state == "rejected"
        assert [each.state for each in ana.releases(project)] == ["rejected", "approved"]

        ana.note(project, "Released.")
        assert "Released." in ana.log(project)
        archive = olga.save_export(project, waited(town, olga, olga.export(project)), tmp_path / "project.zip")
        copied = ana.import_project(archive)
        do_jobs(town.service)
        assert ana.wait(copied).project != project
        assert ana.description(ana.wait(copied).project).records == 90
        (brought,) = ana.specifications(ana.wait(copied).project)
        assert [each["kind"] for each in brought.spec["specs"]] == ["masking"]
        assert brought.spec["specs"][0]["spec"]["spec"]["swap"] == ["tenure"]
        assert "Released." in brought.summary["log"]
        ana.remove_member(project, "olga")
        with pytest.raises(Refused):
            olga.project(project)
    assert not heard.unknown
    assert len(heard.called) >= 30


def test_a_refusal_carries_its_problem_document(town, heard):
    with person(town, "vera", heard) as vera, pytest.raises(Refused) as refused:
        vera.make_project("not hers to make")
    assert (refused.value.problem.status, refused.value.code) == (403, "role")


def test_what_was_changed_meanwhile_is_not_overwritten(town, heard, tmp_path):
    file = tmp_path / "survey.csv"
    file.write_bytes(survey())
    with person(town, "ana", heard) as ana:
        project = ana.make_project("changed meanwhile").id
        waited(town, ana, ana.send_data(project, file))
        version = ana.recipe(project).version
        ana.set_recipe(project, [{"step": "drop", "attributes": ["age"]}], version=version)
        with pytest.raises(Refused) as refused:
            ana.set_recipe(project, [], version=version)
        assert refused.value.problem.status == 412


def test_a_download_that_is_there_already_is_not_overwritten(town, heard, tmp_path):
    kept = Path(tmp_path / "bundle.zip")
    kept.write_bytes(b"kept")
    with person(town, "ana", heard) as ana, pytest.raises(Exception, match="exists"):
        ana._save("/methods", kept)
    assert kept.read_bytes() == b"kept"
