"""Read and write Stata and SPSS files, and read SAS files, with labels, display formats and missing codes.

Value labels (``labels``) and display formats (``display``) go to the schema; a code that is declared missing stays a
value and is listed under ``missing``. Dates and times, which these programs store as numbers, become dates and times,
unless one of the numbers does not convert exactly (see :mod:`safeswap.model.dates`). Stata and SAS have tagged missing
values (``.a`` to ``.z``): a column with tags is read as text, the tags with their dot.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import InputError, OutputError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.files.columns import refuse_nul
from safeswap.files.formats import Format, Limits, Package, corrupt_error
from safeswap.files.write import Writable, as_table, schema_of
from safeswap.model.dates import Clock, Program, clock_for, clock_of, is_date_format, to_days
from safeswap.model.microdata import code_column
from safeswap.model.schema import Attribute, Kind, Schema, level_texts
from safeswap.model.text import list_names, plural

_MEASURES = {"nominal": Kind.NOMINAL, "ordinal": Kind.ORDINAL, "scale": Kind.NUMERIC}


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The values of a labelled file, and their descriptions."""

    table: pa.Table
    title: str = ""
    attributes: dict[str, Attribute] = field(default_factory=dict)


def read_labelled(path: Path, *, found: Format, encoding: str | None, limits: Limits) -> Labelled:
    """Read a Stata, SPSS or SAS file.

    >>> import tempfile, pandas, pyreadstat
    >>> from safeswap.files.formats import SPSS
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.sav"
    ...     frame = pandas.DataFrame({"sex": [1.0, 2.0, 9.0]})
    ...     pyreadstat.write_sav(
    ...         frame, path, variable_value_labels={"sex": {1: "male", 2: "female"}}, missing_ranges={"sex": [9]}
    ...     )
    ...     read = read_labelled(path, found=SPSS, encoding=None, limits=Limits())
    >>> read.table.to_pydict(), read.attributes["sex"].labels, read.attributes["sex"].missing
    ({'sex': [1.0, 2.0, 9.0]}, {'1': 'male', '2': 'female'}, ('9',))
    """
    package = found.package
    assert package is not None  # noqa: S101  (only rows with a package come here)
    reader, options = _reader(package)
    if encoding is not None:
        options["encoding"] = encoding
    _, declared = _read(reader, path, found, metadataonly=True, **options)
    limits.check(file=str(path), columns=declared.number_columns)
    if declared.number_rows is not None:
        # Values pass through Python objects here: at least eight bytes each.
        size = declared.number_rows * declared.number_columns * 8
        limits.check(file=str(path), records=declared.number_rows, decoded_bytes=size)
    columns, facts = _read(reader, path, found, output_format="dict", disable_datetime_conversion=True, **options)
    tagged = {name: list(tags) for name, tags in (facts.missing_user_values or {}).items()}
    formats = {name: display or "" for name, display in (facts.original_variable_types or {}).items()}
    clocks = {name: clock_of(formats.get(name, ""), package.program) for name in columns if not tagged.get(name)}
    arrays = {n: _to_array(values, n, tagged.get(n, []), path, clocks.get(n)) for n, values in columns.items()}
    table = pa.table(list(arrays.values()), names=list(arrays))
    attributes = {}
    for name, array in arrays.items():
        clock = clocks.get(name) if pa.types.is_temporal(array.type) else None
        attributes[name] = _build_attribute(
            name, table.column(name), facts, tagged.get(name, []), display=formats.get(name, ""), clock=clock
        )
    return Labelled(table=table, title=facts.file_label or "", attributes=attributes)


def _reader(package: Package) -> tuple[Callable[..., Any], dict[str, Any]]:
    import pyreadstat

    return getattr(pyreadstat, package.reader), {"user_missing": True} if package.has_user_missing else {}


def _read(reader: Callable[..., Any], path: Path, found: Format, **options: Any) -> tuple[Any, Any]:
    import pyreadstat

    try:
        values, facts = reader(str(path), **options)
    except UnicodeDecodeError:
        raise InputError(
            f"{path.name!r} holds text in a different encoding than it declares",
            code="wrong-encoding",
            hint="state the encoding, for example encoding='cp1252'",
            file=str(path),
        ) from None
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, OSError, ValueError, OverflowError, MemoryError):
        raise corrupt_error(path, found) from None
    return values, facts


