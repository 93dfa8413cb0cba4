"""Align the two files of a comparison: the same code means the same value before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Codes, Int64s
from safeswap.errors import SpecError
from safeswap.model.columns import aligned_columns, coarsening, flag_changes, same_memory
from safeswap.model.microdata import Coded, Microdata, smallest_code_type
from safeswap.model.schema import Kind, level_texts
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
        names = (a.name for a in before.schema.attributes if a.kind is not Kind.IDENTIFIER)
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
                hint="put measures that look at what was masked first, e.g. correct_links and mean_change",
            )
    axis = axes[1]
    recoded = recoded_names(comparison, comparison.before.schema.names)
    if axis is not None and is_blind_to_recoding(axis) and recoded:
        raise SpecError(
            f"{axis.name} compares in the categories of the release and does not see what recoding took away",
            code="blind-to-recoding",
            hint="make information_loss the first measure of distortion",
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
