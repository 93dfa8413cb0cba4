"""Secret keys in files that only their owner can read.

One line of text: ``safeswap-key-1:`` and the 32 bytes in base64url. Only the owner may have any permission on the file.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from pathlib import Path

from safeswap.errors import InputError, SpecError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.files.formats import unreadable_error
from safeswap.model.key import KEY_BYTES, Key

PREFIX = "safeswap-key-1:"
_LARGEST = 256
_LINE = re.compile(re.escape(PREFIX) + r"([A-Za-z0-9_-]{43}=?)\r?\n?", re.ASCII)


def write_key(key: Key, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a key to a new file, readable by its owner only.

    With ``force`` an existing file is replaced. Caution: without its key, a masked file can never be reproduced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "release.key"
    ...     key = Key.generate()
    ...     write_key(key, path)
    ...     read_key(path) == key
    True
    """
    if not key.releasable:
        raise SpecError(
            "a key made from a small seed cannot be written to a file",
            code="insecure-key",
            hint="create a key with `safeswap keygen` or Key.generate()",
        )
    line = PREFIX + base64.urlsafe_b64encode(key.secret).decode("ascii") + "\n"
    with atomic_write(path, force=force, mode=PRIVATE_FILE) as part:
        part.write_bytes(line.encode("ascii"))


def generate_key(path: str | os.PathLike[str], *, force: bool = False) -> Key:
    """Generate a secret key and write it to a file that only its owner can read.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "survey.key"
    >>> generate_key(path) == read_key(path)
    True
    """
    key = Key.generate()
    write_key(key, path, force=force)
    return key


def read_key(path: str | os.PathLike[str]) -> Key:
    """Read a key; refuse a file that others have permissions on, or that is not a key file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "open.key"
    ...     write_key(Key.generate(), path)
    ...     path.chmod(0o640)
    ...     read_key(path)
    Traceback (most recent call last):
    safeswap.errors.InputError: the key file 'open.key' can be read or written by others
    """
    file = Path(path)
    key = parse_key(_private_text(file))
    if key is None:
        raise _malformed_error(file)
    return key


def parse_key(text: str) -> Key | None:
    """Return the key that the line of a key file states; None if it states none.

    >>> parse_key("secret") is None
    True
    """
    match = _LINE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        secret = base64.b64decode(match[1].rstrip("=") + "=", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    return Key(secret) if len(secret) == KEY_BYTES else None


def _private_text(file: Path) -> str:
    """Return the text of a regular, private file; checked on the open file, not on its name."""
    try:
        # Non-blocking, so that a pipe in its place does not hang.
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise InputError(
            f"there is no key file {file.name!r}",
            code="missing-file",
            hint="create one with `safeswap keygen`",
            file=str(file),
        ) from None
    except (OSError, ValueError) as error:
        raise unreadable_error(file, error) from None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise InputError(
                f"{file.name!r} is not a regular file",
                code="not-a-file",
                hint="give the path of a key file",
                file=str(file),
            )
        _refuse_shared(file, facts)
        return os.read(descriptor, _LARGEST + 1).decode("ascii", errors="replace")
    except OSError as error:
        raise unreadable_error(file, error) from None
    finally:
        os.close(descriptor)


def _refuse_shared(file: Path, facts: os.stat_result) -> None:
    if os.name == "posix" and stat.S_IMODE(facts.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(
            f"the key file {file.name!r} can be read or written by others",
            code="key-not-private",
            hint="if it has always been private, chmod 600 it; otherwise create a new key",
            file=str(file),
        )


def _malformed_error(file: Path) -> InputError:
    return InputError(
        f"{file.name!r} is not a key file",
        code="bad-key-file",
        hint=f"a key file is one line that begins with {PREFIX!r}; make one with `safeswap keygen`",
        file=str(file),
    )
