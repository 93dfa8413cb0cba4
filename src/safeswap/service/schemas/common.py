"""What all requests and answers have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=200)]
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
