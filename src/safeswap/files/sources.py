"""Find the format of a file by its first bytes, else by its name; its digest, and limits on what it may declare."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from safeswap.errors import InputError
from safeswap.files import formats
from safeswap.model.checked import Default
from safeswap.model.options import ColumnOptions
from safeswap.model.text import plural


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what a file may declare or contain; raise them for a trusted file.

    A few hundred bytes can declare a billion records, and a few kilobytes can decompress to terabytes. So a file's
    declarations are checked before anything is decoded, and decompressed bytes are counted on the way.

    >>> Limits().max_columns
    20000
    >>> Limits(max_records=10).check(file="x.parquet", records=11)
    Traceback (most recent call last):
    safeswap.errors.InputError: the file holds 11 records; the limit is 10
    """

    max_columns: int = 20_000
    max_records: int = 1_000_000_000
    max_decoded_bytes: int = 16 * 2**30

    def check(
        self, *, file: str, columns: int | None = None, records: int | None = None, decoded_bytes: int | None = None
    ) -> None:
        """Refuse values above a limit; None is not checked."""
        for found, limit, what in (
            (columns, self.max_columns, "columns"),
            (records, self.max_records, "records"),
            (decoded_bytes, self.max_decoded_bytes, "decoded_bytes"),
        ):
            if found is not None and found > limit:
                raise _limit_error(file, found, limit, what)


def _limit_error(file: str, found: int, limit: int, what: str) -> InputError:
    words = {
        "columns": f"the file has {plural(found, 'column')}; the limit is {limit:,}",
        "records": f"the file holds {plural(found, 'record')}; the limit is {limit:,}",
        "decoded_bytes": f"the file would take {plural(found, 'byte')} of memory or more; the limit is {limit:,}",
    }
    code = {"columns": "too-many-columns", "records": "too-many-records", "decoded_bytes": "too-large"}
    return InputError(
        words[what],
        code=code[what],
        hint=f"if the file is correct, raise the limit with Limits(max_{what}=…)",
        file=file,
        found=found,
        limit=limit,
    )


DEFAULT_LIMITS = Limits()


class ReadingOptions(ColumnOptions, total=False):
    """Options for reading a file: its columns, the layout of a text file, and limits on what it may declare."""

    delimiter: Annotated[str | None, Default(None)]
    encoding: Annotated[str | None, Default(None)]
    quote: Annotated[str | None, Default(None)]
    decimal: Annotated[str | None, Default(None)]
    limits: Annotated[Limits, Default(DEFAULT_LIMITS)]


class Format:
    """The formats that other packages name; the table is :data:`safeswap.files.formats.FORMATS`."""

    STATA, SPSS = formats.STATA, formats.SPSS


_LINE_ENDS = str.maketrans("\t\r\n", "   ")


def sum_file(path: Path) -> tuple[int, str]:
    """Return the size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.stat().st_size, digest


def existing_file(path: str | bytes | os.PathLike[str]) -> Path:
    """Return the path of a regular, non-empty file; raise an error that says why it is not one."""
    found = Path(os.fsdecode(path))
    try:
        facts = found.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"there is no file {found.name!r}", code="missing-file", hint="check the path", file=str(found)
        ) from None
    except (OSError, ValueError) as error:
        raise unreadable_error(found, error) from None
    if stat.S_ISDIR(facts.st_mode):
        raise InputError(f"{found.name!r} is a directory", code="is-directory", hint="give one file", file=str(found))
    if not stat.S_ISREG(facts.st_mode):
        raise InputError(
            f"{found.name!r} is not a regular file",
            code="not-a-file",
            hint="copy its content to a file first",
            file=str(found),
        )
    if facts.st_size == 0:
        raise InputError(
            f"{found.name!r} is empty", code="empty-file", hint="give a file with a header and records", file=str(found)
        )
    return found


def unreadable_error(path: Path, error: Exception) -> InputError:
    """Return the error for a file that the system cannot open or read."""
    number = getattr(error, "errno", None)
    reason = os.strerror(number) if number else "the path is not valid"
    return InputError(
        f"{path.name!r} cannot be read: {reason}",
        code="unreadable-file",
        hint="check the path and the permissions of the file",
        file=str(path),
    )


def format_of(path: Path) -> formats.Format:
    """Return the format of a file, by its first bytes if possible, else by its suffix; delimited text by default.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "survey.txt"
    ...     _ = path.write_bytes(b"PAR1\\x15\\x04\\x15 and so on")
    ...     format_of(path).name
    'Parquet'
    """
    try:
        with path.open("rb") as file:
            head = file.read(64)
        if head.startswith(b"\x1f\x8b"):
            head = _unpacked_head(path) or head
    except OSError as error:
        raise unreadable_error(path, error) from None
    is_text = _is_text(head)
    for found in formats.FORMATS:
        if head.startswith(found.magic) and (found.is_magic_text or not is_text):
            return found
    for magic, what, hint in formats.UNSUPPORTED:
        if head.startswith(magic) and not is_text:
            raise InputError(
                f"{path.name!r} is {what}, which cannot be read",
                code="unknown-format",
                hint=hint or "export the data as CSV or Parquet",
                file=str(path),
            )
    suffix = path.suffix.lower()
    if suffix == ".toml":
        raise InputError(
            f"{path.name!r} holds settings, not data",
            code="unknown-format",
            hint="name the data file",
            file=str(path),
        )
    return next((found for found in formats.FORMATS if suffix in found.suffixes), formats.DELIMITED)


def _unpacked_head(path: Path) -> bytes:
    """Return how a gzip file begins if an R file is packed in it, as R does; nothing otherwise."""
    try:
        with gzip.open(path) as file:
            head = file.read(64)
    except (OSError, EOFError, zlib.error):
        return b""
    return head if head.startswith((b"RDX2\n", b"RDX3\n", b"X\n\x00\x00\x00")) else b""


def _is_text(head: bytes) -> bool:
    """Return whether the bytes are all plain text: a CSV file may well have a first column called PAR1."""
    return head.isascii() and head.decode("ascii").translate(_LINE_ENDS).isprintable()


def corrupt_error(path: Path, found: formats.Format) -> InputError:
    """Return the error for a file that violates its format."""
    return InputError(
        f"{path.name!r} is not a complete, valid {found.name} file",
        code="corrupt-file",
        hint="it may be truncated or damaged: create or download it again",
        file=str(path),
        format=found.name,
    )
