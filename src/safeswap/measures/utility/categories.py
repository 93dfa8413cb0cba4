r"""Distortion of categories: distances of tables, over all attributes jointly or as the mean over every small table.

Distances between tables before and after (Gomatam & Karr 2003):

===================  ==================================================================================
``hellinger``        sqrt(½ Σ (√f − √g)²) over the cells
``total_variation``  ½ Σ \|f − g\| over the cells
``entropy_change``   Shannon's entropy after − before, in nats
``adV``              Cramér's V before − after, V = sqrt(χ² / (N · min(m − 1, n − 1)))
``adC``              Pearson's contingency coefficient before − after, C = sqrt(χ² / (χ² + N))
``D``                ½ Σ \|Xᵢ/X − Yᵢ/Y\| of one-way counts, in the whole file or in each area (Moore 1996)
===================  ==================================================================================

Of single records: the share that masking changed.
"""

from __future__ import annotations

from abc import abstractmethod
from math import comb
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from safeswap.arrays import divergence
from safeswap.errors import SpecError
from safeswap.measures.aligned import (
    CrossTable,
    align,
    changed_counts,
    changed_sums,
    cross_table,
    distortion_tables,
    require_same_records,
)
from safeswap.measures.base import (
    AttributeNames,
    ParametricMeasure,
    Situation,
    categorical_obstacle,
    choose_attributes,
    left_out_note,
    left_out_note_of,
    names_attributes,
    recoding_note,
)
from safeswap.measures.survey import WeightedMeasure, weight_changed
from safeswap.model.columns import flag_new_values
from safeswap.model.score import Axis, Comparison, CountedCells, Score
from safeswap.model.text import list_names, plural

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


class Hellinger(JointDistortion):
    """The Hellinger distance between cell shares; small cells weigh more than in total variation.

    0 for the same table, 1 for tables with no cell in common. Its square grows roughly with the swap rate.
    Table 3 of Gomatam & Karr prints sqrt(H/2) of this H.

    >>> Hellinger(ways=2).text
    'hellinger:ways=2'
    """

    name: ClassVar[str] = "hellinger"
    title: ClassVar[str] = "Hellinger distance"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.1",)

    def _divergence(self, joint: JointCounts) -> float:
        return divergence.hellinger(joint.before, joint.after, joint.alike)

    def _meaning(self, value: float, over: str) -> str:
        return f"Hellinger distance {value:.4f} {over} (0: the same table, 1: no cell in common)."


class TotalVariation(JointDistortion):
    """The share of records that would have to change cell to restore the original table.

    >>> TotalVariation().text
    'total_variation'
    """

    name: ClassVar[str] = "total_variation"
    title: ClassVar[str] = "total variation distance"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.2",)

    def _divergence(self, joint: JointCounts) -> float:
        return divergence.total_variation(joint.before, joint.after, joint.alike)

    def _meaning(self, value: float, over: str) -> str:
        return f"{value:.2%} of the records would have to change cell to restore the counts {over}."


class EntropyChange(JointDistortion):
    """The uncertainty about a record that masking added; negative if it removed some.

    The paper prints the entropy without its minus sign but reads a positive change as more uncertainty; we follow that
    reading. The joint figure keeps its sign; studies compare magnitudes, and the mean over tables is of magnitudes.

    >>> EntropyChange(absolute=True).text
    'entropy_change:absolute=true'
    """

    name: ClassVar[str] = "entropy_change"
    title: ClassVar[str] = "change in entropy"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.3",)

    signed: ClassVar[bool] = True

    absolute: Annotated[bool, Field(description="take the joint change without its sign")] = False

    def _divergence(self, joint: JointCounts) -> float:
        change = divergence.entropy_change(joint.before, joint.after, joint.alike)
        return abs(change) if self.absolute else change

    def _meaning(self, value: float, over: str) -> str:
        if value == 0:
            return f"Entropy is unchanged {over}."
        if self.absolute:
            return f"Entropy changed by {value:.4f} nats {over}, up or down."
        verb = "added" if value > 0 else "took away"
        return f"Masking {verb} {abs(value):.4f} nats of uncertainty {over}."

    def _mean_meaning(self, value: float, signed: float, over: str) -> str:
        if value == 0 or self.absolute:
            return self._meaning(value, over)
        added = describe_change(signed, "added uncertainty", "took uncertainty away")
        return f"Entropy changed by {value:.4f} nats {over}, up or down; with the sign masking {added}."


