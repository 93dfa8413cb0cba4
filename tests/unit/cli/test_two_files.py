"""A household file and a person file, masked in one job, are reported, attacked and assessed together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.households import persons
from tests.unit.cli.conftest import Run
from typer.testing import CliRunner

import safeswap as ss
from safeswap.cli.app import app
from safeswap.files.keyfile import write_key
from safeswap.files.write import write
from safeswap.model.households import mark_household_attributes
from safeswap.model.microdata import Microdata
from safeswap.workflow.households import MaskedHouseholds, mask_households, merge_households, split_households

KEY = ss.Key(bytes(range(32)))
SPEC = {"method": "swap", "swap": ["tenure"], "rate": 0.3}
ATTACKS = ["singling_out", "household_mates", "swapped_records"]
Command = Callable[..., Run]


class Job:
    """Both files before and after, the record, and the bundle, in one folder."""

    def __init__(self, folder: Path) -> None:
        plain = persons(90)
        homes, people = split_households(
            Microdata(plain.table, mark_household_attributes(plain.schema, ("region", "county", "tenure", "rent")))
        )
        self.homes, self.people = folder / "homes.csv", folder / "people.csv"
        write(homes, self.homes)
        write(people, self.people)
        write_key(KEY, folder / "secret.key")
        self.after_homes, self.after_people = folder / "h.csv", folder / "p.csv"
        self.audit, self.bundle = folder / "audit", folder / "public"
        self.done: MaskedHouseholds = mask_households(self.homes, ss.read(self.people), SPEC, on="ref", key=KEY)
        self.done.keep(
            self.after_homes, self.after_people, audit=self.audit, sources=[self.homes, self.people], reading={}
        )
        self.record = ss.release(self.done, self.bundle, audit=self.audit, key=KEY, override="a test").audit

    @property
    def both(self) -> list[Any]:
        return ["--households", self.homes, "--masked-households", self.after_homes]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("two"))


@pytest.fixture
def command() -> Command:
    return lambda *words: Run(CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False))


def outcomes(document: dict[str, Any]) -> dict[str, tuple[float, float]]:
    return {each["attack"]: (each["success"], each["baseline"]) for each in document["attacks"]}


def asked(names: list[str]) -> list[str]:
    return [word for name in names for word in ("--attack", name)]


def test_a_report_tells_what_became_of_the_households(job: Job, command: Command, tmp_path: Path) -> None:
    where = ["--audit", job.audit, "--for", "analyst", "--output", tmp_path / "reports"]
    half = command("report", job.people, job.after_people, *where)
    assert (half.code, "--masked-households" in half.stderr) == (3, True)
    assert not (tmp_path / "reports").exists()
    done = command("report", job.people, job.after_people, *where, *job.both)
    assert done.code == 0, done.said
    facts = json.loads((tmp_path / "reports" / "facts.json").read_bytes())
    told = json.loads(ss.report(job.done.masked).dump("analyst"))
    assert {each["column"]: each["status"] for each in facts["changes"]} == {
        each["column"]: each["status"] for each in told["changes"]
    }
    assert [each["after"] for each in facts["figures"]] == [each["after"] for each in told["figures"]]


def test_two_kept_files_are_attacked_as_the_masking_is(job: Job, command: Command) -> None:
    files = ["attack", job.after_people, job.people, "--audit", job.audit, "--json"]
    assert command(*files).document["code"] == "two-files"
    found = command(*files, *job.both, *asked(ATTACKS))
    assert found.code == 0, found.said
    expected = outcomes(ss.attack(job.done.masked, attacks=ATTACKS).as_dict())
    assert outcomes(found.document) == expected
    assert expected["household_mates"][0] == 0.0


def test_files_without_a_record_are_joined_by_the_number(job: Job, command: Command) -> None:
    files = ["attack", job.after_people, job.people, *job.both, "--on", "ref", "--json", *asked(ATTACKS)]
    before, after = (
        merge_households(homes, ss.read(people), on="ref")
        for homes, people in ((job.homes, job.people), (job.after_homes, job.after_people))
    )
    expected = outcomes(ss.attack(after, before, attacks=ATTACKS).as_dict())
    assert outcomes(command(*files).document) == expected
    assert "swapped_records" in expected
    assert not command("attack", job.after_people, "--masked-households", job.after_homes, "--on", "ref").code
    scores = command(
        "assess", job.people, job.after_people, *job.both, "--on", "ref", "--measure", "share_changed", "--json"
    ).document["scores"]
    assert scores[0]["value"] == ss.assess(job.done.masked, measures=["share_changed"])["share_changed"].value > 0


def test_a_bundle_of_two_files_is_attacked_with_both_originals_or_refused(job: Job, command: Command) -> None:
    files = ["attack", job.bundle, job.people, "--audit", job.record, "--json", *asked(ATTACKS)]
    half = command(*files).document
    assert half["code"] == "two-files"
    assert half["fields"]["columns"] == ["region", "county", "tenure", "rent"]
    whole = command(*files, "--households", job.homes, "--on", "ref")
    assert whole.code == 0, whole.said
    before = merge_households(job.homes, ss.read(job.people), on="ref")
    assert outcomes(whole.document) == outcomes(
        ss.attack(job.bundle, before, audit=job.record, attacks=ATTACKS).as_dict()
    )


def test_new_numbers_of_households_are_no_change(job: Job, command: Command) -> None:
    released = ["--masked-households", job.bundle / "households.csv", "--households", job.homes, "--on", "ref"]
    files = ["assess", job.people, job.bundle / "persons.csv", *released, "--record", job.record]
    found = command(*files, "--measure", "share_changed", "--json")
    assert found.code == 0, found.said
    expected = ss.assess(job.done.masked, measures=["share_changed"])["share_changed"].value
    assert found.document["scores"][0]["value"] == expected


HALVES: dict[str, Callable[[Job], list[Any]]] = {
    "report without the masked one": lambda job: ["report", job.people, job.after_people, *job.both[:2]],
    "report of a project": lambda job: ["report", job.people, *job.both],
    "attack without the original one": lambda job: ["attack", job.after_people, job.people, *job.both[2:]],
    "attack without an original": lambda job: ["attack", job.after_people, *job.both],
    "attack of a bundle": lambda job: ["attack", job.bundle, job.people, *job.both],
    "assess without the masked one": lambda job: ["assess", job.people, job.after_people, *job.both[:2]],
    "assess by a number alone": lambda job: ["assess", job.people, job.after_people, "--on", "ref"],
}


@pytest.mark.parametrize("case", HALVES)
def test_half_of_the_files_is_refused_before_anything_is_read(
    job: Job, case: str, command: Command, tmp_path: Path
) -> None:
    words = HALVES[case](job)
    output = tmp_path / "reports"
    done = command(*words, *(["--output", output, "--audit", job.audit] if words[0] == "report" else []))
    assert done.code == 2, done.said
    assert not output.exists()


def test_init_run_and_release_of_two_files(job: Job, command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    started = command("init", job.people, "--households", job.homes, "--on", "ref", "--output", folder)
    assert started.code == 0, started.said
    file = folder / "project.toml"
    text = file.read_text(encoding="utf-8").replace("# ?", "#")
    steps, rest = text.index("[[step]]"), text.index("[release]")
    swap = '[[step]]\nmethod = "swap"\nswap = ["tenure"]\nrate = 0.3\n\n'
    release = f'[release]\nkey = "{job.people.parent / "secret.key"}"\n'
    file.write_text(text[:steps] + swap + release, encoding="utf-8")
    assert "[release]" in text[rest:]
    done = command("run", folder, "--json")
    assert done.code == 0, done.said
    places = [Path(done.document[name]) for name in ("households", "output")]
    assert [pq.read_table(path).to_pylist() for path in places] == [
        job.done.households.table.to_pylist(),
        job.done.persons.table.to_pylist(),
    ]
    assert command("status", folder, "--json").document["current"]
    published = command("release", folder, "--override", "a test", "--second-release", "a test", "--json")
    assert published.code == 0, published.said
    assert (folder / "release" / "households.csv").is_file()
    assert command("report", folder, "--output", tmp_path / "reports", "--for", "analyst").code == 0
    assert command("init", job.people, "--on", "ref").code == 2


PAIRS: dict[str, Callable[[Job, Path], list[Any]]] = {
    "split": lambda job, at: [
        "split-households",
        at / "both.csv",
        "--households",
        at / "h.csv",
        "--persons",
        at / "p.x",
    ],
    "undo": lambda job, at: [
        *("undo", job.after_people, "--households", job.after_homes, "--on", "ref", "--record", masking_of(job)),
        *("--output", at / "p.x", "--household-output", at / "h.csv"),
    ],
    "mask": lambda job, at: [
        *("mask", "swap", job.people, "--households", job.homes, "--on", "ref", "--swap", "tenure", "--rate", "0.1"),
        *("--insecure-seed", "1", "--no-scores", "--audit", at / "audit"),
        *("--output", at / "p.x", "--household-output", at / "h.csv"),
    ],
}


def masking_of(job: Job) -> Path:
    (found,) = job.audit.glob("masking-*")
    return found


@pytest.mark.parametrize("case", PAIRS)
def test_if_one_of_two_files_cannot_be_written_neither_is(
    job: Job, case: str, command: Command, tmp_path: Path
) -> None:
    write(job.done.masked.original, tmp_path / "both.csv")
    done = command(*PAIRS[case](job, tmp_path), "--json")
    assert done.document["code"] == "unknown-format", done.said
    assert done.document["fields"]["file"] == str(tmp_path / "p.x")
    assert [path.name for path in tmp_path.iterdir()] == ["both.csv"]
