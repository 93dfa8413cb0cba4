"""A public data file as it stands on the disk: read back piece by piece, in columns that can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from safeswap.errors import InputError
from safeswap.io.labelled import Labelled, read_labelled
from safeswap.io.limits import Limits
from safeswap.io.manifest import damaged
from safeswap.io.public_data import as_labelled
from safeswap.io.sources import Format

_BLOCK = 1 << 24
_CATEGORIES = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The data file of a bundle. ``types`` says as what the columns are to be read where the file does not."""

    path: Path
    data_format: str
    types: Mapping[str, pa.DataType] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """The column names that the file holds."""
        readers = {"csv": _csv_names, "parquet": _parquet_names}
        if self.data_format in readers:
            return list(self._read(readers[self.data_format], self.path))
        return list(self.labelled.table.column_names)

    @cached_property
    def labelled(self) -> Labelled:
        """A Stata or SPSS file as a whole, with what it says about itself beside its records."""
        found = Format.STATA if self.data_format == "dta" else Format.SPSS
        try:
            return read_labelled(self.path, found=found, encoding=None, limits=Limits())
        except InputError:
            raise damaged("it cannot be read", file=self.path.name) from None

    def pieces(self) -> Iterator[pa.Table]:
        """The records in pieces, in the order in which they stand in the file."""
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
            raise damaged("it cannot be read", file=self.path.name) from None

    def _csv(self) -> Iterator[pa.Table]:
        from pyarrow import csv

        types = {name: self.types.get(name, pa.string()) for name in self.names}
        reader = csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(column_names=self.names, skip_rows=1, block_size=_BLOCK),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
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
        # As dictionaries: what the pages hold is then seen, and not only what the records use.
        texts = [each.name for each in schema if pa.types.is_string(each.type)]
        with parquet.ParquetFile(self.path, read_dictionary=texts) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def _csv_names(path: Path) -> list[str]:
    import csv

    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file, strict=True), [])


def _parquet_names(path: Path) -> list[str]:
    from pyarrow import parquet

    return list(parquet.read_schema(path).names)
