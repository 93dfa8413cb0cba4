"""The file formats, one row each: how a format is recognised, read, written, and whether it may be released.

A new format is one more row of :data:`FORMATS`. Readers and writers are imported on first use. A file is recognised by
its first bytes, else by its name, and may declare no more than the :class:`Limits`.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from safeswap.errors import InputError
from safeswap.model.checked import Default
from safeswap.model.options import ColumnOptions
from safeswap.model.text import plural

if TYPE_CHECKING:
    import pyarrow as pa

    from safeswap.files.identifiers import Lines
    from safeswap.model.dates import Program
    from safeswap.model.schema import Attribute

FileState: TypeAlias = tuple[int, int, int]
"""What a file that was modified has not kept."""


class Stored(NamedTuple):
    """Columns as they were read from a file, in which they may be copied byte for byte while it is unchanged."""

    path: Path
    state: FileState
    table: pa.Table


_ALIKE: ContextVar[list[tuple[Any, FileState]] | None] = ContextVar("alike", default=None)


def state_of(path: Path) -> FileState:
    """Return what tells whether a file was modified."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def reading_alike() -> Iterator[None]:
    """Within the block, parse only what differs of a large file from one with the same columns that was read before.

    A masked file has most bytes from its original. Fields with the same bytes, at the same place of text files that
    have no quotes, have the same value, and so have columns of Parquet files that are stored in the same bytes. The
    columns in which nothing differs are then the same memory.
    """
    token = _ALIKE.set([])
    try:
        yield
    finally:
        _ALIKE.reset(token)


def files_alike() -> list[tuple[Any, FileState]] | None:
    """Return the list of files that were read in the block of :func:`reading_alike`, to be added to; None outside."""
    return _ALIKE.get()


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A table with the description from its source. One that is valid has no damaged texts or codes."""

    table: pa.Table
    is_valid: bool = False
    lines: Lines | None = None
    label: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    stored: Stored | None = None


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Settings of a text file stated by the caller; None means detect, for ``decimal`` leave numbers as they are."""

    delimiter: str | None = None
    quote: str | None = None
    encoding: str | None = None
    decimal: str | None = None


