"""API models: methods, measures, plans, maskings, risk and tables."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from safeswap.service.schemas.projects import Identifier, Wire, example

Spec = dict[str, Any]
Measures = Annotated[
    tuple[str, ...] | None,
    Field(min_length=1, max_length=50, description="Default: those that apply to what was changed."),
]


class MethodAnswer(Wire):
    """A masking method, with its sources and the schema of its specification."""

    name: str
    title: str
    sources: tuple[str, ...]
    description: str = ""
    spec_schema: dict[str, Any] = Field(description="JSON schema of the specification, without `method`.")


class MeasureAnswer(Wire):
    """A measure of risk or distortion, and its parameters with defaults."""

    name: str
    title: str
    axis: str
    sources: tuple[str, ...]
    parameters: dict[str, Any]
    default_for: tuple[str, ...] = Field(
        default=(),
        description="Situations in which it is a default: `categories`, `numbers`, `recoding` or `study`.",
    )
    signed: bool = Field(default=True, description="The sign is a direction: figures compare by magnitude.")
    tells_the_rate: bool = Field(default=True, description="The rate may follow from the figure: do not publish it.")


class PlanRequest(Wire):
    """A specification to plan."""

    model_config = ConfigDict(json_schema_extra=example(spec={"method": "swap", "swap": ["Race"], "rate": 0.05}))

    spec: Spec = Field(description="`method` and its parameters.")


class RelaxationAnswer(Wire):
    """A change of the specification and the number of pairs it would allow."""

    change: str
    feasible: int
    at_most: int | None = None


class PlanAnswer(Wire):
    """Pairs requested, pairs feasible, and the binding constraint."""

    model_config = ConfigDict(
        json_schema_extra=example(
            method="swap",
            records=48842,
            asked=1221,
            feasible=7080,
            is_feasible=True,
            binds=["Race"],
            sentence="1,221 pairs asked for, at most 7,080 feasible; Race binds",
            details={},
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
    details: dict[str, Any] = Field(
        description="What only this method's plan states, e.g. `moved`: households expected to move, partners included."
    )
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
    attributes: tuple[str, ...] | None = Field(
        default=None, description="Attributes that form the cells; default: all."
    )
    replicate: int = Field(default=0, ge=0, lt=1_000_000)
    use_recipe: bool = Field(
        default=True, description="Mask the data after the recipe; false: the original data, e.g. to recode by `spec`."
    )


class AssessmentRequest(Wire):
    """Assess a masking again."""

    model_config = ConfigDict(json_schema_extra=example(masking="6f1c2d9a", measures=["n_rule", "hellinger"]))

    masking: Identifier
    measures: Measures = None
    attributes: tuple[str, ...] | None = None


class ConfidentialityRequest(Wire):
    """Compute the confidentiality plot of a masking."""

    model_config = ConfigDict(
        json_schema_extra=example(masking="6f1c2d9a", keys=["turnover", "employees"], linkage="auto", options={})
    )

    masking: Identifier
    keys: tuple[str, ...] = Field(min_length=1, max_length=50)
    linkage: str = Field(default="auto", pattern="^(auto|distance|fellegi_sunter|frequency)$")
    options: dict[str, Any] = Field(default_factory=dict, description="As for `confidentiality` in Python.")


class ResultAnswer(Wire):
    """The result of a job: the request and the figures."""

    id: str
    kind: str
    job: str | None
    data_version: int
    spec: dict[str, Any]
    summary: dict[str, Any]
    created_by: str
    created_at: datetime | None


class RiskyRequest(Wire):
    """Combinations of keys to examine; the parameters are those of `risky` in Python.

    `keys` alone means every combination of up to all of them.
    """

    model_config = ConfigDict(json_schema_extra=example(combinations={"keys": ["Age", "Edu", "Race"], "tolerance": 3}))

    combinations: dict[str, Any]


class RiskyAnswer(Wire):
    """Unsafe combinations, which too few records share: totals, never values."""

    sentence: str
    protected: str = Field(default="", description="The examined combinations, in words.")
    records: int
    unsafe_records: int
    unsafe_combinations: int
    by_dimension: dict[str, int]
    keys: tuple[dict[str, Any], ...]
    combinations: tuple[dict[str, Any], ...]
    stages: tuple[dict[str, Any], ...] = Field(description="The totals after each step of the recipe.")


class RecipeRequest(Wire):
    """All steps of the project's recipe."""

    model_config = ConfigDict(
        json_schema_extra=example(steps=[{"step": "truncate", "attribute": "NACE", "characters": 2}])
    )

    steps: tuple[dict[str, Any], ...] = Field(max_length=1000)


class RecipeAnswer(Wire):
    """The project's recipe: the active steps, and whether changes can be undone or redone."""

    steps: tuple[dict[str, Any], ...]
    can_undo: bool
    can_redo: bool
    sentences: tuple[str, ...]
    toml: str
    version: int


class AdviceRequest(Wire):
    """Combinations of keys for which to recommend recodes."""

    model_config = ConfigDict(
        json_schema_extra=example(combinations={"keys": ["region", "age", "sex"], "up_to": 3}, most=5)
    )

    combinations: dict[str, Any]
    most: int = Field(default=10, ge=1, le=100)


class AdviceAnswer(Wire):
    """Single recodes, best first, with their effect and cost."""

    unsafe: int
    tried: int
    advice: tuple[dict[str, Any], ...]
    hidden: int = Field(default=0, description="Number of recodes not shown, since they would name rare levels.")


class TablesRequest(Wire):
    """Tables to make safe or to check."""

    model_config = ConfigDict(json_schema_extra=example(tables=[["Race", "Edu"], ["Race", "Sex"]], tolerance=3))

    tables: tuple[tuple[str, ...], ...] = Field(min_length=1, max_length=100)
    tolerance: int | None = Field(
        default=None, ge=2, le=1_000_000, description="Default and minimum: the project's tolerance."
    )
    keep: tuple[tuple[str, ...], ...] | None = Field(default=None, description="Margins that stay exact.")
    objective: str = Field(default="total", pattern="^(total|largest)$")
    soft: bool = False
    time_limit: float = Field(default=30.0, gt=0, le=3600)


class CheckAnswer(Wire):
    """Small cells of tables, and how many can be derived from the published figures."""

    sentence: str
    is_safe: bool
    tolerance: int
    small: int
    derived: int
    way: str
    is_exact: bool
    tables: tuple[dict[str, Any], ...]
