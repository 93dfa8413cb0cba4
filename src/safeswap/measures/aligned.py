"""Align the two files of a comparison: the same code means the same value before and after.

Every table of one, two or three attributes is then measured at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays import divergence
from safeswap.arrays.divergence import conditional_wasserstein
from safeswap.arrays.types import Codes, Int64s
from safeswap.errors import SpecError
from safeswap.measures.base import choose_attributes
from safeswap.model.columns import aligned_columns, coarsening, flag_changes, same_memory
from safeswap.model.microdata import Coded, Microdata, smallest_code_type
from safeswap.model.schema import Attribute, Kind, level_texts
from safeswap.model.score import Axis, Comparison
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.arrays.cells import JointCounts
    from safeswap.measures.base import Measure


@dataclass(frozen=True, eq=False, kw_only=True)
class AlignedColumn:
    """One attribute before and after. ``changed`` comes from comparing the two columns, not from the audit.

    A missing value has the code ``len(levels)``. Where the attribute was ``recoded``, the values before are given in
    the categories of the release, so any remaining difference is a further change.
    """

    name: str
    before: Codes
    after: Codes
    levels: pa.Array
    cardinality: int
    changed: bool
    recoded: bool = False


# Caches shared by all measures of a comparison; they live as long as the comparison.
_COLUMNS: WeakKeyDictionary[Comparison, dict[str, AlignedColumn]] = WeakKeyDictionary()
_JOINT: WeakKeyDictionary[Comparison, dict[tuple[str, ...], JointCounts]] = WeakKeyDictionary()
_NAMES: WeakKeyDictionary[Comparison, frozenset[str]] = WeakKeyDictionary()
_CHANGED: WeakKeyDictionary[Comparison, dict[tuple[str, ...], JointCounts]] = WeakKeyDictionary()


def align(comparison: Comparison, name: str) -> AlignedColumn:
    """Return the attribute coded alike in both files; cached per comparison."""
    known = _COLUMNS.setdefault(comparison, {})
    if name not in known:
        known[name] = _align(comparison, name)
    return known[name]


def _align(comparison: Comparison, name: str) -> AlignedColumn:
    after = comparison.after.coded(name)
    if comparison.recoded is not None:
        columns = (data.table.column(name) for data in (comparison.before, comparison.recoded))
        return replace(_align_codes(name, comparison.recoded.coded(name), after), recoded=not same_memory(*columns))
    if same_memory(comparison.before.table.column(name), comparison.after.table.column(name)):
        comparison.before.share_codes(comparison.after, [name])
    before = comparison.before.coded(name)
    lookup = coarsening(comparison.before, comparison.after, name)
    return _align_codes(name, before, after) if lookup is None else _align_recoded(name, before, after, lookup)


def changed_names(comparison: Comparison) -> frozenset[str]:
    """Return the attributes whose columns differ between the files; cached per comparison."""
    if comparison not in _NAMES:
        before, after = comparison.before, comparison.after
        names = (a.name for a in before.schema.attributes if not a.kind.is_unit_number)
        _NAMES[comparison] = frozenset(name for name in names if _is_different(before, after, name))
    return _NAMES[comparison]


def _is_different(before: Microdata, after: Microdata, name: str) -> bool:
    if name not in after.schema or len(before) != len(after) or before.schema[name] != after.schema[name]:
        return True
    columns = before.table.column(name), after.table.column(name)
    return not same_memory(*columns) and bool(flag_changes(*aligned_columns(*columns)).any())


def joint_counts(comparison: Comparison, names: tuple[str, ...], *, keep: bool) -> JointCounts:
    """Count the cells of these attributes before and after; cached with the comparison if ``keep``."""
    from safeswap.arrays import cells

    known = _JOINT.setdefault(comparison, {})
    if names in known:
        return known[names]
    columns = [align(comparison, name) for name in names]
    joint = cells.count_cells_jointly(
        [c.before for c in columns], [c.after for c in columns], [c.cardinality for c in columns]
    )
    if keep:
        known[names] = joint
    return joint


def changed_counts(comparison: Comparison, names: tuple[str, ...]) -> JointCounts:
    """Return counts before and after that suffice for any sum of differences over cells; cached per comparison.

    Where there are many cells, those that no record left or entered are merged into one.
    """
    from safeswap.arrays import cells

    columns = [align(comparison, name) for name in names]
    records, other = len(comparison.before), len(comparison.after)
    if records != other or cells.is_dense(prod(max(1, c.cardinality) for c in columns), records):
        return joint_counts(comparison, names, keep=True)
    known = _CHANGED.setdefault(comparison, {})
    if names not in known:
        known[names] = cells.count_changed_cells(
            [c.before for c in columns], [c.after for c in columns], [c.cardinality for c in columns]
        )
    return known[names]


def require_same_records(comparison: Comparison) -> None:
    """Refuse files of different length, for measures that compare record by record."""
    if len(comparison.before) != len(comparison.after):
        raise SpecError(
            f"the files have {len(comparison.before):,} and {plural(len(comparison.after), 'record')} and cannot be "
            "compared record by record",
            code="different-length",
            hint="use measures of cell counts, such as hellinger or total_variation",
        )


def _align_codes(name: str, before: Coded, after: Coded) -> AlignedColumn:
    levels, first, second = before.levels, before.codes, after.codes
    if not levels.equals(after.levels):
        levels, first, second = _unify_levels(before, after)
    missing = before.has_missing or after.has_missing
    return AlignedColumn(
        name=name,
        before=first,
        after=second,
        levels=levels,
        cardinality=len(levels) + missing,
        changed=not (first is second or np.array_equal(first, second)),
    )


def recoded_names(comparison: Comparison, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the attributes whose categories are coarser than before."""
    return tuple(name for name in names if name in comparison.after.schema and align(comparison, name).recoded)


