"""The kinds of jobs: what each of them does, its environment, and its hooks in the database.

A job has no database. Its input is the payload and the project's row; its output is returned at the end and written by
the worker, in the transaction that marks the job as succeeded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sqlalchemy import insert, select

from safeswap import workflow
from safeswap.errors import InputError, InternalError
from safeswap.model.key import Key
from safeswap.model.schema import Schema
from safeswap.releases.ledger import LedgerFile
from safeswap.releases.register import FileRegister, Register
from safeswap.service.keeping.database import now
from safeswap.service.keeping.ledger import NewMaskings, insert_new, read_past
from safeswap.service.keeping.store import Store, result_id
from safeswap.service.keeping.tables import jobs, results
from safeswap.service.keeping.vault import Vault, open_vault
from safeswap.service.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from safeswap.model.masked import Masked
    from safeswap.model.microdata import Microdata
    from safeswap.service.work.jobs import Claim, JobRow

MODULES: Mapping[str, str] = {
    "assess": "safeswap.service.routes.maskings",
    "attack": "safeswap.service.routes.attacks",
    "below": "safeswap.service.routes.maskings",
    "confidentiality": "safeswap.service.routes.risk_views",
    "control": "safeswap.service.routes.attacks",
    "export": "safeswap.service.routes.exchange",
    "import_project": "safeswap.service.routes.exchange",
    "ingest": "safeswap.service.routes.data",
    "mask": "safeswap.service.routes.maskings",
    "release": "safeswap.service.routes.releases.task",
    "risky": "safeswap.service.routes.argus",
    "safe_tables": "safeswap.service.routes.safe_tables",
    "study": "safeswap.service.routes.studies",
}
"""The module of each kind of job, whose ``TASKS`` holds it. A job process imports its own module only."""

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

    @cached_property
    def register(self) -> NewMaskings:
        """The register of maskings; what is entered is known to others when the job succeeds."""
        return NewMaskings(self.vault, self.scratch)

    @cached_property
    def agency_register(self) -> FileRegister | None:
        """The register that this service shares with Python and the command line; None if there is none."""
        file = self.settings.agency_ledger
        return None if file is None else FileRegister(LedgerFile(file, self.settings.agency_ledger_key))

    @property
    def registers(self) -> tuple[Register, ...]:
        """All registers that learn of a masking."""
        return (self.register,) if self.agency_register is None else (self.register, self.agency_register)

    def progress(self, fraction: float, message: str = "") -> None:
        """Report progress; raise :class:`Cancelled` if the job must stop. ``message`` holds no value of a record."""
        self.report(fraction, message)

    def data(self, version: int | None = None) -> Microdata:
        """Read a version of the project's data; by default the latest, with what it went through before its upload."""
        if version is not None:
            return read_data(self.store, self.project_id, version)
        newest = read_data(self.store, self.project_id, self.project["data_version"])
        return replace(newest, past=read_past(self.scratch, self.vault))

    def key(self) -> Key:
        """Return the secret key of the project."""
        return self.vault.project_key(self.project_id)

    def save_result(self, kind: str, spec: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
        """Record the job's single result and return its reference; it becomes visible when the job succeeds."""
        if self.saved:
            raise InternalError("a job has one result", code="second-result", kind=self.job.kind)
        version = self.project.get("data_version", 0)
        result = {"id": self.result_id, "kind": kind, "spec": dict(spec), "summary": dict(summary)}
        self.saved.append({**result, "data_version": version})
        return {"kind": kind, "id": self.result_id}


def read_data(store: Store, project_id: str, version: int) -> Microdata:
    """Read a version of a project's data with its schema."""
    schema = read_schema(store, project_id, version)
    # The name of the uploaded file enters the keyed draws: the owner's own run must give the same result.
    return workflow.read(store.data(project_id, version) / DATA, schema=schema, name=schema.name or None)


def read_schema(store: Store, project_id: str, version: int) -> Schema:
    """Read the schema of a version of a project's data."""
    known = json.loads((store.data(project_id, version) / SCHEMA).read_text(encoding="utf-8"))
    return Schema.model_validate(known)


def plain_data(context: Context, payload: dict[str, Any]) -> Microdata:
    """Return the project's data; refuse if they changed since the job was submitted."""
    asked_for = payload.get("data_version", context.project["data_version"])
    if asked_for != context.project["data_version"]:
        raise InputError(
            "the project's data have changed since this was requested",
            code="data-changed",
            hint="check the data, and request it again",
        )
    return context.data()


def prepared_data(context: Context, payload: dict[str, Any]) -> Microdata:
    """Return the project's data after the recipe stored with the job."""
    data = plain_data(context, payload)
    recipe = payload.get("recipe")
    return workflow.recode(data, recipe, key=context.key()) if recipe else data


def masked_data(context: Context, payload: dict[str, Any]) -> Masked:
    """Mask the project's data.

    Masking is a pure function of data, specification and key, so masked records are never stored between masking and
    release: they are recomputed when needed.
    """
    return workflow.mask(
        prepared_data(context, payload), payload["spec"], key=context.key(), replicate=payload.get("replicate", 0)
    )


def request_of(payload: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the part of a payload that is stored with the result."""
    return {name: payload[name] for name in ("spec", "recipe", *names) if payload.get(name) is not None}


def find(kind: str, modules: Mapping[str, str] = MODULES) -> Task:
    """Return the task of a kind.

    >>> find("ingest").limits
    'parse'
    """
    if kind not in modules:
        raise InternalError(
            f"this worker does not know jobs of the kind {kind!r}",
            code="unknown-kind",
            hint="check that server and worker have the same version",
        )
    found: Task = next(task for task in import_module(modules[kind]).TASKS if task.name == kind)
    return found


def run_prepare(connection: Connection, claim: Claim, settings: Settings, modules: Mapping[str, str] = MODULES) -> None:
    """Run the task's ``prepare`` hook, which exports what the job needs from the database."""
    hook = find(claim.kind, modules).prepare
    if hook is not None:
        hook(connection, claim, Store(settings))


def run_failed(connection: Connection, job: JobRow, settings: Settings, modules: Mapping[str, str] = MODULES) -> None:
    """Run the task's ``failed`` hook after a job has finally failed or was cancelled."""
    if job["kind"] not in modules:
        return
    hook = find(job["kind"], modules).failed
    if hook is not None:
        hook(connection, job, dict(job["error"] or {}), Store(settings))


def run_finish(
    connection: Connection,
    claim: Claim,
    outcome: dict[str, Any],
    saved: Sequence[Mapping[str, Any]],
    *,
    settings: Settings,
    modules: Mapping[str, str] = MODULES,
) -> dict[str, Any] | None:
    """Insert the job's result and maskings, run the task's ``finish`` hook, and return the job's result reference."""
    job = connection.execute(select(jobs).where(jobs.c.id == claim.id)).mappings().one()
    for result in saved:
        _save(connection, job, result)
    insert_new(connection, Store(settings).scratch(claim.id, claim.fence))
    hook = find(claim.kind, modules).finish
    return None if hook is None else hook(connection, job, outcome, Store(settings))


def _save(connection: Connection, job: JobRow, result: Mapping[str, Any]) -> None:
    if job["project_id"] is None or job["created_by"] is None:
        raise InternalError("a result belongs to a project and to a person", code="no-project", kind=job["kind"])
    row = {
        **result,
        "project_id": job["project_id"],
        "job_id": job["id"],
        "created_by": job["created_by"],
        "created_at": now(),
    }
    connection.execute(insert(results).values(row))