def _to_array(values: list[Any], name: str, tags: list[str], path: Path, clock: Clock | None) -> pa.Array:
    dates = None if clock is None else clock.read(values)
    if dates is not None:
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
            hint="rewrite the column with a single type",
            file=str(path),
            column=name,
        ) from None


def _number_text(value: Any) -> str | None:
    return None if value is None else repr(value).removesuffix(".0")


def _build_attribute(
    name: str, column: pa.ChunkedArray, facts: Any, tags: list[str], *, display: str, clock: Clock | None
) -> Attribute:
    labels = (facts.variable_value_labels or {}).get(name) or {}
    texts = {_code_text(value, clock) or _label_key(value, tags): str(label) for value, label in labels.items()}
    kind = _MEASURES.get((facts.variable_measure or {}).get(name) or "")
    if pa.types.is_date(column.type):
        kind = Kind.DATE
    elif kind is Kind.NUMERIC and is_date_format(display):
        # A scale to these programs, but not a quantity; timestamps that are all at midnight are dates.
        at_midnight = column.null_count < len(column) and to_days(column) is not None
        kind = Kind.DATE if at_midnight else Kind.NOMINAL
    declared = (facts.missing_ranges or {}).get(name) or []
    missing = (*(f".{tag}" for tag in tags), *_expand_missing(column, declared, clock))
    if kind is None and texts and set(texts) - set(missing):
        kind = Kind.NOMINAL
    return Attribute(
        name=name,
        label=(facts.column_names_to_labels or {}).get(name) or "",
        kind=kind or Kind.NOMINAL,
        labels=texts,
        missing=tuple(dict.fromkeys(missing)),
        levels=_sort_levels(column, missing) if kind is Kind.ORDINAL else (),
        display=display,
        inferred=kind is None,
    )


def _code_text(value: Any, clock: Clock | None) -> str:
    """Return a code of a date column as text; empty if it is not a date."""
    dates = clock.read([value]) if clock is not None and isinstance(value, (int, float)) else None
    return level_texts(dates)[0] if dates is not None else ""


def _label_key(value: Any, tags: list[str]) -> str:
    if isinstance(value, str):
        return f".{value}" if value in tags else value
    return _number_text(value) or ""


def _expand_missing(column: pa.ChunkedArray, declared: Iterable[Any], clock: Clock | None = None) -> list[str]:
    """Return the declared missing codes, ranges expanded to the values of the column within them."""
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


def _sort_levels(column: pa.ChunkedArray, missing: Iterable[str]) -> tuple[str, ...]:
    levels = code_column(column).levels
    texts = level_texts(levels.take(pa.compute.sort_indices(levels)))
    return tuple(text for text in dict.fromkeys(texts) if text not in set(missing))


# Writing. What these formats cannot represent is refused before anything is written, never altered: a whole number
# above 2**53 (they have floating point or 32 bits only), an invalid name, a text or label that is too long, a text with
# trailing spaces in SPSS, which would drop them. Dates and times are written as such, in their display format or the
# usual one. One loss is inherent: neither format distinguishes a missing text from an empty one. The others are
# listed by :func:`list_losses`: display formats of another program without a counterpart, labels of fractions and of
# texts in Stata.

_TAG = re.compile(r"\.[a-z]", re.ASCII)
_LARGEST_EXACT = 2**53
_LARGEST_STATA_LONG = 2_147_483_620
_MOST_SPSS_CODES = 3
_LONGEST: dict[Program, dict[str, int]] = {  # labels: of the file, of a variable, of a value
    "stata": {"file": 80, "variable": 80, "value": 32_000},
    "spss": {"file": 64, "variable": 256, "value": 120},
}
_SPSS_NUMBER = re.compile(r"(?:F|COMMA|DOT|DOLLAR|PCT|E|N|CC[A-E])(\d+)(?:\.(\d+))?")
_STATA_NUMBER = re.compile(r"%-?0?(\d+)(?:[.,](\d+))?[fgec]c?")
_PLAIN_FORMAT = re.compile(r"F\d+(\.\d+)?|%-?\d+(\.\d+)?[fg]")
_MEASURE_NAMES = {
    Kind.NOMINAL: "nominal",
    Kind.GEOGRAPHY: "nominal",
    Kind.ORDINAL: "ordinal",
    Kind.NUMERIC: "scale",
    Kind.DATE: "scale",
}


