"""Stata and SPSS files with labels, from a table and its schema.

What these formats cannot hold is refused, never bent: a whole number above 2**53 (they know floating point or 32 bits
only), a name they do not allow, a text that is too long. Two losses are theirs: neither tells a missing text from an
empty one, and SPSS drops spaces at the end of a text.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import OutputError
from safeswap.io.atomic import PRIVATE_FILE, atomic_write
from safeswap.io.write import Writable, as_table
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

_TAG = re.compile(r"\.[a-z]", re.ASCII)
_LARGEST_EXACT = 2**53
_LARGEST_STATA_LONG = 2_147_483_620
_MOST_SPSS_CODES = 3
_MEASURES = {Kind.NOMINAL: "nominal", Kind.GEOGRAPHY: "nominal", Kind.ORDINAL: "ordinal", Kind.NUMERIC: "scale"}


def write_dta(
    data: Writable,
    path: str | os.PathLike[str],
    *,
    schema: Schema | None = None,
    force: bool = False,
    mode: int = PRIVATE_FILE,
) -> None:
    """Write a Stata file with variable labels and the value labels of numbers; ``.a`` to ``.z`` come out as such.

    >>> import tempfile
    >>> from safeswap.io.read import read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.dta"
    ...     attribute = Attribute(name="sex", labels={"1": "male", "2": "female"})
    ...     write_dta(Microdata(pa.table({"sex": [1, 2, 2]}), Schema(attributes=(attribute,))), path)
    ...     read(path).schema["sex"].labels
    {'1': 'male', '2': 'female'}
    """
    import pyreadstat

    schema = schema or _schema_of(data)
    columns = {a.name: _values(as_table(data).column(a.name), a, tagged=True) for a in schema.attributes}
    tags = {a.name: [m[1:] for m in a.missing if _TAG.fullmatch(m)] for a in schema.attributes}
    tags = {name: found for name, found in tags.items() if found and columns[name].dtype == object}
    labels = {a.name: _stata_labels(a, tags.get(a.name, []), columns[a.name]) for a in schema.attributes}
    with atomic_write(path, force=force, mode=mode) as part:
        _hand_over(
            pyreadstat.write_dta,
            columns,
            part,
            file_label=schema.name[:80],
            column_labels={a.name: a.label[:80] for a in schema.attributes if a.label},
            variable_value_labels={name: found for name, found in labels.items() if found},
            missing_user_values=tags or None,
        )


def write_sav(
    data: Writable,
    path: str | os.PathLike[str],
    *,
    schema: Schema | None = None,
    force: bool = False,
    mode: int = PRIVATE_FILE,
) -> None:
    """Write an SPSS file, compressed if it is called ``.zsav``, with labels, measures and declared missing codes.

    >>> import tempfile
    >>> from safeswap.io.read import read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.sav"
    ...     attribute = Attribute(name="sex", labels={"1": "male"}, missing=("9",))
    ...     write_sav(Microdata(pa.table({"sex": [1, 9, 1]}), Schema(attributes=(attribute,))), path)
    ...     read(path).schema["sex"].missing
    ('9',)
    """
    import pyreadstat

    schema = schema or _schema_of(data)
    columns = {a.name: _values(as_table(data).column(a.name), a, tagged=False) for a in schema.attributes}
    # SPSS has one type of number, and the writer wants labels and codes to be of the column's type.
    columns = {n: v if v.dtype == object else v.astype(np.float64) for n, v in columns.items()}
    numeric = {name: values.dtype != object for name, values in columns.items()}
    labels = {a.name: _keyed(a.labels, numeric=numeric[a.name]) for a in schema.attributes}
    missing = {a.name: _spss_missing(a, columns[a.name], numeric=numeric[a.name]) for a in schema.attributes}
    with atomic_write(path, force=force, mode=mode) as part:
        _hand_over(
            pyreadstat.write_sav,
            columns,
            part,
            compress=Path(path).suffix.lower() == ".zsav",
            file_label=schema.name[:60],
            column_labels={a.name: a.label[:120] for a in schema.attributes if a.label},
            variable_value_labels={name: found for name, found in labels.items() if found},
            missing_ranges={name: found for name, found in missing.items() if found} or None,
            variable_measure={a.name: _MEASURES[a.kind] for a in schema.attributes if a.kind in _MEASURES},
        )


def _schema_of(data: Writable) -> Schema:
    if isinstance(data, pa.Table):
        return Schema(attributes=tuple(Attribute(name=name) for name in data.column_names))
    return data.schema if isinstance(data, Microdata) else data.data.schema


def _values(column: pa.ChunkedArray, attribute: Attribute, *, tagged: bool) -> Any:
    """The column as the writer takes it: doubles, 32-bit whole numbers, or objects for text, dates and tags."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_boolean(kind):
        return _whole_numbers(column.cast(pa.int8()), attribute.name)
    if pa.types.is_integer(kind):
        return _whole_numbers(column, attribute.name)
    if pa.types.is_floating(kind):
        return column.cast(pa.float64()).to_numpy()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(column, attribute, tagged=tagged)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return np.array(column.to_pylist(), dtype=object)
    raise _not_representable(f"column {attribute.name!r} is of a type that the format does not know", attribute.name)


