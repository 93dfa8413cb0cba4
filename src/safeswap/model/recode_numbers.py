"""Steps on quantities, which may have as many values as there are records: by arrays of numbers, not by their texts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.kernels.types import Floats
from safeswap.model import range_breaks
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.recode_rules import Values, targets
from safeswap.model.recode_steps import Blank, Round, Step, TopBottomCode
from safeswap.model.schema import Attribute, Kind


def is_by_number(data: Microdata, step: Step) -> bool:
    """Whether the numbers of a column tell all that the step needs: no codes among them, and they stay numbers."""
    if not isinstance(step, Round | TopBottomCode | Blank) or (isinstance(step, Blank) and step.values):
        return False
    attribute = data.schema[step.attribute]
    plain = attribute.kind in (Kind.NUMERIC, Kind.WEIGHT) and not (attribute.missing or attribute.labels)
    return plain and bool(pa.types.is_float64(data.table.column(step.attribute).type))


def by_number(data: Microdata, step: Step) -> Microdata:
    """The file after a step for which :func:`is_by_number` holds.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="x", kind="numeric"),))
    >>> data = Microdata(pa.table({"x": [1.2, None, 7.5]}), schema)
    >>> by_number(data, Round(attribute="x", base=5)).table["x"].to_pylist()
    [0.0, None, 10.0]
    """
    (name,) = step.names
    before, column = data.schema[name], data.table.column(name)
    absent = column.is_null().to_numpy()
    if isinstance(step, Blank):
        if absent.all():
            return data
        return _put(data, before, pa.chunked_array([pa.nulls(len(data), column.type)]))
    targets(step, Values(attribute=before, counts={}))  # refuses bounds that make no sense
    numbers = finite_numbers(data, name)
    made = _made(step, numbers)
    if np.array_equal(made, numbers, equal_nan=True):
        return data
    return _put(data, before, pa.chunked_array([pa.array(made, mask=absent)]))


def _made(step: Step, numbers: Floats) -> Floats:
    if isinstance(step, TopBottomCode):
        low = -np.inf if step.bottom is None else float(step.bottom)
        high = np.inf if step.top is None else float(step.top)
        bounded: Floats = np.clip(numbers, low, high)
        return bounded
    assert isinstance(step, Round)  # noqa: S101  (there is no other)
    found, place = np.unique(numbers, return_inverse=True)
    known: npt.NDArray[np.bool_] = ~np.isnan(found)
    found[known] = range_breaks.all_rounded(found[known], step.base, step.how)
    rounded: Floats = found[place]
    return rounded


def _put(data: Microdata, before: Attribute, column: pa.ChunkedArray) -> Microdata:
    attribute = Attribute(
        name=before.name,
        kind=before.kind,
        label=before.label,
        letter=before.letter,
        geography_level=before.geography_level,
    )
    return replace(data.with_columns({before.name: column}, {}), schema=data.schema.replace(attribute))
