"""A folder as a zip file that is sent while it is made: nothing of it is held in memory or on disk."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from safeswap.files.manifest import damaged

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


def zipped(folder: Path, sums: Mapping[str, str], *, root: str = "") -> Iterator[bytes]:
    """Files of a folder, below a folder ``root``, as the pieces of a zip file: those of which the SHA-256 is given.

    Each is summed while it is sent. Where it is not what it should be, the file breaks off and is no zip file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = (Path(name) / "a.txt").write_text("one")
    ...     sums = {"a.txt": hashlib.sha256(b"one").hexdigest()}
    ...     made = b"".join(zipped(Path(name), sums, root="all"))
    >>> zipfile.ZipFile(io.BytesIO(made)).namelist()
    ['all/a.txt']
    """
    outlet = _Outlet()
    with zipfile.ZipFile(outlet, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, wanted in sorted(sums.items()):
            entry = zipfile.ZipInfo("/".join(part for part in (root, name) if part), _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            digest = hashlib.sha256()
            with archive.open(entry, "w", force_zip64=True) as target, (folder / name).open("rb") as source:
                while piece := source.read(_PIECE):
                    digest.update(piece)
                    target.write(piece)
                    yield outlet.take()
            if digest.hexdigest() != wanted:
                raise damaged("it is not what was released", file=name)
    yield outlet.take()
