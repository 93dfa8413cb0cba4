"""The environment of a running job: files, keys and progress reports.

A job has no database. Its input is the payload and the project's row; its output is returned at the end and written by
the worker, in the transaction that marks the job as succeeded.
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
    """The job was cancelled."""


@dataclass(frozen=True)
class Task:
    """One kind of job.

    ``prepare`` is called by the worker before the child process gets the job: it exports what the job needs from the
    database to the scratch folder. ``run`` does the job in the child process and returns its result. ``finish`` is
    called by the worker in the transaction that marks the job as succeeded, ``failed`` in the one that ends it
    otherwise: they change rows. ``clean`` is called when the job has finally ended, whatever the outcome: it erases
    files. ``limits`` selects the limits of the process; tasks that read untrusted files use "parse".
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
    """The argument of ``run``. ``project`` is the row of the job's project, empty for a job without one."""

    settings: Settings
    job: Claim
    project: Mapping[str, Any]
    report: Callable[[float, str], None]
    saved: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def store(self) -> Store:
        """The file store."""
        return Store(self.settings)

    @cached_property
    def vault(self) -> Vault:
        """The vault, opened on first use: most jobs need only the data."""
        return open_vault(self.settings)

    @property
    def project_id(self) -> str:
        """The id of the job's project."""
        if self.job.project_id is None:
            raise InternalError("this job belongs to no project", code="no-project", kind=self.job.kind)
        return self.job.project_id

    @property
    def scratch(self) -> Path:
        """Folder for temporary files; erased after the attempt."""
        return self.store.scratch(self.job.id, self.job.fence)

    @property
    def checkpoint(self) -> Path:
        """Folder for a checkpoint from which the next attempt resumes; erased after the job."""
        return self.store.checkpoint(self.job.id)

    @property
    def result_id(self) -> str:
        """The id of this attempt's result, if it succeeds."""
        return result_id(self.job.id, self.job.fence)

    @property
    def result_folder(self) -> Path:
        """Folder for the files of the result; invisible until the job has succeeded."""
        return self.store.result(self.project_id, self.result_id)

    def progress(self, fraction: float, message: str = "") -> None:
        """Report progress; raise :class:`Cancelled` if the job must stop. ``message`` holds no value of a record."""
        self.report(fraction, message)

    def data(self, version: int | None = None) -> Microdata:
        """Read a version of the project's data, by default the newest."""
        return read_data(self.store, self.project_id, self.project["data_version"] if version is None else version)

    def key(self) -> Key:
        """Return the secret key of the project."""
        return self.vault.project_key(self.project_id)

    def save_result(self, kind: str, spec: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
        """Record the job's single result and return its id; it becomes visible when the job succeeds."""
        if self.saved:
            raise InternalError("a job has one result", code="second-result", kind=self.job.kind)
        version = self.project.get("data_version", 0)
        result = {"id": self.result_id, "kind": kind, "spec": dict(spec), "summary": dict(summary)}
        self.saved.append({**result, "data_version": version})
        return self.result_id


def read_data(store: Store, project_id: str, version: int) -> Microdata:
    """Read a version of a project's data with its schema."""
    schema = read_schema(store, project_id, version)
    # The name of the uploaded file enters the keyed draws: the owner's own run must give the same result.
    return read(store.data(project_id, version) / DATA, schema=schema, name=schema.name or None)


def read_schema(store: Store, project_id: str, version: int) -> Schema:
    """Read the schema of a version of a project's data."""
    known = json.loads((store.data(project_id, version) / SCHEMA).read_text(encoding="utf-8"))
    return Schema.model_validate(known)
