"""Stream a folder as a zip file, without buffering it in memory or on disk."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from safeswap.files.manifest import damaged_error

_PIECE = 1 << 20
_NO_TIME = (1980, 1, 1, 0, 0, 0)  # same files, same bytes


class _Buffer(io.RawIOBase):
    """A buffer between the zip writer and the response."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        self._bytes += piece
        return len(piece)

    def take(self) -> bytes:
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken


def stream_zip(folder: Path, sums: Mapping[str, str], *, root: str = "") -> Iterator[bytes]:
    """Yield a zip file, chunk by chunk, with the files of ``folder`` named in ``sums`` (SHA-256), below ``root``.

    Each file is hashed while it is sent. On a mismatch the stream is cut off, so the client gets no valid zip file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = (Path(name) / "a.txt").write_text("one")
    ...     sums = {"a.txt": hashlib.sha256(b"one").hexdigest()}
    ...     made = b"".join(stream_zip(Path(name), sums, root="all"))
    >>> zipfile.ZipFile(io.BytesIO(made)).namelist()
    ['all/a.txt']
    """
    buffer = _Buffer()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, wanted in sorted(sums.items()):
            entry = zipfile.ZipInfo("/".join(part for part in (root, name) if part), _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            digest = hashlib.sha256()
            with archive.open(entry, "w", force_zip64=True) as target, (folder / name).open("rb") as source:
                while piece := source.read(_PIECE):
                    digest.update(piece)
                    target.write(piece)
                    yield buffer.take()
            if digest.hexdigest() != wanted:
                raise damaged_error("it is not what was released", file=name)
    yield buffer.take()
