"""Methods, measures, plans and maskings as the contract shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from safeswap.service.schemas.projects import Identifier, Wire, example

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


# Risky combinations, recipes and advice as the contract shows them.


class RiskyRequest(Wire):
    """Which combinations of keys are to be looked at; the parameters are those of `risky` in Python.

    `keys` alone mean every combination of up to all of them.
    """

    model_config = ConfigDict(json_schema_extra=example(combinations={"keys": ["Age", "Edu", "Race"], "tolerance": 3}))

    combinations: dict[str, Any]


class RiskyAnswer(Wire):
    """How many combinations too few records share: totals, never the values."""

    sentence: str
    protected: str = Field(default="", description="The combinations that were looked at, in words.")
    records: int
    unsafe_records: int
    unsafe_combinations: int
    by_dimension: dict[str, int]
    keys: tuple[dict[str, Any], ...]
    combinations: tuple[dict[str, Any], ...]
    stages: tuple[dict[str, Any], ...] = Field(description="What became of the list after each step of the recipe.")


class RecipeRequest(Wire):
    """The steps of the project's recipe, all of them."""

    model_config = ConfigDict(
        json_schema_extra=example(steps=[{"step": "truncate", "attribute": "NACE", "characters": 2}])
    )

    steps: tuple[dict[str, Any], ...] = Field(max_length=1000)


class RecipeAnswer(Wire):
    """The project's recipe: the steps in force, and whether the last change can be taken back or made again."""

    steps: tuple[dict[str, Any], ...]
    can_undo: bool
    can_redo: bool
    sentences: tuple[str, ...]
    toml: str
    version: int


class AdviceRequest(Wire):
    """Which recode would help most."""

    model_config = ConfigDict(
        json_schema_extra=example(combinations={"keys": ["region", "age", "sex"], "up_to": 3}, most=5)
    )

    combinations: dict[str, Any]
    most: int = Field(default=10, ge=1, le=100)


class AdviceAnswer(Wire):
    """Single recodes, the best first, with what each removes and what it costs."""

    unsafe: int
    tried: int
    advice: tuple[dict[str, Any], ...]
    hidden: int = Field(default=0, description="Recodes not shown: they would name levels that few records have.")


class TablesRequest(Wire):
    """Tables to be made safe, or to be checked."""

    model_config = ConfigDict(json_schema_extra=example(tables=[["Race", "Edu"], ["Race", "Sex"]], tolerance=3))

    tables: tuple[tuple[str, ...], ...] = Field(min_length=1, max_length=100)
    tolerance: int | None = Field(
        default=None, ge=2, le=1_000_000, description="The project's own unless stated, and not below it."
    )
    keep: tuple[tuple[str, ...], ...] | None = Field(default=None, description="Margins that stay exact.")
    objective: str = Field(default="total", pattern="^(total|largest)$")
    soft: bool = False
    time_limit: float = Field(default=30.0, gt=0, le=3600)


class CheckAnswer(Wire):
    """Which tables have small cells, and how many of them the published figures give back."""

    sentence: str
    is_safe: bool
    tolerance: int
    small: int
    derived: int
    way: str
    is_exact: bool
    tables: tuple[dict[str, Any], ...]