def refuse_blind(comparison: Comparison, measures: Sequence[Measure]) -> None:
    """Refuse a candidate if a measure on an axis of the map cannot see what was done to the file.

    The axes are the first measures of risk and of distortion; further measures are only reported. A recoded candidate
    needs an axis that sees the detail lost by recoding; a candidate with changed numbers, one that looks at numbers.
    """
    from safeswap.measures.base import find_obstacle, is_blind_to_recoding

    axes = [next((m for m in measures if m.axis is axis), None) for axis in (Axis.RISK, Axis.DISTORTION)]
    for measure in axes:
        if measure is not None and (obstacle := find_obstacle(measure, comparison)):
            raise SpecError(
                f"{measure.name} does not apply: {obstacle}",
                code="measure-does-not-apply",
                hint="put measures of what was masked first, e.g. correct_links and mean_change",
            )
    axis = axes[1]
    recoded = recoded_names(comparison, comparison.before.schema.names)
    if axis is not None and is_blind_to_recoding(axis) and recoded:
        raise SpecError(
            f"{axis.name} compares in the categories of the release and does not see what recoding removed",
            code="blind-to-recoding",
            hint="make information_loss the first distortion measure",
        )


def _align_recoded(name: str, before: Coded, after: Coded, lookup: Int64s) -> AlignedColumn:
    dtype = smallest_code_type(len(after.levels) + 1)
    first, second = lookup.astype(dtype)[before.codes], after.codes.astype(dtype)
    changed = not np.array_equal(first, second)
    cardinality = len(after.levels) + bool((first == len(after.levels)).any() or after.has_missing)
    return AlignedColumn(
        name=name,
        before=first,
        after=second,
        levels=after.levels,
        cardinality=cardinality,
        changed=changed,
        recoded=True,
    )


def _unify_levels(before: Coded, after: Coded) -> tuple[pa.Array, Codes, Codes]:
    """Return both sides coded over the union of their levels, those of the first file first."""
    own, other = before.levels, after.levels
    if own.type != other.type:
        # A file that was written and read back may hold the same values in another type: compare as text.
        own, other = pa.array(level_texts(own), pa.string()), pa.array(level_texts(other), pa.string())
    new = other.filter(pc.invert(pc.is_in(other, value_set=own)))
    levels = pa.concat_arrays([own, new])
    dtype = smallest_code_type(len(levels) + 1)
    here = np.append(np.arange(len(own)), len(levels)).astype(dtype)
    there = np.append(pc.index_in(other, value_set=levels).to_numpy(), len(levels)).astype(dtype)
    return levels, here[before.codes], there[after.codes]


@dataclass(frozen=True, eq=False, kw_only=True)
class Order:
    """The rank of each code; −1 for a code without a rank (missing, or not among the stated levels)."""

    ranks: npt.NDArray[np.int64]
    levels: int


