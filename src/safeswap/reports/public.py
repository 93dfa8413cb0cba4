"""The documents of a release, made from the release alone: the data dictionary and the report.

The report is one self-contained HTML file without scripts. What it tells is a value of its own, :class:`PublicPage`:
neither this module nor anything it imports knows the confidential side.
"""

from __future__ import annotations

import csv
import io
import json
from concurrent.futures import ThreadPoolExecutor
from heapq import nsmallest
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.model.release import TWO_FILES, PublicFacts, Release
from safeswap.model.schema import Attribute, Kind, level_texts, require_household
from safeswap.model.spec import Strict
from safeswap.reports import load_template, read_asset

DICTIONARY_FORMAT = "safeswap-dictionary-1"

MOST_LINES = 30
"""The longest table; the data dictionary has all values."""


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
    parts = release.parts
    columns = [
        {**({"file": stem} if len(parts) > 1 else {}), **_column(attribute, part.table.column(attribute.name))}
        for stem, part in parts.items()
        for attribute in part.schema.attributes
    ]
    title = {"title": release.facts.title} if release.facts.title else {}
    homes = {"households": parts[TWO_FILES[0]].table.num_rows} if len(parts) > 1 else {}
    return {"format": DICTIONARY_FORMAT, **title, "records": release.table.num_rows, **homes, "columns": columns}


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
    several = "households" in dictionary
    writer.writerow([*(["file"] if several else []), "column", "kind", "type", "label", "value", "value label"])
    for column in dictionary["columns"]:
        first = [*([column["file"]] if several else []), column["name"]]
        writer.writerow([*first, column["kind"], column["type"], column.get("label", ""), "", ""])
        for value in column.get("values", ()):
            writer.writerow([*first, "", "", "", value["value"], value.get("label", "")])
    return text.getvalue().encode()


class Column(Strict):
    """A released column: what it is called, means and holds."""

    name: str
    label: str
    kind: str
    type: str
    distinct: str


class Line(Strict):
    """A value and its frequency, in words if it is too rare; ``width`` is the length of its bar."""

    value: str
    count: str
    width: float


class Frequencies(Strict):
    """The most frequent values of a column; ``more`` others are in the data dictionary."""

    name: str
    lines: tuple[Line, ...]
    more: int


class PublicPage(Strict):
    """The content of the public report. It is made from a release alone, and refers to nothing else."""

    facts: PublicFacts
    records: str
    columns: tuple[Column, ...]
    weighted: bool
    frequencies: tuple[Frequencies, ...]
    joined_by: str = ""  # the column that joins the file of households and that of persons, if there are two

    @classmethod
    def of(cls, release: Release) -> PublicPage:
        """Collect what the report says about a release; no count of records is below the tolerance."""
        attributes = release.schema.attributes
        return cls(
            facts=release.facts,
            records=_count_in_words(release.table.num_rows, release.facts.tolerance),
            columns=tuple(_line(a, release.table.column(a.name)) for a in attributes),
            weighted=any(a.kind is Kind.WEIGHT for a in attributes),
            frequencies=tuple(_all_frequencies(release)),
            joined_by=require_household(release.schema) if release.shared else "",
        )

    def render(self) -> bytes:
        """Return the report as HTML: text, tables and bars, which is all that the scan of a bundle lets pass."""
        rate = "" if self.facts.rate is None else f"{self.facts.rate:.4g}"
        title = self.facts.title or "Public-use file"
        css = read_asset("paper.css")
        text: str = load_template("public_report.html").render(
            page=self, facts=self.facts, title=title, rate=rate, css=css
        )
        return text.encode()


def public_report(release: Release) -> bytes:
    """Render the report as HTML; all text is escaped, and no count of records is below the tolerance."""
    return PublicPage.of(release).render()


def _line(attribute: Attribute, column: pa.ChunkedArray) -> Column:
    return Column(
        name=attribute.name,
        label=attribute.label,
        kind=attribute.kind.value,
        type=type_in_words(column.type),
        distinct=f"{len(attribute.levels):,}" if attribute.levels else "",
    )


def _all_frequencies(release: Release) -> list[Frequencies]:
    # Arrow releases the GIL, so columns can be counted in parallel.
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        categorical = [a for a in release.schema.attributes if a.kind.is_categorical]
        return list(threads.map(lambda attribute: _frequencies(release, attribute), categorical))


def _frequencies(release: Release, attribute: Attribute) -> Frequencies:
    """Count the most frequent values, in the order of the dictionary, missing last."""
    column = release.table.column(attribute.name)
    counted = _count_values(column)
    distinct, counts = len(counted), counted.field("counts").to_numpy()
    if distinct > MOST_LINES:  # convert to text only those of many values that may be shown
        counted = counted.filter(pa.array(counts >= np.partition(counts, -MOST_LINES)[-MOST_LINES]))
    number = dict(zip(level_texts(counted.field("values")), counted.field("counts").to_pylist(), strict=True))
    # By count, then by name: ties must not depend on the order of the rows.
    most = set(nsmallest(MOST_LINES, number, key=lambda text: (-number[text], text)))
    shown = [t for t in attribute.levels or sorted(most) if t in most]
    largest = max(number.values(), default=0)
    lines = [_frequency(attribute.labels.get(t, t), number[t], largest, release.facts.tolerance) for t in shown]
    if column.null_count:
        lines.append(_frequency("(missing)", column.null_count, largest, release.facts.tolerance))
    return Frequencies(name=attribute.label or attribute.name, lines=tuple(lines), more=distinct - len(shown))


def _count_values(column: pa.ChunkedArray) -> pa.StructArray:
    if not pa.types.is_dictionary(column.type) or column.num_chunks != 1:
        return column.drop_null().value_counts()
    from safeswap.arrays.cells import count_dense

    levels, codes = column.chunk(0).dictionary, column.chunk(0).indices.drop_null().to_numpy()
    counts = count_dense(codes.view(f"uint{8 * codes.itemsize}"), len(levels)).astype(np.int64)
    used = np.flatnonzero(counts)
    return pa.StructArray.from_arrays([levels.take(pa.array(used)), pa.array(counts[used])], ["values", "counts"])


def _frequency(text: str, count: int, largest: int, tolerance: int) -> Line:
    width = min(100.0, round(100 * count / largest, 1)) if largest and count >= tolerance else 0
    return Line(value=text, count=_count_in_words(count, tolerance), width=width)


def _count_in_words(count: int, tolerance: int) -> str:
    return f"{count:,}" if count >= tolerance else f"fewer than {tolerance}"
