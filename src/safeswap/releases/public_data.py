"""The data file of a public bundle: write it in each format, and read it back in comparable columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import InputError, SpecError, UnsafeRelease
from safeswap.files.columns import refuse_nul
from safeswap.files.formats import SPSS, STATA, Limits
from safeswap.files.labelled import Labelled, read_labelled
from safeswap.model.microdata import is_bytes
from safeswap.model.release import Release
from safeswap.model.schema import Kind
from safeswap.releases.manifest import DATA_FORMATS, damaged_error

_STATA_TIME = b"<timestamp>\x11"
_NO_STATA_TIME = b"01 Jan 1960 00:00"
_SPSS_TIME = 92
_NO_SPSS_TIME = b"01 Jan 7000:00:00"


def check_format(data_format: str) -> None:
    """Refuse an unknown format."""
    if data_format not in DATA_FORMATS:
        raise SpecError(
            f"there is no format {data_format!r}", code="unknown-format", hint="use one of " + ", ".join(DATA_FORMATS)
        )


_ROW_GROUP = 1 << 18
"""Records that are encoded, and later scanned, at a time, to limit memory."""


def write_data(release: Release, path: Path, data_format: str) -> None:
    """Write the released records. The same release gives the same bytes."""
    table = to_storable(release.table, data_format)
    if data_format != "parquet":
        refuse_nul(table)
    if data_format == "csv":
        _write_csv(table, path)
    elif data_format == "parquet":
        _write_parquet(table, path, numbered=[a.name for a in release.schema.iter_kind(Kind.IDENTIFIER)])
    else:
        _write_labelled(table, release, path, data_format)


def to_storable(table: pa.Table, data_format: str) -> pa.Table:
    """Convert columns for which a format has no exact type to text.

    >>> import datetime
    >>> table = pa.table({"t": [datetime.time(12, 30)], "n": [1], "b": [True]})
    >>> to_storable(table, "csv").to_pydict()
    {'t': ['12:30:00.000000'], 'n': [1], 'b': [True]}
    >>> to_storable(table, "dta").to_pydict()
    {'t': [datetime.time(12, 30)], 'n': [1], 'b': ['true']}
    """
    for position, each in enumerate(table.schema):
        if is_bytes(each.type):
            raise UnsafeRelease(
                f"column {each.name!r} holds bytes, which cannot be scanned before a release",
                code="binary-column",
                hint="drop the column",
                column=each.name,
            )
        target = _exact_type(each.type, data_format)
        if target != each.type:
            table = table.set_column(position, each.name, table.column(position).cast(target))
    return table


def as_labelled(table: pa.Table, data_format: str) -> pa.Table:
    """Return a table as read back from Stata or SPSS: numbers are doubles, NaN is missing, missing text is empty.

    >>> as_labelled(pa.table({"n": [1, None], "t": ["a", None]}), "sav").to_pydict()
    {'n': [1.0, None], 't': ['a', '']}
    """
    columns = []
    for column in to_storable(table, data_format).columns:
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        if pa.types.is_integer(plain.type) or pa.types.is_floating(plain.type):
            numbers = plain.cast(pa.float64())
            columns.append(pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers))
        elif pa.types.is_temporal(plain.type):
            columns.append(plain)
        else:
            columns.append(plain.cast(pa.string()).fill_null(""))
    return pa.table(columns, names=table.column_names)


def as_stored(release: Release, data_format: str) -> pa.Table:
    """Return the released table as it must be read back from the file."""
    if data_format in ("dta", "sav"):
        return as_labelled(release.table, data_format)
    return to_storable(release.table, data_format)


def _exact_type(kind: pa.DataType, data_format: str) -> pa.DataType:
    """Return the type in which a format stores such values exactly: the same, a similar one, or text."""
    if _is_plain(kind) or (data_format == "csv" and _is_simple(kind)):
        return kind
    if data_format in ("dta", "sav") and (time := _labelled_time(kind)) is not None:
        return time
    return _parquet_type(kind) if data_format == "parquet" else pa.string()


def _labelled_time(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of dates and times as read back from Stata and SPSS, which have no time zones."""
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return pa.timestamp("us")
    return pa.time64("us") if pa.types.is_time(kind) else None


def _is_plain(kind: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_dictionary, pa.types.is_string)
    return any(check(kind) for check in checks)


def _is_simple(kind: pa.DataType) -> bool:
    return bool(_is_plain(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind))


def _parquet_type(kind: pa.DataType) -> pa.DataType:
    """Return the Parquet type: without Arrow metadata it has fewer time units, one zone and one kind of decimal."""
    if pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        return kind
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ms" if kind.unit == "s" else kind.unit, "UTC" if kind.tz else None)
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_time(kind):
        return pa.time32("ms") if pa.types.is_time32(kind) else kind
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.string()