def write_dta(
    data: Writable,
    path: str | os.PathLike[str],
    *,
    schema: Schema | None = None,
    force: bool = False,
    mode: int = PRIVATE_FILE,
) -> None:
    """Write a Stata file with variable labels and the value labels of numbers; ``.a`` to ``.z`` are written as tags.

    >>> import tempfile
    >>> from safeswap.files.read import read
    >>> from safeswap.model.microdata import Microdata
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.dta"
    ...     attribute = Attribute(name="sex", labels={"1": "male", "2": "female"})
    ...     write_dta(Microdata(pa.table({"sex": [1, 2, 2]}), Schema(attributes=(attribute,))), path)
    ...     read(path).schema["sex"].labels
    {'1': 'male', '2': 'female'}
    """
    import pyreadstat

    schema = schema or schema_of(data)
    _check_labels(schema, "stata")
    refuse_nul(as_table(data))
    columns = {a.name: _to_values(as_table(data).column(a.name), a, "stata") for a in schema.attributes}
    tags = {a.name: [m[1:] for m in a.missing if _TAG.fullmatch(m)] for a in schema.attributes}
    tags = {name: found for name, found in tags.items() if found and columns[name].dtype == object}
    kinds = {name: as_table(data).column(name).type for name in columns}
    labels = {
        a.name: _stata_labels(_encode_dates(a, kinds[a.name], "stata"), tags.get(a.name, []), columns[a.name])
        for a in schema.attributes
    }
    with atomic_write(path, force=force, mode=mode) as part:
        _hand_over(
            pyreadstat.write_dta,
            columns,
            part,
            file_label=schema.label,
            column_labels={a.name: a.label for a in schema.attributes if a.label},
            variable_value_labels={name: found for name, found in labels.items() if found},
            missing_user_values=tags or None,
            variable_format=_display_formats(schema, kinds, columns, "stata"),
        )


def write_sav(
    data: Writable,
    path: str | os.PathLike[str],
    *,
    schema: Schema | None = None,
    force: bool = False,
    mode: int = PRIVATE_FILE,
) -> None:
    """Write an SPSS file, compressed if the suffix is ``.zsav``, with labels, measures and declared missing codes.

    >>> import tempfile
    >>> from safeswap.files.read import read
    >>> from safeswap.model.microdata import Microdata
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.sav"
    ...     attribute = Attribute(name="sex", labels={"1": "male"}, missing=("9",))
    ...     write_sav(Microdata(pa.table({"sex": [1, 9, 1]}), Schema(attributes=(attribute,))), path)
    ...     read(path).schema["sex"].missing
    ('9',)
    """
    import pyreadstat

    schema = schema or schema_of(data)
    _check_labels(schema, "spss")
    refuse_nul(as_table(data))
    kinds = {a.name: as_table(data).column(a.name).type for a in schema.attributes}
    columns = {a.name: _to_values(as_table(data).column(a.name), a, "spss") for a in schema.attributes}
    stated = [_encode_dates(a, kinds[a.name], "spss") for a in schema.attributes]
    # SPSS has one numeric type, and the writer needs labels and codes of the column's type.
    columns = {n: v if v.dtype == object else v.astype(np.float64) for n, v in columns.items()}
    numeric = {name: values.dtype != object for name, values in columns.items()}
    labels = {a.name: _parse_label_keys(a.labels, numeric=numeric[a.name]) for a in stated}
    missing = {a.name: _spss_missing(a, columns[a.name], numeric=numeric[a.name]) for a in stated}
    with atomic_write(path, force=force, mode=mode) as part:
        _hand_over(
            pyreadstat.write_sav,
            columns,
            part,
            compress=Path(path).suffix.lower() == ".zsav",
            file_label=schema.label,
            column_labels={a.name: a.label for a in schema.attributes if a.label},
            variable_value_labels={name: found for name, found in labels.items() if found},
            missing_ranges={name: found for name, found in missing.items() if found} or None,
            variable_measure={a.name: _MEASURE_NAMES[a.kind] for a in schema.attributes if a.kind in _MEASURE_NAMES},
            variable_format=_display_formats(schema, kinds, columns, "spss"),
        )


