"""The base of distortion measures: over all attributes jointly, or as the mean over every small table."""

from __future__ import annotations

from abc import abstractmethod
from math import comb
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.errors import SpecError
from safeswap.measures.aligned import align, changed_counts, changed_sums, distortion_tables
from safeswap.measures.base import (
    AttributeNames,
    ParametricMeasure,
    Situation,
    categorical_obstacle,
    choose_attributes,
    left_out_note,
    left_out_note_of,
    recoding_note,
)
from safeswap.measures.survey import WeightedMeasure, weight_changed
from safeswap.model.score import Axis, Comparison, CountedCells, Score
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.arrays.cells import JointCounts

MOST_TABLES = 1_000
"""Maximum number of two-way tables in the detail of a joint measure; ``distortion_tables`` lists them all."""

GOMATAM_KARR = "Gomatam & Karr (2003), Distortion Measures for Categorical Data Swapping, NISS report 131"

KEPT_BY_SWAPS = " A swap keeps the counts of every single attribute: this figure cannot detect it."
"""A note on what one-way tables cannot see."""

_TABLES_OF = {1: "one-way", 2: "two-way", 3: "three-way"}


class DistortionMeasure(ParametricMeasure):
    """A measure of tables: the mean over every table of ``ways`` attributes, with one row per table."""

    axis: ClassVar[Axis] = Axis.DISTORTION

    attributes: Annotated[
        AttributeNames, Field(description="attributes to compare; all categorical ones if empty")
    ] = ()

    def _names(self, comparison: Comparison) -> tuple[str, ...]:
        return choose_attributes(comparison, self.attributes)


class WeighableMeasure(WeightedMeasure, DistortionMeasure):
    """A measure of tables: of sums of the weight where there is one, else of counts."""

    def _tables_by(self, comparison: Comparison, names: tuple[str, ...], ways: int, weight: str) -> pa.Table:
        table = distortion_tables(comparison, ways=ways, measures=[self.name], attributes=names, weight=weight)
        return table.rename_columns(["attributes", "changed", "value"])


class JointDistortion(WeighableMeasure):
    """A divergence of cell counts, over all attributes jointly or over every small table.

    The mean over tables is of magnitudes: changes in opposite directions do not cancel.
    """

    blind_to_recoding: ClassVar[bool] = True
    default_for: ClassVar[frozenset[Situation]] = frozenset({"categories", "study"})

    ways: Annotated[
        int | None,
        Field(ge=1, le=3, description="mean over all tables of 1, 2 or 3 attributes instead of all jointly"),
    ] = None

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail lists the tables behind the figure."""
        names = self._names(comparison)
        if self.ways is not None:
            detail = self._tables_by(comparison, names, self.ways, weight)
            value, signed = mean_changes(detail)
            over = f"on average over {plural(detail.num_rows, f'{_TABLES_OF[self.ways]} table')}"
            meaning = self._mean_meaning(value, signed, over) + (KEPT_BY_SWAPS if self.ways == 1 and not weight else "")
        else:
            value = self._joint(comparison, names, weight)
            detail = self._joint_detail(comparison, names, value, weight)
            meaning = self._meaning(value, f"in the joint table of {_name_attributes(names)}")
        sentence = meaning + name_worst(detail) + left_out_note(comparison, names) + recoding_note(comparison, names)
        return self._score(value, sentence, names, detail)

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why these tables say nothing: there are none, or masking changed numbers only."""
        return categorical_obstacle(comparison, self.attributes, least=self.ways or 1)

    @property
    def small(self) -> int | None:
        """1, since sizes of small cells do not matter; None if tables of fewer attributes need records."""
        return None if self.attributes or self.ways is not None or (self.weighted and self.weight) else 1

    def score_counts(self, counted: CountedCells) -> Score:
        """Score from counts alone; the detail has only the joint table."""
        names, joint = counted.attributes, counted.joint
        value = self._divergence(joint) if counted.changed else 0.0
        sentence = self._meaning(value, f"in the joint table of {_name_attributes(names)}") + left_out_note_of(
            counted.schema, names
        )
        if self.weighted and counted.schema.weight is not None:
            sentence += f" Counts of records, not weighted by {counted.schema.weight.name}."
        return self._score(value, sentence, names, _joint_row(names, value, changed=bool(counted.changed)))

    @abstractmethod
    def _divergence(self, joint: JointCounts) -> float:
        """Return the divergence of the counts before and after."""

    @abstractmethod
    def _meaning(self, value: float, over: str) -> str:
        """Describe the figure in plain words; ``over`` names the tables."""

    def _mean_meaning(self, value: float, signed: float, over: str) -> str:
        """Describe the mean magnitude in plain words; ``signed`` is the mean of the signed changes."""
        return self._meaning(value, over)

    def _joint(self, comparison: Comparison, names: tuple[str, ...], weight: str) -> float:
        if not self._is_changed(comparison, names, weight):
            return 0.0
        joint = changed_sums(comparison, names, weight) if weight else changed_counts(comparison, names)
        return self._divergence(joint)

    @staticmethod
    def _is_changed(comparison: Comparison, names: tuple[str, ...], weight: str) -> bool:
        return any(align(comparison, name).changed for name in names) or weight_changed(comparison, weight)

    def _joint_detail(self, comparison: Comparison, names: tuple[str, ...], value: float, weight: str) -> pa.Table:
        table = _joint_row(names, value, changed=self._is_changed(comparison, names, weight))
        if len(names) < 3 or comb(len(names), 2) > MOST_TABLES:
            return table
        return pa.concat_tables([table, self._tables_by(comparison, names, 2, weight)])


