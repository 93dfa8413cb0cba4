"""Jobs as the contract shows them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from safeswap.service.problems import Problem, problem_of
from safeswap.service.schemas.common import Wire, example, moment

if TYPE_CHECKING:
    from safeswap.service.jobs import JobRow

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class ResultReference(Wire):
    """What a job made, and where to ask for it."""

    kind: str = Field(description="masking, assessment, study, confidentiality, …")
    id: str


class Job(Wire):
    """Something that takes long: what it is, how far it is, and what became of it."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id="6f1c2d9a",
            project="0b6b9f6c",
            kind="study",
            state="running",
            progress=0.42,
            message="4,200 of 10,000 candidates",
            attempts=1,
            cancel_requested=False,
            result=None,
            error=None,
            created_at="2026-01-01T09:00:00Z",
            started_at="2026-01-01T09:00:01Z",
            finished_at=None,
        )
    )

    id: str
    project: str | None
    kind: str
    state: State
    progress: float = Field(ge=0, le=1)
    message: str
    attempts: int
    cancel_requested: bool
    result: ResultReference | None = None
    error: Problem | None = None
    created_at: datetime | None
    started_at: datetime | None = None
    finished_at: datetime | None = None


def job_of(row: JobRow) -> Job:
    """A row of the job table as the contract shows it."""
    from safeswap.service.process import error_of

    made = row["result"] or {}
    return Job(
        id=row["id"],
        project=row["project_id"],
        kind=row["kind"],
        state=row["state"],
        progress=row["progress"],
        message=row["message"],
        attempts=row["attempts"],
        cancel_requested=row["cancel_requested"],
        result=ResultReference(kind=made["kind"], id=made["id"]) if "id" in made else None,
        error=problem_of(error_of(row["error"])) if row["error"] else None,
        created_at=moment(row["created_at"]),
        started_at=moment(row["started_at"]),
        finished_at=moment(row["finished_at"]),
    )
