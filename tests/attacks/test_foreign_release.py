"""An analyst who is not a member reads another project's swapped set, by asking for releases of her own.

The attack as it once worked: she uploads the numbers 1..n with columns of her invention, under the names that the other
project uses, and asks for a release. Where the service knows records by their identifiers, it replays the audit record
of the other release on her data, and answers with counts; a column that is constant but for one record turns the count
into "was this record exchanged?". She repeats this for a set of records and guesses for each whether it was swapped.

The attacker sees everything that the service answers to her, down to the bytes. She learns something only if answers
differ between records that were swapped and records that were not; her guesses are compared with blind guessing.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import numpy as np
import pytest
from sqlalchemy import select
from tests.ledger_cases import trial
from tests.service.at_work import masking_of, project_with_data, request_of
from tests.service.serving import Running, running

from safeswap.service.keeping.ledger import ELSEWHERE, FOR_OFFICERS
from safeswap.service.keeping.tables import jobs, releases
from safeswap.service.routes.releases import task as release_task

RECORDS, TARGETS = 120, 6


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("office")) as here:
        here.add_person("mallory", "analyst")
        yield here


def as_csv(columns: dict[str, list]) -> bytes:
    out = io.StringIO()
    out.write(",".join(columns) + "\n")
    for row in zip(*columns.values(), strict=True):
        out.write(",".join(map(str, row)) + "\n")
    return out.getvalue().encode()


def secret_survey() -> dict[str, list]:
    columns = trial(RECORDS, 5).columns
    names = ("tenure", "region", "education", "occupation", "town", "birth")
    return {"id": list(range(1, RECORDS + 1)), **{name: columns[name].tolist() for name in names}}


@pytest.fixture(scope="module")
def victim(office: Running) -> tuple[str, set[int]]:
    """A project with an approved release, and which of its records differ from the original: what nobody may learn."""
    truth = secret_survey()
    project = project_with_data(office, "ana", "olga", content=as_csv(truth))
    ana, olga = office.client("ana"), office.client("olga")
    masking = masking_of(office, ana, project, fixed=[], rate=0.3)
    address = request_of(office, ana, project, masking)
    shown = olga.get(address).json()
    body = {"manifest_hash": shown["manifest_hash"]}
    assert olga.post(f"{address}/approval", json=body).status_code == 200
    folder = office.service.store.release(project, shown["id"]) / "attempt-1" / release_task.AUDIT
    opened = office.service.store.project(project).parent / "opened"
    office.service.vault.open_folder(folder, opened, release_task.record_context(shown["id"]))
    from safeswap.on_disk.audit_record import read_audit

    touched = set((np.flatnonzero(read_audit(opened).touched()) + 1).tolist())
    assert 10 < len(touched) < RECORDS - 10
    return shown["id"], touched


def invented(target: int, seed: int) -> bytes:
    """Her file: the numbers 1..n, and a tenure that only the target has."""
    rng = np.random.default_rng(seed)
    tenure = ["B" if number == target else "A" for number in range(1, RECORDS + 1)]
    columns = {"id": list(range(1, RECORDS + 1)), "tenure": tenure}
    for name in ("region", "education", "occupation"):
        columns[name] = [f"{name} {value}" for value in rng.integers(0, 5, RECORDS)]
    return as_csv(columns)


def answers_to(office: Running, target: int, *people: str) -> tuple[str, str]:
    """All that Mallory reads about a release that she asks for, without what is hers: ids, times, hashes, and how
    attacks on her own file fare, for which only her own file and her own masking are used."""
    project = project_with_data(office, "mallory", *people, owner="mallory", content=invented(target, 1))
    mallory = office.client("mallory")
    masking = masking_of(office, mallory, project, fixed=[], swap=["region"], rate=0.1)
    address = request_of(office, mallory, project, masking)
    parts = [mallory.get(address).json(), mallory.get(address.rpartition("/")[0]).json()]
    (job,) = {parts[0]["job_id"]}
    for release in (parts[0], *parts[1]["items"]):
        release.pop("attacks")
    parts.append(mallory.get(f"/api/v1/jobs/{job}").json())
    text = json.dumps(parts)
    return re.sub(r"[0-9a-f]{32,64}|\d{4}-\d\d-\d\dT[\d:.+Z]+|\"size\": \d+", "-", text), address


def test_her_guesses_are_no_better_than_blind_ones(office: Running, victim: tuple[str, set[int]]) -> None:
    foreign, touched = victim
    swapped = sorted(touched)[:TARGETS]
    spared = [number for number in range(1, RECORDS + 1) if number not in touched][:TARGETS]
    targets = swapped + spared
    answers = [answers_to(office, target)[0] for target in targets]
    assert not any(foreign in answer for answer in answers)
    assert all(FOR_OFFICERS in answer for answer in answers)
    # The best guess from what she reads: records with equal answers are guessed alike, each group by its majority.
    groups: dict[str, list[bool]] = {}
    for answer, target in zip(answers, targets, strict=True):
        groups.setdefault(answer, []).append(target in touched)
    right = sum(max(sum(group), len(group) - sum(group)) for group in groups.values())
    print(f"guessed right: {right} of {len(targets)}; blind: {TARGETS} of {len(targets)}")
    assert len(groups) == 1
    assert right == TARGETS


def test_nothing_was_computed_from_her_data(office: Running, victim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even with the true file in hand: the confidential record of the other release is not opened."""

    def never(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a foreign record was laid beside the caller's data")

    monkeypatch.setattr(release_task, "compare_releases", never)
    monkeypatch.setattr(release_task, "_find_record", never)
    project = project_with_data(office, "mallory", "oscar", owner="mallory", content=as_csv(secret_survey()))
    mallory, oscar, olga = (office.client(name) for name in ("mallory", "oscar", "olga"))
    masking = masking_of(office, mallory, project, fixed=[], rate=0.3)
    address = request_of(office, mallory, project, masking)
    shown = mallory.get(address).json()
    assert (shown["state"], shown["ledger"], shown["differencing"]) == ("requested", FOR_OFFICERS, [])
    assert shown["needs_reason"] is False
    decides = oscar.get(address).json()
    assert (decides["ledger"], decides["differencing"], decides["needs_reason"]) == (ELSEWHERE, [], True)
    assert olga.get(address).status_code == 404
    refused = oscar.post(f"{address}/approval", json={"manifest_hash": decides["manifest_hash"]}).json()
    assert (refused["code"], refused["detail"]) == ("second-release", ELSEWHERE)
    assert victim[0] not in json.dumps(refused)
    with office.service.database.read() as connection:
        row = connection.execute(select(releases).where(releases.c.id == shown["id"])).one()
        payload = connection.execute(select(jobs.c.payload).where(jobs.c.id == row.job_id)).scalar_one()
    assert [each["differ"] for each in row.differencing if each["alarm"]] == [None]
    assert victim[0] not in json.dumps(payload)
    body = {"manifest_hash": decides["manifest_hash"], "override_reason": "agreed with the other project"}
    assert oscar.post(f"{address}/approval", json=body).status_code == 200
    assert mallory.get(address).json()["reason"] == ""
    assert oscar.get(address).json()["reason"] == "agreed with the other project"


def test_an_officer_of_both_projects_sees_the_figures(office: Running, victim) -> None:
    project = project_with_data(office, "mallory", "olga", "oscar", owner="mallory", content=as_csv(secret_survey()))
    mallory, oscar, olga = (office.client(name) for name in ("mallory", "oscar", "olga"))
    address = request_of(office, mallory, project, masking_of(office, mallory, project, fixed=[], rate=0.3))
    found = {each["release_id"]: each for each in olga.get(address).json()["differencing"]}
    assert found[victim[0]]["differ"] > 0
    assert "Comparing" in found[victim[0]]["sentence"]
    assert victim[0] not in json.dumps(oscar.get(address).json())
    answer = json.dumps(mallory.get(address).json())
    assert victim[0] not in answer
    assert "Comparing" not in answer
