"""Columns coded so that the order of the codes is the order of the values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import SpecError
from safeswap.kernels.types import Codes
from safeswap.model.dates import is_date_format
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Coded, Microdata, smallest_code_type
from safeswap.model.schema import Attribute


def ranked(data: Microdata, name: str) -> tuple[Codes, int]:
    """The column as ranks of its values, and how many ranks there are. The rows' order plays no part in them.

    Levels that the schema lists have its order. Otherwise numbers are ordered as numbers, also where they are held as
    text, and text by its characters. What stands for a missing value comes last, each such code a level of its own.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="Rooms"),))
    >>> codes, ranks = ranked(Microdata(pa.table({"Rooms": ["10", "9", None, "10"]}), schema), "Rooms")
    >>> codes.tolist(), ranks
    ([1, 0, 2, 1], 3)
    """
    coded = data.coded(name)
    return rank_of_code(data, name).astype(smallest_code_type(coded.cardinality))[coded.codes], coded.cardinality


def rank_of_code(data: Microdata, name: str) -> npt.NDArray[np.int64]:
    """The rank of each code of a column, missing included; what :func:`ranked` gives record by record."""
    place = _places(data.coded(name), data.schema[name])
    return np.append(place, len(place))


def ranked_columns(data: Microdata, names: tuple[str, ...]) -> tuple[list[Codes], list[int]]:
    """Several columns as ranks, as the kernels take them."""
    columns = [ranked(data, name) for name in names]
    return [codes for codes, _ in columns], [ranks for _, ranks in columns]


def ranked_levels(data: Microdata, name: str) -> pa.Array:
    """The levels of a column in the order of their ranks; a missing value, which has none, would come last.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="Rooms"),))
    >>> ranked_levels(Microdata(pa.table({"Rooms": ["10", "9", None]}), schema), "Rooms").to_pylist()
    ['9', '10']
    """
    coded = data.coded(name)
    return coded.levels.take(pa.array(np.argsort(_places(coded, data.schema[name]))))


def missing_codes(data: Microdata, name: str) -> npt.NDArray[np.bool_]:
    """For each code of the column, whether it stands for a missing value.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex", missing=("?",)),))
    >>> missing_codes(Microdata(pa.table({"Sex": ["m", "?", None]}), schema), "Sex").tolist()
    [False, True, True]
    """
    coded = data.coded(name)
    stated = set(data.schema[name].missing)
    named = [text in stated for text in level_texts(coded.levels)] if stated else [False] * len(coded.levels)
    return np.array([*named, True][: coded.cardinality], dtype=np.bool_)


def numbers(data: Microdata, name: str) -> npt.NDArray[np.float64]:
    """The column as floating-point numbers; what is missing is not a number.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="Income", kind="numeric", missing=("-1",)),))
    >>> numbers(Microdata(pa.table({"Income": ["12.5", None, "-1"]}), schema), "Income").tolist()
    [12.5, nan, nan]
    """
    attribute = data.schema[name]
    column = data.table.column(name)
    if is_date_format(attribute.display):
        raise _not_numeric(name)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        plain: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        for text in attribute.missing:
            plain[plain == _number(text)] = np.nan
        return plain
    coded = data.coded(name)
    known = pa.array(~missing_codes(data, name)[: len(coded.levels)])
    try:
        levels = pc.if_else(known, coded.levels, pa.scalar(None, coded.levels.type))
        values = pc.cast(levels, pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _not_numeric(name) from None
    found: npt.NDArray[np.float64] = np.append(values, np.nan)[coded.codes]
    return found


def _not_numeric(name: str) -> SpecError:
    return SpecError(
        f"{name!r} does not hold numbers",
        code="not-numeric",
        hint="name a numeric attribute, or describe the codes that stand for a missing value; dates are no numbers",
        attribute=name,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _places(coded: Coded, attribute: Attribute) -> npt.NDArray[np.int64]:
    """The rank of each level: stated order first, then values in their own order, codes for missing last."""
    texts = level_texts(coded.levels)
    stated = {text: place for place, text in enumerate(attribute.levels)}
    group = np.array([2 if t in attribute.missing else int(t not in stated) for t in texts], dtype=np.int64)
    listed = np.array([stated.get(text, 0) for text in texts], dtype=np.int64)
    place = np.empty(len(texts), dtype=np.int64)
    place[np.lexsort((_value_ranks(coded.levels, texts), listed, group))] = np.arange(len(texts))
    return place


def _value_ranks(levels: pa.Array, texts: list[str]) -> npt.NDArray[np.int64]:
    ranks = np.empty(len(texts), dtype=np.int64)
    values = np.array([_number(text) for text in texts])
    # Text decides between values that are the same number, such as 1 and 01.
    by_text = pc.array_sort_indices(pa.array(texts, pa.string())).to_numpy()
    are_numbers = pa.types.is_floating(levels.type) or not np.isnan(values).any()
    order = by_text[np.argsort(values[by_text], kind="stable")] if are_numbers else by_text
    ranks[order] = np.arange(len(texts))
    return ranks
