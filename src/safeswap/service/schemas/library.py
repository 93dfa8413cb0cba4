"""Methods, measures, plans and maskings as the contract shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from safeswap.service.schemas.common import Identifier, Wire, example

Spec = dict[str, Any]
Measures = Annotated[
    tuple[str, ...] | None,
    Field(min_length=1, max_length=50, description="Those that apply to what was changed, where none are named."),
]


class MethodAnswer(Wire):
    """One way of masking: what it is, where it comes from, and what a specification of it looks like."""

    name: str
    title: str
    sources: tuple[str, ...]
    description: str = ""
    spec_schema: dict[str, Any] = Field(description="JSON schema of the specification, `method` left out.")


class MeasureAnswer(Wire):
    """One figure of risk or of distortion, and its parameters with their defaults."""

    name: str
    title: str
    axis: str
    sources: tuple[str, ...]
    parameters: dict[str, Any]
    default_for: tuple[str, ...] = Field(
        default=(),
        description="Where it is used by default: `categories`, `numbers`, `recoding` or `study`.",
    )
    signed: bool = Field(default=True, description="The sign is a direction: figures compare by magnitude.")
    tells_the_rate: bool = Field(default=True, description="The rate may follow from the figure: do not publish it.")


class PlanRequest(Wire):
    """What a specification would do."""

    model_config = ConfigDict(json_schema_extra=example(spec={"method": "swap", "swap": ["Race"], "rate": 0.05}))

    spec: Spec = Field(description="`method` and its parameters.")


class RelaxationAnswer(Wire):
    """A change of the specification and the number of pairs it would allow."""

    change: str
    feasible: int
    at_most: int | None = None


class PlanAnswer(Wire):
    """How many pairs are asked for, how many the data allow, and what binds."""

    model_config = ConfigDict(
        json_schema_extra=example(
            method="swap",
            records=48842,
            asked=1221,
            feasible=7080,
            is_feasible=True,
            binds=["Race"],
            sentence="1,221 pairs asked for, at most 7,080 feasible; Race binds",
            relaxations=[],
        )
    )

    method: str
    records: int
    asked: int
    feasible: int
    at_most: int | None = None
    is_feasible: bool
    binds: tuple[str, ...]
    sentence: str
    relaxations: tuple[RelaxationAnswer, ...]


class MaskingRequest(Wire):
    """Mask the project's data and measure the result."""

    model_config = ConfigDict(
        json_schema_extra=example(
            spec={"method": "swap", "swap": ["Race"], "rate": 0.05}, measures=["n_rule", "hellinger"]
        )
    )

    spec: Spec
    measures: Measures = None
    attributes: tuple[str, ...] | None = Field(default=None, description="Cells are formed from these; all by default.")
    replicate: int = Field(default=0, ge=0, lt=1_000_000)
    use_recipe: bool = Field(
        default=True, description="Mask what the recipe leaves; no: the data as they came, e.g. to recode by `spec`."
    )


class AssessmentRequest(Wire):
    """Measure a masking again."""

    model_config = ConfigDict(json_schema_extra=example(masking="6f1c2d9a", measures=["n_rule", "hellinger"]))

    masking: Identifier
    measures: Measures = None
    attributes: tuple[str, ...] | None = None


class ConfidentialityRequest(Wire):
    """Place every record of a masking between perturbation and neighbours."""

    model_config = ConfigDict(
        json_schema_extra=example(masking="6f1c2d9a", keys=["turnover", "employees"], linkage="auto", options={})
    )

    masking: Identifier
    keys: tuple[str, ...] = Field(min_length=1, max_length=50)
    linkage: str = Field(default="auto", pattern="^(auto|distance|fellegi_sunter|frequency)$")
    options: dict[str, Any] = Field(default_factory=dict, description="As for `confidentiality` in Python.")


class ResultAnswer(Wire):
    """What a job made: what was asked for, and the figures."""

    id: str
    kind: str
    job: str | None
    data_version: int
    spec: dict[str, Any]
    summary: dict[str, Any]
    created_by: str
    created_at: datetime | None
