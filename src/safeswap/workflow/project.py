"""Run a project file, report on it, and release from it.

A run does what the file says, from reading to "ready for release", and never releases. Finished steps are kept sealed
beside the file (:mod:`safeswap.projects.stages`): a run that was killed goes on after its last whole step, and a change
of the last step costs that step. What a run did is noted in ``.safeswap/state.json``, by digests, for the status.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safeswap.arrays import keyed
from safeswap.errors import InfeasibleError, InputError, SafeswapError, SpecError, UnsafeRelease
from safeswap.files.atomic import atomic_write
from safeswap.files.keyfile import PREFIX, parse_key
from safeswap.model.checked import check_types
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario
from safeswap.model.text import list_names
from safeswap.on_disk.masking import digest_of, digest_of_both, has_half, has_record
from safeswap.pipelines.method import join, run
from safeswap.projects.project import Project
from safeswap.projects.proposal import looks_like_identifier
from safeswap.projects.settings import Requirement
from safeswap.projects.stages import FOLDER, StageStore, dump_stage, load_stage, make_private_folder
from safeswap.workflow.households import split_masked
from safeswap.workflow.masking import as_replicate, keep, read, read_key, recall
from safeswap.workflow.project_status import (
    STATE,
    digest_rules,
    digest_steps,
    digest_study,
    find_outputs,
    find_project,
    project_status,
    read_state,
)
from safeswap.workflow.reporting import measure_requirement, report
from safeswap.workflow.step_table import UTILITY, Figure, StepRow, count_unsafe, describe_step, measure_utility

if TYPE_CHECKING:
    from safeswap.releases.publish import Published
    from safeswap.reports.facts import Facts
    from safeswap.studies.study import Study

REPORTS = "reports"
"""The folder of a run's reports, in the confidential directory of the project."""

_STUDY = "study"


