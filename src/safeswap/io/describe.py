"""Describe a file: attributes, levels, small cells. No record, and no value that few records have."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.errors import SpecError
from safeswap.io.cautions import cautions
from safeswap.io.columns import distinct_count
from safeswap.io.description import AttributeSummary, CellSummary, Description, LevelCount
from safeswap.kernels.hiding import hide_levels
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Coded, Microdata
from safeswap.model.schema import Attribute

_MANY_RECORDS = 1_000_000
_MOST_CODES = 1 << 62
MOST_TOLERANCE = 1_000_000


def describe(data: Microdata, *, tolerance: int = 3, keys: Sequence[str] | None = None) -> Description:
    """What the file is like, with counts below ``tolerance`` shown as such only.

    Of categorical attributes the levels are listed that at least ``tolerance`` records have; of identifiers, weights
    and numbers nothing but how many different values there are: their smallest and largest values are somebody's.
    ``keys`` are the attributes that form the cells, all categorical ones by default.

    >>> from safeswap import datasets
    >>> description = describe(datasets.cps8d())
    >>> description.cells.sentence
    '8 categorical attributes form 2,880 cells; 1,695 are occupied, of which 361 hold 1 record, 186 hold 2 records.'
    >>> [(level.level, level.count) for level in description["Race"].levels]
    [('White', 41762), ('Non-White', 7080)]
    """
    if not 1 <= tolerance <= MOST_TOLERANCE:
        raise SpecError(
            f"the tolerance must be from 1 to {MOST_TOLERANCE:,}",
            code="bad-tolerance",
            hint="3 is usual",
            parameter="tolerance",
        )
    names = data.schema.categorical if keys is None else tuple(keys)
    attributes = tuple(_summary(data, attribute, tolerance) for attribute in data.schema.attributes)
    cells = _cells(data, names, tolerance)
    return Description(
        name=data.schema.name,
        records=len(data),
        tolerance=tolerance,
        attributes=attributes,
        cells=cells,
        warnings=cautions(data, attributes),
    )


def _summary(data: Microdata, attribute: Attribute, tolerance: int) -> AttributeSummary:
    column = data.table.column(attribute.name)
    facts: dict[str, Any] = {
        "name": attribute.name,
        "label": attribute.label,
        "letter": attribute.letter,
        "kind": attribute.kind,
        "inferred": attribute.inferred,
        "missing": int(column.null_count),
    }
    if not attribute.kind.is_categorical:
        return AttributeSummary(distinct=distinct_count(column), **facts)
    coded = data.coded(attribute.name)
    counts = level_counts(coded)
    rare, hidden = hide_levels(counts, tolerance)
    frequent = _frequent(coded, np.where(rare, 0, counts), attribute, hidden=hidden)
    return AttributeSummary(
        distinct=int((counts > 0).sum()),
        missing_codes=_with_missing_code(coded, counts, attribute),
        levels=frequent,
        levels_below=int(rare.sum()),
        **facts,
    )


def level_counts(coded: Coded) -> npt.NDArray[np.int64]:
    """How many records have each level, missing left out.

    >>> import pyarrow as pa
    >>> from safeswap.model.microdata import code_column
    >>> level_counts(code_column(pa.chunked_array([["b", "a", None, "b"]]))).tolist()
    [2, 1]
    """
    return np.bincount(coded.codes, minlength=len(coded.levels))[: len(coded.levels)]


def _frequent(
    coded: Coded, counts: npt.NDArray[np.int64], attribute: Attribute, *, hidden: npt.NDArray[np.bool_]
) -> tuple[LevelCount, ...]:
    """In the order of the schema where it states one, otherwise the most frequent first; hidden counts come last."""
    positions = np.flatnonzero(counts)
    texts = level_texts(coded.levels.take(positions))
    order = {level: i for i, level in enumerate(attribute.levels)}
    found = [
        LevelCount(level=text, count=None if hidden[i] else int(counts[i]), label=attribute.labels.get(text, ""))
        for text, i in zip(texts, positions, strict=True)
    ]
    return tuple(sorted(found, key=lambda x: (order.get(x.level, len(order)), -(x.count or 0), x.level)))


def _with_missing_code(coded: Coded, counts: npt.NDArray[np.int64], attribute: Attribute) -> int:
    if not attribute.missing:
        return 0
    is_code = np.array([text in attribute.missing for text in level_texts(coded.levels)], dtype=np.bool_)
    return int(counts[is_code].sum())


def _cells(data: Microdata, names: Sequence[str], tolerance: int) -> CellSummary:
    if not names:
        return CellSummary(attributes=(), possible=0, occupied=0, small=(0,) * (tolerance - 1))
    columns, cardinalities = data.coded_columns(names)
    sizes = cell_sizes(columns, cardinalities)
    counted = np.bincount(sizes[sizes < tolerance], minlength=tolerance)[1:tolerance]
    # Of one attribute the cells are its levels, and these would be the counts of the rare ones.
    small = tuple(counted.tolist()) if len(names) > 1 else ()
    return CellSummary(attributes=tuple(names), possible=prod(cardinalities), occupied=sizes.size, small=small)


def cell_sizes(columns: Sequence[npt.NDArray[Any]], cardinalities: Sequence[int]) -> npt.NDArray[np.int64]:
    """The counts of the occupied cells, in no order that matters.

    >>> sorted(cell_sizes([np.array([0, 1, 1], np.uint8), np.array([2, 0, 0], np.uint8)], [2, 3]).tolist())
    [1, 2]
    """
    if columns[0].size > _MANY_RECORDS:
        from safeswap.kernels.cells import cell_counts  # compiled: worth its start for large files only

        return cell_counts(columns, cardinalities).counts
    codes = np.zeros(columns[0].size, dtype=np.int64)
    span = 1
    for column, cardinality in zip(columns, cardinalities, strict=True):
        if span * cardinality > _MOST_CODES:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            span = int(codes.max()) + 1
        codes = codes * cardinality + column
        span *= cardinality
    return np.unique(codes, return_counts=True)[1]
