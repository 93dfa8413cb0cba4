"""When a record counts as safe: enough perturbation, enough neighbours, or enough of both together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np

from safeswap.errors import SpecError
from safeswap.kernels.types import Flags, Floats


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A line from (0, r) to (k, 0) across the plot; what lies under it is unsafe, what lies on it is safe.

    ``r`` is the perturbation with which a record needs no neighbours, ``k`` the number of neighbours with which it
    needs no perturbation. ``curvature`` 0 is the straight line; above 0 it bends towards the origin and asks for less,
    below 0 away from it and asks for more: with p = 2^−curvature the line is (n/k)^p + (z/r)^p = 1. Without ``r`` it is
    the vertical line at k, as for frequencies.

    >>> policy = Policy(r=0.15, k=15)
    >>> policy.unsafe(np.array([0.0, 5.0, 15.0]), np.array([0.2, 0.05, 0.0])).tolist()
    [False, True, False]
    >>> Policy(r=0.15, k=15, curvature=1).unsafe(np.array([5.0]), np.array([0.05])).tolist()
    [False]
    """

    r: float | None = 0.15
    k: float = 15.0
    curvature: float = 0.0

    def __post_init__(self) -> None:
        if self.r is not None and not (isfinite(self.r) and self.r > 0):
            raise _bad("r is a share above 0", "r=0.15, or r=None for a vertical line at k")
        if not (isfinite(self.k) and self.k > 0):
            raise _bad("k is a number of neighbours above 0", "k=15")
        if not -8 <= self.curvature <= 8:
            raise _bad("the curvature lies between −8 and 8", "curvature=0 is a straight line")

    def line(self, across: Floats) -> Floats:
        """The perturbation under which a record with so many neighbours is unsafe."""
        short = np.clip(np.asarray(across, dtype=np.float64) / self.k, 0.0, 1.0)
        if self.r is None:
            return np.where(short < 1.0, np.inf, 0.0)
        power = 2.0**-self.curvature
        return np.asarray(self.r * (1.0 - short**power) ** (1.0 / power))

    def unsafe(self, across: Floats, perturbation: Floats) -> Flags:
        """Which records lie under the line; where there is no figure, none does."""
        with np.errstate(invalid="ignore"):
            return np.asarray((perturbation < self.line(across)) & ~np.isnan(across))

    @property
    def sentence(self) -> str:
        """The policy in plain words."""
        if self.r is None:
            return f"A record is safe if its combination of keys has a frequency of at least {self.k:g}."
        bent = "" if not self.curvature else f", along a curve of curvature {self.curvature:g}"
        return (
            f"A record is safe with a perturbation of {self.r:.4g} or with {self.k:g} neighbours, or with as much of "
            f"both as the line between asks for{bent}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def _bad(message: str, hint: str) -> SpecError:
    return SpecError(message, code="bad-policy", hint=hint)
