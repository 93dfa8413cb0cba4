"""A look through the documents of a bundle: they say nothing that the released data do not say themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from safeswap.io.dictionary import DICTIONARY_FORMAT, dictionary_csv, dictionary_json
from safeswap.io.labelled import Labelled
from safeswap.io.manifest import Manifest, damaged
from safeswap.io.remarks import Remark, is_formula, refusal, warning
from safeswap.io.scan_data import Seen

_DICTIONARY_KEYS = {"format", "title", "records", "columns"}
_COLUMN_KEYS = {"name", "kind", "type", "has_missing", "label", "geography_level", "missing_codes", "values"}
_VALUE_KEYS = {"value", "label", "within"}
_FACT_KEYS = {"product", "version", "method", "kept_exactly", "records", "tolerance", "title", "date", "rate"}

_TAGS = frozenset(
    {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "ul", "li", "table", "tr", "th", "td"}
    | {"div", "code"}
)
_ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "style"}
_BAR = re.compile(r"width:\d{1,3}(\.\d)?%")


def read_dictionary(directory: Path) -> dict[str, Any]:
    """The data dictionary of a bundle, if it is one and in the one form in which it is written."""
    path = directory / "dictionary.json"
    data = path.read_bytes()
    try:
        dictionary = json.loads(data)
        keys_are_known = dictionary.keys() <= _DICTIONARY_KEYS and all(
            column.keys() <= _COLUMN_KEYS and all(v.keys() <= _VALUE_KEYS for v in column.get("values", ()))
            for column in dictionary["columns"]
        )
        complete = all({"name", "kind", "type", "has_missing"} <= c.keys() for c in dictionary["columns"])
        genuine = dictionary["format"] == DICTIONARY_FORMAT and dictionary_json(dictionary) == data
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged("it is not a data dictionary", file=path.name) from None
    if not (keys_are_known and complete and genuine):
        raise damaged("it says more or less than a data dictionary does", file=path.name)
    return dict(dictionary)


def listed_values(dictionary: Mapping[str, Any]) -> dict[str, list[str]]:
    """The values that the dictionary speaks of, by column."""
    values = {c["name"]: [v["value"] for v in c.get("values", ())] for c in dictionary["columns"]}
    codes = {c["name"]: list(c.get("missing_codes", ())) for c in dictionary["columns"]}
    return {name: values[name] + codes[name] for name in values if values[name] or codes[name]}


def document_remarks(directory: Path, manifest: Manifest, dictionary: Mapping[str, Any], seen: Seen) -> list[Remark]:
    """Where dictionary, manifest and report do not fit the data."""
    remarks = [*_dictionary_remarks(dictionary, seen), *_label_remarks(dictionary)]
    if (directory / "dictionary.csv").read_bytes() != dictionary_csv(dict(dictionary)):
        remarks.append(
            refusal("foreign-text", "dictionary.csv is not dictionary.json as a table", file="dictionary.csv")
        )
    if not manifest.facts.keys() <= _FACT_KEYS or manifest.facts.get("records") != seen.records:
        remarks.append(
            refusal("foreign-fact", "the manifest states something else than public facts", file="manifest.json")
        )
    tolerance = manifest.facts.get("tolerance")
    return remarks + report_remarks(directory / "report.html", tolerance if isinstance(tolerance, int) else 0)


def _dictionary_remarks(dictionary: Mapping[str, Any], seen: Seen) -> Iterable[Remark]:
    file = "dictionary.json"
    if dictionary["records"] != seen.records:
        yield refusal("record-count", "the dictionary states another number of records than there are", file=file)
    for column in dictionary["columns"]:
        name = column["name"]
        if not _missing_fits(column, seen):
            yield refusal(
                "missing-values", f"the dictionary is wrong on missing values of {name!r}", column=name, file=file
            )
    for name, values in listed_values(dictionary).items():
        foreign = set(values) - seen.columns[name].texts
        if foreign:
            message = f"the dictionary lists {len(foreign):,} values of {name!r} that no record has"
            yield refusal("unused-category", message, column=name, file=file)


def _missing_fits(column: Mapping[str, Any], seen: Seen) -> bool:
    is_missing = seen.columns[column["name"]].has_missing
    if seen.tells_missing:
        return bool(column["has_missing"] == is_missing)
    # Stata and SPSS take an empty text for a missing one and NaN for a missing number.
    return bool(column["has_missing"]) or not is_missing or column["type"] == "number"


def _label_remarks(dictionary: Mapping[str, Any]) -> Iterable[Remark]:
    for column in dictionary["columns"]:
        texts = [column.get("label", ""), *(v.get("label", "") for v in column.get("values", ()))]
        number = sum(is_formula(text) for text in texts)
        if number:
            message = f"a spreadsheet would run {number:,} labels of {column['name']!r} as formulas"
            yield warning("formula-cells", message, column=column["name"], file="dictionary.csv")


def labelled_remarks(labelled: Labelled, dictionary: Mapping[str, Any], *, file: str) -> Iterable[Remark]:
    """Where a Stata or SPSS file says more about its columns than the data dictionary does."""
    if labelled.title and dictionary.get("title", "") != labelled.title:
        yield refusal("foreign-text", "the file has a title that is not the released one", file=file)
    for column in dictionary["columns"]:
        name, found = column["name"], labelled.attributes[column["name"]]
        known = {value["value"]: value.get("label", "") for value in column.get("values", ())}
        labels_fit = all(value in known and known[value] == label for value, label in found.labels.items())
        missing_fit = set(found.missing) <= set(column.get("missing_codes", ()))
        if not (labels_fit and missing_fit and column.get("label", "") == found.label):
            yield refusal("foreign-text", f"the file labels {name!r} otherwise than released", column=name, file=file)


def report_remarks(path: Path, tolerance: int) -> list[Remark]:
    """Anything in the report that runs, loads something, or counts fewer records than the tolerance."""
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
