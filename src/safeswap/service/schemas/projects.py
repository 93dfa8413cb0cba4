"""API models: jobs, projects and their data; and the base of all models."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from safeswap.model.spec import Strict
from safeswap.service.http.problems import Problem, problem_of

if TYPE_CHECKING:
    from safeswap.service.work.jobs import JobRow


_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control characters, text direction, line ends


def plain_text(text: str) -> str:
    """Validate that a text is what it looks like: no control characters, line ends or direction marks.

    >>> plain_text("Étude 2026"), plain_text("family \U0001f469\u200d\U0001f467")
    ('Étude 2026', 'family 👩\u200d👧')
    """
    if any(unicodedata.category(character) in _UNSEEN and character not in _JOINERS for character in text):
        raise ValueError("a name has no control characters")
    return text


_JOINERS = "\u200c\u200d"  # letters of some scripts need them
Text = Annotated[str, AfterValidator(plain_text)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(plain_text)]
AttributeName = Annotated[str, Field(min_length=1, max_length=200)]
"""Exactly as in the file."""
Identifier = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_-]+$")]


class Wire(Strict):
    """Base of API models: frozen, and unknown fields are refused."""


def moment(seconds: float | None) -> datetime | None:
    """Convert a database time to a UTC datetime.

    >>> moment(0.0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def example(**values: Any) -> dict[str, Any]:
    """Return an example for the JSON schema."""
    return {"examples": [values]}


State = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class ResultReference(Wire):
    """Reference to the result of a job."""

    kind: str = Field(description="masking, assessment, study, confidentiality, …")
    id: str


class Job(Wire):
    """A long-running operation: its kind, progress and result."""

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
    """Convert a row of the job table to its API model."""
    from safeswap.service.work.process import error_of

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


Kind = Literal["nominal", "ordinal", "numeric", "identifier", "weight", "household", "geography"]


_TOLERANCE = (
    "Smallest count shown. The default is the agency's, which is also the floor: only an officer may go below it, or "
    "lower an earlier value."
)


class ProjectRequest(Wire):
    """A new project."""

    model_config = ConfigDict(json_schema_extra=example(name="Labour force survey 2026", tolerance=3))

    name: Name
    tolerance: int | None = Field(default=None, ge=1, le=1000, description=_TOLERANCE)


class ProjectChange(Wire):
    """Changes to a project."""

    model_config = ConfigDict(json_schema_extra=example(tolerance=5))

    name: Name | None = None
    tolerance: int | None = Field(default=None, ge=1, le=1000, description=_TOLERANCE)


class ProjectAnswer(Wire):
    """A project: a file, its description, and its results."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id="0b6b9f6c",
            name="Labour force survey 2026",
            state="ready",
            tolerance=3,
            file_name="survey.csv",
            data_version=1,
            records=48842,
            created_by="anna",
            created_at="2026-01-01T09:00:00Z",
            version=2,
        )
    )

    id: str
    name: str
    state: Literal["empty", "reading", "ready", "broken", "deleted"]
    tolerance: int
    file_name: str
    data_version: int
    records: int
    created_by: str
    created_at: datetime | None
    version: int


class FolderRequest(Wire):
    """A file in a server folder that the administrator allows."""

    model_config = ConfigDict(json_schema_extra=example(path="surveys/2026.csv", reading={"identifier": "id"}))

    path: str = Field(min_length=1, max_length=4000, description="Path below one of the allowed folders.")
    reading: dict[str, Any] = Field(default_factory=dict, description="identifier, kinds, missing, delimiter, …")


_LEVELS = (
    "Levels in order, for an ordinal attribute. Rare levels, which are not shown, may be omitted: each stays after its "
    "old predecessor, or comes last."
)


class AttributeChange(Wire):
    """Changes to an attribute."""

    name: AttributeName
    kind: Kind | None = None
    label: str | None = Field(default=None, max_length=1000)
    levels: tuple[str, ...] | None = Field(default=None, description=_LEVELS)
    labels: dict[str, str] | None = Field(default=None, description="Label of each level.")


class DescriptionChange(Wire):
    """Changes to the description; attributes not named stay as they are."""

    model_config = ConfigDict(json_schema_extra=example(attributes=[{"name": "age", "kind": "ordinal"}]))

    attributes: tuple[AttributeChange, ...] = Field(min_length=1, max_length=10_000)


class DescriptionAnswer(Wire):
    """Description of the data: attributes, levels, small cells, warnings. No records, and no rare levels."""

    name: str
    records: int
    tolerance: int
    attributes: tuple[dict[str, Any], ...]
    cells: dict[str, Any]
    warnings: tuple[str, ...]
