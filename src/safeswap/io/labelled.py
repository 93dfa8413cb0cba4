"""Stata, SPSS and SAS files: values as they are stored, labels, display formats and missing codes in the schema.

A value label stays in the schema (``labels``), the display format too (``display``), a code that is declared missing
stays a value and is listed under ``missing``. Dates and times, which these programs keep as numbers, become dates and
times, unless a number among them is none to the last digit (see :mod:`safeswap.model.dates`). Stata and SAS know tagged
missing values (``.a`` to ``.z``): a column in which they occur is read as text, the tags written with their dot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from safeswap.errors import InputError
from safeswap.io.limits import Limits
from safeswap.io.sources import Format, corrupt
from safeswap.model.dates import Clock, Program, clock_of, is_date_format
from safeswap.model.levels import level_texts
from safeswap.model.microdata import code_column
from safeswap.model.schema import Attribute, Kind

_PROGRAMS: dict[Format, Program] = {
    Format.SPSS: "spss",
    Format.STATA: "stata",
    Format.SAS: "sas",
    Format.SAS_TRANSPORT: "sas",
}
_MEASURES = {"nominal": Kind.NOMINAL, "ordinal": Kind.ORDINAL, "scale": Kind.NUMERIC}


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A labelled file that was read: the values, and what the file says about them."""

    table: pa.Table
    title: str = ""
    attributes: dict[str, Attribute] = field(default_factory=dict)


def read_labelled(path: Path, *, found: Format, encoding: str | None, limits: Limits) -> Labelled:
    """Read a Stata, SPSS or SAS file.

    >>> import tempfile, pandas, pyreadstat
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.sav"
    ...     frame = pandas.DataFrame({"sex": [1.0, 2.0, 9.0]})
    ...     pyreadstat.write_sav(
    ...         frame, path, variable_value_labels={"sex": {1: "male", 2: "female"}}, missing_ranges={"sex": [9]}
    ...     )
    ...     read = read_labelled(path, found=Format.SPSS, encoding=None, limits=Limits())
    >>> read.table.to_pydict(), read.attributes["sex"].labels, read.attributes["sex"].missing
    ({'sex': [1.0, 2.0, 9.0]}, {'1': 'male', '2': 'female'}, ('9',))
    """
    reader, options = _reader(found)
    if encoding is not None:
        options["encoding"] = encoding
    _, declared = _read(reader, path, found, metadataonly=True, **options)
    limits.check(file=str(path), columns=declared.number_columns)
    if declared.number_rows is not None:
        # Values pass through Python objects here: eight bytes and more for each.
        size = declared.number_rows * declared.number_columns * 8
        limits.check(file=str(path), records=declared.number_rows, decoded_bytes=size)
    columns, facts = _read(reader, path, found, output_format="dict", disable_datetime_conversion=True, **options)
    tagged = {name: list(tags) for name, tags in (facts.missing_user_values or {}).items()}
    formats = {name: display or "" for name, display in (facts.original_variable_types or {}).items()}
    clocks = {name: clock_of(formats.get(name, ""), _PROGRAMS[found]) for name in columns if not tagged.get(name)}
    arrays = {n: _array(values, n, tagged.get(n, []), path, clocks.get(n)) for n, values in columns.items()}
    table = pa.table(list(arrays.values()), names=list(arrays))
    attributes = {}
    for name, array in arrays.items():
        clock = clocks.get(name) if pa.types.is_temporal(array.type) else None
        attributes[name] = _attribute(
            name, table.column(name), facts, tagged.get(name, []), display=formats.get(name, ""), clock=clock
        )
    return Labelled(table=table, title=facts.file_label or "", attributes=attributes)


def _reader(found: Format) -> tuple[Callable[..., Any], dict[str, Any]]:
    import pyreadstat

    if found is Format.SAS_TRANSPORT:
        return pyreadstat.read_xport, {}
    readers: dict[Format, Callable[..., Any]] = {
        Format.STATA: pyreadstat.read_dta,
        Format.SPSS: pyreadstat.read_sav,
        Format.SAS: pyreadstat.read_sas7bdat,
    }
    return readers[found], {"user_missing": True}


