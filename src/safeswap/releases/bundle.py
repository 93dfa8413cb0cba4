"""The public bundle: an allow-list of files that are written, read back and scanned before the bundle gets its name.

Neither this module nor anything it imports knows the confidential audit record, so no mistake here can put any of it
into a bundle.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safeswap.files.atomic import atomic_directory
from safeswap.files.formats import sum_file
from safeswap.files.write import list_losses
from safeswap.model.release import Release
from safeswap.releases.manifest import MANIFEST, Manifest, allowed_files
from safeswap.releases.public_data import check_format, write_data
from safeswap.releases.scan import scan_bundle
from safeswap.releases.scan_data import Remark, name_remarks, refuse_if_any, warning
from safeswap.reports.public import data_dictionary, dictionary_csv, dictionary_json, public_report

PUBLIC_FILE = 0o644
PUBLIC_DIRECTORY = 0o755


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A written bundle: its directory, the SHA-256 of its manifest, and the remarks of the final scan."""

    directory: Path
    manifest_sha256: str
    remarks: tuple[Remark, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "directory": str(self.directory),
            "manifest_sha256": self.manifest_sha256,
            "remarks": [remark.as_dict() for remark in self.remarks],
        }


def write_bundle(
    release: Release, directory: str | os.PathLike[str], *, data_format: str = "csv", force: bool = False
) -> Bundle:
    """Write and scan a release atomically. The same release gives the same bytes.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from safeswap.model.release import PublicFacts
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex", levels=("f", "m")),))
    >>> release = Release(
    ...     table=pa.table({"Sex": ["f", "m"]}), schema=schema, facts=PublicFacts(method="none", records=2)
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bundle = write_bundle(release, Path(folder) / "public")
    ...     sorted(path.name for path in bundle.directory.iterdir())
    ['data.csv', 'dictionary.csv', 'dictionary.json', 'manifest.json', 'report.html']
    """
    check_format(data_format)
    refuse_if_any(name_remarks(release.schema.names))
    with public_directory(directory, force=force) as part:
        bundle = fill_bundle(release, part, data_format=data_format)
    return Bundle(directory=Path(directory), manifest_sha256=bundle.manifest_sha256, remarks=bundle.remarks)


def public_directory(directory: str | os.PathLike[str], *, force: bool = False) -> AbstractContextManager[Path]:
    """Return a directory that gets its name, and becomes readable by others, when the block ends without an error."""
    return atomic_directory(directory, force=force, marker=MANIFEST, mode=PUBLIC_DIRECTORY)


def fill_bundle(release: Release, directory: Path, *, data_format: str) -> Bundle:
    """Write the files of a bundle into an empty directory, the manifest last, and scan all of them."""
    for stem, part in release.parts.items():
        write_data(part, directory / f"{stem}.{data_format}", data_format)
    dictionary = data_dictionary(release)
    (directory / "dictionary.json").write_bytes(dictionary_json(dictionary))
    (directory / "dictionary.csv").write_bytes(dictionary_csv(dictionary))
    (directory / "report.html").write_bytes(public_report(release))
    allowed = allowed_files(data_format, release.parts)
    sums = {name: sum_file(directory / name) for name in sorted(allowed - {MANIFEST})}
    manifest = Manifest(data_format=data_format, facts=release.facts.as_dict(), files=sums)
    (directory / MANIFEST).write_bytes(manifest.to_bytes())
    for path in directory.iterdir():
        path.chmod(PUBLIC_FILE)
    described = release.schema.model_copy(update={"label": ""})  # the title is in the dictionary
    lost = list_losses(release.table, f".{data_format}", schema=described)
    warnings = (warning("not-kept", f"a {data_format} file does not keep {what}") for what in lost)
    remarks = (*refuse_if_any(scan_bundle(directory, release, sums)), *warnings)
    return Bundle(directory=directory, manifest_sha256=sum_file(directory / MANIFEST)[1], remarks=remarks)
