"""A column as it may leave: the released values, and only what they themselves say about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import UnsafeRelease
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Coded, code_column
from safeswap.model.schema import Attribute, Kind

MOST_LISTED = 10_000
"""A longer list of levels is no documentation any more; the data have them all."""


@dataclass(frozen=True, eq=False)
class Released:
    """The values in their released order, and the attribute as rebuilt from them."""

    attribute: Attribute
    values: pa.Array | pa.ChunkedArray


def released_column(attribute: Attribute, column: pa.ChunkedArray, index: pa.Array) -> Released:
    """The rows ``index`` of a column, and its description restricted to the values that occur.

    >>> sex = pa.chunked_array([pa.DictionaryArray.from_arrays([2, 0, 2], ["m", "unused", "f"])])
    >>> released = released_column(Attribute(name="Sex", labels={"unused": "?", "f": "female"}), sex, pa.array([0, 1]))
    >>> released.attribute.levels, released.attribute.labels
    (('f', 'm'), {'f': 'female'})
    >>> released.values.dictionary.to_pylist(), released.values.indices.to_pylist()
    (['f', 'm'], [0, 1])
    """
    column = _plain_column(attribute.name, column)
    kind = column.type
    if _is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        coded = code_column(column)
        levels, order = _canonical(attribute, coded)
        return Released(_described(attribute, levels), _recoded(coded, order, levels, index))
    taken = column.take(index)
    return Released(_described(attribute, _occurring(attribute, column)), taken)


def _plain_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        return _plain_column(name, pa.chunked_array(chunks, type=kind.storage_type))
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind) and not _is_text(kind.value_type):
        return _plain_column(name, column.cast(kind.value_type))
    if pa.types.is_nested(kind):
        raise UnsafeRelease(
            f"column {name!r} holds lists or records, which cannot be looked through before a release",
            code="nested-column",
            hint="drop the column, or make plain columns of it",
            column=name,
        )
    return column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _canonical(attribute: Attribute, coded: Coded) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The levels that occur, as the schema orders them or else sorted, and the old code of each."""
    used = np.sort(pa.array(coded.codes).unique().to_numpy()).astype(np.int64)
    used = used[used < len(coded.levels)]
    levels = coded.levels.take(pa.array(used))
    used = used[pc.sort_indices(levels).to_numpy()]
    if attribute.levels:
        rank = {text: i for i, text in enumerate(attribute.levels)}
        texts = level_texts(coded.levels.take(pa.array(used)))
        used = used[np.argsort([rank.get(text, len(rank)) for text in texts], kind="stable")]
    return coded.levels.take(pa.array(used)), used


def _recoded(coded: Coded, order: npt.NDArray[np.int64], levels: pa.Array, index: pa.Array) -> pa.DictionaryArray:
    width = next(t for t in (np.int8, np.int16, np.int32, np.int64) if len(order) <= np.iinfo(t).max)
    lookup = np.zeros(len(coded.levels) + 1, dtype=width)
    lookup[order] = np.arange(len(order))
    # What has no level is missing. Arrow looks up and gathers without Python's lock: columns run side by side.
    unknown = np.isin(np.arange(len(lookup)), order, invert=True)
    codes = pa.array(lookup, mask=unknown).take(pa.array(coded.codes)).take(index)
    return pa.DictionaryArray.from_arrays(codes, levels)


def _occurring(attribute: Attribute, column: pa.ChunkedArray) -> pa.Array:
    """The distinct values, where there is a reason to list them."""
    if not (attribute.kind.is_categorical or attribute.labels or attribute.missing):
        return pa.array([], type=column.type)
    distinct = column.unique().drop_null()
    return distinct.take(pc.sort_indices(distinct))


def _described(attribute: Attribute, levels: pa.Array) -> Attribute:
    """The attribute with nothing about values that do not occur."""
    listed = attribute.kind.is_categorical and len(levels) <= MOST_LISTED
    texts = dict.fromkeys(level_texts(levels)) if listed or attribute.labels or attribute.missing else {}
    if listed and attribute.kind is Kind.ORDINAL and attribute.levels:
        texts = dict.fromkeys([t for t in attribute.levels if t in texts] + list(texts))
    return Attribute(
        name=attribute.name,
        kind=attribute.kind,
        label=attribute.label,
        letter=attribute.letter,
        display=attribute.display,
        levels=tuple(texts) if listed else (),
        labels={text: label for text, label in attribute.labels.items() if text in texts},
        missing=tuple(text for text in attribute.missing if text in texts),
        hierarchy=_pruned(attribute.hierarchy, set(texts)),
        geography_level=attribute.geography_level,
    )


def _pruned(hierarchy: tuple[dict[str, str], ...], used: set[str]) -> tuple[dict[str, str], ...]:
    pruned = []
    for parents in hierarchy:
        step = {level: parent for level, parent in parents.items() if level in used}
        pruned.append(step)
        used = set(step.values())
    return tuple(pruned)
