"""Projects are run, resumed, repeated, found out of date, and released."""

from __future__ import annotations

import os
import stat
from collections import Counter
from hashlib import sha256
from itertools import combinations
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from safeswap import Key, undo
from safeswap.errors import InputError, OutputError, SafeswapError, SpecError, UnsafeRelease
from safeswap.files.keyfile import generate_key
from safeswap.pipelines import method as pipelines
from safeswap.projects.project import Project
from safeswap.workflow import project as running
from safeswap.workflow.project import release_project, run_project
from safeswap.workflow.project_status import project_status, read_state

CANARY = "Zanzibar"
STEPS = [
    {"method": "recode", "steps": [{"step": "ranges", "attribute": "age", "breaks": [30, 45, 60]}]},
    {"method": "swap", "swap": ["race"], "fixed": ["sex"], "rate": 0.2},
    {"method": "suppress", "scenario": "prosecutor", "solver": "greedy"},
]
AGE = {"name": "age", "kind": "numeric"}
KEYS = ["race", "sex", "age", "town"]


def survey_text(records: int = 300) -> str:
    races = ("white", "white", "black", "asian", "several")
    lines = ["id,race,sex,age,town"]
    for i in range(records):
        lines.append(f"p{i:05d},{races[i * 7 % 5]},{'fm'[i // 3 % 2]},{20 + i * 13 % 61},{CANARY}-{i * i % 7}")
    return "\n".join(lines) + "\n"


