"""PERCENTAGE BIAS: how far a masking moves continuous items, record by record and in the means of classes.

Source: Moore 1996, sections X, XI and XIII.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from safeswap.errors import SpecError
from safeswap.kernels import bias, cells, sparse, spread
from safeswap.kernels.types import Codes, Floats, Names
from safeswap.measures.aligned import aligned, require_same_records
from safeswap.measures.bias_figures import BiasFigure, BiasReport, Reading
from safeswap.measures.slots import occupants_by_audit, occupants_by_files
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.score import Comparison
from safeswap.model.value_order import numbers

Values = Mapping[str, tuple[Floats, Floats]]

MOST_LEVELS = 128
"""Above so many levels only those of few keys, and the finest, are looked at unless levels are stated."""


def percentage_bias(
    before: Microdata | Masked,
    after: Microdata | None = None,
    *,
    variables: Iterable[str] = (),
    keys: Iterable[str] = (),
    levels: Sequence[Iterable[str]] | None = None,
    readings: Sequence[Reading] = ("class", "pointwise"),
) -> BiasReport:
    """PERCENTAGE BIAS between a file and its masked version: ``percentage_bias(masked)`` or of two files.

    ``variables`` are the continuous items (all numeric ones if none is named), ``keys`` make the classes, and a level
    is a subset of the keys. Levels not stated are the subsets of the keys in which something can have changed.

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
        occupant = occupants_by_audit(masked.audit.exchanges, len(before))
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
    """The report on a comparison; ``occupant`` says who stands in whose place, where that is known."""
    require_same_records(comparison)
    items = variables or tuple(a.name for a in comparison.before.schema.iter_kind(Kind.NUMERIC))
    if not items:
        raise SpecError(
            "there is no continuous item to compare",
            code="no-continuous-item",
            hint="describe some attributes as numeric, and name them as variables",
        )
    values = {name: (numbers(comparison.before, name), numbers(comparison.after, name)) for name in items}
    figures: list[BiasFigure] = []
    if "class" in readings:
        chosen = [tuple(level) for level in levels] if levels is not None else default_levels(comparison, keys)
        for level in chosen:
            figures += _at_level(comparison, level, values)
    if "pointwise" in readings:
        figures += _pointwise(comparison, keys, values, occupant)
    figures.sort(key=lambda figure: items.index(figure.variable))
    whole = np.zeros(len(comparison.before), dtype=np.uint8)
    moments = {name: spread.moments(whole, 1, before)[0] for name, (before, _) in values.items()}
    return BiasReport(
        figures=tuple(figures),
        swapped=_swapped(comparison, values),
        records=len(comparison.before),
        moments=tuple((n, float(m[1]), float(np.sqrt(m[2] / max(m[0] - 1, 1)))) for n, m in moments.items()),
    )


def default_levels(comparison: Comparison, keys: Names) -> list[Names]:
    """Every set of two keys or more in which one changed, as in Table 7; every set where none did.

    Where these are too many, a changed key with one other at a time, and the finest level.
    """
    changed = {name for name in keys if aligned(comparison, name).changed}
    smallest = 2 if changed and len(keys) > 1 else 1
    sizes = range(smallest, len(keys) + 1) if 2 ** len(keys) <= MOST_LEVELS else sorted({smallest, len(keys)})
    found = [level for size in sizes for level in combinations(keys, size)]
    return [level for level in found if not changed or changed & set(level)]


def _at_level(comparison: Comparison, level: Names, values: Values) -> list[BiasFigure]:
    """The means of the level's classes before and after, for every item."""
    for name in level:
        comparison.after.schema[name]
    moved = any(aligned(comparison, name).changed for name in level)
    classes: tuple[Codes, Codes, int] | None = None
    found = []
    for name, (before, after) in values.items():
        value, gone = 0.0, 0
        if moved or _differ(before, after):
            classes = classes or _classes(comparison, level, moved=moved)
            was, now, number = classes
            first, second = spread.moments(was, number, before), spread.moments(now, number, after)
            value, gone = bias.between_classes(was, now, before, first, second)
        found.append(_figure(name, "class", level, value, of=before, gone=gone))
    return found


def _classes(comparison: Comparison, level: Names, *, moved: bool) -> tuple[Codes, Codes, int]:
    """The class of each record before and after, numbered alike and closely enough for tables."""
    columns = [aligned(comparison, name) for name in level]
    sizes = [column.cardinality for column in columns]
    if moved:
        codes, number = cells.pack([np.concatenate([c.before, c.after]) for c in columns], sizes)
    else:
        codes, number = cells.pack([c.before for c in columns], sizes)
    if not cells.is_dense(number, codes.size):
        ranked, number = sparse.ranks(codes)
        codes, number = ranked, max(1, number)
    half = len(comparison.before)
    return codes[:half], codes[half:] if moved else codes, number


def _pointwise(
    comparison: Comparison, keys: Names, values: Values, occupant: npt.NDArray[np.int64] | None
) -> list[BiasFigure]:
    """What stands in a record's place now: its new value where values moved, else the value of whoever came there."""
    found = []
    for name, (before, after) in values.items():
        if _differ(before, after):
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


def _differ(before: Floats, after: Floats) -> bool:
    return not np.array_equal(before, after, equal_nan=True)


def _swapped(comparison: Comparison, values: Values) -> int:
    """How many records took part, as far as is known."""
    if comparison.touched is not None:
        return int(np.count_nonzero(comparison.touched))
    flags = np.zeros(len(comparison.before), dtype=np.bool_)
    for name in comparison.before.schema.categorical:
        column = aligned(comparison, name)
        if column.changed:
            flags |= column.before != column.after
    for before, after in values.values():
        flags |= (before != after) & ~(np.isnan(before) & np.isnan(after))
    return int(np.count_nonzero(flags))
