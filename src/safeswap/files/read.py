"""Read microdata from any supported file or dataframe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from safeswap.errors import InputError, SpecError
from safeswap.files.columns import settled
from safeswap.files.delimited import read_delimited
from safeswap.files.frames import from_frame, is_frame
from safeswap.files.identifiers import Lines, check_identifier
from safeswap.files.infer import check_levels, described
from safeswap.files.labelled import read_labelled
from safeswap.files.parquet import read_arrow, read_parquet
from safeswap.files.schema_file import read_schema
from safeswap.files.sources import DEFAULT_LIMITS, Format, Limits, existing_file, format_of
from safeswap.model.checked import checked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

_TEXT_ONLY = ("delimiter", "quote")


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A table with the description from its source."""

    table: pa.Table
    name: str = ""
    file: str = ""
    lines: Lines | None = None
    label: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@checked
def read(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    identifier: str | None = None,
    kinds: Mapping[str, Kind | str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    quote: str | None = None,
    missing: Sequence[str] = (),
    name: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Microdata:
    """Read microdata from a file or a dataframe.

    ``source`` is a path (CSV and other delimited text, also gzip; Parquet; Arrow or Feather; Stata; SPSS; SAS) or a
    pandas, Polars, Arrow or narwhals dataframe. Values are never changed: text files give text, exactly as written.

    ``schema`` (a ``Schema`` or the path of a schema file) describes the columns; without it their kinds are guessed.
    ``identifier`` names the column that identifies records, ``kinds`` corrects single guesses, ``missing`` lists codes
    that mean "no answer". Delimiter, encoding and quote of a text file are detected unless stated.

    Raises ``InputError`` with file, line and column, never a value.

    >>> import pandas
    >>> frame = pandas.DataFrame({"id": ["007", "008"], "Sex": ["F", "M"]})
    >>> data = read(frame, identifier="id", name="toy")
    >>> data
    <Microdata 'toy': 2 records × 2 attributes: id, Sex>
    """
    if is_frame(source):
        loaded = _Loaded(table=from_frame(source))
        limits.check(file="", columns=loaded.table.num_columns)
    else:
        loaded = _load(existing_file(source), limits, delimiter=delimiter, encoding=encoding, quote=quote)
    table = settled(loaded.table, file=loaded.file)
    if table.num_rows == 0:
        raise InputError("there are no records", code="no-records", hint="give data too", file=loaded.file)
    limits.check(file=loaded.file, records=table.num_rows)
    known = read_schema(schema) if isinstance(schema, (str, os.PathLike)) else schema
    described_as = described(
        table,
        schema=known,
        stated=loaded.attributes,
        identifier=identifier,
        kinds=kinds or {},
        missing=missing,
        name=loaded.name if name is None else name,
        file=loaded.file,
    )
    if loaded.label and not described_as.label:
        described_as = described_as.model_copy(update={"label": loaded.label})
    data = Microdata(table, described_as, source if is_frame(source) else None)
    own = described_as.identifier
    if own is not None and not (own.inferred and not own.missing):  # a guessed identifier was checked when guessed
        check_identifier(
            table.column(own.name), name=own.name, missing=own.missing, file=loaded.file, lines=loaded.lines
        )
    check_levels(data, file=loaded.file, lines=loaded.lines)
    return data


def _load(path: Path, limits: Limits, **stated: str | None) -> _Loaded:
    found = format_of(path)
    name, file = path.name.split(".", 1)[0] or path.name, str(path)
    if found in (Format.DELIMITED, Format.GZIP):
        text = read_delimited(
            path,
            limits=limits,
            delimiter=stated["delimiter"],
            encoding=stated["encoding"],
            quote=stated["quote"],
        )
        return _Loaded(table=text.table, name=name, file=file, lines=text.lines)
    _refuse_text_options(found, stated)
    if found is Format.PARQUET:
        return _Loaded(table=read_parquet(path, limits=limits), name=name, file=file)
    if found in (Format.ARROW, Format.ARROW_STREAM):
        return _Loaded(table=read_arrow(path, found=found, limits=limits), name=name, file=file)
    labelled = read_labelled(path, found=found, encoding=stated["encoding"], limits=limits)
    title, attributes = labelled.title, labelled.attributes
    return _Loaded(table=labelled.table, name=name, file=file, label=title, attributes=attributes)


def _refuse_text_options(found: Format, stated: Mapping[str, str | None]) -> None:
    binary = found in (Format.PARQUET, Format.ARROW, Format.ARROW_STREAM)
    for option in (*_TEXT_ONLY, *(("encoding",) if binary else ())):
        if stated[option] is not None:
            raise SpecError(
                f"a {found.value} file has no {option} to state",
                code="bad-option",
                hint=f"leave out {option}",
                option=option,
            )