class Package(NamedTuple):
    """A statistical package, and the function of pyreadstat that reads its files."""

    program: Program
    reader: str
    has_user_missing: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class Format:
    """One file format.

    A file is recognised by ``magic``, else by one of ``suffixes``. ``options`` are the fields of :class:`TextOptions`
    that apply to it. ``written`` are the suffixes that :func:`safeswap.files.write.write` accepts, ``released`` is the
    name of the format in public bundles; empty means that it cannot be written or released.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    is_magic_text: bool = False  # text at the beginning of other files is data: a first column may be called PAR1
    options: tuple[str, ...] = ()
    read: Callable[[Path, Format, TextOptions, Limits], Loaded]
    written: tuple[str, ...] = ()
    write: Callable[..., None] | None = None
    released: str = ""
    package: Package | None = None


def _read_text(path: Path, _: Format, stated: TextOptions, limits: Limits) -> Loaded:
    from safeswap.files.delimited import read_delimited

    text = read_delimited(path, limits=limits, **asdict(stated))
    return Loaded(table=text.table, is_valid=True, lines=text.lines)


def _read_parquet(path: Path, _: Format, __: TextOptions, limits: Limits) -> Loaded:
    from safeswap.files.parquet import read_parquet

    state, alike = state_of(path), files_alike()
    earlier = [known for known, _ in alike or () if isinstance(known, Stored)]
    if earlier:
        from safeswap.files.rewrite import find_copied

        table = read_parquet(path, limits=limits, find_known=lambda: find_copied(path, earlier))
    else:
        table = read_parquet(path, limits=limits)
    stored = Stored(path, state, table)
    if alike is not None:
        alike.append((stored, state))
    return Loaded(table=table, stored=stored)


def _read_arrow(path: Path, found: Format, _: TextOptions, limits: Limits) -> Loaded:
    from safeswap.files.parquet import read_arrow

    return Loaded(table=read_arrow(path, found=found, limits=limits))


def _read_labelled(path: Path, found: Format, stated: TextOptions, limits: Limits) -> Loaded:
    from safeswap.files.labelled import read_labelled

    labelled = read_labelled(path, found=found, encoding=stated.encoding, limits=limits)
    return Loaded(table=labelled.table, label=labelled.title, attributes=labelled.attributes)


def _write_text(data: Any, path: str | os.PathLike[str], **options: Any) -> None:
    from safeswap.files.write import write_csv

    delimiter = "\t" if Path(path).suffix.lower() == ".tsv" else ","
    write_csv(data, path, delimiter=delimiter, **options)


def _write_parquet(data: Any, path: str | os.PathLike[str], **options: Any) -> None:
    from safeswap.files.write import write_parquet

    write_parquet(data, path, **options)


def _write_stata(data: Any, path: str | os.PathLike[str], **options: Any) -> None:
    from safeswap.files.labelled import write_dta

    write_dta(data, path, **options)


def _write_spss(data: Any, path: str | os.PathLike[str], **options: Any) -> None:
    from safeswap.files.labelled import write_sav

    write_sav(data, path, **options)


DELIMITED = Format(
    name="delimited text",
    suffixes=(".csv", ".tsv"),
    options=("delimiter", "quote", "encoding", "decimal"),
    read=_read_text,
    written=(".csv", ".tsv"),
    write=_write_text,
    released="csv",
)
GZIP = Format(
    name="gzip",
    suffixes=(".gz",),
    magic=(b"\x1f\x8b",),
    options=("delimiter", "quote", "encoding", "decimal"),
    read=_read_text,
)
PARQUET = Format(
    name="Parquet",
    suffixes=(".parquet", ".pq"),
    magic=(b"PAR1",),
    read=_read_parquet,
    written=(".parquet",),
    write=_write_parquet,
    released="parquet",
)
ARROW = Format(name="Arrow IPC", suffixes=(".arrow", ".feather", ".ipc"), magic=(b"ARROW1",), read=_read_arrow)
ARROW_STREAM = Format(name="Arrow IPC stream", suffixes=(".arrows",), read=_read_arrow)
STATA = Format(
    name="Stata",
    suffixes=(".dta",),
    magic=(b"<stata_dta>",),
    is_magic_text=True,
    options=("encoding",),
    read=_read_labelled,
    written=(".dta",),
    write=_write_stata,
    released="dta",
    package=Package("stata", "read_dta"),
)
SPSS = Format(
    name="SPSS",
    suffixes=(".sav", ".zsav"),
    magic=(b"$FL2", b"$FL3"),
    is_magic_text=True,
    options=("encoding",),
    read=_read_labelled,
    written=(".sav", ".zsav"),
    write=_write_spss,
    released="sav",
    package=Package("spss", "read_sav"),
)
SAS = Format(
    name="SAS",
    suffixes=(".sas7bdat",),
    magic=(bytes(12) + b"\xc2\xea\x81\x60\xb3\x14\x11\xcf\xbd\x92\x08\x00\x09\xc7\x31\x8c",),
    options=("encoding",),
    read=_read_labelled,
    package=Package("sas", "read_sas7bdat"),
)
SAS_TRANSPORT = Format(
    name="SAS transport",
    suffixes=(".xpt",),
    magic=(b"HEADER RECORD*******LIB",),
    is_magic_text=True,
    options=("encoding",),
    read=_read_labelled,
    package=Package("sas", "read_xport", has_user_missing=False),
)

FORMATS: tuple[Format, ...] = (DELIMITED, GZIP, PARQUET, ARROW, ARROW_STREAM, STATA, SPSS, SAS, SAS_TRANSPORT)

_FROM_R = 'in R, write it with write.csv(data, "data.csv", row.names = FALSE)'
_UNPACK = "unpack it first, and take the data file in it"

UNSUPPORTED: tuple[tuple[bytes, str, str], ...] = (
    (b"PARE", "an encrypted Parquet file", ""),
    (b"FEA1", "a Feather file of the old version 1", ""),
    (
        b"PK\x03\x04",
        "a spreadsheet, a text document or a zip archive",
        "save the sheet as CSV; unpack an archive first",
    ),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet or text document", "save the sheet as CSV"),
    (b"SQLite format 3\x00", "an SQLite database", ""),
    (b"BZh", "a bzip2 file", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "a zstd file", _UNPACK),
    (b"\xfd7zXZ\x00", "an xz file", _UNPACK),
    (b"RDX2\n", "an R file", _FROM_R),
    (b"RDX3\n", "an R file", _FROM_R),
    (b"X\n\x00\x00\x00", "an R file", _FROM_R),
    (b"\x89PNG\r\n", "a picture", ""),
    (b"\xff\xd8\xff", "a picture", ""),
    (b"%PDF-", "a PDF document", ""),
)
"""Files that are recognised in order to be refused: the first bytes, what the file is, and what to do with it."""


def list_writable() -> dict[str, Format]:
    """Return the suffixes that can be written, and the format of each.

    >>> list(list_writable())
    ['.csv', '.tsv', '.parquet', '.dta', '.sav', '.zsav']
    """
    return {suffix: each for each in FORMATS for suffix in each.written}


def list_releasable() -> tuple[str, ...]:
    """Return the names of the formats that a public bundle may have.

    >>> list_releasable()
    ('csv', 'parquet', 'dta', 'sav')
    """
    return tuple(each.released for each in FORMATS if each.released)


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


def format_of(path: Path) -> Format:
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
    for found in FORMATS:
        if head.startswith(found.magic) and (found.is_magic_text or not is_text):
            return found
    for magic, what, hint in UNSUPPORTED:
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
    return next((found for found in FORMATS if suffix in found.suffixes), DELIMITED)


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


def corrupt_error(path: Path, found: Format) -> InputError:
    """Return the error for a file that violates its format."""
    return InputError(
        f"{path.name!r} is not a complete, valid {found.name} file",
        code="corrupt-file",
        hint="it may be truncated or damaged: create or download it again",
        file=str(path),
        format=found.name,
    )
