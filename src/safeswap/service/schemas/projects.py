"""Projects and their data as the contract shows them."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from safeswap.service.http.problems import Problem, problem_of

if TYPE_CHECKING:
    from safeswap.service.work.jobs import JobRow


# What all requests and answers have in common.

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control characters, writing directions, ends of lines


def plain_text(text: str) -> str:
    """A text that is what it looks like: no NUL, no end of a line, nothing that turns the direction of writing.

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
"""As it stands in the file, whatever it is."""
Identifier = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_-]+$")]


class Wire(BaseModel):
    """A value that goes over the wire: nothing unknown is taken in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def moment(seconds: float | None) -> datetime | None:
    """A time of the database as one of the contract.

    >>> moment(0.0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def example(**values: Any) -> dict[str, Any]:
    """An example for the contract, as pydantic wants it told."""
    return {"examples": [values]}


# Jobs as the contract shows them.

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
    "Smallest count that is shown. Unless stated, the agency's own, which is the floor: an officer may go below it, or "
    "lower what was stated before."
)


class ProjectRequest(Wire):
    """A new project."""

    model_config = ConfigDict(json_schema_extra=example(name="Labour force survey 2026", tolerance=3))

    name: Name
    tolerance: int | None = Field(default=None, ge=1, le=1000, description=_TOLERANCE)


class ProjectChange(Wire):
    """What may be changed of a project."""

    model_config = ConfigDict(json_schema_extra=example(tolerance=5))

    name: Name | None = None
    tolerance: int | None = Field(default=None, ge=1, le=1000, description=_TOLERANCE)


class ProjectAnswer(Wire):
    """A project: a file, its description, and what was done with it."""

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
    """Take a file from a folder on the server that the administrator allows."""

    model_config = ConfigDict(json_schema_extra=example(path="surveys/2026.csv", reading={"identifier": "id"}))

    path: str = Field(min_length=1, max_length=4000, description="Below one of the allowed folders.")
    reading: dict[str, Any] = Field(default_factory=dict, description="identifier, kinds, missing, delimiter, …")


_LEVELS = (
    "Levels in their order, for an ordinal one. Those that few records have need not be named, since they are not "
    "shown: each stays behind the level that it stands behind, or comes last."
)


class AttributeChange(Wire):
    """What an attribute is to be from now on."""

    name: AttributeName
    kind: Kind | None = None
    label: str | None = Field(default=None, max_length=1000)
    levels: tuple[str, ...] | None = Field(default=None, description=_LEVELS)
    labels: dict[str, str] | None = Field(default=None, description="Label of each level.")


class DescriptionChange(Wire):
    """Changes of the description; attributes that are not named stay as they are."""

    model_config = ConfigDict(json_schema_extra=example(attributes=[{"name": "age", "kind": "ordinal"}]))

    attributes: tuple[AttributeChange, ...] = Field(min_length=1, max_length=10_000)


class DescriptionAnswer(Wire):
    """What the file is like: attributes, levels, small cells, warnings. No record, no level that few records have."""

    name: str
    records: int
    tolerance: int
    attributes: tuple[dict[str, Any], ...]
    cells: dict[str, Any]
    warnings: tuple[str, ...]
