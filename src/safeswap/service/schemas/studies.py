"""API models: studies and releases."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field

from safeswap.service.schemas.projects import Identifier, Wire, example


class StudyRequest(Wire):
    """A study of many candidates. The parameters are those of a study in Python."""

    model_config = ConfigDict(
        json_schema_extra=example(
            spec={"attributes": ["Race", "Sex"], "rates": [0.01, 0.1], "replicates": 5, "objective": "linear:a=1"}
        )
    )

    spec: dict[str, Any] = Field(default_factory=dict)


class StudySize(Wire):
    """The number of candidates of a study."""

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
    """The distortion of one two-way table, by measure."""

    attributes: tuple[str, str]
    values: dict[str, float | None]


class CandidateAnswer(Candidate):
    """One candidate in detail: its specification as Python, command and TOML, and all distorted two-way tables."""

    spec: dict[str, Any]
    python: str
    command: str
    toml: str
    tables: tuple[DistortionTable, ...]


class Cell(Wire):
    """One cell of a table before and after.

    Counts below the tolerance are hidden, and so are those from which they could be derived.
    """

    levels: tuple[str, ...]
    before: int | None
    after: int | None
    changed: bool | None


class BeforeAfterAnswer(Wire):
    """A table of the original and of the masked data, side by side."""

    attributes: tuple[str, ...]
    tolerance: int
    is_sampled: bool = Field(default=False, description="Counted on a random sample, as large as the file on average.")
    cells: tuple[Cell, ...]


class ChoiceRequest(Wire):
    """The objective for choosing a candidate."""

    model_config = ConfigDict(json_schema_extra=example(objective="linear:a=2"))

    objective: str = Field(max_length=500, description="linear:a=…, cap_risk:… or cap_distortion:…")
    risk: str | None = Field(default=None, max_length=200, description="Measure on the vertical axis.")
    distortion: str | None = Field(default=None, max_length=200, description="Measure on the horizontal axis.")


class ChoiceAnswer(Wire):
    """The chosen candidate, and the reason."""

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


State = Literal["preparing", "requested", "approved", "rejected", "failed"]
_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class ReleaseTerms(Wire):
    """Format and content of a release."""

    data_format: Literal["csv", "parquet", "dta", "sav"] = "csv"
    identifiers: Literal["new", "none"] = Field(default="new", description="New record numbers, or none.")
    drop: tuple[str, ...] = Field(default=(), max_length=1000, description="Columns to leave out.")
    title: str = Field(default="", max_length=200)
    date: str = Field(default="", max_length=40)
    publish_rate: bool = Field(default=False, description="Publish the share of records that were masked.")
    unmasked: bool = Field(default=False, description="Release values although nothing was masked.")


class ReleaseRequest(Wire):
    """Request the release of a masking."""

    model_config = ConfigDict(json_schema_extra=example(masking="5f0c1b", terms={"title": "Survey 2026"}))

    masking: Identifier
    terms: ReleaseTerms = ReleaseTerms()


class Approval(Wire):
    """Approval of exactly this bundle."""

    model_config = ConfigDict(json_schema_extra=example(manifest_hash=_HASH))

    manifest_hash: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the reviewed manifest.")
    override_reason: str = Field(
        default="",
        max_length=2000,
        description="Reason to release these records although they have been released before.",
    )


class Rejection(Wire):
    """Rejection of a release."""

    model_config = ConfigDict(json_schema_extra=example(reason="The occupation codes are too detailed."))

    reason: str = Field(min_length=1, max_length=2000)


class DifferencingAnswer(Wire):
    """An earlier release with the same records or identifiers, and what a comparison would reveal."""

    release_id: str = Field(description="The earlier release.")
    alarm: bool = Field(description="True if it shares so many records that a reason is needed.")
    sentence: str
    differ: int | None = Field(default=None, description="Number of records that differ, if it can be counted.")


class Check(Wire):
    """A guarantee verified on the result."""

    sentence: str
    ok: bool


class BundleFile(Wire):
    """A file of the bundle."""

    name: str
    size: int
    sha256: str


class ReleaseAnswer(Wire):
    """A release: its contents, verified guarantees, requester and decision."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id="77aa",
            project_id="5f0c",
            masking="5f0c1b",
            job_id="11aa",
            state="requested",
            terms={"title": "Survey 2026"},
            manifest_hash=_HASH,
            records=48842,
            files=[],
            checks=[{"sentence": "Every margin of Race is kept.", "ok": True}],
            remarks=[],
            ledger="The ledger shows no sign that these records have been released before.",
            needs_reason=False,
            differencing=[],
            requested_by="ada",
            requested_at="2026-01-01T09:00:00Z",
            decided_by="",
            decided_at=None,
            reason="",
            may_approve=True,
            may_download=False,
        )
    )

    id: str
    project_id: str
    masking: str
    job_id: str | None
    state: State
    terms: dict[str, Any]
    manifest_hash: str = Field(description="Hash to state in an approval; empty until the bundle is prepared.")
    records: int
    files: list[BundleFile]
    checks: list[Check]
    remarks: list[str]
    ledger: str = Field(description="Whether the records were released before, as far as the caller may know.")
    needs_reason: bool = Field(description="True if an approval needs override_reason; officers only.")
    differencing: list[DifferencingAnswer] = Field(
        description="Earlier releases, for an officer who is a member of their projects."
    )
    requested_by: str
    requested_at: datetime | None
    decided_by: str
    decided_at: datetime | None
    reason: str = Field(description="Reason of a rejection or failure; for officers, also of a repeated release.")
    may_approve: bool = Field(description="True if the caller may approve it now.")
    may_download: bool = Field(description="True if the caller may download it now.")
