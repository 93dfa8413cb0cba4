"""The final scan before a release, of the bytes that were written, not of what was meant to be written.

Anyone who has a bundle and nothing else can run the same scan. The documents of a bundle must say nothing that the
released data do not say.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.files.labelled import Labelled
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.release import MOST_LISTED, ONE_FILE, TWO_FILES, Release
from safeswap.model.schema import require_household
from safeswap.model.text import plural
from safeswap.releases.manifest import Manifest, Sum, check_files, damaged_error, read_manifest
from safeswap.releases.public_data import Stored, as_labelled, as_stored
from safeswap.releases.scan_data import (
    Remark,
    Seen,
    is_formula,
    name_remarks,
    normalise_nan,
    refusal,
    refuse_if_any,
    scan_data,
    warning,
)
from safeswap.reports.public import DICTIONARY_FORMAT, dictionary_csv, dictionary_json

_DICTIONARY_KEYS = {"format", "title", "records", "households", "columns"}
_COLUMN_KEYS = {"file", "name", "kind", "type", "has_missing", "label", "geography_level", "missing_codes", "values"}
_VALUE_KEYS = {"value", "label", "within"}
_FACT_KEYS = {
    *("product", "version", "method", "kept_exactly", "records", "tolerance", "title", "date", "rate"),
    "error_multipliers",
}

_TAGS = frozenset(
    {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "ul", "li", "table", "tr", "th", "td"}
    | {"div", "code"}
)
_ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "style"}
_BAR = re.compile(r"width:\d{1,3}(\.\d)?%")


def read_dictionary(directory: Path) -> dict[str, Any]:
    """Read the data dictionary of a bundle; refuse one that is not in canonical form."""
    path = directory / "dictionary.json"
    data = path.read_bytes()
    try:
        dictionary = json.loads(data)
        keys_are_known = dictionary.keys() <= _DICTIONARY_KEYS and all(
            column.keys() <= _COLUMN_KEYS and all(v.keys() <= _VALUE_KEYS for v in column.get("values", ()))
            for column in dictionary["columns"]
        )
        complete = all({"name", "kind", "type", "has_missing"} <= c.keys() for c in dictionary["columns"])
        files = {column.get("file", ONE_FILE[0]) for column in dictionary["columns"]}
        complete &= files == set(TWO_FILES if "households" in dictionary else ONE_FILE)
        genuine = dictionary["format"] == DICTIONARY_FORMAT and dictionary_json(dictionary) == data
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged_error("it is not a data dictionary", file=path.name) from None
    if not (keys_are_known and complete and genuine):
        raise damaged_error("it does not have exactly the fields of a data dictionary", file=path.name)
    return dict(dictionary)


def divide_dictionary(dictionary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the dictionary of each data file, by its name without ending."""
    if "households" not in dictionary:
        return {ONE_FILE[0]: dict(dictionary)}
    counts = zip(TWO_FILES, (dictionary["households"], dictionary["records"]), strict=True)
    columns = dictionary["columns"]
    return {s: {**dictionary, "records": n, "columns": [c for c in columns if c["file"] == s]} for s, n in counts}


