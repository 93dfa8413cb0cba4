"""The data dictionary of a release: its columns and their values, made from the release alone."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa

from safeswap.model.release import Release
from safeswap.model.schema import Attribute

DICTIONARY_FORMAT = "safeswap-dictionary-1"


def data_dictionary(release: Release) -> dict[str, Any]:
    """Describe the columns and values of a release, as its users need to know them.

    >>> from safeswap.model.release import PublicFacts
    >>> from safeswap.model.schema import Schema
    >>> release = Release(
    ...     table=pa.table({"Sex": ["f", "m"]}),
    ...     schema=Schema(attributes=(Attribute(name="Sex", levels=("f", "m"), labels={"f": "female"}),)),
    ...     facts=PublicFacts(method="none", records=2),
    ... )
    >>> data_dictionary(release)["columns"][0]["values"]
    [{'value': 'f', 'label': 'female'}, {'value': 'm'}]
    """
    columns = [_column(attribute, release.table.column(attribute.name)) for attribute in release.schema.attributes]
    title = {"title": release.facts.title} if release.facts.title else {}
    return {"format": DICTIONARY_FORMAT, **title, "records": release.table.num_rows, "columns": columns}


def _column(attribute: Attribute, column: pa.ChunkedArray) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": attribute.name,
        "kind": attribute.kind.value,
        "type": type_in_words(column.type),
        "has_missing": column.null_count > 0,
    }
    if attribute.label:
        described["label"] = attribute.label
    if attribute.geography_level is not None:
        described["geography_level"] = attribute.geography_level
    if attribute.missing:
        described["missing_codes"] = list(attribute.missing)
    values = attribute.levels or tuple(attribute.labels)
    if values:
        described["values"] = [_value(attribute, value) for value in values]
    return described


def _value(attribute: Attribute, value: str) -> dict[str, Any]:
    described: dict[str, Any] = {"value": value}
    if value in attribute.labels:
        described["label"] = attribute.labels[value]
    parents, step = [], value
    for parent_of in attribute.hierarchy:
        if step not in parent_of:
            break
        step = parent_of[step]
        parents.append(step)
    return {**described, "within": parents} if parents else described


def type_in_words(kind: pa.DataType) -> str:
    """Return the type of the values in plain words, independent of any program.

    >>> type_in_words(pa.int8()), type_in_words(pa.dictionary(pa.int8(), pa.string()))
    ('whole number', 'text')
    """
    if pa.types.is_dictionary(kind):
        return type_in_words(kind.value_type)
    tests = (
        (pa.types.is_boolean, "true or false"),
        (pa.types.is_integer, "whole number"),
        (pa.types.is_floating, "number"),
        (pa.types.is_decimal, "decimal number"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "date and time"),
        (pa.types.is_time, "time of day"),
        (pa.types.is_duration, "duration"),
        (pa.types.is_binary, "bytes"),
        (pa.types.is_large_binary, "bytes"),
    )
    return next((words for is_type, words in tests if is_type(kind)), "text")


def dictionary_json(dictionary: dict[str, Any]) -> bytes:
    """Serialise the dictionary as JSON, for programs."""
    return (json.dumps(dictionary, ensure_ascii=False, indent=1) + "\n").encode()


def dictionary_csv(dictionary: dict[str, Any]) -> bytes:
    """Serialise the dictionary as CSV, for people: a line per column, followed by a line per value."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["column", "kind", "type", "label", "value", "value label"])
    for column in dictionary["columns"]:
        writer.writerow([column["name"], column["kind"], column["type"], column.get("label", ""), "", ""])
        for value in column.get("values", ()):
            writer.writerow([column["name"], "", "", "", value["value"], value.get("label", "")])
    return text.getvalue().encode()
