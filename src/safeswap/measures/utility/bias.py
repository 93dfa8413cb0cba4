"""PERCENTAGE BIAS: how far masking moves continuous items, record by record and in the means of classes.

Source: Moore 1996, sections X, XI and XIII.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from safeswap.arrays import bias, cells, sparse
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Floats, Rows
from safeswap.errors import SpecError
from safeswap.measures.aligned import align, require_same_records
from safeswap.measures.base import AttributeNames, ParametricMeasure, choose_attributes
from safeswap.model.audit import Exchange
from safeswap.model.columns import rank_columns, to_numbers
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.score import Axis, Comparison, Score


def occupants_by_audit(exchanges: Iterable[Exchange], records: int) -> Rows:
    """Return, for each record, the one that takes its place after these exchanges.

    >>> first = Exchange(attributes=("Place",), pairs=np.array([[0, 1]]))
    >>> second = Exchange(attributes=("Place",), pairs=np.array([[1, 2]]))
    >>> occupants_by_audit([first, second], 4).tolist()
    [2, 0, 1, 3]
    """
    place = np.arange(records, dtype=np.int64)
    for exchange in exchanges:
        a, b = exchange.pairs[:, 0], exchange.pairs[:, 1]
        place[a], place[b] = place[b], place[a]
    occupant = np.empty(records, dtype=np.int64)
    occupant[place] = np.arange(records)
    return occupant


def occupants_by_files(comparison: Comparison, keys: Names) -> Rows:
    """Reconstruct :func:`occupants_by_audit` from the files alone, matching values that left with values that came.

    Records with the same move are matched in the order of their keys: in a targeted edit partners are near each other
    in that order.
    """
    changed = [name for name in comparison.before.schema.categorical if align(comparison, name).changed]
    occupant = np.arange(len(comparison.before), dtype=np.int64)
    if not changed or _match_rows(comparison, changed, keys, occupant):
        return occupant
    seen = np.zeros(occupant.size, dtype=np.int64)
    for name in changed:
        seen[_changed_rows(comparison, [name])] += 1
        if seen.max(initial=0) > 1 or not _match_rows(comparison, [name], keys, occupant):
            raise SpecError(
                "the file was not masked by exchanging values between records, so no record takes the place of another",
                code="not-an-exchange",
                hint='use reading="class", which compares the means of classes',
            )
    return occupant


def _changed_rows(comparison: Comparison, names: list[str]) -> Rows:
    flags = np.zeros(len(comparison.before), dtype=np.bool_)
    for name in names:
        column = align(comparison, name)
        flags |= column.before != column.after
    return np.flatnonzero(flags)


def _match_rows(comparison: Comparison, names: list[str], keys: Names, occupant: Rows) -> bool:
    """Match the rows that changed in these attributes; return False if the values that left are not those that came."""
    rows = _changed_rows(comparison, names)
    columns = [align(comparison, name) for name in names]
    together = [np.concatenate([c.before[rows], c.after[rows]]) for c in columns]
    packed, _ = cells.pack(together, [c.cardinality for c in columns])
    left, came = packed[: rows.size], packed[rows.size :]
    ranks, numbers = rank_columns(comparison.before, keys)
    order, _ = cells.pack([column[rows] for column in ranks], numbers) if keys else (rows, 0)
    standing, arriving = np.lexsort((order, came, left)), np.lexsort((order, left, came))
    if not np.array_equal(left[standing], came[arriving]):
        return False
    occupant[rows[standing]] = rows[arriving]
    return True


Reading = Literal["class", "pointwise"]
"""class: of the mean of a record's class; pointwise: of the value in a record's place."""


@dataclass(frozen=True, kw_only=True)
class BiasFigure:
    """One figure of a continuous item, at one level (a set of keys) or record by record (no keys)."""

    variable: str
    reading: Reading
    level: tuple[str, ...]
    bias: float
    percentage: float
    gone: int = 0


@dataclass(frozen=True, kw_only=True)
class BiasBounds:
    """The range of PERCENTAGE BIAS that both protects records and keeps the item useful."""

    lower: float
    upper: float

    def protects(self, percentage: float) -> bool:
        """Return whether the records that took part are disturbed enough."""
        return percentage > self.lower

    def is_useful(self, percentage: float) -> bool:
        """Return whether the item is disturbed little enough."""
        return percentage < self.upper


def bias_bounds(p: float, f: float, *, swapped: int, records: int, mean: float, deviation: float) -> BiasBounds:
    """Return the acceptable range: p percent on average per swapped record, a spread of at most 1 + f times.

    >>> bounds = bias_bounds(10, 0.01, swapped=582, records=64_998, mean=11_369, deviation=16_572)
    >>> round(bounds.lower, 2), round(bounds.upper, 2), bounds.protects(17.95) and bounds.is_useful(17.95)
    (0.09, 20.67, True)
    """
    if mean == 0 or records == 0:
        raise SpecError(
            "percentage bias is relative to the mean, which is zero or missing",
            code="no-mean",
            hint="omit this item, or use BIAS in its own unit",
        )
    return BiasBounds(
        lower=bias.lower_bound(p, swapped=swapped, records=records),
        upper=bias.upper_bound(f, mean=mean, deviation=deviation),
    )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One continuous item: its figure, the acceptable range and the conclusion."""

    variable: str
    percentage: float
    bounds: BiasBounds

    @property
    def protected(self) -> bool:
        """Return whether the records that took part are disturbed enough."""
        return self.bounds.protects(self.percentage)

    @property
    def useful(self) -> bool:
        """Return whether the item is disturbed little enough."""
        return self.bounds.is_useful(self.percentage)

    @property
    def sentence(self) -> str:
        """The verdict in plain words."""
        protected = "protected enough" if self.protected else "not protected enough"
        return f"{protected}, {'useful enough' if self.useful else 'not useful enough'}"


