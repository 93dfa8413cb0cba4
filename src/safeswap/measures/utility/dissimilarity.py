"""D, the index of dissimilarity: ½ Σ |Xᵢ/X − Yᵢ/Y| for one-way counts, in the whole file or in each area."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from safeswap.arrays import divergence
from safeswap.errors import SpecError
from safeswap.measures.aligned import align
from safeswap.measures.base import AttributeNames, left_out_note, recoding_note
from safeswap.measures.tables import CrossTable, cross_table
from safeswap.measures.utility.base import DistortionMeasure
from safeswap.model.score import Comparison, Score


class Dissimilarity(DistortionMeasure):
    """The mean index of dissimilarity of the attributes' one-way distributions, optionally within areas.

    In the whole file it is 0 after any swap, since swapping keeps every one-way count: name the geography, or other
    attributes, ``within`` which to compare the distributions. Areas are weighted by their records, the mean of before
    and after; an area that is empty on one side only has D = 1.

    >>> Dissimilarity(within="State").text
    'D:within=State'
    """

    name: ClassVar[str] = "D"
    title: ClassVar[str] = "index of dissimilarity"
    blind_to_recoding: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = (
        "Moore (1996), Preliminary Recommendations for Disclosure Limitation for the 2000 Census",
    )

    within: Annotated[AttributeNames, Field(description="attributes that make the areas; the whole file if empty")] = ()

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per attribute."""
        names = tuple(name for name in self._names(comparison) if name not in self.within)
        if not names:
            raise SpecError(
                "no attribute is left to compare within the areas",
                code="no-categorical-attribute",
                hint="name an attribute that does not make the areas",
            )
        rows = [self._row(comparison, name) for name in names]
        value = float(np.mean([row["value"] for row in rows]))
        detail = pa.Table.from_pylist(rows)
        sentence = self._meaning(value, names) + left_out_note(comparison, (*self.within, *names))
        return self._score(value, sentence + recoding_note(comparison, names), names, detail)

    def _row(self, comparison: Comparison, name: str) -> dict[str, object]:
        areas = (*self.within, name)
        if not any(align(comparison, part).changed for part in areas):
            return {"attribute": name, "areas_changed": 0, "largest": 0.0, "value": 0.0}
        table = cross_table(comparison, areas)
        distances, weights = divergence.dissimilarity_within(_number_areas(table), table.before, table.after)
        return {
            "attribute": name,
            "areas_changed": int(np.count_nonzero(distances)),
            "largest": float(distances.max()),
            "value": float(distances @ weights),
        }

    def _meaning(self, value: float, names: tuple[str, ...]) -> str:
        of = names[0] if len(names) == 1 else f"{len(names)} attributes"
        if self.within:
            where = " × ".join(self.within)
            return f"Within {where}, {value:.2%} of the records are in another category of {of}, on average."
        return (
            f"In the whole file, {value:.2%} of the records are in another category of {of}, on average "
            "(0 after any swap: state `within`)."
        )


def _number_areas(table: CrossTable) -> npt.NDArray[np.int64]:
    """Return the area number of each cell, made from all attributes except the last."""
    area = np.zeros(table.before.size, dtype=np.int64)
    for level in table.levels[:-1]:
        area = np.unique(area * (int(level.max(initial=0)) + 1) + level, return_inverse=True)[1]
    return area