def list_losses(schema: Schema, table: pa.Table, program: Program) -> tuple[str, ...]:
    """List what a program's file would lose of the description of a table, a sentence each.

    Plain formats of numbers and dates have counterparts and count as kept.
    """
    lost = ((each.name, _list_losses(each, table.column(each.name).type, program)) for each in schema.attributes)
    return tuple(f"{name}: {what}" for name, found in lost for what in found)


def _list_losses(attribute: Attribute, kind: pa.DataType, program: Program) -> Iterator[str]:
    """Yield what a program would lose of the description of one column."""
    display, written = attribute.display, _display_format(attribute, kind, program)
    plain = _is_text(kind) or clock_for(kind, display, program) or _PLAIN_FORMAT.fullmatch(display)
    if display and display != written and not plain:
        yield f"the display format {display}" + (f" becomes {written}" if written else "")
    if program != "stata":
        return
    tags = [code for code in attribute.missing if _TAG.fullmatch(code)]
    if len(tags) < len(attribute.missing):
        yield "which codes are missing values: Stata supports only .a to .z"
    labels = _encode_dates(attribute, kind, program).labels.keys() - set(tags)
    lost = sum((_is_text(kind) and not tags) or not _is_whole(text) for text in labels)
    if lost:
        yield f"the labels of {plural(lost, 'value')}: Stata labels only whole numbers"


def _is_whole(text: str) -> bool:
    number = _parse_number(text)
    return number is not None and number.is_integer()


def _display_format(attribute: Attribute, kind: pa.DataType, program: Program) -> str:
    """Return the display format of a column in a program's notation; empty if left to the program."""
    if (clock := clock_for(kind, attribute.display, program)) is not None:
        return clock[1]
    if _is_text(kind):
        return ""
    own, other = (_STATA_NUMBER, _SPSS_NUMBER) if program == "stata" else (_SPSS_NUMBER, _STATA_NUMBER)
    native = attribute.display.startswith("%") == (program == "stata")
    if own.fullmatch(attribute.display) or (native and is_date_format(attribute.display)):
        return attribute.display
    if (found := other.fullmatch(attribute.display)) is None:
        return ""
    width, decimals = found[1], found[2] or "0"
    return f"%{width}.{decimals}f" if program == "stata" else f"F{width}.{decimals}"


def _display_formats(
    schema: Schema, kinds: dict[str, Any], columns: dict[str, Any], program: Program
) -> dict[str, str]:
    found = {
        a.name: _display_format(a, kinds[a.name], program) for a in schema.attributes if columns[a.name].dtype != object
    }
    return {name: display for name, display in found.items() if display}


def _check_labels(schema: Schema, program: Program) -> None:
    """Refuse labels that the format would truncate, all in one error."""
    longest = _LONGEST[program]
    size = len if program == "stata" else (lambda text: len(text.encode()))
    long = [a.name for a in schema.attributes if size(a.label) > longest["variable"]]
    long += [a.name for a in schema.attributes if any(size(text) > longest["value"] for text in a.labels.values())]
    if long or size(schema.label) > longest["file"]:
        where = list_names(dict.fromkeys(long), most=10) or "the file"
        limits = f"{longest['file']} for the file, {longest['variable']} for a variable, {longest['value']} for a value"
        raise OutputError(
            f"labels are too long for this format ({limits}): {where}",
            code="label-too-long",
            hint="shorten them in the schema, or write CSV or Parquet",
            columns=list(dict.fromkeys(long)),
        )


