"""The specification of a risk-utility study, the figures of its candidates, and which of them no other dominates."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import comb, prod
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_serializer, field_validator, model_validator

from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats
from safeswap.errors import SpecError
from safeswap.model.checked import check_types
from safeswap.model.scenario import Scenario, as_scenario
from safeswap.model.spec import Pairing, Stated, SwapSpec, TrueSwap, require_distinct


@dataclass(frozen=True, eq=False)
class Figures:
    """Figures of candidates, a row each: scores, pairs made, reason for rejection (scores then NaN), 2-way tables."""

    scores: npt.NDArray[np.float64]
    made: npt.NDArray[np.int64]
    reasons: tuple[str, ...]
    tables: npt.NDArray[np.float32] | None = None

    @staticmethod
    def rejected(reasons: Sequence[str], *, measures: int, tables: tuple[int, int] | None = None) -> Figures:
        """Return the figures of candidates that could not be made."""
        return Figures(
            np.full((len(reasons), measures), np.nan),
            np.zeros(len(reasons), dtype=np.int64),
            tuple(reasons),
            None if tables is None else np.full((len(reasons), *tables), np.nan, dtype=np.float32),
        )

    @staticmethod
    def joined(parts: Sequence[Figures]) -> Figures:
        """Concatenate figures; tables only if all parts have them."""
        if len(parts) == 1:
            return parts[0]
        tables = [part.tables for part in parts if part.tables is not None]
        return Figures(
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.made for part in parts]),
            tuple(reason for part in parts for reason in part.reasons),
            np.concatenate(tables) if len(tables) == len(parts) else None,
        )

    def rows(self, order: npt.NDArray[np.int64]) -> Figures:
        """Return some of the candidates, in the given order."""
        return Figures(
            self.scores[order],
            self.made[order],
            tuple(self.reasons[i] for i in order),
            None if self.tables is None else self.tables[order],
        )

    @property
    def is_consistent(self) -> bool:
        """True if all parts have the same number of candidates."""
        parts = (self.scores, self.made, *(() if self.tables is None else (self.tables,)))
        return self.scores.ndim == 2 and all(len(part) == len(self.reasons) for part in parts)

    def __len__(self) -> int:
        return len(self.reasons)


Rate = Annotated[float, Field(gt=0, le=1)]


class ConstraintSet(Stated):
    """A set of constraints under which swaps are tried.

    >>> ConstraintSet(fixed=("Sex",), differ=("MS",)).label
    'Sex equal, MS different'
    """

    called: ClassVar[str] = "constraint set"

    fixed: Annotated[Names, Field(description="attributes that must be equal within a pair")] = ()
    differ: Annotated[Names, Field(description="attributes that must differ within a pair")] = ()

    @model_validator(mode="after")
    def _does_not_contradict_itself(self) -> ConstraintSet:
        require_distinct(self.fixed)
        require_distinct(self.differ)
        both = sorted(set(self.fixed) & set(self.differ))
        if both:
            raise ValueError(f"{both[0]!r} cannot be both equal and different within a pair")
        return self

    @classmethod
    def from_text(cls, text: str) -> ConstraintSet:
        """Parse a set from its label; "none" or empty text for the empty set. Names that contain a comma are quoted.

        >>> ConstraintSet.from_text("Sex equal, MS different") == ConstraintSet(fixed=("Sex",), differ=("MS",))
        True
        """
        names: dict[str, list[str]] = {"equal": [], "different": []}
        parts = [] if text.strip() in ("", "none") else next(csv.reader([text], skipinitialspace=True))
        for part in parts:
            name, _, word = part.strip().rpartition(" ")
            if word not in names or not name.strip():
                raise SpecError(
                    f"{text!r} is not a set of constraints",
                    code="bad-constraints",
                    hint='write for example "Sex equal, MS different", or "none"',
                )
            names[word].append(name.strip())
        return cls(fixed=tuple(names["equal"]), differ=tuple(names["different"]))

    @property
    def label(self) -> str:
        """The constraints in a few words; empty if there are none."""
        return ", ".join([*(f"{name} equal" for name in self.fixed), *(f"{name} different" for name in self.differ)])


class StudySpec(Stated):
    """Every choice of 1 to ``up_to`` swap attributes × rates × constraint sets × replicates, and how to measure them.

    >>> study = StudySpec(attributes=("A", "B", "C"), rates=(0.01, 0.1), replicates=5)
    >>> study.number_of_candidates(("A", "B", "C"))
    60
    """

    called: ClassVar[str] = "study"

    attributes: Annotated[
        Names, Field(description="attributes that may be swapped; all categorical ones if omitted")
    ] = ()
    up_to: Annotated[int, Field(ge=1, description="maximum number of attributes swapped together")] = 2
    rates: Annotated[tuple[Rate, ...], Field(min_length=1, description="shares of records that take part")] = (
        0.01,
        0.02,
        0.10,
    )
    constraints: Annotated[
        tuple[ConstraintSet, ...],
        Field(
            min_length=1,
            description='sets of constraints, each tried in turn, such as "Sex equal, MS different" or none',
        ),
    ] = (ConstraintSet(),)
    true_swap: TrueSwap = "any"
    pairing: Pairing = "repaired"
    replicates: Annotated[int, Field(ge=1, le=1_000_000, description="keyed draws per specification")] = 1
    others: Annotated[
        tuple[dict[str, Any], ...], Field(description="further candidates: specifications of any method")
    ] = ()
    vary: Annotated[
        tuple[dict[str, Any], ...],
        Field(
            description="further candidates of any method: a specification, and `sweep`, the values to try of some of "
            "its parameters"
        ),
    ] = ()
    swaps: Annotated[bool, Field(description="try the swaps formed from attributes, rates and constraints")] = True
    first: Annotated[
        tuple[dict[str, Any], ...],
        Field(description="pipeline steps before the part that varies, the same for all candidates"),
    ] = ()
    last: Annotated[
        tuple[dict[str, Any], ...],
        Field(description="pipeline steps after the part that varies, the same for all candidates"),
    ] = ()
    risk: Annotated[
        Names, Field(min_length=1, description="risk measures; the first is the vertical axis of the map")
    ] = ("n_rule",)
    distortion: Annotated[
        Names, Field(min_length=1, description="distortion measures; the first is the horizontal axis of the map")
    ] = ("hellinger", "total_variation", "entropy_change")
    keys: Annotated[Names, Field(description="attributes that form the cells; all categorical ones if omitted")] = ()
    scenario: Annotated[
        Scenario | None,
        Field(description="who might attack: the keys of the risk measures; the cells stay those of `keys`"),
    ] = None
    objective: Annotated[str, Field(description="rule of choice: linear:a=2, cap_risk:0.01 or cap_distortion:0.05")] = (
        "linear:a=1"
    )

    @model_validator(mode="before")
    @classmethod
    def _swaps_are_asked_for(cls, values: Any) -> Any:
        """Try no swaps if only other methods are to vary, and swaps are not mentioned."""
        if not isinstance(values, dict) or values.get("vary") in (None, (), []) or "swaps" in values:
            return values
        return {**values, "swaps": bool(values.keys() & {"attributes", "up_to", "rates", "constraints"})}

    @field_validator("vary")
    @classmethod
    def _sweeps_have_values(cls, varied: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for number, values in enumerate(varied, start=1):
            sweep = values.get("sweep", {})
            lists = sweep.values() if isinstance(sweep, dict) else [None]
            if not all(isinstance(each, list | tuple) and each for each in lists):
                raise ValueError(f"vary {number}: sweep needs lists of values to try, e.g. keep = [0.8, 0.9]")
        return varied

    @model_validator(mode="before")
    @classmethod
    def _reads_scenario(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("scenario") is None:
            return values
        return {**values, "scenario": as_scenario(values["scenario"])}

    @field_serializer("scenario")
    def _write_scenario(self, scenario: Scenario | None) -> dict[str, Any] | None:
        return None if scenario is None else scenario.as_dict()

    @field_validator("rates")
    @classmethod
    def _rates_ascend(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(set(rates)))

    @field_validator("attributes", "keys")
    @classmethod
    def _named_once(cls, names: Names) -> Names:
        return require_distinct(names)

    @field_validator("constraints")
    @classmethod
    def _each_set_once(cls, sets: tuple[ConstraintSet, ...]) -> tuple[ConstraintSet, ...]:
        return tuple(dict.fromkeys(sets))

    @property
    def measures(self) -> Names:
        """All measures asked for, risk first, each once."""
        return tuple(dict.fromkeys((*self.risk, *self.distortion)))

    @check_types
    def groups(self, attributes: Names) -> Iterator[tuple[Names, ConstraintSet]]:
        """Yield the choices of swap attributes and constraints; a constrained attribute is not swapped."""
        for constraint in self.constraints if self.swaps else ():
            free = [name for name in attributes if name not in (*constraint.fixed, *constraint.differ)]
            for size in range(1, min(self.up_to, len(free)) + 1):
                for names in combinations(free, size):
                    yield names, constraint

    @check_types
    def number_of_groups(self, attributes: Names) -> int:
        """Return the number of choices without generating them."""
        total = 0
        for constraint in self.constraints if self.swaps else ():
            free = len(set(attributes) - {*constraint.fixed, *constraint.differ})
            total += sum(comb(free, size) for size in range(1, min(self.up_to, free) + 1))
        return total

    @check_types
    def number_of_candidates(self, attributes: Names) -> int:
        """Return the number of candidates, known before the study runs."""
        stated = len(self.others) + sum(prod(map(len, each.get("sweep", {}).values())) for each in self.vary)
        return (self.number_of_groups(attributes) * len(self.rates) + stated) * self.replicates

    def stated(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the specifications of candidates outside the grid of swaps, and what distinguishes them.

        >>> study = StudySpec(vary=[{"method": "pram", "attributes": ["A"], "sweep": {"keep": [0.8, 0.9]}}])
        >>> [(values["keep"], label) for values, label in study.stated()]
        [(0.8, 'keep=0.8'), (0.9, 'keep=0.9')]
        """
        yield from ((values, "") for values in self.others)
        for values in self.vary:
            sweep = values.get("sweep", {})
            fixed = {name: value for name, value in values.items() if name != "sweep"}
            for chosen in product(*sweep.values()):
                varied = dict(zip(sweep, chosen, strict=True))
                yield {**fixed, **varied}, ", ".join(f"{name}={value}" for name, value in varied.items())

    @check_types
    def swap_spec(self, names: Names, constraint: ConstraintSet, rate: float) -> SwapSpec:
        """Return the specification of one candidate, ready to run."""
        return SwapSpec(
            swap=names,
            fixed=constraint.fixed,
            differ=constraint.differ,
            rate=rate,
            true_swap=self.true_swap,
            pairing=self.pairing,
        )