def _read(reader: Callable[..., Any], path: Path, found: Format, **options: Any) -> tuple[Any, Any]:
    import pyreadstat

    try:
        values, facts = reader(str(path), **options)
    except UnicodeDecodeError:
        raise InputError(
            f"{path.name!r} holds text in another encoding than it says",
            code="wrong-encoding",
            hint="state the encoding, for example encoding='cp1252'",
            file=str(path),
        ) from None
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, OSError, ValueError, OverflowError, MemoryError):
        raise corrupt(path, found) from None
    return values, facts


def _array(values: list[Any], name: str, tags: list[str], path: Path, clock: Clock | None) -> pa.Array:
    dates = None if clock is None else clock.read(values)
    if dates is not None and dates.null_count < len(dates):
        return dates
    if tags:
        known = set(tags)
        return pa.array(
            [f".{v}" if isinstance(v, str) and v in known else _number_text(v) for v in values], pa.string()
        )
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        raise InputError(
            f"column {name!r} mixes values of different types",
            code="mixed-types",
            hint="write the column anew with one type",
            file=str(path),
            column=name,
        ) from None


def _number_text(value: Any) -> str | None:
    return None if value is None else repr(value).removesuffix(".0")


def _attribute(
    name: str, column: pa.ChunkedArray, facts: Any, tags: list[str], *, display: str, clock: Clock | None
) -> Attribute:
    labels = (facts.variable_value_labels or {}).get(name) or {}
    texts = {_code_text(value, clock) or _label_key(value, tags): str(label) for value, label in labels.items()}
    kind = _MEASURES.get((facts.variable_measure or {}).get(name) or "")
    if kind is Kind.NUMERIC and is_date_format(display):
        kind = Kind.NOMINAL  # a scale to these programs, and no quantity
    declared = (facts.missing_ranges or {}).get(name) or []
    missing = (*(f".{tag}" for tag in tags), *_codes_within(column, declared, clock))
    if kind is None and texts and set(texts) - set(missing):
        kind = Kind.NOMINAL
    return Attribute(
        name=name,
        label=(facts.column_names_to_labels or {}).get(name) or "",
        kind=kind or Kind.NOMINAL,
        labels=texts,
        missing=tuple(dict.fromkeys(missing)),
        levels=_ascending(column, missing) if kind is Kind.ORDINAL else (),
        display=display,
        inferred=kind is None,
    )


def _code_text(value: Any, clock: Clock | None) -> str:
    """A code of a column of dates as text; nothing where it is none."""
    dates = clock.read([value]) if clock is not None and isinstance(value, (int, float)) else None
    return level_texts(dates)[0] if dates is not None else ""


def _label_key(value: Any, tags: list[str]) -> str:
    if isinstance(value, str):
        return f".{value}" if value in tags else value
    return _number_text(value) or ""


def _codes_within(column: pa.ChunkedArray, declared: Iterable[Any], clock: Clock | None = None) -> list[str]:
    """The declared missing codes: single ones as they are, ranges as the values of the column that lie in them."""
    codes: list[str] = []
    for item in declared:
        low, high = (item["lo"], item["hi"]) if isinstance(item, dict) else (item, item)
        if low == high:
            codes += [_code_text(low, clock)] if clock is not None else level_texts(pa.array([low]))
        elif clock is not None:
            bounds = clock.read([low, high])
            inside = () if bounds is None else sorted(v for v in column.unique().to_pylist() if v is not None)
            first, last = (None, None) if bounds is None else bounds.to_pylist()
            codes += level_texts(pa.array([v for v in inside if first <= v <= last], type=column.type))
        else:
            values = [v for v in column.unique().to_pylist() if v is not None and low <= v <= high]
            codes += level_texts(pa.array(sorted(values), type=column.type))
    return codes


def _ascending(column: pa.ChunkedArray, missing: Iterable[str]) -> tuple[str, ...]:
    levels = code_column(column).levels
    texts = level_texts(levels.take(pa.compute.sort_indices(levels)))
    return tuple(text for text in dict.fromkeys(texts) if text not in set(missing))
