"""SUDA2: the share of records that few keys suffice to single out."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from safeswap.measures.risk.key_measure import KeyMeasure
from safeswap.measures.special_uniques import special_uniques
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.words import Scoring


class Suda2(KeyMeasure):
    """Records with a minimal sample unique of at most M keys, as a share of all; or their mean DIS score.

    A minimal sample unique is a set of keys in which the record is like no other, while it is not in any part of it.

    >>> Suda2(max_size=2, keys=("Age", "Sex")).text
    'suda2:keys=Age+Sex,max_size=2'
    """

    name: ClassVar[str] = "suda2"
    title: ClassVar[str] = "share of special uniques"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Elliot, Manning, Mayes, Gurd & Bane (2005), SUDA: A program for detecting special uniques, UNECE/Eurostat",
        "Manning, Haglin & Keane (2008), A recursive search algorithm for statistical disclosure assessment, DMKD 16",
        "Skinner & Elliot (2002), A measure of disclosure risk for microdata, JRSS B 64(4)",
    )

    max_size: Annotated[int, Field(ge=1, le=62, description="M: a minimal unique has at most so many keys")] = 3
    sampling_fraction: Annotated[
        float, Field(gt=0, le=1, description="share of the population that is in the file, for the DIS scores")
    ] = 0.01
    scoring: Annotated[Scoring, Field(description="what a minimal unique adds to a score: elliot or ihsn")] = "elliot"
    figure: Annotated[
        Literal["share", "dis"], Field(description="the share of special uniques, or the mean DIS score of all records")
    ] = "share"

    def score(self, comparison: Comparison) -> Score:
        """The figure with its sentence; the detail has the minimal uniques by their number of keys."""
        found = special_uniques(
            comparison.after,
            self._names(comparison),
            most=self.max_size,
            sampling_fraction=self.sampling_fraction,
            scoring=self.scoring,
            missing=self.missing,
        )
        names, records = found.cells.names, found.cells.records
        total = found.special if self.figure == "share" else float(found.dis.sum())
        value = total / records if records else 0.0
        most = min(self.max_size, len(names))
        sentence = (
            f"{found.special:,} of {records:,} records are unique in at most {most} of {len(names)} keys, "
            f"{found.sample_uniques:,} in all of them; the highest DIS score is {np.max(found.dis, initial=0.0):.3g}, "
            f"a unique match is correct with a chance of {found.file_dis:.3g}."
        )
        return self._score(value, self._told(sentence, comparison, found.cells), names, found.by_size)
