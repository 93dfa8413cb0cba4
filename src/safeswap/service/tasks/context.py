"""What a job has at hand while it runs in a process of its own: files, keys, and a way to say how far it is.

It has no database. What it needs to know is in its payload or in the project's row; what is to become known is said at
the end, and written by the worker in the transaction that makes the job succeed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from safeswap.errors import InternalError
from safeswap.model.key import Key
from safeswap.model.schema import Schema
from safeswap.service.keeping.store import Store, result_id
from safeswap.service.keeping.vault import Vault, open_vault
from safeswap.service.settings import Settings
from safeswap.workflow import read

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from safeswap.model.microdata import Microdata
    from safeswap.service.work.jobs import Claim, JobRow

DATA = "data.parquet"
SCHEMA = "schema.json"

Run: TypeAlias = "Callable[[Context, dict[str, Any]], dict[str, Any]]"
Prepare: TypeAlias = "Callable[[Connection, Claim, Store], None]"
Finish: TypeAlias = "Callable[[Connection, JobRow, dict[str, Any], Store], dict[str, Any] | None]"
Failed: TypeAlias = "Callable[[Connection, JobRow, dict[str, Any], Store], None]"


class Cancelled(Exception):  # noqa: N818  (nothing went wrong)
    """Somebody asked for the job to be stopped."""


@dataclass(frozen=True)
class Task:
    """One kind of job.

    ``prepare`` is called by the worker before the process has the job: it lays out, in the folder for temporary files,
    what the job needs of the database. ``run`` does the job, in a process of its own, and gives what is kept as its
    result. ``finish`` is called by the worker within the transaction that makes the job succeed, ``failed`` within the
    one that ends it otherwise: rows are changed there. ``clean`` is called when the job has ended for good, whatever
    came of it: files are erased there. ``limits`` says which limits the process is under; what reads files of strangers
    is under "parse".
    """

    name: str
    run: Run
    prepare: Prepare | None = None
    finish: Finish | None = None
    failed: Failed | None = None
    clean: Callable[[Claim, Store], None] | None = None
    limits: Literal["job", "parse"] = "job"


@dataclass(frozen=True, kw_only=True)
class Context:
    """What ``run`` is given. ``project`` is the row of the job's project, empty for a job without one."""

    settings: Settings
    job: Claim
    project: Mapping[str, Any]
    report: Callable[[float, str], None]
    saved: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def store(self) -> Store:
        """The paths of all files."""
        return Store(self.settings)

    @cached_property
    def vault(self) -> Vault:
        """Opened when it is first needed: most jobs need no more than the data."""
        return open_vault(self.settings)

    @property
    def project_id(self) -> str:
        """The project to which the job belongs."""
        if self.job.project_id is None:
            raise InternalError("this job belongs to no project", code="no-project", kind=self.job.kind)
        return self.job.project_id

    @property
    def scratch(self) -> Path:
        """For temporary files; gone when the attempt ends."""
        return self.store.scratch(self.job.id, self.job.fence)

    @property
    def checkpoint(self) -> Path:
        """For what the next attempt can go on from; gone when the job ends."""
        return self.store.checkpoint(self.job.id)

    @property
    def result_id(self) -> str:
        """The name that the result of this attempt gets if the attempt succeeds."""
        return result_id(self.job.id, self.job.fence)

    @property
    def result_folder(self) -> Path:
        """For the files of the result; nobody sees them before the job has succeeded."""
        return self.store.result(self.project_id, self.result_id)

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the job is. Raises :class:`Cancelled` if it is to stop. No value of a record in ``message``."""
        self.report(fraction, message)

    def data(self, version: int | None = None) -> Microdata:
        """The project's data as they were read in, by default the newest."""
        return read_data(self.store, self.project_id, self.project["data_version"] if version is None else version)

    def key(self) -> Key:
        """The secret key of the project."""
        return self.vault.project_key(self.project_id)

    def save_result(self, kind: str, spec: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
        """Note what was made, once; it becomes visible, with its files, when the job succeeds. Its id."""
        if self.saved:
            raise InternalError("a job has one result", code="second-result", kind=self.job.kind)
        version = self.project.get("data_version", 0)
        noted = {"id": self.result_id, "kind": kind, "spec": dict(spec), "summary": dict(summary)}
        self.saved.append({**noted, "data_version": version})
        return self.result_id


def read_data(store: Store, project_id: str, version: int) -> Microdata:
    """The data of a project as a version of them was kept, with what is known about them."""
    schema = read_schema(store, project_id, version)
    # Under the name of the file that was sent: it plays a part in the draws, and the owner's own run is to agree.
    return read(store.data(project_id, version) / DATA, schema=schema, name=schema.name or None)


def read_schema(store: Store, project_id: str, version: int) -> Schema:
    """What is known about the data of a project."""
    known = json.loads((store.data(project_id, version) / SCHEMA).read_text(encoding="utf-8"))
    return Schema.model_validate(known)