def _whole_numbers(column: pa.ChunkedArray, name: str) -> Any:
    bounds = pc.min_max(column).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    if largest > _LARGEST_EXACT:
        raise _not_representable(f"column {name!r} holds whole numbers above 2**53", name)
    if largest > _LARGEST_STATA_LONG or column.null_count:
        return column.cast(pa.float64()).to_numpy()
    return column.cast(pa.int32()).to_numpy()


def _texts(column: pa.ChunkedArray, attribute: Attribute, *, tagged: bool) -> Any:
    """Texts; or numbers and tags mixed, as they were read, where all that is no tag is a number."""
    texts = column.to_pylist()
    if tagged and any(_TAG.fullmatch(code) for code in attribute.missing):
        numbers = [None if t is None or t in attribute.missing else _number(t) for t in texts]
        if all(n is not None or t is None or t in attribute.missing for n, t in zip(numbers, texts, strict=True)):
            mixed = [t[1:] if n is None and t is not None else n for n, t in zip(numbers, texts, strict=True)]
            return np.array([np.nan if value is None else value for value in mixed], dtype=object)
    return np.array(["" if text is None else text for text in texts], dtype=object)


def _stata_labels(attribute: Attribute, tags: list[str], values: Any) -> dict[Any, str]:
    if values.dtype == object and not tags:
        return {}  # Stata has no labels for texts
    keyed = _keyed({k: v for k, v in attribute.labels.items() if k[1:] not in tags or k[:1] != "."}, numeric=True)
    whole = {int(value): label for value, label in keyed.items() if float(value).is_integer()}
    return {**whole, **{tag: attribute.labels[f".{tag}"] for tag in tags if f".{tag}" in attribute.labels}}


def _keyed(labels: dict[str, str], *, numeric: bool) -> dict[Any, str]:
    if not numeric:
        return dict(labels)
    return {number: label for text, label in labels.items() if (number := _number(text)) is not None}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _spss_missing(attribute: Attribute, values: Any, *, numeric: bool) -> list[Any]:
    if not numeric:
        return [code for code in attribute.missing if code]
    codes = sorted(number for code in attribute.missing if (number := _number(code)) is not None)
    if len(codes) <= _MOST_SPSS_CODES:
        return codes
    # More than three must be written as a range, which may hold nothing else.
    within = np.unique(values[(values >= codes[0]) & (values <= codes[-1])])
    if np.isin(within, codes).all():
        return [{"lo": codes[0], "hi": codes[-1]}]
    raise _not_representable(
        f"column {attribute.name!r} has more than three missing codes, and other values lie between", attribute.name
    )


def _hand_over(writer: Callable[..., Any], columns: dict[str, Any], part: Path, **options: Any) -> None:
    import pandas as pd
    import pyreadstat

    frame = pd.DataFrame({name: pd.Series(values, dtype=values.dtype) for name, values in columns.items()})
    try:
        writer(frame, str(part), **options)
    except (pyreadstat.PyreadstatError, pyreadstat.ReadstatError, UnicodeError, ValueError, TypeError) as error:
        if "Unable to write" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        raise _not_representable("a name, a label or a value is not possible in this format", "") from None


def _not_representable(message: str, column: str) -> OutputError:
    return OutputError(
        message,
        code="not-representable",
        hint="names must be letters, digits and underscores, texts short; or write CSV or Parquet",
        **({"column": column} if column else {}),
    )
