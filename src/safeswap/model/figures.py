"""The figures of some candidates, a row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Figures:
    """Scores, pairs made, the reason where a candidate was rejected (its scores are then not numbers), 2-way tables."""

    scores: npt.NDArray[np.float64]
    made: npt.NDArray[np.int64]
    reasons: tuple[str, ...]
    tables: npt.NDArray[np.float32] | None = None

    @staticmethod
    def rejected(reasons: Sequence[str], *, measures: int, tables: tuple[int, int] | None = None) -> Figures:
        """Candidates that could not be made."""
        return Figures(
            np.full((len(reasons), measures), np.nan),
            np.zeros(len(reasons), dtype=np.int64),
            tuple(reasons),
            None if tables is None else np.full((len(reasons), *tables), np.nan, dtype=np.float32),
        )

    @staticmethod
    def joined(parts: Sequence[Figures]) -> Figures:
        """One after the other; tables only where all have them."""
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
        """Some of the candidates, in that order."""
        return Figures(
            self.scores[order],
            self.made[order],
            tuple(self.reasons[i] for i in order),
            None if self.tables is None else self.tables[order],
        )

    @property
    def is_consistent(self) -> bool:
        """Whether all parts speak of the same number of candidates."""
        parts = (self.scores, self.made, *(() if self.tables is None else (self.tables,)))
        return self.scores.ndim == 2 and all(len(part) == len(self.reasons) for part in parts)

    def __len__(self) -> int:
        return len(self.reasons)