class CramersVChange(AssociationChange):
    """The loss of association between attributes, by Cramér's V; negative if it grew.

    >>> CramersVChange(attributes=("Age", "Sex")).text
    'adV:attributes=Age+Sex'
    """

    name: ClassVar[str] = "adV"
    title: ClassVar[str] = "change in Cramér's V"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.4",)
    association: ClassVar[str] = "Cramér's V"


class ContingencyCChange(AssociationChange):
    """The loss of association between attributes, by Pearson's contingency coefficient; negative if it grew.

    The upper limit of C depends on the size of the table, so tables of different sizes are hard to compare.

    >>> ContingencyCChange().title
    "change in Pearson's contingency coefficient"
    """

    name: ClassVar[str] = "adC"
    title: ClassVar[str] = "change in Pearson's contingency coefficient"
    sources: ClassVar[tuple[str, ...]] = (f"{GOMATAM_KARR}, section 3.5",)
    association: ClassVar[str] = "contingency coefficient C"


class Dissimilarity(WeighableMeasure):
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

    def _score_by(self, comparison: Comparison, weight: str) -> Score:
        """Score the masking; the detail has one row per attribute."""
        names = tuple(name for name in self._names(comparison) if name not in self.within)
        if not names:
            raise SpecError(
                "no attribute is left to compare within the areas",
                code="no-categorical-attribute",
                hint="name an attribute that does not define the areas",
            )
        rows = [self._row(comparison, name, weight) for name in names]
        value = float(np.mean([row["value"] for row in rows]))
        detail = pa.Table.from_pylist(rows)
        sentence = self._meaning(value, names) + left_out_note(comparison, (*self.within, *names))
        sentence += recoding_note(comparison, names)
        return self._score(value, sentence, names, detail)

    def _row(self, comparison: Comparison, name: str, weight: str) -> dict[str, object]:
        areas = (*self.within, name)
        if not any(align(comparison, part).changed for part in areas) and not weight_changed(comparison, weight):
            return {"attribute": name, "areas_changed": 0, "largest": 0.0, "value": 0.0}
        table = cross_table(comparison, areas, weight=weight)
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


class ShareChanged(DistortionMeasure):
    """The share of records that differ from the original in at least one of the attributes, record by record.

    >>> ShareChanged(attributes=("Race",)).text
    'share_changed:attributes=Race'
    """

    name: ClassVar[str] = "share_changed"
    title: ClassVar[str] = "share of records changed"
    default_for: ClassVar[frozenset[Situation]] = frozenset({"categories", "numbers"})
    sources: ClassVar[tuple[str, ...]] = (
        "Gomatam & Karr (2003), section 2: a true swap changes the record, a false one does not",
    )

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per attribute."""
        require_same_records(comparison)
        names = self._names(comparison) if self._is_stated(comparison) else _all_columns(comparison)
        anywhere = np.zeros(len(comparison.before), dtype=np.bool_)
        shares = []
        for name in names:
            columns = (side.table.column(name) for side in (comparison.before, comparison.after))
            differs = flag_new_values(*columns)
            anywhere |= differs
            shares.append(_share(differs))
        value = _share(anywhere)
        among = f" of {list_names(names, most=8)}" if self._is_stated(comparison) else ""
        sentence = f"{value:.2%} of the records differ from the original in at least one attribute{among}."
        detail = pa.table({"attribute": list(names), "value": pa.array(shares, pa.float64())})
        return self._score(value, sentence, names, detail)

    def _names(self, comparison: Comparison) -> tuple[str, ...]:
        return choose_attributes(comparison, self.attributes, with_dates=True)

    def _is_stated(self, comparison: Comparison) -> bool:
        """Return whether attributes were stated; else all columns count, also numbers, since no cells are formed."""
        return bool(self.attributes) or names_attributes(comparison)


def _all_columns(comparison: Comparison) -> tuple[str, ...]:
    known = comparison.after.schema
    return tuple(a.name for a in comparison.before.schema.attributes if not a.kind.is_unit_number and a.name in known)


def _share(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    return float(np.count_nonzero(flags) / flags.size) if flags.size else 0.0
