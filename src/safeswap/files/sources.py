"""Find the format of a file by its first bytes, else by its name; limits on what a file may declare."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from safeswap.errors import InputError
from safeswap.model.text import several


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
        "columns": f"the file has {several(found, 'column')}; the limit is {limit:,}",
        "records": f"the file holds {several(found, 'record')}; the limit is {limit:,}",
        "decoded_bytes": f"the file would take {found:,} bytes of memory or more; the limit is {limit:,}",
    }
    code = {"columns": "too-many-columns", "records": "too-many-records", "decoded_bytes": "too-large"}
    return InputError(
        words[what],
        code=code[what],
        hint=f"if the file is what it should be, allow more with Limits(max_{what}=…)",
        file=file,
        found=found,
        limit=limit,
    )


DEFAULT_LIMITS = Limits()


class Format(StrEnum):
    """The file formats that can be read."""

    DELIMITED = "delimited text"
    GZIP = "gzip"
    PARQUET = "Parquet"
    ARROW = "Arrow IPC"
    ARROW_STREAM = "Arrow IPC stream"
    STATA = "Stata"
    SPSS = "SPSS"
    SAS = "SAS"
    SAS_TRANSPORT = "SAS transport"


_MAGIC: tuple[tuple[bytes, Format], ...] = (
    (b"\x1f\x8b", Format.GZIP),
    (b"PAR1", Format.PARQUET),
    (b"ARROW1", Format.ARROW),
    (b"<stata_dta>", Format.STATA),
    (b"$FL2", Format.SPSS),
    (b"$FL3", Format.SPSS),
    (b"HEADER RECORD*******LIB", Format.SAS_TRANSPORT),
    (bytes(12) + b"\xc2\xea\x81\x60\xb3\x14\x11\xcf\xbd\x92\x08\x00\x09\xc7\x31\x8c", Format.SAS),
)

_SUFFIX: dict[str, Format] = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".arrows": Format.ARROW_STREAM,
    ".dta": Format.STATA,
    ".sav": Format.SPSS,
    ".zsav": Format.SPSS,
    ".sas7bdat": Format.SAS,
    ".xpt": Format.SAS_TRANSPORT,
    ".gz": Format.GZIP,
}

# The magic bytes of these are plain text.
_TEXT_AHEAD = {Format.STATA, Format.SPSS, Format.SAS_TRANSPORT}
_LINE_ENDS = str.maketrans("\t\r\n", "   ")

_NOT_READ: tuple[tuple[bytes, str], ...] = (
    (b"PARE", "an encrypted Parquet file"),
    (b"FEA1", "a Feather file of the old version 1"),
    (b"PK\x03\x04", "a zip archive or a spreadsheet"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"BZh", "a bzip2 file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\xfd7zXZ\x00", "an xz file"),
)


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
        raise unreadable(found, error) from None
    if stat.S_ISDIR(facts.st_mode):
        raise InputError(f"{found.name!r} is a directory", code="is-directory", hint="give one file", file=str(found))
    if not stat.S_ISREG(facts.st_mode):
        raise InputError(
            f"{found.name!r} is not a regular file",
            code="not-a-file",
            hint="copy what it gives to a file first",
            file=str(found),
        )
    if facts.st_size == 0:
        raise InputError(
            f"{found.name!r} is empty", code="empty-file", hint="give a file with a header and records", file=str(found)
        )
    return found


def unreadable(path: Path, error: Exception) -> InputError:
    """Return the error for a file that the system cannot open or read."""
    number = getattr(error, "errno", None)
    reason = os.strerror(number) if number else "the path is not valid"
    return InputError(
        f"{path.name!r} cannot be read: {reason}",
        code="unreadable-file",
        hint="check the path and the permissions of the file",
        file=str(path),
    )


def format_of(path: Path) -> Format:
    """Return the format of a file, by its first bytes if possible, else by its suffix; delimited text by default.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "survey.txt"
    ...     _ = path.write_bytes(b"PAR1\\x15\\x04\\x15 and so on")
    ...     format_of(path).value
    'Parquet'
    """
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise unreadable(path, error) from None
    for magic, found in _MAGIC:
        if head.startswith(magic) and (found in _TEXT_AHEAD or not _is_text(head)):
            return found
    for magic, what in _NOT_READ:
        if head.startswith(magic) and not _is_text(head):
            raise InputError(
                f"{path.name!r} is {what}, which is not read here",
                code="unknown-format",
                hint="export the data as CSV or Parquet",
                file=str(path),
            )
    return _SUFFIX.get(path.suffix.lower(), Format.DELIMITED)


def _is_text(head: bytes) -> bool:
    """Return whether the bytes are all plain text: a CSV file may well have a first column called PAR1."""
    return head.isascii() and head.decode("ascii").translate(_LINE_ENDS).isprintable()


def corrupt(path: Path, found: Format) -> InputError:
    """Return the error for a file that violates its format."""
    return InputError(
        f"{path.name!r} is not a whole and valid {found.value} file",
        code="corrupt-file",
        hint="it may be cut short or damaged: make it or fetch it again",
        file=str(path),
        format=found.value,
    )
