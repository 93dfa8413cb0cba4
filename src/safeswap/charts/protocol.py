"""What a chart needs to know of a study. Charts stand below the search and take its results by their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.kernels.types import Int64s

TABLE_MEASURES = ("hellinger", "total_variation", "entropy_change", "adV", "adC")
"""What a study says of every 2-way table, in the order of the last axis of ``two_way``."""


class StudyLike(Protocol):
    """A table of candidates with a column per measure, and what belongs to it."""

    @property
    def spec(self) -> Any:
        """What was tried: risk, distortion, measures, replicates and so on."""
        ...

    @property
    def table(self) -> pa.Table:
        """One row per candidate."""
        ...

    @property
    def specs(self) -> Sequence[Any]:
        """The specifications, by the number in the column ``specification``."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """What may be said about the data."""
        ...

    @property
    def two_way(self) -> npt.NDArray[np.float32] | None:
        """The distortion of every 2-way table of every candidate: (candidates, tables, measures)."""
        ...

    @property
    def table_pairs(self) -> tuple[tuple[str, str], ...]:
        """The attributes of each 2-way table."""
        ...

    def frontier(self, *, risk: str | None = None, distortion: str | None = None, rate: float | None = None) -> Int64s:
        """The undominated candidates."""
        ...

    def summary(self, *, risk: str | None = None, distortion: str | None = None) -> pa.Table:
        """One row per specification, with the share of replicates in which it is on the frontier."""
        ...


class ChoiceLike(Protocol):
    """One candidate that was chosen, and why."""

    @property
    def candidate(self) -> int:
        """Its number."""
        ...

    @property
    def spec(self) -> Any:
        """Its specification."""
        ...

    @property
    def risk(self) -> float:
        """Its risk."""
        ...

    @property
    def distortion(self) -> float:
        """Its distortion."""
        ...

    @property
    def objective(self) -> str:
        """The rule, in words."""
        ...

    @property
    def dominates(self) -> int:
        """How many specifications are no better in either figure."""
        ...

    @property
    def rivals(self) -> pa.Table:
        """The next best ones."""
        ...

    @property
    def certainty(self) -> float | None:
        """How often it would be chosen again."""
        ...

    @property
    def replicate(self) -> int:
        """Which draw it is."""
        ...

    @property
    def sentence(self) -> str:
        """The choice and what speaks for it."""
        ...