@dataclass(frozen=True, kw_only=True)
class BiasReport:
    """PERCENTAGE BIAS of every item at every level, and the inputs of the acceptable range."""

    figures: tuple[BiasFigure, ...]
    swapped: int
    records: int
    moments: tuple[tuple[str, float, float], ...]  # item, mean and standard deviation before

    def __iter__(self) -> Iterator[BiasFigure]:
        return iter(self.figures)

    @property
    def variables(self) -> tuple[str, ...]:
        """The continuous items, in the requested order."""
        return tuple(variable for variable, _, _ in self.moments)

    def average(self, variable: str) -> float:
        """Return the mean over the levels: a single level can mislead."""
        return float(np.mean([f.percentage for f in self.figures if f.variable == variable and f.reading == "class"]))

    def pointwise(self, variable: str) -> float:
        """Return the figure computed record by record."""
        return next(f.percentage for f in self.figures if f.variable == variable and f.reading == "pointwise")

    def percentage(self, variable: str, reading: Reading) -> float:
        """Return the figure of one reading: record by record, or the mean over the levels."""
        return self.pointwise(variable) if reading == "pointwise" else self.average(variable)

    def verdicts(self, p: float = 10, f: float = 0.01, *, reading: Reading = "pointwise") -> tuple[Verdict, ...]:
        """Judge each item with a non-zero mean: protected enough? useful enough?

        By default record by record, which is how the bounds are derived.
        """
        return tuple(
            Verdict(
                variable=variable,
                percentage=self.percentage(variable, reading),
                bounds=bias_bounds(p, f, swapped=self.swapped, records=self.records, mean=mean, deviation=deviation),
            )
            for variable, mean, deviation in self.moments
            if mean
        )

    def table(self) -> pa.Table:
        """Return one row per figure. For internal use only."""
        return pa.table(
            {
                "variable": [f.variable for f in self.figures],
                "reading": [f.reading for f in self.figures],
                "level": pa.array([list(f.level) for f in self.figures], pa.list_(pa.string())),
                "bias": pa.array([f.bias for f in self.figures], pa.float64()),
                "percentage_bias": pa.array([f.percentage for f in self.figures], pa.float64()),
                "records_of_classes_gone": pa.array([f.gone for f in self.figures], pa.int64()),
            }
        )


Values = Mapping[str, tuple[Floats, Floats]]

MOST_LEVELS = 128
"""Maximum number of default levels; above it, only those of few keys and the finest are used."""


