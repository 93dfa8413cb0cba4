"""Status of a project, by digests of everything that its results depend on. Needs no key and runs nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from safeswap.arrays import keyed
from safeswap.files.formats import existing_file
from safeswap.model.checked import check_types
from safeswap.on_disk.masking import digest_of_both
from safeswap.projects.project import Project
from safeswap.projects.stages import FOLDER

PROJECT = "project.toml"
STATE = "state.json"
"""What a run did, in the folder of finished steps."""


@check_types
def find_project(path: str | PathLike[str]) -> Path:
    """Return the project file; of a directory, the ``project.toml`` in it."""
    place = Path(path)
    return existing_file(place / PROJECT if place.is_dir() else place)


@dataclass(frozen=True, kw_only=True)
class ProjectStatus:
    """The state of a project. ``steps`` has the state of each step: current, stale or not run."""

    data: str
    guesses: tuple[str, ...]
    steps: tuple[tuple[str, str], ...]
    masked: str
    ready: str
    study: str
    release: str

    @property
    def is_current(self) -> bool:
        """True if the last run did what the file says, and its result is in place."""
        return self.data == "unchanged" and self.masked == "in place" and all(how == "current" for _, how in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "steps": [list(each) for each in self.steps], "current": self.is_current}


@check_types
def project_status(path: str | PathLike[str]) -> ProjectStatus:
    """Return what is current in a project and what is stale. Needs no key."""
    file = find_project(path)
    project, folder = Project.read(file), file.parent
    state, chain = read_state(folder), digest_steps(project)
    known: list[str] = state.get("steps", [])
    alike = next((n for n, (a, b) in enumerate(zip(chain, known, strict=False)) if a != b), min(len(chain), len(known)))
    whole = alike == len(chain) == len(known) and bool(chain)
    states = ["current" if n < alike else "stale" if n < len(known) else "not run" for n in range(len(chain))]
    if alike and not whole and len(chain) < len(known):
        states[-1] = "stale"  # the run went on with steps that are gone
    released = state.get("release")
    return ProjectStatus(
        data=_data_state(project, folder, state.get("data")),
        guesses=tuple(project.guesses),
        steps=tuple(zip(project.pipeline.names, states, strict=True)),
        masked=_masked_state(project, folder, state.get("output")),
        ready=_ready_state(state, current=whole and state.get("rules") == digest_rules(project)),
        study=_study_state(project, folder, state),
        release="none" if released is None else "current" if released == known and whole else "stale",
    )


def digest_steps(project: Project) -> list[str]:
    """Return a digest for each step of everything that its result depends on but the key."""
    schema = None if project.schema is None else project.schema.model_dump(mode="json", exclude_defaults=True)
    source = project.data.model_dump(mode="json", exclude={"file", "households"})
    digest = hashlib.sha256(json.dumps([source, schema], sort_keys=True).encode())
    chain = []
    for step in project.pipeline:
        digest.update(json.dumps(step.as_dict(), sort_keys=True, default=str).encode())
        chain.append(digest.hexdigest())
    return chain


def digest_rules(project: Project) -> str:
    """Return a digest of what decides whether a result is ready: scenarios and settings of the release."""
    settings = project.release.model_dump(mode="json", exclude={"key"})
    if settings["two_files"] is None:  # a digest from before the setting existed still holds
        del settings["two_files"]
    rules = [[each.as_dict() for each in project.scenarios], settings]
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()


def digest_study(project: Project, data: str, key_id: str) -> str:
    """Return a digest of everything that the result of the study depends on."""
    schema = None if project.schema is None else project.schema.model_dump(mode="json", exclude_defaults=True)
    source = project.data.model_dump(mode="json", exclude={"file", "households", "sha256"})
    stated = None if project.question is None else project.question.model_dump(mode="json")
    facts = [data, key_id, source, schema, stated, keyed.ALGORITHM]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _study_state(project: Project, folder: Path, state: Mapping[str, Any]) -> str:
    """Say whether the study was run, and for what the file says now."""
    if project.study is None:
        return "none stated"
    known = state.get("study") or {}
    if not known:
        return "not run"
    if not _has_data(project, folder) or not Path(known["output"]).is_dir():
        return "stale"
    now = digest_study(project, project.data.digest(folder), str(state.get("key_id", "")))
    return "current" if known["digest"] == now else "stale"


def _ready_state(state: Mapping[str, Any], *, current: bool) -> str:
    if not state.get("steps"):
        return "not run"
    if not current:
        return "stale"
    return "ready" if state.get("ready") else "not ready"


def read_state(folder: Path) -> dict[str, Any]:
    """Return what runs have noted; nothing if there was none, or its note cannot be read."""
    try:
        found = json.loads((folder / FOLDER / STATE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def find_outputs(project: Project, folder: Path) -> tuple[Path, Path | None]:
    """Return the place of the masked file, and of the masked file of households if the data are two files."""
    place = folder / project.release.audit
    names = [path.name.split(".", 1)[0] for path in project.data.files(folder) if path is not None]
    places = [place / f"{name}.masked.parquet" for name in names]
    if len(set(places)) < len(names):  # two files of one name, in two folders or formats
        places[1] = place / f"{names[1]}.households.masked.parquet"
    return places[0], places[1] if len(places) > 1 else None


def _has_data(project: Project, folder: Path) -> bool:
    return all(path is None or path.is_file() for path in project.data.files(folder))


def _data_state(project: Project, folder: Path, of_run: str | None) -> str:
    known = project.data.sha256 or of_run
    if not _has_data(project, folder):
        return "missing"
    if not known:
        return "not known: the project states no sha256 and has not been run"
    return "unchanged" if project.data.digest(folder) == known else "changed"


def _masked_state(project: Project, folder: Path, digest: str | None) -> str:
    places = find_outputs(project, folder)
    if any(path is not None and not path.is_file() for path in places):
        return "none"
    return "in place" if digest_of_both(*places) == digest else "not the file that the last run wrote"
