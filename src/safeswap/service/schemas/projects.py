"""Projects and their data as the contract shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field

from safeswap.service.schemas.common import AttributeName, Name, Wire, example

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
