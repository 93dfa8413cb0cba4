"""Objectives, by which one candidate of a study is chosen.

An objective gives each point (risk, distortion) a cost; the cheapest allowed point is chosen.

==================  ======================================================================================
``linear:a=2``      Risk = a·Utility + c with utility the negative of distortion: smallest c = risk + a·distortion
``cap_risk:0.01``   least distortion among points with risk at most 0.01
``cap_distortion:0.05``  least risk among points with distortion at most 0.05
a function          of (risk, distortion); smaller is better
==================  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from safeswap.arrays.types import Floats
from safeswap.errors import SafeswapError, SpecError


@runtime_checkable
class Objective(Protocol):
    """A rule that gives each point a cost, infinite if the point is not allowed."""

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        ...

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Return the cost of each point; smaller is better."""
        ...


@dataclass(frozen=True)
class Linear:
    """A fixed exchange rate between risk and distortion.

    >>> Linear(2.0).cost(np.array([0.1]), np.array([0.3])).tolist()
    [0.7]
    """

    a: float

    def __post_init__(self) -> None:
        _check(self.a, "the slope a")

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        return f"smallest risk + {self.a:g} × distortion"

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Return the intercept c of the line through each point."""
        return risk + self.a * distortion


@dataclass(frozen=True)
class CapRisk:
    """Least distortion among points that are safe enough."""

    most: float

    def __post_init__(self) -> None:
        _check(self.most, "the cap on risk")

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        return f"least distortion with risk at most {self.most:g}"

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Return the distortion, infinite above the cap."""
        return np.where(risk <= self.most, distortion, np.inf)


@dataclass(frozen=True)
class CapDistortion:
    """Least risk among points that are useful enough."""

    most: float

    def __post_init__(self) -> None:
        _check(self.most, "the cap on distortion")

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        return f"least risk with distortion at most {self.most:g}"

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Return the risk, infinite above the cap."""
        return np.where(distortion <= self.most, risk, np.inf)


@dataclass(frozen=True)
class Custom:
    """A user's own function."""

    function: Callable[[float, float], float]

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        return f"smallest value of {getattr(self.function, '__name__', 'the stated function')}(risk, distortion)"

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Apply the function to each point; a point where it is not a number is not allowed."""
        try:
            values = [float(self.function(float(r), float(d))) for r, d in zip(risk, distortion, strict=True)]
        except SafeswapError:
            raise
        except Exception as error:
            raise SpecError(
                f"the stated objective failed with {type(error).__name__}",
                code="bad-objective",
                hint="give a function of (risk, distortion) that returns a number, smaller being better",
            ) from error
        costs = np.array(values, dtype=np.float64)
        return np.where(np.isnan(costs), np.inf, costs)


_RULES: dict[str, tuple[str, Callable[[float], Objective]]] = {
    "linear": ("a", Linear),
    "cap_risk": ("most", CapRisk),
    "cap_distortion": ("most", CapDistortion),
}


def as_objective(stated: str | Objective | Callable[[float, float], float]) -> Objective:
    """Make an objective from its text form or from a function; return an objective unchanged.

    >>> as_objective("linear:a=2"), as_objective("cap_risk:0.01")
    (Linear(a=2.0), CapRisk(most=0.01))
    """
    if isinstance(stated, str):
        return _parse(stated)
    if hasattr(stated, "cost") and hasattr(stated, "sentence"):
        return stated
    if not callable(stated):
        raise _not_an_objective(type(stated).__name__)
    return Custom(stated)


def _parse(text: str) -> Objective:
    rule, _, argument = text.partition(":")
    if rule.strip() not in _RULES:
        raise _not_an_objective(repr(text))
    name, make = _RULES[rule.strip()]
    try:
        value = float(argument.strip().removeprefix(f"{name}="))
    except ValueError:
        raise _not_an_objective(repr(text)) from None
    return make(value)


def _check(value: float, what: str) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise SpecError(
            f"{what} is {value:g}; it must be a number, 0 or above",
            code="bad-objective",
            hint="say linear:a=2, cap_risk:0.01 or cap_distortion:0.05",
        )


def _not_an_objective(what: str) -> SpecError:
    return SpecError(
        f"{what} is not an objective",
        code="bad-objective",
        hint="say linear:a=2, cap_risk:0.01 or cap_distortion:0.05, or give a function of (risk, distortion)",
    )
