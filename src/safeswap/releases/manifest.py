"""The manifest of a public bundle: its files, and the SHA-256 of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from safeswap.errors import InputError, UnsafeRelease
from safeswap.files.formats import list_releasable, sum_file
from safeswap.model.release import ONE_FILE, TWO_FILES

MANIFEST = "manifest.json"
MANIFEST_FORMAT = "safeswap-bundle-1"
DATA_FORMATS = list_releasable()
DOCUMENTS = ("dictionary.json", "dictionary.csv", "report.html")

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Public facts, and the size and SHA-256 of each file."""

    data_format: str
    facts: dict[str, Any]
    files: dict[str, tuple[int, str]]

    @property
    def stems(self) -> tuple[str, ...]:
        """The names of the data files without ending: one, or those of households and of persons."""
        return TWO_FILES if f"{TWO_FILES[0]}.{self.data_format}" in self.files else ONE_FILE

    def to_bytes(self) -> bytes:
        """Serialise the manifest canonically, with a checksum of itself at the end.

        >>> manifest = Manifest(data_format="csv", facts={}, files={"data.csv": (3, "00")})
        >>> Manifest.from_bytes(manifest.to_bytes()) == manifest
        True
        """
        files = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in sorted(self.files.items())}
        content = {"format": MANIFEST_FORMAT, "data_format": self.data_format, "facts": self.facts, "files": files}
        body = json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True)
        return _seal(body).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Parse a manifest; refuse anything that ``to_bytes`` would not have written."""
        try:
            content = json.loads(data)
            files = {name: (int(f["bytes"]), str(f["sha256"])) for name, f in content["files"].items()}
            manifest = cls(data_format=str(content["data_format"]), facts=dict(content["facts"]), files=files)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise damaged_error("it is not a manifest", file=MANIFEST) from None
        if manifest.to_bytes() != data:
            raise damaged_error("its checksum does not match", file=MANIFEST)
        return manifest


def _seal(body: str) -> str:
    seal = hashlib.sha256(body.encode()).hexdigest()
    return body.removesuffix("\n}") + f',\n "zz_sha256_of_the_above": "{seal}"\n}}\n'


def allowed_files(data_format: str, stems: Iterable[str] = ONE_FILE) -> frozenset[str]:
    """Return the names of all files of a bundle.

    >>> sorted(allowed_files("csv"))
    ['data.csv', 'dictionary.csv', 'dictionary.json', 'manifest.json', 'report.html']
    """
    return frozenset({*(f"{stem}.{data_format}" for stem in stems), MANIFEST, *DOCUMENTS})


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a bundle; refuse one that is missing or far too large."""
    path = directory / MANIFEST
    if not directory.is_dir():
        raise InputError(
            f"there is no directory {directory.name!r}",
            code="no-bundle",
            hint="give the directory that `safeswap release` wrote",
            file=str(directory),
        )
    if not path.is_file() or path.is_symlink():
        raise InputError(
            f"{directory.name!r} has no {MANIFEST} and is not a bundle",
            code="no-manifest",
            hint="give the directory that `safeswap release` wrote",
            file=str(directory),
        )
    if path.stat().st_size > _MOST_BYTES:
        raise damaged_error("it is too large for a manifest", file=MANIFEST)
    manifest = Manifest.from_bytes(path.read_bytes())
    if manifest.data_format not in DATA_FORMATS:
        raise damaged_error("it names an unknown format", file=MANIFEST)
    return manifest


Sum: TypeAlias = tuple[int, str]
"""The size and SHA-256 of a file."""


def check_files(directory: Path, manifest: Manifest, sums: Mapping[str, Sum] | None = None) -> None:
    """Refuse a bundle with a missing, changed or extra file; ``sums`` are those of the files, if they are known."""
    allowed = allowed_files(manifest.data_format, manifest.stems)
    if set(manifest.files) | {MANIFEST} != allowed:
        raise damaged_error("it does not list the files of a bundle", file=MANIFEST)
    present = {path.name for path in directory.iterdir()}
    for name in sorted(present - allowed):
        raise UnsafeRelease(
            f"the bundle contains an extra file: {name!r}",
            code="foreign-file",
            hint="remove it, or fetch the bundle again",
            file=name,
        )
    for name, expected in sorted(manifest.files.items()):
        path = directory / name
        if name not in present or path.is_symlink() or not path.is_file():
            raise damaged_error("it is missing", file=name)
        if (sum_file(path) if sums is None else sums[name]) != expected:
            raise damaged_error("it differs from what was released", file=name)


def damaged_error(what: str, *, file: str) -> UnsafeRelease:
    """Return the error for a damaged or altered bundle."""
    return UnsafeRelease(
        f"{file} of the bundle is damaged or was changed: {what}",
        code="bundle-changed",
        hint="fetch the bundle again from its source",
        file=file,
    )
