"""AES-GCM over streams: pieces that can be neither changed, swapped, repeated nor left out.

Each sealed stream has a key of its own, derived from the secret, a random salt and a context (what the stream is: a
record of this release, the key of that project), so the counters that serve as nonces never meet one key twice, and a
sealed file put in the place of another does not open. Each piece is bound to its number and to whether it is the last.
(The construction is STREAM of Hoang, Reyhanitabar, Rogaway and Vizár 2015.)
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from safeswap.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

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