def _encode_dates(attribute: Attribute, kind: pa.DataType, program: Program) -> Attribute:
    """Convert the labels and missing codes of a date column to the numbers that represent the dates."""
    clock = clock_for(kind, attribute.display, program)
    if clock is None or not (attribute.labels or attribute.missing):
        return attribute

    def number(text: str) -> str:
        try:
            found = clock[0].write(pa.array([text]).cast(kind))
        except pa.ArrowInvalid:
            return text
        return text if found is None else repr(float(found[0]))

    labels = {number(text): label for text, label in attribute.labels.items()}
    return attribute.model_copy(update={"labels": labels, "missing": tuple(map(number, attribute.missing))})


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))


def _to_values(column: pa.ChunkedArray, attribute: Attribute, program: Program) -> Any:
    """Convert the column to what the writer takes: doubles, 32-bit integers, or objects for text and tags."""
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
        if program == "spss":
            _refuse_trailing_blanks(column, attribute.name)
        return _to_texts(column, attribute, tagged=program == "stata")
    clock = clock_for(kind, attribute.display, program)
    numbers = None if clock is None else clock[0].write(column)
    if numbers is not None:
        return numbers
    what = "holds times finer than the format supports" if clock else "has a type that the format does not support"
    raise _not_representable(f"column {attribute.name!r} {what}", attribute.name)


def _refuse_trailing_blanks(column: pa.ChunkedArray, name: str) -> None:
    number = pc.sum(pc.ends_with(column, " ")).as_py() or 0
    if number:
        raise OutputError(
            f"column {name!r} has spaces at the end of {plural(number, 'text')}, which SPSS would drop",
            code="trailing-blanks",
            hint="strip the texts before masking, or write Stata, CSV or Parquet",
            column=name,
        )


def _whole_numbers(column: pa.ChunkedArray, name: str) -> Any:
    bounds = pc.min_max(column).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    if largest > _LARGEST_EXACT:
        raise _not_representable(f"column {name!r} holds whole numbers above 2**53", name)
    if largest > _LARGEST_STATA_LONG or column.null_count:
        return column.cast(pa.float64()).to_numpy()
    return column.cast(pa.int32()).to_numpy()


def _to_texts(column: pa.ChunkedArray, attribute: Attribute, *, tagged: bool) -> Any:
    """Return texts; or numbers mixed with tags, if every value that is not a tag is a number."""
    texts = column.to_pylist()
    if tagged and any(_TAG.fullmatch(code) for code in attribute.missing):
        numbers = [None if t is None or t in attribute.missing else _parse_number(t) for t in texts]
        if all(n is not None or t is None or t in attribute.missing for n, t in zip(numbers, texts, strict=True)):
            mixed = [t[1:] if n is None and t is not None else n for n, t in zip(numbers, texts, strict=True)]
            return np.array([np.nan if value is None else value for value in mixed], dtype=object)
    return np.array(["" if text is None else text for text in texts], dtype=object)


def _stata_labels(attribute: Attribute, tags: list[str], values: Any) -> dict[Any, str]:
    if values.dtype == object and not tags:
        return {}  # Stata has no labels for texts
    keyed = _parse_label_keys(
        {k: v for k, v in attribute.labels.items() if k[1:] not in tags or k[:1] != "."}, numeric=True
    )
    whole = {int(value): label for value, label in keyed.items() if float(value).is_integer()}
    return {**whole, **{tag: attribute.labels[f".{tag}"] for tag in tags if f".{tag}" in attribute.labels}}


def _parse_label_keys(labels: dict[str, str], *, numeric: bool) -> dict[Any, str]:
    if not numeric:
        return dict(labels)
    return {number: label for text, label in labels.items() if (number := _parse_number(text)) is not None}


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _spss_missing(attribute: Attribute, values: Any, *, numeric: bool) -> list[Any]:
    if not numeric:
        return [code for code in attribute.missing if code]
    codes = sorted(number for code in attribute.missing if (number := _parse_number(code)) is not None)
    if len(codes) <= _MOST_SPSS_CODES:
        return codes
    # More than three must be written as a range, which may contain no other value.
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
