"""Encryption of what a copy of the store must not reveal: audit records of releases, and the keys of projects."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from safeswap.errors import InputError, OutputError
from safeswap.files.atomic import atomic_directory, atomic_write
from safeswap.files.keyfile import read_key, write_key
from safeswap.model.key import Key
from safeswap.service.keeping.store import Store
from safeswap.service.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


# Streaming AES-GCM: chunks cannot be changed, reordered, repeated or dropped.
#
# Each sealed stream has its own key, derived from the secret, a random salt and a context (the record of this release,
# the key of that project), so a counter nonce is never used twice with one key, and a sealed file in the place of
# another does not open. Each chunk is bound to its number and to whether it is the last. (The construction is STREAM
# of Hoang, Reyhanitabar, Rogaway and Vizár 2015.)

MAGIC = b"safeswap-sealed-1\n"
SALT_BYTES = 32
PIECE_BYTES = 1 << 20
_TAG_BYTES = 16
_NUMBER_BYTES = 11


def seal_stream(source: BinaryIO, target: BinaryIO, *, secret: bytes, context: str) -> None:
    """Encrypt everything in ``source`` to ``target``.

    >>> import io
    >>> sealed, opened = io.BytesIO(), io.BytesIO()
    >>> seal_stream(io.BytesIO(b"pairs"), sealed, secret=bytes(32), context="a")
    >>> open_stream(io.BytesIO(sealed.getvalue()), opened, secret=bytes(32), context="a")
    >>> opened.getvalue()
    b'pairs'
    """
    salt = secrets.token_bytes(SALT_BYTES)
    target.write(MAGIC + salt)
    cipher = _cipher(secret, salt, context)
    for number, piece, last in _pieces(source, PIECE_BYTES):
        target.write(cipher.encrypt(_nonce(number, last=last), piece, None))


def open_stream(source: BinaryIO, target: BinaryIO, *, secret: bytes, context: str) -> None:
    """Decrypt ``source`` to ``target``; refuse a stream that was changed, truncated or sealed for another context.

    Chunks are verified before they are written, but truncation only at the end: do not use ``target`` before.
    """
    from cryptography.exceptions import InvalidTag

    head = source.read(len(MAGIC) + SALT_BYTES)
    if len(head) != len(MAGIC) + SALT_BYTES or not head.startswith(MAGIC):
        raise broken_seal()
    cipher = _cipher(secret, head[len(MAGIC) :], context)
    try:
        for number, piece, last in _pieces(source, PIECE_BYTES + _TAG_BYTES):
            target.write(cipher.decrypt(_nonce(number, last=last), piece, None))
    except InvalidTag:
        raise broken_seal() from None


def broken_seal() -> InputError:
    """Return the error for anything that does not open; a precise reason would only help a forger."""
    return InputError(
        "a sealed file does not open: it was changed, or sealed for something else, or with another master key",
        code="seal-broken",
        hint="check that the master key is the one in use when the file was written; restore the file from a backup",
    )


def _cipher(secret: bytes, salt: bytes, context: str) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    information = b"safeswap sealed stream " + context.encode()
    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=salt, info=information).derive(secret))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big") + (b"\1" if last else b"\0")


def _pieces(source: BinaryIO, size: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield (number, chunk, is last); an empty stream is one empty chunk."""
    number, piece = 0, source.read(size)
    while True:
        following = source.read(size) if len(piece) == size else b""
        yield number, piece, not following
        if not following:
            return
        number, piece = number + 1, following


_KEY_FILE = "key.sealed"
_SUFFIX = ".sealed"


@dataclass(frozen=True)
class Vault:
    """Encrypts and decrypts with the master key, which is outside the store.

    ``context`` says what is sealed (``"release 0a1b"``); what was sealed for one thing does not open as another.

    >>> vault = Vault(Key.generate(), Store(Settings(store="/srv/s", master_key_file="/etc/k")))
    >>> vault.open(vault.seal(b"pairs", "release 1"), "release 1")
    b'pairs'
    """

    master_key: Key
    store: Store

    def seal(self, content: bytes, context: str) -> bytes:
        """Encrypt bytes."""
        sealed = io.BytesIO()
        seal_stream(io.BytesIO(content), sealed, secret=self.master_key.secret, context=context)
        return sealed.getvalue()

    def open(self, sealed: bytes, context: str) -> bytes:
        """Decrypt bytes; raise ``InputError`` if they were changed, or sealed for another context."""
        opened = io.BytesIO()
        open_stream(io.BytesIO(sealed), opened, secret=self.master_key.secret, context=context)
        return opened.getvalue()

    def seal_file(self, source: Path, target: Path, context: str) -> None:
        """Write an encrypted copy of a file, streaming and atomic."""
        with atomic_write(target, force=True) as part, source.open("rb") as plain, part.open("wb") as sealed:
            seal_stream(plain, sealed, secret=self.master_key.secret, context=context)

    def open_file(self, source: Path, target: Path, context: str) -> None:
        """Decrypt a file; on any error, no file appears."""
        with atomic_write(target, force=True) as part, source.open("rb") as sealed, part.open("wb") as plain:
            open_stream(sealed, plain, secret=self.master_key.secret, context=context)

    def seal_folder(self, source: Path, target: Path, context: str) -> None:
        """Write a folder with an encrypted copy of each file of ``source``, recursively; all or nothing."""
        with atomic_directory(target) as part:
            for name in _list_files(source):
                to = part / (name + _SUFFIX)
                to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.seal_file(source / name, to, f"{context}/{name}")

    def open_folder(self, source: Path, target: Path, context: str) -> None:
        """Decrypt a folder; all or nothing."""
        with atomic_directory(target) as part:
            for sealed in _list_files(source):
                name = sealed.removesuffix(_SUFFIX)
                to = part / name
                to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.open_file(source / sealed, to, f"{context}/{name}")

    def project_key(self, project_id: str) -> Key:
        """Return the secret key of a project, the source of all its randomness; created on first use."""
        path = self.store.project(project_id) / _KEY_FILE
        context = f"key of project {project_id}"
        if not path.exists():
            with suppress(OutputError), atomic_write(path) as part:  # another process may create it first
                part.write_bytes(self.seal(Key.generate().secret, context))
        return Key(self.open(_read_key_file(path), context))


def open_vault(settings: Settings) -> Vault:
    """Open the vault of a service; refuse a master key that others can read."""
    if not settings.master_key_file.exists():
        raise InputError(
            f"there is no master key {settings.master_key_file.name!r}",
            code="no-master-key",
            hint="create one for a new service with `safeswap admin init`; for an existing service, restore its own",
            file=str(settings.master_key_file),
        )
    return Vault(read_key(settings.master_key_file), Store(settings))


def make_master_key(path: Path) -> None:
    """Create the master key in a new private file. A lost key cannot be replaced: keep a copy."""
    write_key(Key.generate(), path)


def _list_files(folder: Path) -> list[str]:
    found = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _read_key_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            "the key of a project is missing and cannot be created",
            code="no-project-key",
            hint="check the free space on the disk of the store",
        ) from None
