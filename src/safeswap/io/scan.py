"""The last look before a release: at the bytes that were written, not at what was meant to be written.

The same look can be taken from outside, by anybody who holds a bundle and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from safeswap.io.manifest import Manifest, check_files, read_manifest
from safeswap.io.public_data import as_stored
from safeswap.io.remarks import Remark, name_remarks, refusal, refuse_if_any
from safeswap.io.scan_data import look_through
from safeswap.io.scan_documents import document_remarks, labelled_remarks, listed_values, read_dictionary
from safeswap.io.stored import Stored
from safeswap.model.release import Release

_TYPES_IN_WORDS = {"whole number": pa.int64(), "number": pa.float64()}


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a look at a bundle from outside came to. That there is one means that nothing was wrong."""

    directory: Path
    data_format: str
    records: int
    columns: int
    facts: Mapping[str, Any]
    remarks: tuple[Remark, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for ``--json``."""
        return {
            "directory": str(self.directory),
            "data_format": self.data_format,
            "records": self.records,
            "columns": self.columns,
            "facts": dict(self.facts),
            "remarks": [remark.as_dict() for remark in self.remarks],
        }


def scan_bundle(directory: Path, release: Release) -> tuple[Remark, ...]:
    """Read a written bundle back and compare it with what was to be released.

    Files that do not belong to a bundle or do not fit its manifest raise at once. What else there is to say comes
    back as remarks, some of which refuse: a value, category or column that is not released, notes of the programs
    that the data went through, a column name that a spreadsheet would run.
    """
    manifest = read_manifest(directory)
    check_files(directory, manifest)
    expected = as_stored(release, manifest.data_format)
    if list(expected.column_names) != [c["name"] for c in read_dictionary(directory)["columns"]]:
        return (refusal("foreign-column", "the dictionary does not have the released columns", file="dictionary.json"),)
    return _looked_through(directory, manifest, {each.name: each.type for each in expected.schema}, expected)


def verify_bundle(directory: str | os.PathLike[str]) -> Verification:
    """Check a bundle from outside: sums, allow-list, dictionary against data, and the rules of the last look.

    Anything wrong is raised as ``UnsafeRelease`` (or ``InputError`` where there is no bundle at all).

    >>> import tempfile
    >>> from safeswap.io.bundle import write_bundle
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
    columns = read_dictionary(directory)["columns"]
    types = {c["name"]: _TYPES_IN_WORDS.get(c["type"], pa.string()) for c in columns}
    remarks = refuse_if_any(_looked_through(directory, manifest, types, None))
    return Verification(
        directory=directory,
        data_format=manifest.data_format,
        records=manifest.facts["records"],
        columns=len(columns),
        facts=manifest.facts,
        remarks=remarks,
    )


def _looked_through(
    directory: Path, manifest: Manifest, types: Mapping[str, pa.DataType], expected: pa.Table | None
) -> tuple[Remark, ...]:
    path = directory / f"data.{manifest.data_format}"
    stored = Stored(path=path, data_format=manifest.data_format, types=types)
    dictionary = read_dictionary(directory)
    remarks = name_remarks(stored.names)
    if stored.names != list(types):
        remarks.append(refusal("foreign-column", "the data do not have the columns of the dictionary", file=path.name))
        return tuple(remarks)
    seen = look_through(stored, listed=listed_values(dictionary), expected=expected)
    remarks += seen.remarks
    if manifest.data_format in ("dta", "sav"):
        remarks += labelled_remarks(stored.labelled, dictionary, file=path.name)
    return tuple(remarks + document_remarks(directory, manifest, dictionary, seen))