def listed_values(dictionary: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the values that the dictionary lists, by column."""
    values = {c["name"]: [v["value"] for v in c.get("values", ())] for c in dictionary["columns"]}
    codes = {c["name"]: list(c.get("missing_codes", ())) for c in dictionary["columns"]}
    return {name: values[name] + codes[name] for name in values if values[name] or codes[name]}


def document_remarks(directory: Path, manifest: Manifest, dictionary: Mapping[str, Any], records: int) -> list[Remark]:
    """Find mismatches of dictionary, manifest and report with each other, and with the number of records."""
    remarks = list(_label_remarks(dictionary))
    if (directory / "dictionary.csv").read_bytes() != dictionary_csv(dict(dictionary)):
        remarks.append(refusal("foreign-text", "dictionary.csv does not match dictionary.json", file="dictionary.csv"))
    if not manifest.facts.keys() <= _FACT_KEYS or manifest.facts.get("records") != records:
        remarks.append(
            refusal("foreign-fact", "the manifest has facts that are wrong or not public", file="manifest.json")
        )
    tolerance = manifest.facts.get("tolerance")
    return remarks + report_remarks(directory / "report.html", tolerance if isinstance(tolerance, int) else 0)


def _dictionary_remarks(dictionary: Mapping[str, Any], seen: Seen) -> Iterable[Remark]:
    file = "dictionary.json"
    if dictionary["records"] != seen.records:
        yield refusal("record-count", "the dictionary states a wrong number of records", file=file)
    for column in dictionary["columns"]:
        name = column["name"]
        if not _missing_fits(column, seen):
            yield refusal(
                "missing-values", f"the dictionary is wrong on missing values of {name!r}", column=name, file=file
            )
    for name, values in listed_values(dictionary).items():
        foreign = set(values) - seen.columns[name].texts
        if foreign:
            message = f"the dictionary lists {plural(len(foreign), 'value')} of {name!r} that no record has"
            yield refusal("unused-category", message, column=name, file=file)


def _missing_fits(column: Mapping[str, Any], seen: Seen) -> bool:
    is_missing = seen.columns[column["name"]].has_missing
    if seen.tells_missing:
        return bool(column["has_missing"] == is_missing)
    # Stata and SPSS treat empty text and NaN as missing.
    return bool(column["has_missing"]) or not is_missing or column["type"] == "number"


def _label_remarks(dictionary: Mapping[str, Any]) -> Iterable[Remark]:
    for column in dictionary["columns"]:
        texts = [column.get("label", ""), *(v.get("label", "") for v in column.get("values", ()))]
        number = sum(is_formula(text) for text in texts)
        if number:
            message = f"a spreadsheet would run {plural(number, 'label')} of {column['name']!r} as formulas"
            yield warning("formula-cells", message, column=column["name"], file="dictionary.csv")


def labelled_remarks(labelled: Labelled, dictionary: Mapping[str, Any], *, file: str) -> Iterable[Remark]:
    """Find metadata of a Stata or SPSS file that differ from the data dictionary."""
    if labelled.title and dictionary.get("title", "") != labelled.title:
        yield refusal("foreign-text", "the file has a title that is not the released one", file=file)
    for column in dictionary["columns"]:
        name, found = column["name"], labelled.attributes[column["name"]]
        known = {value["value"]: value.get("label", "") for value in column.get("values", ())}
        labels_fit = all(value in known and known[value] == label for value, label in found.labels.items())
        missing_fit = set(found.missing) <= set(column.get("missing_codes", ()))
        if not (labels_fit and missing_fit and column.get("label", "") == found.label):
            yield refusal("foreign-text", f"the labels of {name!r} in the file differ", column=name, file=file)


def report_remarks(path: Path, tolerance: int) -> list[Remark]:
    """Find anything in the report that runs, loads something, or counts fewer records than the tolerance."""
    reader = _ReportReader(tolerance)
    try:
        reader.feed(path.read_text(encoding="utf-8"))
        reader.close()
    except UnicodeDecodeError:
        return [refusal("active-report", "the report is not text", file=path.name)]
    return [refusal(code, message, file=path.name) for code, message in reader.problems.items()]


class _ReportReader(HTMLParser):
    def __init__(self, tolerance: int) -> None:
        super().__init__(convert_charrefs=True)
        self.tolerance = tolerance
        self.problems: dict[str, str] = {}
        self._in_count = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        styled = dict(attrs).get("style")
        if tag not in _TAGS or not names <= _ATTRIBUTES or (styled and not _BAR.fullmatch(styled)):
            self.problems["active-report"] = "the report holds more than text, tables and bars"
        self._in_count = tag == "td" and ("class", "count") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_count = False

    def handle_data(self, data: str) -> None:
        number = data.replace(",", "").strip()
        if self._in_count and number.isdecimal() and int(number) < self.tolerance:
            self.problems["small-count"] = "the report holds a number of records below the tolerance"


_TYPES_IN_WORDS = {"whole number": pa.int64(), "number": pa.float64()}


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of verifying a bundle. It exists only if nothing was wrong."""

    directory: Path
    data_format: str
    records: int
    columns: int
    facts: Mapping[str, Any]
    remarks: tuple[Remark, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json``."""
        return {
            "directory": str(self.directory),
            "data_format": self.data_format,
            "records": self.records,
            "columns": self.columns,
            "facts": dict(self.facts),
            "remarks": [remark.as_dict() for remark in self.remarks],
        }


def scan_bundle(directory: Path, release: Release, sums: Mapping[str, Sum] | None = None) -> tuple[Remark, ...]:
    """Read a written bundle back and compare it with the release; ``sums`` are those of its files, if just computed.

    Files that do not belong to a bundle or do not match its manifest raise at once. All other findings are returned as
    remarks, some of them refusals: a value, category or column that is not released, metadata of programs that handled
    the data, a column name that a spreadsheet would run.
    """
    manifest = read_manifest(directory)
    check_files(directory, manifest, sums)
    expected = {stem: as_stored(part, manifest.data_format) for stem, part in release.parts.items()}
    dictionaries = divide_dictionary(read_dictionary(directory))
    if {s: table.column_names for s, table in expected.items()} != {s: _names(d) for s, d in dictionaries.items()}:
        return (refusal("foreign-column", "the dictionary does not have the released columns", file="dictionary.json"),)
    types = {s: dict(zip(t.column_names, map(_read_type, t.columns), strict=True)) for s, t in expected.items()}
    remarks = _scan_files(directory, manifest, types, expected)
    if not release.shared or any(remark.refuses for remark in remarks):
        return remarks
    return (*remarks, *_joined_remarks(_store(directory, manifest, types), release))


def _names(dictionary: Mapping[str, Any]) -> list[str]:
    return [column["name"] for column in dictionary["columns"]]


def _read_type(column: pa.ChunkedArray) -> pa.DataType:
    """Return the type in which a column is read back: one with many levels as text, which need not be hashed."""
    is_coded = pa.types.is_dictionary(column.type) and column.num_chunks
    return pa.string() if is_coded and len(column.chunk(0).dictionary) > MOST_LISTED else column.type


def verify_bundle(directory: str | os.PathLike[str]) -> Verification:
    """Check a bundle by itself: checksums, allow-list, dictionary against data, and the rules of the final scan.

    Anything wrong raises ``UnsafeRelease`` (or ``InputError`` if there is no bundle at all).

    >>> import tempfile
    >>> from safeswap.releases.bundle import write_bundle
    >>> from safeswap.model.release import PublicFacts
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex", levels=("f", "m")),))
    >>> release = Release(
    ...     table=pa.table({"Sex": ["f", "m"]}), schema=schema, facts=PublicFacts(method="none", records=2)
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_bundle(release, Path(folder) / "public", data_format="parquet")
    ...     verify_bundle(Path(folder) / "public").records
    2
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    check_files(directory, manifest)
    dictionaries = divide_dictionary(read_dictionary(directory))
    types = {
        stem: {c["name"]: _TYPES_IN_WORDS.get(c["type"], pa.string()) for c in each["columns"]}
        for stem, each in dictionaries.items()
    }
    remarks = refuse_if_any(_scan_files(directory, manifest, types))
    if len(types) > 1:
        _join(_store(directory, manifest, types), require_number(dictionaries))
    return Verification(
        directory=directory,
        data_format=manifest.data_format,
        records=manifest.facts["records"],
        columns=len({name for each in dictionaries.values() for name in _names(each)}),
        facts=manifest.facts,
        remarks=remarks,
    )


def _store(directory: Path, manifest: Manifest, types: Mapping[str, Mapping[str, pa.DataType]]) -> dict[str, Stored]:
    form = manifest.data_format
    return {s: Stored(path=directory / f"{s}.{form}", data_format=form, types=own) for s, own in types.items()}


def _scan_files(
    directory: Path,
    manifest: Manifest,
    types: Mapping[str, Mapping[str, pa.DataType]],
    expected: Mapping[str, pa.Table] | None = None,
) -> tuple[Remark, ...]:
    dictionary = read_dictionary(directory)
    dictionaries, remarks, records = divide_dictionary(dictionary), [], 0
    for stem, stored in _store(directory, manifest, types).items():
        remarks += name_remarks(stored.names)
        if set(dictionaries) != set(manifest.stems) or stored.names != list(types[stem]):
            message = "the data do not have the columns of the dictionary"
            return (*remarks, refusal("foreign-column", message, file=stored.path.name))
        own = dictionaries[stem]
        seen = scan_data(stored, listed=listed_values(own), expected=None if expected is None else expected[stem])
        remarks += [*seen.remarks, *_dictionary_remarks(own, seen)]
        if manifest.data_format in ("dta", "sav"):
            remarks += labelled_remarks(stored.labelled, own, file=stored.path.name)
        records = seen.records  # of persons, which come last
    return tuple(remarks + document_remarks(directory, manifest, dictionary, records))


def require_number(dictionaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the column that joins the file of households and that of persons: the only one in both."""
    both = set.intersection(*(set(_names(each)) for each in dictionaries.values()))
    if len(both) != 1:
        raise damaged_error("the two files have no single column in common", file="dictionary.json")
    return both.pop()


def _join(stored: Mapping[str, Stored], own: str) -> tuple[pa.Table, pa.Array]:
    """Return the file of households as read back, and its record of each person; refuse files that do not fit.

    Every household has one record and some person, and every person with a number has a household.
    """
    homes, people = (pa.concat_tables(stored[stem].pieces(), promote_options="permissive") for stem in TWO_FILES)
    numbers, wanted = homes.column(own), people.column(own)
    places = pc.index_in(wanted, value_set=numbers.combine_chunks(), skip_nulls=True)
    repeated = numbers.null_count or len(numbers.unique()) < len(numbers)
    if repeated or places.null_count > wanted.null_count or len(places.drop_null().unique()) < len(homes):
        raise damaged_error("its households are not those of the persons", file=stored[TWO_FILES[0]].path.name)
    return homes, places


def _joined_remarks(stored: Mapping[str, Stored], release: Release) -> Iterator[Remark]:
    """Find columns of the household file that, joined to the persons, are not those of the release in one file."""
    form = stored[TWO_FILES[0]].data_format
    homes, places = _join(stored, require_household(release.schema))
    whole = as_stored(release, form)
    joined = homes.select(list(release.shared)).take(places)
    joined = as_labelled(joined, form) if form in ("dta", "sav") else joined
    for name in release.shared:
        columns = (normalise_nan(table.column(name)) for table in (whole, joined))
        if number := int(np.count_nonzero(flag_changes(*aligned_columns(*columns)))):
            message = f"{plural(number, 'person has', 'persons have')} another value of {name!r} when joined"
            yield refusal("foreign-value", message, column=name, file=stored[TWO_FILES[0]].path.name)
