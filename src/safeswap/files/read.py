"""Read microdata from any supported file or dataframe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Unpack

from safeswap.errors import InputError, SpecError
from safeswap.files.columns import normalise_table
from safeswap.files.formats import Limits, Loaded, ReadingOptions, TextOptions, existing_file, format_of
from safeswap.files.identifiers import check_identifier
from safeswap.files.infer import check_levels, resolve_schema
from safeswap.files.schema_file import read_schema
from safeswap.model.checked import check_types
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema, require_household
from safeswap.model.two_files import divide_schema, merge_files


@check_types
def read(source: Any, **options: Unpack[ReadingOptions]) -> Microdata:
    """Read microdata from a file or a dataframe.

    ``source`` is a path (CSV and other delimited text, also gzip; Parquet; Arrow or Feather; Stata; SPSS; SAS) or a
    pandas, Polars, Arrow or narwhals dataframe. Values are never changed: text files give text, exactly as written.
    Only with ``decimal=","`` the decimal commas of numbers become points.

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
    limits = options["limits"]
    path = None if is_frame(source) else existing_file(source)
    if path is None:
        from safeswap.files.frames import from_frame

        loaded, file, stem = Loaded(table=from_frame(source)), "", ""
        limits.check(file="", columns=loaded.table.num_columns)
    else:
        loaded = _load(path, limits, _text_options(options))
        file, stem = str(path), path.name.split(".", 1)[0] or path.name
    table = normalise_table(loaded.table, file=file, is_valid=loaded.is_valid)
    if table.num_rows == 0:
        raise InputError("there are no records", code="no-records", hint="add records", file=file)
    limits.check(file=file, records=table.num_rows)
    schema, name = options["schema"], options["name"]
    known = read_schema(schema) if isinstance(schema, (str, os.PathLike)) else schema
    missing = options["missing"]
    if options["decimal"] == ",":
        known, missing = _convert_codes(known, missing)
    described_as = resolve_schema(
        table,
        schema=known,
        stated=loaded.attributes,
        identifier=options["identifier"],
        kinds=options["kinds"] or {},
        missing=missing,
        name=stem if name is None else name,
        file=file,
    )
    if loaded.label and not described_as.label:
        described_as = described_as.model_copy(update={"label": loaded.label})
    stored = None if loaded.stored is None else loaded.stored._replace(table=table)
    data = Microdata(table, described_as, source if is_frame(source) else None, stored=stored)
    own = described_as.identifier
    if own is not None and not (own.inferred and not own.missing):  # a guessed identifier was checked when guessed
        check_identifier(table.column(own.name), name=own.name, missing=own.missing, file=file, lines=loaded.lines)
    check_levels(data, file=file, lines=loaded.lines)
    return data


def read_joined(
    persons: Path,
    households: Path,
    *,
    on: str | None = None,
    schema: Schema | None = None,
    layout: Mapping[str, Any] | None = None,
    **options: Any,
) -> Microdata:
    """Read a file of persons joined with its file of households; ``layout`` has the options for reading the latter.

    ``schema`` describes the joined file, in which everything from the file of households is the household's.
    """
    stated = layout or {}
    homes = read(households, **stated)
    if schema is None:
        return merge_files(homes, read(persons, **options), on)
    own = on or require_household(schema)
    schema = schema.replace(schema[own].model_copy(update={"kind": Kind.HOUSEHOLD}))
    unmarked = [name for name in homes.attributes if name in schema and name != own and not schema[name].household]
    if unmarked:
        raise SpecError(
            f"{unmarked[0]!r} is a column of the file of households, and the schema says that members differ in it",
            code="schema-mismatch",
            hint="mark it as the household's (household = true), or move it to the file of persons",
            columns=unmarked,
        )
    of_homes, of_people = divide_schema(schema, homes.attributes)
    merged = merge_files(read(households, schema=of_homes, **stated), read(persons, schema=of_people, **options))
    return Microdata(merged.table.select(schema.names), merged.schema.select(schema.names))


def is_frame(source: object) -> bool:
    """Return whether this is a dataframe rather than a path."""
    return not isinstance(source, (str, bytes)) and not hasattr(source, "__fspath__")


def _convert_codes(known: Schema | None, missing: Sequence[str]) -> tuple[Schema | None, Sequence[str]]:
    """Add to the codes that mean "no answer" how those with a decimal comma are read."""
    from safeswap.files.delimited import convert_codes

    stated = () if known is None else known.attributes
    converted = (each.model_copy(update={"missing": convert_codes(each.missing)}) for each in stated if each.missing)
    return None if known is None else known.replace(*converted), convert_codes(missing)


def _text_options(options: ReadingOptions) -> TextOptions:
    return TextOptions(**{each.name: options[each.name] for each in fields(TextOptions)})  # type: ignore[literal-required]


def _load(path: Path, limits: Limits, stated: TextOptions) -> Loaded:
    found = format_of(path)
    for option in fields(stated):
        if getattr(stated, option.name) is not None and option.name not in found.options:
            raise SpecError(
                f"a {found.name} file has no {option.name} to state",
                code="bad-option",
                hint=f"omit {option.name}",
                option=option.name,
            )
    return found.read(path, found, stated, limits)
