"""What must stay unreadable to whoever copies the store: records that undo a release, and the keys of projects."""

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
from safeswap.model.key import Key
from safeswap.service.keeping.store import Store
from safeswap.service.settings import Settings
from safeswap.workflow import keygen, read_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


# AES-GCM over streams: pieces that can be neither changed, swapped, repeated nor left out.
#
# Each sealed stream has a key of its own, derived from the secret, a random salt and a context (what the stream is: a
# record of this release, the key of that project), so the counters that serve as nonces never meet one key twice, and
# a sealed file put in the place of another does not open. Each piece is bound to its number and to whether it is the
# last. (The construction is STREAM of Hoang, Reyhanitabar, Rogaway and Vizár 2015.)

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
    """Decrypt ``source`` to ``target``; what was changed, cut or sealed for something else is refused.

    A piece is checked before it is written, the end only at the end: keep ``target`` to yourself until then.
    """
    from cryptography.exceptions import InvalidTag

    head = source.read(len(MAGIC) + SALT_BYTES)
    if len(head) != len(MAGIC) + SALT_BYTES or not head.startswith(MAGIC):
        raise not_sealed()
    cipher = _cipher(secret, head[len(MAGIC) :], context)
    try:
        for number, piece, last in _pieces(source, PIECE_BYTES + _TAG_BYTES):
            target.write(cipher.decrypt(_nonce(number, last=last), piece, None))
    except InvalidTag:
        raise not_sealed() from None


def not_sealed() -> InputError:
    """The one thing that is said of whatever does not open: why would help nobody but a forger."""
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
    """Numbered pieces, the last one marked; an empty stream is one empty piece."""
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
    """Seals and opens with the master key, which lies outside the store.

    ``context`` says what is sealed (``"release 0a1b"``); what was sealed for one thing does not open as another.

    >>> vault = Vault(Key.generate(), Store(Settings(store="/srv/s", master_key_file="/etc/k")))
    >>> vault.open(vault.seal(b"pairs", "release 1"), "release 1")
    b'pairs'
    """

    master_key: Key
    store: Store

    def seal(self, content: bytes, context: str) -> bytes:
        """Encrypted bytes."""
        sealed = io.BytesIO()
        seal_stream(io.BytesIO(content), sealed, secret=self.master_key.secret, context=context)
        return sealed.getvalue()

    def open(self, sealed: bytes, context: str) -> bytes:
        """The bytes that were sealed; ``InputError`` if they were changed, or sealed for something else."""
        opened = io.BytesIO()
        open_stream(io.BytesIO(sealed), opened, secret=self.master_key.secret, context=context)
        return opened.getvalue()

    def seal_file(self, source: Path, target: Path, context: str) -> None:
        """Write an encrypted copy of a file, a piece at a time; it appears complete or not at all."""
        with atomic_write(target, force=True) as part, source.open("rb") as plain, part.open("wb") as sealed:
            seal_stream(plain, sealed, secret=self.master_key.secret, context=context)

    def open_file(self, source: Path, target: Path, context: str) -> None:
        """Write the file that was sealed; if anything is wrong with it, no file appears."""
        with atomic_write(target, force=True) as part, source.open("rb") as sealed, part.open("wb") as plain:
            open_stream(sealed, plain, secret=self.master_key.secret, context=context)

    def seal_folder(self, source: Path, target: Path, context: str) -> None:
        """Write a folder with an encrypted copy of each file of ``source``, subfolders included; all or nothing."""
        with atomic_directory(target) as part:
            for name in _files(source):
                to = part / (name + _SUFFIX)
                to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.seal_file(source / name, to, f"{context}/{name}")

    def open_folder(self, source: Path, target: Path, context: str) -> None:
        """Write the folder that was sealed; all or nothing."""
        with atomic_directory(target) as part:
            for sealed in _files(source):
                name = sealed.removesuffix(_SUFFIX)
                to = part / name
                to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.open_file(source / sealed, to, f"{context}/{name}")

    def project_key(self, project_id: str) -> Key:
        """The secret key of a project, from which all its randomness comes; made when first asked for."""
        path = self.store.project(project_id) / _KEY_FILE
        context = f"key of project {project_id}"
        if not path.exists():
            with suppress(OutputError), atomic_write(path) as part:  # another process may be first: then it is its key
                part.write_bytes(self.seal(Key.generate().secret, context))
        return Key(self.open(_content(path), context))


def open_vault(settings: Settings) -> Vault:
    """The vault of a service; refused if others can read the master key."""
    if not settings.master_key_file.exists():
        raise InputError(
            f"there is no master key {settings.master_key_file.name!r}",
            code="no-master-key",
            hint="a new service is made by `safeswap admin init`; that of an old one has to be put back",
            file=str(settings.master_key_file),
        )
    return Vault(read_key(settings.master_key_file), Store(settings))


def make_master_key(path: Path) -> None:
    """Make the master key in a new file that only its owner can read. A lost one cannot be replaced: keep a copy."""
    keygen(path)


def _files(folder: Path) -> list[str]:
    found = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            "the key of a project is not there and cannot be made",
            code="no-project-key",
            hint="check that there is room on the disk of the store",
        ) from None