def level_order(comparison: Comparison, name: str) -> Order | None:
    """Return the order of the attribute's levels, or None if it has none.

    An ordinal attribute has the order of the levels in its description. If the description lists none, levels that are
    numbers are ordered as numbers, as are those of a numeric attribute. Alphabetical order is never assumed.
    """
    column = align(comparison, name)
    attribute = (comparison.after if column.recoded else comparison.before).schema[name]
    if attribute.kind not in (Kind.ORDINAL, Kind.NUMERIC):
        return None
    texts = level_texts(column.levels)
    ranked = _stated_ranks(attribute, texts) if attribute.levels else _numeric_ranks(attribute, texts)
    if ranked is None:
        return None
    ranks, levels = ranked
    without = np.full(column.cardinality - ranks.size, -1, dtype=np.int64)  # for a missing value, if any
    return Order(ranks=np.concatenate([ranks, without]), levels=levels)


def _stated_ranks(attribute: Attribute, texts: list[str]) -> tuple[npt.NDArray[np.int64], int]:
    scale = [level for level in attribute.levels if level not in attribute.missing]
    position = {level: rank for rank, level in enumerate(scale)}
    return np.array([position.get(text, -1) for text in texts], dtype=np.int64), len(scale)


def _numeric_ranks(attribute: Attribute, texts: list[str]) -> tuple[npt.NDArray[np.int64], int] | None:
    values = np.full(len(texts), np.nan)
    for i, text in enumerate(texts):
        if text not in attribute.missing:
            try:
                values[i] = float(text)
            except ValueError:
                return None
    scale = np.unique(values[~np.isnan(values)])
    ranks = np.where(np.isnan(values), -1, np.searchsorted(scale, values))
    return ranks.astype(np.int64), scale.size


Association = Callable[[Int64s, Int64s, Int64s], float]


@dataclass(frozen=True, eq=False, kw_only=True)
class CrossTable:
    """The occupied cells of a table, before or after: one level per attribute, and both counts, or sums of weights."""

    attributes: tuple[str, ...]
    levels: tuple[Int64s, ...]
    before: npt.NDArray[Any]
    after: npt.NDArray[Any]


def cross_table(
    comparison: Comparison, attributes: tuple[str, ...], *, keep: bool = False, weight: str = ""
) -> CrossTable:
    """Count one table from the records, or sum a weight over it."""
    if weight:
        return sum_weights(comparison, attributes, weight)
    joint = joint_counts(comparison, attributes, keep=keep)
    levels = []
    rest = joint.codes.astype(np.int64)
    for radix in reversed(_radices(comparison, attributes)):
        rest, level = np.divmod(rest, radix)
        levels.append(level)
    return CrossTable(attributes=attributes, levels=tuple(reversed(levels)), before=joint.before, after=joint.after)


def sum_weights(comparison: Comparison, attributes: tuple[str, ...], weight: str) -> CrossTable:
    """Sum a weight over the occupied cells, or 1 per record without one; their order does not depend on it."""
    from safeswap.arrays import cells

    radices = _radices(comparison, attributes)
    if not cells.is_dense(prod(radices), len(comparison.before) + len(comparison.after)):
        return _sum_ranked(comparison, attributes, weight)
    occupied, before, after = _sum_dense(comparison, attributes, weight)
    return CrossTable(attributes=attributes, levels=np.unravel_index(occupied, radices), before=before, after=after)


