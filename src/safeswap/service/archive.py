"""A folder as a zip file that is sent while it is made: nothing of it is held in memory or on disk."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

_PIECE = 1 << 20
_NO_TIME = (1980, 1, 1, 0, 0, 0)  # same files, same bytes


class _Outlet(io.RawIOBase):
    """What a zip file is written to, and taken away from as it grows."""

    def __init__(self) -> None:
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        self._held += piece
        return len(piece)

    def take(self) -> bytes:
        taken = bytes(self._held)
        self._held.clear()
        return taken


def zipped(folder: Path, *, root: str = "") -> Iterator[bytes]:
    """The files of a folder, below a folder ``root``, as the pieces of a zip file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = (Path(name) / "a.txt").write_text("one")
    ...     made = b"".join(zipped(Path(name), root="all"))
    >>> zipfile.ZipFile(io.BytesIO(made)).namelist()
    ['all/a.txt']
    """
    outlet = _Outlet()
    with zipfile.ZipFile(outlet, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()):
            name = "/".join(part for part in (root, path.relative_to(folder).as_posix()) if part)
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as target, path.open("rb") as source:
                while piece := source.read(_PIECE):
                    target.write(piece)
                    yield outlet.take()
    yield outlet.take()