def percentage_bias(
    before: Microdata | Masked,
    after: Microdata | None = None,
    *,
    variables: Iterable[str] = (),
    keys: Iterable[str] = (),
    levels: Sequence[Iterable[str]] | None = None,
    readings: Sequence[Reading] = ("class", "pointwise"),
) -> BiasReport:
    """Measure PERCENTAGE BIAS between a file and its masked version: ``percentage_bias(masked)`` or of two files.

    ``variables`` are the continuous items (by default all numeric ones), ``keys`` make the classes, and a level is a
    subset of the keys. By default levels are the subsets of the keys in which something can have changed.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Beds"), Attribute(name="Income", kind="numeric")))
    >>> before = Microdata(pa.table({"Beds": [1, 1, 2], "Income": [10.0, 20.0, 60.0]}), schema)
    >>> after = Microdata(pa.table({"Beds": [1, 1, 2], "Income": [10.0, 60.0, 20.0]}), schema)
    >>> report = percentage_bias(before, after)
    >>> round(report.pointwise("Income"), 2), round(report.average("Income"), 2)
    (108.87, 94.28)
    """
    occupant = None
    touched = None
    if isinstance(before, Masked):
        masked = before
        before, after = masked.original, masked.data
        occupant = occupants_by_audit(masked.audit.all_exchanges, len(before))
        touched = masked.audit.touched()
    if after is None:
        raise SpecError("there is nothing to compare with", code="nothing-to-compare", hint="give the masked file too")
    names = tuple(keys) or before.schema.categorical
    comparison = Comparison(before=before, after=after, attributes=names, touched=touched)
    return bias_report(comparison, tuple(variables), names, levels=levels, readings=readings, occupant=occupant)


def bias_report(
    comparison: Comparison,
    variables: tuple[str, ...],
    keys: tuple[str, ...],
    *,
    levels: Sequence[Iterable[str]] | None = None,
    readings: Sequence[Reading] = ("class", "pointwise"),
    occupant: npt.NDArray[np.int64] | None = None,
) -> BiasReport:
    """Return the report on a comparison; ``occupant`` is the record in each record's place, if known."""
    require_same_records(comparison)
    items = variables or tuple(a.name for a in comparison.before.schema.iter_kind(Kind.NUMERIC))
    if not items:
        raise SpecError(
            "there is no continuous item to compare",
            code="no-continuous-item",
            hint="describe some attributes as numeric, and name them as variables",
        )
    values = {name: (to_numbers(comparison.before, name), to_numbers(comparison.after, name)) for name in items}
    figures: list[BiasFigure] = []
    if "class" in readings:
        chosen = [tuple(level) for level in levels] if levels is not None else default_levels(comparison, keys)
        for level in chosen:
            figures += _compare_level(comparison, level, values)
    if "pointwise" in readings:
        figures += _compare_pointwise(comparison, keys, values, occupant)
    figures.sort(key=lambda figure: items.index(figure.variable))
    whole = np.zeros(len(comparison.before), dtype=np.uint8)
    moments = {name: bias.moments(whole, 1, before)[0] for name, (before, _) in values.items()}
    return BiasReport(
        figures=tuple(figures),
        swapped=_count_swapped(comparison, values),
        records=len(comparison.before),
        moments=tuple((n, float(m[1]), float(np.sqrt(m[2] / max(m[0] - 1, 1)))) for n, m in moments.items()),
    )


def default_levels(comparison: Comparison, keys: Names) -> list[Names]:
    """Return every set of two or more keys that includes a changed one, as in Table 7; every set if none changed.

    If these are too many: each changed key with one other, and the finest level.
    """
    changed = {name for name in keys if align(comparison, name).changed}
    smallest = 2 if changed and len(keys) > 1 else 1
    sizes = range(smallest, len(keys) + 1) if 2 ** len(keys) <= MOST_LEVELS else sorted({smallest, len(keys)})
    found = [level for size in sizes for level in combinations(keys, size)]
    return [level for level in found if not changed or changed & set(level)]


def _compare_level(comparison: Comparison, level: Names, values: Values) -> list[BiasFigure]:
    """Compare the means of the level's classes before and after, for every item."""
    for name in level:
        comparison.after.schema[name]
    moved = any(align(comparison, name).changed for name in level)
    classes: tuple[Codes, Codes, int] | None = None
    found = []
    for name, (before, after) in values.items():
        value, gone = 0.0, 0
        if moved or _has_changed(before, after):
            classes = classes or _classes(comparison, level, moved=moved)
            was, now, number = classes
            first, second = bias.moments(was, number, before), bias.moments(now, number, after)
            value, gone = bias.between_classes(was, now, before, first, second)
        found.append(_figure(name, "class", level, value, of=before, gone=gone))
    return found


def _classes(comparison: Comparison, level: Names, *, moved: bool) -> tuple[Codes, Codes, int]:
    """Return each record's class before and after, numbered alike and densely enough for tables."""
    columns = [align(comparison, name) for name in level]
    sizes = [column.cardinality for column in columns]
    if moved:
        codes, number = cells.pack([np.concatenate([c.before, c.after]) for c in columns], sizes)
    else:
        codes, number = cells.pack([c.before for c in columns], sizes)
    if not cells.is_dense(number, codes.size):
        ranked, number = sparse.rank_codes(codes)
        codes, number = ranked, max(1, number)
    half = len(comparison.before)
    return codes[:half], codes[half:] if moved else codes, number