@dataclass(frozen=True, kw_only=True)
class StepReport(StepRow):
    """One step of a run: its effect, its time, and if it was taken from an earlier run."""

    seconds: float
    kept: bool


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """The result of a project's study: the sentence of its choice, or why there is none."""

    scenario: str
    candidates: int
    sentence: str
    kept: bool  # taken from an earlier run
    output: Path


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A requirement and the figure found."""

    requirement: Requirement
    value: float

    @property
    def ok(self) -> bool:
        """True if it is satisfied."""
        return self.requirement.holds(self.value)

    @property
    def sentence(self) -> str:
        """The requirement and the figure found."""
        return f"{self.requirement.text}, found {self.value:.6g}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ProjectRun:
    """The result of a run: confidential, as the masked file is."""

    project: Project
    masked: Masked = field(repr=False)
    steps: tuple[StepReport, ...]
    flags: tuple[str, ...]
    problems: tuple[str, ...]
    checks: int
    outcomes: tuple[Outcome, ...]
    output: Path
    audit: Path
    households: Path | None = None  # the masked file of households, if the data are two files
    reports: tuple[Path, ...] = ()
    study: StudyReport | None = None
    unconfirmed: tuple[str, ...] = ()  # columns like identifiers whose kind is a guess: a release waits for them

    @property
    def failures(self) -> tuple[str, ...]:
        """The obstacles to a release, a sentence each; empty if it is ready."""
        unmet = [f"requirement not met: {each.sentence}" for each in self.outcomes if not each.ok]
        return (*self.problems, *unmet)

    @property
    def is_ready(self) -> bool:
        """True if every promise and requirement holds."""
        return not self.failures

    def as_dict(self) -> dict[str, Any]:
        """Totals only: safe to print inside the building."""
        return {
            "steps": [asdict(each) for each in self.steps],
            "flags": list(self.flags),
            "checks": self.checks,
            "required": [{"rule": o.requirement.text, "value": o.value, "ok": o.ok} for o in self.outcomes],
            "failures": list(self.failures),
            "ready": self.is_ready,
            "unconfirmed": list(self.unconfirmed),
            "output": str(self.output),
            "audit": str(self.audit),
            **({} if self.households is None else {"households": str(self.households)}),
            "reports": [str(path) for path in self.reports],
            "study": None if self.study is None else {**asdict(self.study), "output": str(self.study.output)},
        }


@check_types
def run_project(
    path: str | PathLike[str],
    *,
    key: Key | None = None,
    replicate: int = 0,
    progress: Callable[[StepReport], None] | None = None,
    study: bool = True,
    studied: Callable[[int, int], None] | None = None,
) -> ProjectRun:
    """Run a project file, from reading to "ready for release"; nothing is released.

    ``key`` replaces the key that the file names. ``progress`` is told of each step when it is done. The masked file and
    its audit record go to the confidential directory of the project.

    A study that the project states is run too, unless ``study`` is False or it is current; ``studied`` is told of its
    progress. Its figures and reports go to the confidential directory as well.
    """
    job = _Job.open(find_project(path), key)
    if not len(job.project.pipeline):
        raise SpecError(
            "the project has no step", code="no-steps", hint='write [[step]], method = "swap" and its parameters'
        )
    job.check_data()
    masked, reports = job.run_steps(as_replicate(replicate), progress or (lambda _: None))
    outcomes = _check(masked, job.project)
    findings = masked.account.findings
    obstacle = _find_obstacle(masked, job)
    record = job.keep(masked)
    done = ProjectRun(
        project=job.project,
        masked=masked,
        steps=tuple(reports),
        flags=masked.account.flags,
        problems=() if obstacle is None else (f"{obstacle.message}; {obstacle.hint}",),
        checks=len(findings),
        outcomes=outcomes,
        output=job.output,
        audit=record,
        households=job.places[1],
        study=job.run_study(masked.original, studied) if study and job.project.study is not None else None,
        unconfirmed=_find_unconfirmed(job.project, masked.original),
    )
    facts: dict[str, Any] = {
        "data": job.digest,
        "key_id": job.key.id,
        "steps": job.chain(),
        "output": digest_of_both(*job.places),
    }
    facts |= {"ready": done.is_ready, "failures": list(done.failures)}
    job.note(**facts, rules=digest_rules(job.project), writing=False)
    job.store.prune()
    state = "ready" if done.is_ready else "not ready"
    found = None if done.study is None else _load_study(done.study.output)
    published = _published_indicators(job.project, job.file.parent)
    asked: dict[str, Any] = {"study": found, "publish_errors": published}
    told = _report(job.project, masked, decision={"state": state}, failed=done.failures, **asked)
    return replace(done, reports=told.write(job.audit / REPORTS, force=True))


@check_types
def report_project(
    path: str | PathLike[str],
    *,
    study: Study | None = None,
    decision: Mapping[str, Any] | None = None,
    measures: Sequence[str] | None = None,
    indicators: str | PathLike[str] = "",
) -> Facts:
    """Collect the facts of what the last run of a project has made, for its reports. Needs no key.

    Refused if the run is out of date. ``study`` and ``decision`` are as for :func:`safeswap.report`; by default the
    study is the one that the run made, if it is current.
    """
    file = find_project(path)
    project, status = Project.read(file), project_status(file)
    if not status.is_current:
        stale = [name for name, how in status.steps if how != "current"] or ["the masked file"]
        raise InputError(
            f"the last run is out of date: {', '.join(stale)}",
            code="project-stale",
            hint=f"safeswap run {file.name}",
            steps=[list(each) for each in status.steps],
        )
    folder = file.parent
    if study is None and status.study == "current":
        study = _load_study(folder / project.release.audit / _STUDY)
    masked = _recall(project, folder)
    told: dict[str, Any] = {"state": status.ready if status.ready in ("ready", "not ready") else "open"}
    failed = read_state(folder).get("failures", ()) if told["state"] == "not ready" else ()
    return _report(
        project,
        masked,
        decision={**told, **(decision or {})},
        failed=failed,
        study=study,
        measures=measures,
        indicators=indicators,
        publish_errors=_published_indicators(project, folder),
    )


def _published_indicators(project: Project, folder: Path) -> str | Path:
    """Return the file of the key indicators whose error multipliers the project publishes; nothing if there is none."""
    return folder / project.release.publish_errors if project.release.publish_errors else ""


def _report(
    project: Project, masked: Masked, *, decision: Mapping[str, Any], failed: Sequence[str] = (), **more: Any
) -> Facts:
    """Collect the facts with the scenarios and settings of the project."""
    settings = project.release
    return report(
        masked,
        scenarios=project.scenarios,
        require={name: list(texts) for name, texts in settings.require.items()},
        decision={**decision, "obstacles": tuple(failed)},
        title=project.title,
        date=settings.date,
        drop=settings.drop,
        identifiers=settings.identifiers,
        **more,
    )


@check_types
def release_project(path: str | PathLike[str], *, key: Key | None = None, **consent: Any) -> Published:
    """Release what the last run of a project has made, with the settings of its file.

    Refused while a guess stands before a column that looks like an identifier, if the run is out of date, or if
    something that is required does not hold on the files as they are read again. ``consent`` takes ``second_release``,
    ``unmasked``, ``attack``, ``override`` and ``force`` as for :func:`release`. The release is attacked under the
    first scenario of the project.
    """
    from safeswap.workflow.releasing import release

    job = _Job.open(find_project(path), key)
    job.check_data()
    status = project_status(job.file)
    same_key = read_state(job.file.parent).get("key_id") == job.key.id
    if not status.is_current or not same_key:
        stale = [name for name, how in status.steps if how != "current"]
        stale = stale or (["the masked file"] if same_key else ["it was made with a different key"])
        raise UnsafeRelease(
            f"the last run is out of date: {', '.join(stale)}",
            code="project-stale",
            hint=f"safeswap run {job.file.name}",
            steps=[list(each) for each in status.steps],
        )
    settings = job.project.release
    masked = _recall(job.project, job.file.parent)
    _refuse_guesses(job.project, masked.original)
    refuse_unmet(masked, job.project)
    published = release(
        masked,
        job.file.parent / settings.public,
        audit=job.audit,
        key=job.key,
        data_format=settings.format,
        identifiers=settings.identifiers,
        drop=settings.drop,
        two_files=_has_two_files(job.project),
        title=job.project.title,
        date=settings.date,
        publish_rate=settings.publish_rate,
        publish_errors=_published_indicators(job.project, job.file.parent),
        scenario=job.project.scenarios[0] if job.project.scenarios else None,
        **consent,
    )
    job.note(release=job.chain())
    return published


@dataclass(frozen=True)
class _Job:
    """A project file with its key and its places."""

    file: Path
    project: Project
    key: Key
    store: StageStore

    @classmethod
    def open(cls, file: Path, key: Key | None) -> _Job:
        project = Project.read(file)
        secret = _find_key(project.release.key, file.parent) if key is None else key
        return cls(file, project, secret, StageStore(file.parent / FOLDER, secret))

    @cached_property
    def digest(self) -> str:
        """The digest of the data."""
        return self.project.data.digest(self.file.parent)

    @property
    def audit(self) -> Path:
        return self.file.parent / self.project.release.audit

    @property
    def places(self) -> tuple[Path, Path | None]:
        """The masked file, and that of households if the data are two files."""
        return find_outputs(self.project, self.file.parent)

    @property
    def output(self) -> Path:
        return self.places[0]

    def check_data(self) -> None:
        """Refuse data that are not those that the project was made for."""
        source, homes = self.project.data.files(self.file.parent)
        if self.digest != (self.project.data.sha256 or self.digest):
            two = "" if homes is None else f"{source.name!r} and {homes.name!r} are not the files"
            raise InputError(
                f"{two or f'{source.name!r} is not the file'} that the project was made for: the digest differs",
                code="data-changed",
                hint="restore the file; if the new one is right, check the schema again and remove sha256",
                file=str(source),
            )

    def chain(self) -> list[str]:
        return digest_steps(self.project)

    def run_steps(self, replicate: int, progress: Callable[[StepReport], None]) -> tuple[Masked, list[StepReport]]:
        """Carry out the steps, or take them from an earlier run."""
        project = self.project
        data = project.data.read(self.file.parent, project.schema)
        # The digest of the file itself: the project may not state one.
        about = (self.digest, str(replicate), keyed.ALGORITHM)
        masked: Masked | None = None
        reports: list[StepReport] = []
        for number, (step, digest) in enumerate(zip(project.pipeline, self.chain(), strict=True), start=1):
            started = time.perf_counter()
            place = (*about, digest)
            before = data if masked is None else masked.data
            content = self.store.read("stage", *place)
            prefix = project.pipeline[:number]
            if content is None:
                masked = run(data, prefix, key=self.key, replicate=replicate, known=masked)
                self.store.write(dump_stage(masked.stages[-1]), "stage", *place)
            else:
                stages = [*(masked.parts if masked else ()), load_stage(content, before, step.spec)]
                masked = join(data, prefix, stages, key=self.key, replicate=replicate)
            seconds = time.perf_counter() - started
            row = describe_step(masked, *self._measure(masked, place, earlier=reports))
            told = {each.name: getattr(row, each.name) for each in fields(row)}
            reports.append(StepReport(**told, seconds=seconds, kept=content is not None))
            progress(reports[-1])
        assert masked is not None  # noqa: S101  (there is a step)
        return masked, reports

    def _measure(
        self, masked: Masked, place: tuple[str, ...], *, earlier: list[StepReport]
    ) -> tuple[tuple[Figure, ...], dict[str, float | None]]:
        """Return the risk under every scenario and the utility; figures of an earlier run are kept."""
        figures = []
        for position, scenario in enumerate(self.project.scenarios):
            before, then = (earlier[-1].figures[position].after, "") if earlier else (None, "")
            if not earlier:
                before, then = self._count(masked.original, masked.original, scenario, place[:-1])
            after, now = self._count(masked.original, masked.data, scenario, place)
            figures.append(Figure(scenario=scenario.name, before=before, after=after, note=now or then))
        values = self._remember(lambda: list(measure_utility(masked).values()), "utility", *place)
        return tuple(figures), dict(zip(UTILITY, values, strict=True))

    def _count(self, original: Microdata, data: Microdata, scenario: Scenario, place: tuple[str, ...]) -> list[Any]:
        schema = hashlib.sha256(original.schema.model_dump_json().encode()).hexdigest()
        about = (scenario.model_dump_json(), schema, *place)
        return self._remember(lambda: list(count_unsafe(original, data, scenario)), *about)

    def _remember(self, make: Callable[[], list[Any]], *about: str) -> list[Any]:
        """Return figures from the store, or make and keep them."""
        content = self.store.read("figures", *about)
        if content is None:
            content = json.dumps(make()).encode()
            self.store.write(content, "figures", *about)
        return list(json.loads(content))

    def run_study(self, data: Microdata, progress: Callable[[int, int], None] | None) -> StudyReport:
        """Run the study, or take the result of an earlier run; an interrupted one resumes where it stopped."""
        from safeswap.studies.run import CheckpointDirectory
        from safeswap.workflow.studying import study

        asked = self.project.question
        assert asked is not None  # noqa: S101  (the caller has looked)
        digest, output = digest_study(self.project, self.digest, self.key.id), self.audit / _STUDY
        known = read_state(self.file.parent).get("study") or {}
        told: dict[str, Any] = {"scenario": "" if asked.scenario is None else asked.scenario.name, "output": output}
        if known.get("digest") == digest and output.is_dir():
            return StudyReport(**told, candidates=known["candidates"], sentence=known["sentence"], kept=True)
        make_private_folder(self.audit)
        checkpoint = CheckpointDirectory(self.file.parent / FOLDER / "study.unfinished")
        found = study(data, asked, key=self.key, progress=progress, checkpoint=checkpoint)
        choice, sentence = None, ""
        try:
            choice = found.choose()
            sentence = choice.sentence
        except InfeasibleError as error:
            sentence = f"none chosen: {error.message}"
        found.save(output, choice=choice, data=data, force=known.get("output") == str(output))
        checkpoint.discard()
        facts = {"digest": digest, "candidates": len(found), "sentence": sentence, "output": str(output)}
        self.note(study=facts)
        return StudyReport(**told, candidates=len(found), sentence=sentence, kept=False)

    def keep(self, masked: Masked) -> Path:
        """Write the masked file and its record; only a file that an earlier run has written is replaced."""
        data, folder = self.project.data, self.file.parent
        reading = data.reading(None)
        reading.pop("kinds", None)  # the record has the schema with all kinds
        replaces = self._owns_output()
        self.note(writing=True)  # if we are killed before the digest is noted, the next run knows that it is ours
        (output, homes), (source, households) = self.places, data.files(folder)
        stated: dict[str, Any] = {"audit": self.audit, "force": replaces}
        if homes is None or households is None:
            return keep(masked, output, reading=reading, source=source, **stated)
        layout = data.layout_of(households)
        both = split_masked(masked, read(households, **layout))
        told = {**reading, "households": layout} if layout else reading
        return both.keep(homes, output, sources=[households, source], reading=told, **stated)

    def _owns_output(self) -> bool:
        """Return whether the masked file that is there was written by a run of this project, be it a killed one."""
        state, (output, homes) = read_state(self.file.parent), self.places
        there = [path for path in self.places if path is not None and path.is_file()]
        if len(there) == 1 + (homes is not None) and digest_of_both(output, homes) == state.get("output"):
            return True
        if homes is None:
            known = (has_record(digest_of(path), self.audit) for path in there)
        else:  # a killed run may have left one of two
            known = (has_half(path, self.audit) for path in there)
        return bool(there) and bool(state.get("writing")) and all(known)

    def note(self, **facts: Any) -> None:
        """Note what was done, for the status."""
        folder = self.file.parent / FOLDER
        make_private_folder(folder)
        state = {**read_state(self.file.parent), **facts}
        with atomic_write(folder / STATE, force=True) as part:
            part.write_text(json.dumps(state, indent=1), encoding="utf-8")


def _find_key(stated: str, folder: Path) -> Key:
    """Return the key that a project names: by a file, or by a variable that has the key or its file."""
    name = stated.removeprefix("env:")
    if name == stated:
        return read_key(folder / stated)
    text = os.environ.get(name, "").strip()
    if not text:
        raise SpecError(
            f"the project takes its key from the variable {name}, which is not set",
            code="no-key",
            hint=f"export {name}=/path/to/survey.key, made by `safeswap keygen`, or name a key file in [release]",
        )
    if not text.startswith(PREFIX):
        return read_key(Path(text))
    if (key := parse_key(text)) is None:
        raise SpecError(
            f"the variable {name} holds no key", code="bad-key", hint="give the line of a key file, or its path"
        )
    return key


def _load_study(output: Path) -> Study:
    from safeswap.studies.study import Study

    return Study.load(output)


def _has_two_files(project: Project) -> bool:
    """Return whether a release has a file of households and a file of persons."""
    stated = project.release.two_files
    return project.data.households is not None if stated is None else stated


def _recall(project: Project, folder: Path) -> Masked:
    """Read back what the last run of a project has made."""
    (source, homes), (output, after) = project.data.files(folder), find_outputs(project, folder)
    both = () if homes is None or after is None else (homes, after)
    return recall(source, output, audit=folder / project.release.audit, households=both)


def _check(masked: Masked, project: Project) -> tuple[Outcome, ...]:
    """Return every requirement with the figure of the masked file."""
    scenarios: Mapping[str, Scenario] = {each.name: each for each in project.scenarios}
    return tuple(
        Outcome(requirement=each, value=measure_requirement(masked, each.measure, scenarios[each.scenario]))
        for each in project.release.requirements
    )


def refuse_unmet(masked: Masked, project: Project) -> None:
    """Refuse to release what does not satisfy the requirements of a project."""
    unmet = [outcome.sentence for outcome in _check(masked, project) if not outcome.ok]
    if unmet:
        raise UnsafeRelease(
            f"requirement not met: {'; '.join(unmet)}",
            code="requirement-failed",
            hint="change the steps and mask again",
            required=unmet,
        )


def _find_obstacle(masked: Masked, job: _Job) -> SafeswapError | None:
    """Return why a release would be refused, so that this is known before."""
    from safeswap.releases.publish import Terms, find_obstacle

    settings = job.project.release
    drop = tuple(dict.fromkeys((*settings.drop, *getattr(masked.spec, "dropped", ()))))
    told: dict[str, Any] = {"identifiers": settings.identifiers, "two_files": _has_two_files(job.project)}
    terms = Terms(method="", data_format=settings.format, drop=drop, **told)
    return find_obstacle(masked, key=job.key, account=masked.account, terms=terms)


def _find_unconfirmed(project: Project, data: Microdata) -> tuple[str, ...]:
    """Return the columns that identify records and whose kind is still a guess."""
    guessed = [place.partition(".")[2] for place in project.guesses if place.startswith("schema.")]
    doubtful = [name for name in guessed if name in data.schema and looks_like_identifier(data, name)]
    stated = (project.data.identifier,) if "data.identifier" in project.guesses else ()
    return (*doubtful, *(name for name in stated if name))


def _refuse_guesses(project: Project, data: Microdata) -> None:
    """Refuse a release while a guess is left for a column by which each record could be found."""
    if doubtful := _find_unconfirmed(project, data):
        raise UnsafeRelease(
            f"a guess is not confirmed, and the column looks like an identifier: {list_names(doubtful)}",
            code="guess-not-confirmed",
            hint="look at these columns in the project file, and remove the question marks",
            columns=list(doubtful),
        )
