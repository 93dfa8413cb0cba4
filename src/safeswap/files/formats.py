"""The file formats, one row each: how a format is recognised, read, written, and whether it may be released.

A new format is one more row of :data:`FORMATS`. Readers and writers are imported on first use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from safeswap.files.identifiers import Lines
    from safeswap.files.sources import Limits
    from safeswap.model.dates import Program
    from safeswap.model.schema import Attribute


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A table with the description from its source. One that is valid has no damaged texts or codes."""

    table: pa.Table
    is_valid: bool = False
    lines: Lines | None = None
    label: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


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

    return Loaded(table=read_parquet(path, limits=limits))


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