def _write_csv(table: pa.Table, path: Path) -> None:
    from safeswap.files.write import write_lines

    with path.open("wb") as file:
        file.write((",".join(_quote(name) for name in table.column_names) + "\n").encode())
        write_lines(table, file)


def _quote(name: str) -> str:
    plain = name.isascii() and name.replace("_", "a").isalnum()
    return name if plain else '"' + name.replace('"', '""') + '"'


def _write_parquet(table: pa.Table, path: Path, *, numbered: list[str]) -> None:
    from pyarrow import parquet

    parquet.write_table(
        table,
        path,
        store_schema=False,
        row_group_size=_ROW_GROUP,
        # Identifiers are consecutive, so delta encoding takes almost no space.
        use_dictionary=[name for name in table.column_names if name not in numbered],
        column_encoding=dict.fromkeys(numbered, "DELTA_BINARY_PACKED"),
        # Bounds of other types are read back in other types and could not be compared.
        write_statistics=[each.name for each in table.schema if _is_simple(each.type)],
    )


def _write_labelled(table: pa.Table, release: Release, path: Path, data_format: str) -> None:
    from safeswap.files.labelled import write_dta, write_sav

    writer = write_dta if data_format == "dta" else write_sav
    writer(table, path, schema=release.schema)
    _remove_time(path, data_format)


def _remove_time(path: Path, data_format: str) -> None:
    """Overwrite the time of writing, which would make the bytes differ between runs."""
    with path.open("r+b") as file:
        head = file.read(4096)
        if data_format == "sav":
            place, time = _SPSS_TIME, _NO_SPSS_TIME
        else:
            place, time = head.index(_STATA_TIME) + len(_STATA_TIME), _NO_STATA_TIME
        file.seek(place)
        file.write(time)


_BLOCK = 1 << 22  # several blocks are in memory at once
_CATEGORIES = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The data file of a bundle, read in pieces. ``types`` gives the column types that the file does not state."""

    path: Path
    data_format: str
    types: Mapping[str, pa.DataType] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """The column names in the file."""
        readers = {"csv": _csv_names, "parquet": _parquet_names}
        if self.data_format in readers:
            return list(self._read(readers[self.data_format], self.path))
        return list(self.labelled.table.column_names)

    @cached_property
    def labelled(self) -> Labelled:
        """A whole Stata or SPSS file, with its metadata."""
        found = STATA if self.data_format == "dta" else SPSS
        try:
            return read_labelled(self.path, found=found, encoding=None, limits=Limits())
        except InputError:
            raise damaged_error("it cannot be read", file=self.path.name) from None

    def pieces(self) -> Iterator[pa.Table]:
        """Yield the records in pieces, in file order."""
        if self.data_format in ("dta", "sav"):
            yield as_labelled(self.labelled.table, self.data_format)
            return
        pieces = self._csv() if self.data_format == "csv" else self._parquet()
        while (piece := self._read(next, pieces, None)) is not None:
            yield piece

    def _read(self, reader: Any, *arguments: Any) -> Any:
        try:
            return reader(*arguments)
        except (pa.ArrowException, OSError, ValueError, KeyError):
            raise damaged_error("it cannot be read", file=self.path.name) from None

    def _csv(self) -> Iterator[pa.Table]:
        from pyarrow import csv

        types = {name: self.types.get(name, pa.string()) for name in self.names}
        reader = csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(column_names=self.names, skip_rows=1, block_size=_BLOCK),
            # Without quotes no value has a line end, and the parser need not look for them.
            parse_options=csv.ParseOptions(newlines_in_values=_has_quotes(self.path), ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types={n: _CATEGORIES if pa.types.is_dictionary(t) else t for n, t in types.items()},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])

    def _parquet(self) -> Iterator[pa.Table]:
        from pyarrow import parquet

        schema = parquet.read_schema(self.path)
        # Read as dictionaries, to see all values in the pages and not only those that records use.
        texts = [each.name for each in schema if pa.types.is_string(each.type)]
        with parquet.ParquetFile(self.path, read_dictionary=texts) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def _has_quotes(path: Path) -> bool:
    with path.open("rb") as file:
        return any(b'"' in chunk for chunk in iter(lambda: file.read(_BLOCK), b""))


def _csv_names(path: Path) -> list[str]:
    import csv

    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file, strict=True), [])


def _parquet_names(path: Path) -> list[str]:
    from pyarrow import parquet

    return list(parquet.read_schema(path).names)