def _compare_pointwise(
    comparison: Comparison, keys: Names, values: Values, occupant: npt.NDArray[np.int64] | None
) -> list[BiasFigure]:
    """Compare with the value now in a record's place: its new value, or that of the record moved there."""
    found = []
    for name, (before, after) in values.items():
        if _has_changed(before, after):
            now = after
        else:
            occupant = occupants_by_files(comparison, keys) if occupant is None else occupant
            now = before[occupant]
        found.append(_figure(name, "pointwise", (), bias.root_mean_square(before, now), of=before))
    return found


def _figure(name: str, reading: Reading, level: Names, value: float, *, of: Floats, gone: int = 0) -> BiasFigure:
    known = of[~np.isnan(of)]
    mean = float(known.mean()) if known.size else 0.0
    percentage = 100 * value / abs(mean) if mean else float("nan")
    return BiasFigure(variable=name, reading=reading, level=level, bias=value, percentage=percentage, gone=gone)


def _has_changed(before: Floats, after: Floats) -> bool:
    return not np.array_equal(before, after, equal_nan=True)


def _count_swapped(comparison: Comparison, values: Values) -> int:
    """Count the records that took part, as far as is known."""
    if comparison.touched is not None:
        return int(np.count_nonzero(comparison.touched))
    flags = np.zeros(len(comparison.before), dtype=np.bool_)
    categorical = comparison.before.schema.categorical
    flags[_changed_rows(comparison, [name for name in categorical if align(comparison, name).changed])] = True
    for before, after in values.values():
        flags |= (before != after) & ~(np.isnan(before) & np.isnan(after))
    return int(np.count_nonzero(flags))


class PercentageBias(ParametricMeasure):
    """The root mean square change of continuous items as a percentage of their mean, averaged over items and levels.

    >>> PercentageBias(variables="INCOME", reading="pointwise").text
    'percentage_bias:variables=INCOME,reading=pointwise'
    """

    name: ClassVar[str] = "percentage_bias"
    title: ClassVar[str] = "percentage bias"
    axis: ClassVar[Axis] = Axis.DISTORTION
    sources: ClassVar[tuple[str, ...]] = (
        "Moore (1996), Preliminary Recommendations for Disclosure Limitation for the 2000 Census",
    )

    variables: Annotated[AttributeNames, Field(description="continuous items; all numeric attributes if empty")] = ()
    keys: Annotated[
        AttributeNames, Field(description="keys that make the classes; all categorical attributes if empty")
    ] = ()
    reading: Annotated[
        Reading,
        Field(description="class: of the means of classes, at every level; pointwise: of each record's place"),
    ] = "class"
    p: Annotated[float, Field(ge=0, description="mean change of a swapped record to aim for, in percent")] = 10.0
    f: Annotated[float, Field(gt=0, description="maximum relative growth of the spread")] = 0.01

    def score(self, comparison: Comparison) -> Score:
        """Score the masking with a verdict; the detail has one row per item and level."""
        keys = choose_attributes(comparison, self.keys)
        report = bias_report(comparison, self.variables, keys, readings=(self.reading,))
        found = {variable: report.percentage(variable, self.reading) for variable in report.variables}
        known = [variable for variable, value in found.items() if not np.isnan(value)]
        if not known:
            raise SpecError(
                "percentage bias is relative to the mean, and no item has a mean other than zero",
                code="no-mean",
                hint="name other variables",
            )
        value = float(np.mean([found[variable] for variable in known]))
        return self._score(value, self._meaning(value, report, known), tuple(known), report.table())

    def _meaning(self, value: float, report: BiasReport, known: list[str]) -> str:
        what = "the value in a record's place" if self.reading == "pointwise" else "the mean of a record's class"
        text = f"{what.capitalize()} moved by {value:.4g}% of the overall mean on average"
        verdicts = [v for v in report.verdicts(self.p, self.f, reading=self.reading) if v.variable in known]
        weak = [v.variable for v in verdicts if not v.protected]
        spoilt = [v.variable for v in verdicts if not v.useful]
        text += f"; too little to protect: {', '.join(weak)}" if weak else ""
        text += f"; too much to be useful: {', '.join(spoilt)}" if spoilt else ""
        return text + ("." if weak or spoilt else ", within the acceptable range for every item.")