class Job:
    """A directory with data, a key and a project file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "project.toml"
        (folder / "survey.csv").write_text(survey_text())
        self.key = generate_key(folder / "survey.key")
        self.project = Project(
            title="Survey",
            data={"file": "survey.csv", "sha256": sha256(survey_text().encode()).hexdigest(), "identifier": "id"},
            schema={"attributes": [{"name": "id"}, {"name": "race"}, {"name": "sex"}, AGE, {"name": "town"}]},
            scenarios=[{"name": "prosecutor", "keys": KEYS, "up_to": 3, "tolerance": 4}],
            pipeline=STEPS,
            release={"key": "survey.key", "require": {"prosecutor": ["risky <= 0", "k_anonymity <= 1"]}},
        )
        self.project.save(self.file)

    def edit(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def run(self):
        return run_project(self.file)

    @property
    def masked(self) -> Path:
        return self.folder / "confidential" / "survey.masked.parquet"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def worked(monkeypatch) -> list[str]:
    """The methods that were really applied, in order."""
    applied: list[str] = []
    numbered = pipelines._number_steps

    class Watched:
        def __init__(self, method) -> None:
            self.method = method

        def __getattr__(self, name):
            return getattr(self.method, name)

        def apply(self, *args, **more):
            applied.append(self.method.name)
            return self.method.apply(*args, **more)

    def watch(spec):
        return ((number, step, Watched(method)) for number, step, method in numbered(spec))

    monkeypatch.setattr(pipelines, "_number_steps", watch)
    return applied


def count_unsafe(rows: list[tuple], tolerance: int = 4, up_to: int = 3) -> int:
    """Unsafe combinations, by brute force; a missing value matches nothing."""
    unsafe = 0
    for size in range(1, up_to + 1):
        for places in combinations(range(len(rows[0])), size):
            cells = Counter(tuple(row[place] for place in places) for row in rows)
            unsafe += sum(n < tolerance for cell, n in cells.items() if None not in cell)
    return unsafe


def test_a_run_says_what_each_step_did_and_what_is_left(job: Job) -> None:
    done = job.run()
    assert [each.name for each in done.steps] == ["recode", "swap", "suppress"]
    assert done.is_ready, done.failures
    assert [each.kept for each in done.steps] == [False] * 3
    assert "30 pairs exchange race" in done.steps[1].done
    blanked = sum(done.masked.data.table[name].null_count for name in KEYS)
    assert f"{blanked} values blanked" in done.steps[2].done
    tables = [done.masked.original.table, *(stage.data.table for stage in done.masked.stages)]
    counted = [count_unsafe(list(zip(*(table[name].to_pylist() for name in KEYS), strict=True))) for table in tables]
    told = [done.steps[0].figures[0].before, *(each.figures[0].after for each in done.steps)]
    assert told == counted
    assert counted[0] > counted[-1] == 0
    assert 0 < done.steps[0].information_loss <= done.steps[2].information_loss
    assert done.audit.is_dir()
    assert not (job.folder / "release").exists(), "a run never releases"
    written = pq.read_table(done.output)
    assert [written[name].to_pylist() for name in KEYS] == [done.masked.data.table[name].to_pylist() for name in KEYS]
    assert undo(done.output, done.audit).table["race"].to_pylist() == tables[0]["race"].to_pylist()


def test_a_run_repeats_exactly(tmp_path: Path, job: Job) -> None:
    first = job.run()
    again = (tmp_path / "again").absolute()
    again.mkdir()
    for name in ("survey.csv", "survey.key", "project.toml"):
        (again / name).write_bytes((job.folder / name).read_bytes())
        (again / name).chmod(0o600)
    second = run_project(again)  # a directory stands for the file in it
    assert second.output.read_bytes() == first.output.read_bytes()
    record = {p.relative_to(first.audit): p.read_bytes() for p in first.audit.rglob("*") if p.is_file()}
    assert record == {p.relative_to(second.audit): p.read_bytes() for p in second.audit.rglob("*") if p.is_file()}


def test_what_is_kept_is_what_was_made(job: Job, worked: list[str]) -> None:
    first, before = job.run(), job.masked.read_bytes()
    assert worked == ["recode", "swap", "suppress"]
    second = job.run()
    assert worked == ["recode", "swap", "suppress"]
    assert all(each.kept for each in second.steps)
    assert [(s.done, s.figures, s.information_loss) for s in first.steps] == [
        (s.done, s.figures, s.information_loss) for s in second.steps
    ]
    assert job.masked.read_bytes() == before
    assert second.masked.data.table.equals(first.masked.data.table)
    assert second.masked.undo().table.equals(first.masked.original.table)
    assert first.checks == second.checks
    assert len(list((job.folder / "confidential").glob("masking-*"))) == 1


def test_a_killed_run_goes_on_after_its_last_whole_step(job: Job, worked: list[str], monkeypatch) -> None:
    class Killed(BaseException):
        pass

    def stop(report) -> None:
        if report.number == 2:
            raise Killed

    with pytest.raises(Killed):
        run_project(job.file, progress=stop)
    assert worked == ["recode", "swap"]
    assert not job.masked.exists()
    assert project_status(job.file).ready == "not run"
    done = job.run()
    assert worked == ["recode", "swap", "suppress"]
    assert [each.kept for each in done.steps] == [True, True, False]
    fresh = Job(_subfolder(job.folder))
    whole = run_project(fresh.file, key=job.key)
    assert whole.output.read_bytes() == done.output.read_bytes(), "resumed or not, the result is the same"


def test_a_run_killed_after_it_wrote_the_masked_file_goes_on(job: Job, monkeypatch) -> None:
    noted = running._Job.note

    def killed(self, **facts) -> None:
        if "output" in facts:
            raise KeyboardInterrupt
        noted(self, **facts)

    monkeypatch.setattr(running._Job, "note", killed)
    with pytest.raises(KeyboardInterrupt):
        job.run()
    monkeypatch.undo()
    written = job.masked.read_bytes()
    assert project_status(job.file).ready == "not run"
    assert job.run().output.read_bytes() == written
    assert project_status(job.file).is_current


def test_a_file_of_somebody_else_is_not_replaced(job: Job) -> None:
    job.masked.parent.mkdir()
    job.masked.write_bytes(b"theirs")
    for _ in range(2):
        with pytest.raises(OutputError):
            job.run()
    assert job.masked.read_bytes() == b"theirs"


def _subfolder(folder: Path) -> Path:
    inner = folder / "inner"
    inner.mkdir()
    return inner


def test_changing_the_last_step_runs_that_alone(job: Job, worked: list[str]) -> None:
    job.run()
    worked.clear()
    job.edit('solver = "greedy"', 'solver = "greedy"\nkeep = ["sex"]')
    assert project_status(job.file).steps == (("recode", "current"), ("swap", "current"), ("suppress", "stale"))
    done = job.run()
    assert worked == ["suppress"]
    assert [each.kept for each in done.steps] == [True, True, False]
    assert done.masked.data.table["sex"].null_count == 0
    assert project_status(job.file).is_current


def test_another_key_or_draw_shares_nothing(job: Job, worked: list[str]) -> None:
    job.run()
    worked.clear()
    run_project(job.file, replicate=1)
    run_project(job.file, key=Key.generate())
    assert worked == ["recode", "swap", "suppress"] * 2


def test_another_scenario_is_counted_on_the_kept_steps(job: Job, worked: list[str]) -> None:
    job.run()
    worked.clear()
    job.edit("[[step]]  #", '[[scenario]]\nname = "neighbour"\nkeys = ["sex", "town"]\ntolerance = 9\n\n[[step]]  #')
    done = job.run()
    assert worked == []
    assert [each.scenario for each in done.steps[-1].figures] == ["prosecutor", "neighbour"]


def test_what_lies_there_is_sealed_and_private(job: Job) -> None:
    job.run()
    folder = job.folder / ".safeswap"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert len(files) > 3
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        content = path.read_bytes()
        assert CANARY.encode() not in content
        assert b"white" not in content
        assert b"ARROW" not in content
    assert job.key.secret not in b"".join(path.read_bytes() for path in files)


def test_a_damaged_stage_is_made_again(job: Job, worked: list[str]) -> None:
    before = job.run().output.read_bytes()
    for path in (job.folder / ".safeswap").glob("*.sealed"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(bytes(content))
    worked.clear()
    assert job.run().output.read_bytes() == before
    assert worked == ["recode", "swap", "suppress"]


def test_out_of_date_stages_are_removed(job: Job) -> None:
    job.run()
    number = len(list((job.folder / ".safeswap").glob("*.sealed")))
    job.edit("rate = 0.2", "rate = 0.3")
    job.run()
    assert len(list((job.folder / ".safeswap").glob("*.sealed"))) == number


def test_what_is_required_and_what_a_later_step_broke_is_told(job: Job) -> None:
    moved = Project(
        data=job.project.data,
        schema=job.project.schema,
        scenarios=job.project.scenarios,
        pipeline=job.project.pipeline.move("suppress", 1),
        release=job.project.release,
    )
    moved.save(job.file, force=True)
    done = job.run()
    assert not done.is_ready
    assert any("risky <= 0, found" in each for each in done.failures)
    assert any("suppress" in flag for flag in done.flags)
    assert project_status(job.file).ready == "not ready"
    with pytest.raises(UnsafeRelease) as caught:
        release_project(job.file)
    assert caught.value.code == "requirement-failed"
    assert not (job.folder / "release").exists()


def test_what_is_required_now_is_not_what_was_checked_then(job: Job) -> None:
    job.run()
    assert project_status(job.file).ready == "ready"
    job.edit('"k_anonymity <= 1"', '"k_anonymity < 0"')
    assert project_status(job.file).ready == "stale"
    with pytest.raises(UnsafeRelease) as caught:
        release_project(job.file)
    assert caught.value.code == "requirement-failed"


def test_a_run_with_an_insecure_key_is_never_ready(job: Job) -> None:
    done = run_project(job.file, key=Key.insecure(seed=1))
    assert not done.is_ready


def test_a_release_from_a_project(job: Job) -> None:
    assert project_status(job.file).release == "none"
    job.run()
    published = release_project(job.file)
    assert published.public == job.folder / "release"
    assert (published.public / "data.csv").is_file()
    assert project_status(job.file).release == "current"
    job.edit("rate = 0.2", "rate = 0.3")
    status = project_status(job.file)
    assert (status.release, status.ready, status.is_current) == ("stale", "stale", False)
    with pytest.raises(UnsafeRelease) as caught:
        release_project(job.file)
    assert caught.value.code == "project-stale"


def test_a_release_before_any_run_or_by_another_key_is_refused(job: Job) -> None:
    with pytest.raises(UnsafeRelease) as caught:
        release_project(job.file)
    assert caught.value.code == "project-stale"
    job.run()
    with pytest.raises(UnsafeRelease) as caught:
        release_project(job.file, key=Key.generate())
    assert caught.value.code == "project-stale"


def test_a_masked_file_that_was_changed_is_not_released(job: Job) -> None:
    job.run()
    job.masked.write_bytes(job.masked.read_bytes() + b" ")
    assert project_status(job.file).masked == "not the file that the last run wrote"
    with pytest.raises(UnsafeRelease):
        release_project(job.file)
    with pytest.raises(OutputError) as caught:
        job.run()
    assert caught.value.code == "exists", "only a file of its own is replaced"


def test_a_guess_before_an_identifier_stops_the_release(job: Job) -> None:
    job.edit('identifier = "id"', 'identifier = "id"  # ? by its name')
    assert job.run().unconfirmed == ("id",)
    assert project_status(job.file).guesses == ("data.identifier",)
    with pytest.raises(UnsafeRelease) as caught:
        release_project(job.file)
    assert (caught.value.code, caught.value.fields["columns"]) == ("guess-not-confirmed", ["id"])
    job.edit("  # ? by its name", "  # by its name")
    release_project(job.file)


def test_a_guess_before_a_coarse_column_does_not(job: Job) -> None:
    job.edit('{ name = "sex" },', '{ name = "sex" },  # ? two values')
    assert job.run().unconfirmed == ()
    release_project(job.file)


BAD = {
    "another file": (lambda job: (job.folder / "survey.csv").write_text(survey_text(301)), InputError, "data-changed"),
    "no file": (lambda job: (job.folder / "survey.csv").unlink(), InputError, "missing-file"),
    "no key": (lambda job: job.edit('"survey.key"', '"env:NO_SUCH_KEY"'), SpecError, "no-key"),
    "no key file": (lambda job: job.edit('"survey.key"', '"other.key"'), InputError, "missing-file"),
    "open key": (lambda job: (job.folder / "survey.key").chmod(0o644), InputError, "key-not-private"),
    "no column": (lambda job: job.edit('swap = ["race"]', 'swap = ["rase"]'), SpecError, "unknown-attribute"),
    "no schema column": (lambda job: job.edit('  { name = "sex" },\n', ""), SpecError, "unknown-attribute"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused(job: Job, case: str) -> None:
    spoil, kind, code = BAD[case]
    spoil(job)
    with pytest.raises(SafeswapError) as caught:
        job.run()
    assert (type(caught.value), caught.value.code) == (kind, code)
    assert CANARY not in str(caught.value.as_dict())
    assert not job.masked.exists()


def test_a_step_that_no_longer_fits_is_named(job: Job) -> None:
    job.edit('fixed = ["sex"]', 'fixed = ["sex", "town", "age"]')
    job.edit("rate = 0.2", "rate = 1.0")
    with pytest.raises(SafeswapError) as caught:
        job.run()
    assert caught.value.message.startswith("step 2 (swap): ")
    assert caught.value.fields["step"] == "swap"


def test_the_key_comes_from_a_variable(job: Job, monkeypatch) -> None:
    by_file = job.run().output.read_bytes()
    job.edit('"survey.key"', '"env:SURVEY_KEY"')
    monkeypatch.setenv("SURVEY_KEY", str(job.folder / "survey.key"))
    assert job.run().output.read_bytes() == by_file
    monkeypatch.setenv("SURVEY_KEY", (job.folder / "survey.key").read_text())
    assert job.run().output.read_bytes() == by_file
    monkeypatch.setenv("SURVEY_KEY", "safeswap-key-1:short")
    with pytest.raises(SpecError) as caught:
        job.run()
    assert "short" not in str(caught.value.as_dict())


def test_a_project_without_steps_or_digest(job: Job) -> None:
    empty = Project(data=job.project.data, schema=job.project.schema, release=job.project.release.__class__())
    empty.save(job.file, force=True)
    assert project_status(job.file).steps == ()
    assert not project_status(job.file).is_current
    with pytest.raises(SpecError) as caught:
        run_project(job.file, key=job.key)
    assert caught.value.code == "no-steps"
    job.project.save(job.file, force=True)
    job.edit(f'sha256 = "{job.project.data.sha256}"\n', "")
    assert project_status(job.file).data.startswith("not known")
    job.run()
    assert project_status(job.file).is_current
    os.utime(job.folder / "survey.csv")
    (job.folder / "survey.csv").write_text(survey_text().replace("white", "green"))
    assert project_status(job.file).data == "changed"
    assert not project_status(job.file).is_current


def test_a_state_that_cannot_be_read_counts_as_none(job: Job) -> None:
    job.run()
    (job.folder / ".safeswap" / "state.json").write_text("[")
    assert read_state(job.folder) == {}
    assert project_status(job.file).ready == "not run"
