"""Project archives: packing, and safe unpacking of untrusted ones."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from safeswap.errors import InputError

FORMAT = "safeswap-project-1"
PROJECT = "project.json"
MOST_FILES = 100
_DEEPEST = 50


def pack(folder: Path, archive: Path) -> None:
    """Pack all files of a flat folder into one archive."""
    with zipfile.ZipFile(archive, "x", zipfile.ZIP_DEFLATED, compresslevel=4) as packed:
        for file in sorted(folder.iterdir()):
            packed.write(file, file.name)


def unpack(archive: Path, folder: Path, *, most_bytes: int) -> None:
    """Unpack an archive into a folder; refuse too many, too large or misplaced files."""
    try:
        with zipfile.ZipFile(archive) as packed:
            entries = [entry for entry in packed.infolist() if not entry.is_dir()]
            _check(entries, most_bytes)
            left = most_bytes
            for entry in entries:
                left -= _copy(packed, entry, folder / Path(entry.filename).name, left)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise InputError(
            "the archive cannot be read",
            code="bad-archive",
            hint="export the project again, or pack its files into a zip archive",
            reason=type(error).__name__,
        ) from None


def _check(entries: list[zipfile.ZipInfo], most_bytes: int) -> None:
    names = [Path(entry.filename).name for entry in entries]
    if len(entries) > MOST_FILES:
        raise InputError(f"the archive holds more than {MOST_FILES} files", code="bad-archive")
    if sum(entry.file_size for entry in entries) > most_bytes:
        raise InputError(f"the files of the archive have more than {most_bytes:,} bytes", code="too-large")
    if len(set(names)) != len(names) or any(name in {"", ".", ".."} for name in names):
        raise InputError("two files of the archive have the same name", code="bad-archive")


def _copy(packed: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Copy an entry and count the actual bytes, since an archive may lie about sizes."""
    written = 0
    with packed.open(entry) as source, target.open("xb") as file:
        while chunk := source.read(2**20):
            written += len(chunk)
            if written > left:
                raise InputError("the files of the archive are larger than it says", code="too-large")
            file.write(chunk)
    return written


def read_facts(path: Path) -> dict[str, Any]:
    """Read the project's metadata from an archive."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or _is_deep(facts):
        raise InputError(f"{PROJECT} is not that of a project", code="bad-archive", hint="export the project again")
    return facts


def _is_deep(value: Any) -> bool:
    """Return True if values are nested deeper than any we write, which could exhaust the stack later."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [each for one in level for each in _children(one)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