def _sum_dense(
    comparison: Comparison, attributes: tuple[str, ...], weight: str
) -> tuple[Int64s, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the occupied cells, and their sums before and after, from arrays over all possible cells."""
    from safeswap.arrays import cells
    from safeswap.measures.survey import masses

    columns, radices = [align(comparison, name) for name in attributes], _radices(comparison, attributes)
    packed = (cells.pack(codes, radices)[0] for codes in ([c.before for c in columns], [c.after for c in columns]))
    possible = prod(radices)
    before: npt.NDArray[Any]
    after: npt.NDArray[Any]
    if weight:
        sides = zip(packed, masses(comparison, weight), strict=True)
        before, after = (cells.sum_dense(where, mass, possible) for where, mass in sides)
    else:
        before, after = (cells.count_dense(where, possible).astype(np.int64) for where in packed)
    occupied = np.flatnonzero((before > 0) | (after > 0))  # every weight is positive
    return occupied, before[occupied], after[occupied]


def _sum_ranked(comparison: Comparison, attributes: tuple[str, ...], weight: str) -> CrossTable:
    """Sum over cells that are too many for an array of all possible ones."""
    from safeswap.arrays import cells, sparse
    from safeswap.measures.survey import masses

    columns = [align(comparison, name) for name in attributes]
    split = len(comparison.before)
    codes = [np.concatenate([column.before, column.after]) for column in columns]
    cell, number = sparse.rank_codes(cells.pack(codes, _radices(comparison, attributes))[0])
    cell = cell.astype(np.int64)
    some = np.empty(number, dtype=np.int64)
    some[cell] = np.arange(len(cell))
    sides = zip((cell[:split], cell[split:]), masses(comparison, weight), strict=True)
    before, after = (np.bincount(where, mass if weight else None, number) for where, mass in sides)
    levels = tuple(code[some].astype(np.int64) for code in codes)
    return CrossTable(attributes=attributes, levels=levels, before=before, after=after)


def changed_sums(comparison: Comparison, names: tuple[str, ...], weight: str) -> JointCounts:
    """Return sums of a weight before and after that suffice for any sum of differences over cells.

    Where there are many cells, those that no record left or entered are merged into one.
    """
    from safeswap.arrays import cells
    from safeswap.measures.survey import masses, weight_changed

    columns = [align(comparison, name) for name in names]
    records, other = len(comparison.before), len(comparison.after)
    possible = prod(_radices(comparison, names))
    if cells.is_dense(possible, records):
        occupied, before, after = _sum_dense(comparison, names, weight)
        return cells.JointCounts(occupied.astype(np.uint64), before, after, possible)
    if records != other or weight_changed(comparison, weight):
        table = sum_weights(comparison, names, weight)
        return cells.JointCounts(np.arange(len(table.before), dtype=np.uint64), table.before, table.after, possible)
    sides = [c.before for c in columns], [c.after for c in columns], [c.cardinality for c in columns]
    return cells.sum_changed_cells(*sides, masses(comparison, weight)[0], changed_counts(comparison, names))


def cross_tables(
    comparison: Comparison, attributes: tuple[str, ...], ways: int, weight: str = ""
) -> Iterator[tuple[tuple[str, ...], CrossTable | None]]:
    """Yield every table of ``ways`` attributes; None for a table in which no attribute changed."""
    from safeswap.measures.survey import weight_changed

    changed = {name for name in attributes if align(comparison, name).changed}
    if weight_changed(comparison, weight):
        changed = set(attributes)
    # If the joint table is small, count the records once and sum its cells for each table.
    few = not weight and prod(_radices(comparison, attributes)) <= max(1 << 16, len(comparison.before) // 8)
    whole = cross_table(comparison, attributes, keep=True) if few and changed else None
    for names in combinations(attributes, ways):
        if changed.isdisjoint(names):
            yield names, None
        elif whole is None:
            yield names, cross_table(comparison, names, weight=weight)
        else:
            yield names, _sum_margin(whole, names, _radices(comparison, names))


def association_change(table: CrossTable, association: Association) -> float:
    """Return the association of a two-way table before, minus that after."""
    rows, columns = table.levels
    return association(rows, columns, table.before) - association(rows, columns, table.after)


def ordinal_distance(table: CrossTable, orders: Mapping[str, Order | None]) -> float | None:
    """Return how far the ordinal attributes of a table moved, each given the others; None if none has an order.

    For each ordinal attribute: the Wasserstein distance on its ranks between its distributions before and after
    within each cell of the other attributes, weighted by the size of that cell; then the mean over the ordinal
    attributes. Unconditionally, it would be 0 after any swap, which keeps every margin. Values without a rank are left
    out.
    """
    distances = [
        _distance(table, position, order)
        for position, name in enumerate(table.attributes)
        if (order := orders[name]) is not None
    ]
    return float(np.mean(distances)) if distances else None


def _distance(table: CrossTable, position: int, order: Order) -> float:
    ranks = order.ranks[table.levels[position]]
    ranked = ranks >= 0
    given = np.zeros(ranks.size, dtype=np.int64)
    for other, level in enumerate(table.levels):
        if other != position:
            given = given * (int(level.max(initial=0)) + 1) + level
    return conditional_wasserstein(
        given[ranked], ranks[ranked], table.before[ranked], table.after[ranked], levels=order.levels
    )


def _radices(comparison: Comparison, names: tuple[str, ...]) -> list[int]:
    return [max(1, align(comparison, name).cardinality) for name in names]


def _sum_margin(whole: CrossTable, names: tuple[str, ...], radices: list[int]) -> CrossTable:
    chosen = [whole.levels[whole.attributes.index(name)] for name in names]
    code = np.ravel_multi_index(chosen, radices)
    cells = prod(radices)
    # Sums of whole numbers below 2**53 are exact in floating point.
    before = np.bincount(code, whole.before, cells).astype(np.int64)
    after = np.bincount(code, whole.after, cells).astype(np.int64)
    occupied = np.flatnonzero(before | after)
    return CrossTable(
        attributes=names,
        levels=np.unravel_index(occupied, radices),
        before=before[occupied],
        after=after[occupied],
    )


Orders = Mapping[str, Order | None]

_VALUES: dict[str, Callable[[CrossTable, Orders], float | None]] = {
    "hellinger": lambda table, _: divergence.hellinger(table.before, table.after),
    "total_variation": lambda table, _: divergence.total_variation(table.before, table.after),
    "entropy_change": lambda table, _: divergence.entropy_change(table.before, table.after),
    "adV": lambda table, _: association_change(table, divergence.cramers_v),
    "adC": lambda table, _: association_change(table, divergence.contingency_c),
    "ordinal": ordinal_distance,
}
TABLE_MEASURES = tuple(_VALUES)
"""The columns that :func:`distortion_tables` offers; adV and adC are for two-way tables."""

_KEPT: WeakKeyDictionary[Comparison, dict[tuple[tuple[str, ...], int, str], pa.Table]] = WeakKeyDictionary()


def distortion_tables(
    comparison: Comparison,
    *,
    ways: int = 2,
    measures: Sequence[str] = TABLE_MEASURES,
    attributes: tuple[str, ...] = (),
    weight: str | None = None,
) -> pa.Table:
    """Measure the distortion of every table of ``ways`` attributes, one row per table. For internal use only.

    Tables are sums of the ``weight``, by default that of the schema; counts if there is none, or it is "". A value is
    null where its measure is not defined: adV and adC need two-way tables, ``ordinal`` needs an attribute with an
    order. A table in which no attribute changed is exactly 0 in every measure.

    >>> from safeswap.model.microdata import Microdata
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="Race")))
    >>> before = Microdata(pa.table({"Sex": ["m", "f", "m", "f"], "Race": ["a", "a", "b", "b"]}), schema)
    >>> after = Microdata(pa.table({"Sex": ["m", "m", "f", "f"], "Race": ["a", "a", "b", "b"]}), schema)
    >>> comparison = Comparison(before=before, after=after, attributes=("Sex", "Race"))
    >>> distortion_tables(comparison, measures=["total_variation"]).to_pylist()
    [{'attributes': ['Sex', 'Race'], 'changed': True, 'total_variation': 0.5}]
    """
    names = choose_attributes(comparison, attributes)
    _check_request(ways, measures, names)
    if weight is None:
        from safeswap.measures.survey import find_usable

        weight, _ = find_usable(comparison)
    kept = _KEPT.setdefault(comparison, {})
    if (names, ways, weight) not in kept:
        # Compute all measures at once: counting the cells dominates the cost.
        kept[names, ways, weight] = _measure_tables(comparison, names, ways, weight)
    return kept[names, ways, weight].select(["attributes", "changed", *measures])


def _measure_tables(comparison: Comparison, names: tuple[str, ...], ways: int, weight: str) -> pa.Table:
    orders = {name: level_order(comparison, name) for name in names}
    rows: dict[str, list[Any]] = {"attributes": [], "changed": [], **{measure: [] for measure in _VALUES}}
    for table_names, table in cross_tables(comparison, names, ways, weight):
        rows["attributes"].append(list(table_names))
        rows["changed"].append(table is not None)
        for measure, value in _VALUES.items():
            defined = _is_defined(measure, table_names, orders)
            rows[measure].append((0.0 if table is None else value(table, orders)) if defined else None)
    types = {"attributes": pa.list_(pa.string()), "changed": pa.bool_()}
    return pa.table({name: pa.array(values, types.get(name, pa.float64())) for name, values in rows.items()})


def _is_defined(measure: str, names: tuple[str, ...], orders: Orders) -> bool:
    if measure in ("adV", "adC"):
        return len(names) == 2
    return measure != "ordinal" or any(orders[name] is not None for name in names)


def _check_request(ways: int, measures: Sequence[str], names: tuple[str, ...]) -> None:
    unknown = [measure for measure in measures if measure not in _VALUES]
    if unknown:
        raise SpecError(
            f"{unknown[0]!r} is not a measure of tables",
            code="unknown-measure",
            hint="the measures of tables are: " + ", ".join(TABLE_MEASURES),
        )
    if not 1 <= ways <= 3 or ways > len(names):
        raise SpecError(
            f"tables of {plural(ways, 'attribute')} cannot be made from {len(names)}",
            code="bad-ways",
            hint="tables have one, two or three attributes, and no more than there are",
        )
