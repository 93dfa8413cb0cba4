"""Risk-utility studies as the contract shows them."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from safeswap.service.schemas.common import Wire, example


class StudyRequest(Wire):
    """Try many candidates. The parameters are those of a study in Python."""

    model_config = ConfigDict(
        json_schema_extra=example(
            spec={"attributes": ["Race", "Sex"], "rates": [0.01, 0.1], "replicates": 5, "objective": "linear:a=1"}
        )
    )

    spec: dict[str, Any] = Field(default_factory=dict)


class StudySize(Wire):
    """How many candidates a study would have."""

    candidates: int


class Candidate(Wire):
    """One candidate release: figures only."""

    number: int
    specification: int
    label: str
    constraint: str
    rate: float | None
    replicate: int
    outcome: str
    reason: str
    scores: dict[str, float | None]
    on_frontier: bool


class DistortionTable(Wire):
    """How much one two-way table was distorted, by each measure."""

    attributes: tuple[str, str]
    values: dict[str, float | None]


class CandidateAnswer(Candidate):
    """One candidate in detail: its specification in three languages, and the distortion of every two-way table."""

    spec: dict[str, Any]
    python: str
    command: str
    toml: str
    tables: tuple[DistortionTable, ...]


class Cell(Wire):
    """One cell of a table before and after.

    Nothing is shown of a count below the tolerance, nor of those from which it could be worked out.
    """

    levels: tuple[str, ...]
    before: int | None
    after: int | None
    changed: bool | None


class BeforeAfterAnswer(Wire):
    """A table of the original and of the masked data, side by side."""

    attributes: tuple[str, ...]
    tolerance: int
    cells: tuple[Cell, ...]


class ChoiceRequest(Wire):
    """How one candidate is to be chosen."""

    model_config = ConfigDict(json_schema_extra=example(objective="linear:a=2"))

    objective: str = Field(max_length=500, description="linear:a=…, cap_risk:… or cap_distortion:…")
    risk: str | None = Field(default=None, max_length=200, description="Measure of the upward axis.")
    distortion: str | None = Field(default=None, max_length=200, description="Measure of the sideways axis.")


class ChoiceAnswer(Wire):
    """One candidate, and why this one."""

    candidate: int
    specification: int
    spec: dict[str, Any]
    replicate: int
    risk: float
    distortion: float
    objective: str
    dominates: int
    certainty: float | None
    sentence: str
    rivals: tuple[dict[str, Any], ...]
