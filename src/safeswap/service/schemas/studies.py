"""Risk-utility studies as the contract shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field

from safeswap.service.schemas.projects import Identifier, Wire, example


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


# Releases as the contract shows them.

State = Literal["preparing", "requested", "approved", "rejected", "failed"]
_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class ReleaseTerms(Wire):
    """How the release is to look, and what is told about it."""

    data_format: Literal["csv", "parquet", "dta", "sav"] = "csv"
    identifiers: Literal["new", "none"] = Field(default="new", description="Number the records anew, or not at all.")
    drop: tuple[str, ...] = Field(default=(), max_length=1000, description="Columns that do not leave.")
    title: str = Field(default="", max_length=200)
    date: str = Field(default="", max_length=40)
    publish_rate: bool = Field(default=False, description="Tell which share of the records took part.")
    unmasked: bool = Field(default=False, description="Release the values although nothing was masked.")


class ReleaseRequest(Wire):
    """Prepare a masking for release, and ask for it to be approved."""

    model_config = ConfigDict(json_schema_extra=example(masking="5f0c1b", terms={"title": "Survey 2026"}))

    masking: Identifier
    terms: ReleaseTerms = ReleaseTerms()


class Approval(Wire):
    """Let exactly this bundle leave."""

    model_config = ConfigDict(json_schema_extra=example(manifest_hash=_HASH))

    manifest_hash: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of the manifest that was looked at.")
    override_reason: str = Field(
        default="",
        max_length=2000,
        description="Why these records are released again, although they have been released before.",
    )


class Rejection(Wire):
    """Do not let it leave."""

    model_config = ConfigDict(json_schema_extra=example(reason="The occupation codes are too detailed."))

    reason: str = Field(min_length=1, max_length=2000)


class DifferencingAnswer(Wire):
    """An earlier release with the same records or identifiers, and what comparing the two would tell."""

    release_id: str = Field(description="The earlier release.")
    alarm: bool = Field(description="Whether it holds so many of the records that a reason is needed.")
    sentence: str
    differ: int | None = Field(default=None, description="Records that differ, where that can be counted.")


class Check(Wire):
    """A promise that was verified on the result."""

    sentence: str
    ok: bool


class BundleFile(Wire):
    """A file of the bundle."""

    name: str
    size: int
    sha256: str


class ReleaseAnswer(Wire):
    """A release: what would leave, what was verified, who asked and who decided."""

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
    manifest_hash: str = Field(description="What an approval has to name; empty until the bundle is prepared.")
    records: int
    files: list[BundleFile]
    checks: list[Check]
    remarks: list[str]
    ledger: str = Field(description="Whether the records were released before, as far as who asks may know.")
    needs_reason: bool = Field(description="Whether an approval needs override_reason; officers only.")
    differencing: list[DifferencingAnswer] = Field(
        description="Earlier releases, for an officer who is a member of their projects."
    )
    requested_by: str
    requested_at: datetime | None
    decided_by: str
    decided_at: datetime | None
    reason: str = Field(description="Of a rejection or a failure; of a second release, for officers.")
    may_approve: bool = Field(description="Whether who asks may approve it now.")
    may_download: bool = Field(description="Whether who asks may download it now.")