class AssociationChange(WeighableMeasure):
    """The change of a measure of association: its mean magnitude over all two-way tables."""

    signed: ClassVar[bool] = True
    blind_to_recoding: ClassVar[bool] = True
    default_for: ClassVar[frozenset[Situation]] = frozenset({"categories"})

    absolute: Annotated[bool, Field(description="omit the direction from the sentence")] = False

    association: ClassVar[str]

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why these tables say nothing: there are none, or masking changed numbers only."""
        return categorical_obstacle(comparison, self.attributes, least=2)

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has one row per two-way table, with its sign."""
        names = self._names(comparison)
        if len(names) < 2:
            raise SpecError(
                f"the measure {self.name} is for two-way tables and needs two attributes",
                code="bad-ways",
                hint="name at least two attributes",
            )
        detail = self._tables_by(comparison, names, 2, weight)
        value, signed = mean_changes(detail)
        sentence = self._meaning(value, signed, detail.num_rows) + name_worst(detail) + left_out_note(comparison, names)
        sentence += recoding_note(comparison, names)
        return self._score(value, sentence, names, detail)

    def _meaning(self, value: float, signed: float, tables: int) -> str:
        over = f"on average over {tables:,} two-way table{'s' if tables > 1 else ''}"
        if value == 0:
            return f"Association ({self.association}) is unchanged {over}."
        text = f"Association ({self.association}) changed by {value:.4f} {over}, up or down"
        return text + ("." if self.absolute else f"; with the sign it {describe_change(signed, 'weakened', 'grew')}.")


def mean_changes(detail: pa.Table) -> tuple[float, float]:
    """Return the mean magnitude of the tables' values, and their signed mean."""
    values = detail["value"].to_numpy()
    return float(np.mean(np.abs(values))), float(np.mean(values))


def describe_change(signed: float, up: str, down: str) -> str:
    """Describe a signed change in words.

    >>> describe_change(-0.25, "weakened", "grew"), describe_change(0.0, "weakened", "grew")
    ('grew by 0.2500', 'did not change')
    """
    if signed == 0:
        return "did not change"
    return f"{up if signed > 0 else down} by {abs(signed):.4f}"


def name_worst(detail: pa.Table) -> str:
    """Name the small table that changed most, if there are several and any changed."""
    sizes = np.array([len(names) for names in detail["attributes"].to_pylist()])
    values = np.abs(detail["value"].to_numpy())
    values[sizes == sizes.max()] *= 1 if (sizes == sizes.max()).sum() > 1 else 0
    if detail.num_rows < 3 or values.max() == 0:
        return ""
    row = int(values.argmax())
    names = " × ".join(detail["attributes"][row].as_py())
    return f" Largest among the {_TABLES_OF[sizes[row]]} tables: {names} ({detail['value'][row].as_py():.4f})."


def _joint_row(names: tuple[str, ...], value: float, *, changed: bool) -> pa.Table:
    first = {"attributes": [list(names)], "changed": [changed], "value": [value]}
    types = [pa.list_(pa.string()), pa.bool_(), pa.float64()]
    return pa.table({name: pa.array(first[name], kind) for name, kind in zip(first, types, strict=True)})


def _name_attributes(names: tuple[str, ...]) -> str:
    return f"all {len(names)} attributes" if len(names) > 4 else " × ".join(names)