def find_undominated(risk: Floats, distortion: Floats) -> npt.NDArray[np.bool_]:
    """Flag the points that no other point dominates: none is at most as large in both figures and smaller in one.

    Coinciding points do not dominate each other. A point with a NaN figure is never undominated.

    >>> find_undominated(np.array([3.0, 1.0, 2.0, 2.0]), np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [True, True, True, False]
    """
    known = ~(np.isnan(risk) | np.isnan(distortion))
    rows = np.flatnonzero(known)
    order = rows[np.lexsort((risk[rows], distortion[rows]))]
    # From left to right, a point survives if it lies below everything to its left; among points of equal
    # distortion the lowest come first and only those survive.
    x, y = distortion[order], risk[order]
    lowest_before = np.minimum.accumulate(np.r_[np.inf, y])[:-1]
    first = np.searchsorted(x, x, side="left")
    survives = (y < lowest_before[first]) & (y == y[first])
    result = np.zeros(len(risk), dtype=np.bool_)
    result[order[survives]] = True
    return result


def hypervolume(risk: Floats, distortion: Floats, reference: tuple[float, float]) -> float:
    """Return the area that a set of points dominates within the rectangle below ``reference`` (risk, distortion).

    >>> hypervolume(np.array([0.5, 1.0]), np.array([0.5, 0.0]), (1.0, 1.0))
    0.25
    """
    keep = find_undominated(risk, distortion) & (risk < reference[0]) & (distortion < reference[1])
    order = np.argsort(distortion[keep])
    x, y = distortion[keep][order], risk[keep][order]
    widths = np.diff(np.r_[x, reference[1]])
    return float((widths * (reference[0] - np.minimum.accumulate(y))).sum()) if len(x) else 0.0
