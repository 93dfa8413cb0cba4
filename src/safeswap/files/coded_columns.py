"""Columns of Parquet files as small integers, with only the codes in memory.

A batch is decoded, coded and freed, so that the next one reuses its memory: at a hundred million records, most of the
reading time is spent on fresh memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.arrays.types import Codes
from safeswap.errors import InternalError
from safeswap.files.parquet import ParquetFiles
from safeswap.model.microdata import Coded, Microdata, code_column, smallest_code_type
from safeswap.model.schema import Kind, Schema

_BATCH = 1 << 18
_COMPARED = 1 << 16  # expected and actual values stay in the cache


def load_coded(files: ParquetFiles, schema: Schema, names: Sequence[str]) -> Microdata:
    """Load the named columns, in file order: as codes alone where these hold every bit, else as they are.

    >>> import tempfile, pathlib, pyarrow.parquet
    >>> from safeswap.files.parquet import open_parquet
    >>> from safeswap.model.schema import Attribute
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.parquet"
    >>> pyarrow.parquet.write_table(pa.table({"Sex": ["f", "m"] * 40, "Pay": [3.5] * 80}), path)
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="Pay", kind="numeric")))
    >>> load_coded(open_parquet(path), schema, ["Pay", "Sex"]).table.schema.types
    [DictionaryType(dictionary<values=string, indices=uint8, ordered=0>), DataType(double)]
    """
    chosen = [name for name in schema.names if name in names]
    kinds = (*(kind for kind in Kind if kind.is_categorical), Kind.HOUSEHOLD)
    categorical = [name for name in chosen if schema[name].kind in kinds]
    with ThreadPoolExecutor(1) as aside:
        reading = aside.submit(files.table, [name for name in chosen if name not in categorical])
        coded = {name: each for name, each in code_columns(files, categorical).items() if holds_every_bit(each)}
        parts = [files.table([name for name in categorical if name not in coded]), reading.result()]
    columns = {name: as_column(each) for name, each in coded.items()}
    columns |= {name: column for part in parts for name, column in zip(part.column_names, part.columns, strict=True)}
    return Microdata(pa.table({name: columns[name] for name in chosen}), schema.select(chosen), None, coded)


def holds_every_bit(coded: Coded) -> bool:
    """Return whether codes tell values apart to the bit, and none is missing."""
    kinds = (pa.types.is_signed_integer, pa.types.is_string, pa.types.is_large_string)
    return not coded.has_missing and any(is_kind(coded.levels.type) for is_kind in kinds)


def code_columns(files: ParquetFiles, names: Sequence[str]) -> dict[str, Coded]:
    """Return the columns coded as :func:`safeswap.model.microdata.code_column` would, several at a time.

    The order of the levels may differ.

    >>> import tempfile, pathlib, pyarrow.parquet
    >>> from safeswap.files.parquet import open_parquet
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.parquet"
    >>> pyarrow.parquet.write_table(pa.table({"Sex": ["f", "m"] * 40, "Age": [3, 1] * 40}), path)
    >>> found = code_columns(open_parquet(path), ["Sex", "Age"])
    >>> found["Sex"].levels.to_pylist(), found["Age"].codes[:3].tolist()
    (['f', 'm'], [0, 1, 0])
    """
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        return dict(zip(names, threads.map(lambda name: code_file_column(files, name), names), strict=True))


def code_file_column(files: ParquetFiles, name: str, *, known: pa.Array | None = None) -> Coded:
    """Return one column, coded batch by batch; one that cannot be coded this way is read as a whole instead.

    ``known`` levels come first, in the given order, so that columns of two files are coded alike.
    """
    kind = files.schema.field(name).type
    try:
        if pa.types.is_signed_integer(kind):
            return _code_integers(files, name, known=known)
        if name in files.dictionaries or pa.types.is_dictionary(kind):
            return _code_dictionaries(files, name, known=known)
    except _CannotCode:
        pass
    return code_column(files.table([name]).column(0))


def equals_codes(files: ParquetFiles, name: str, coded: Coded) -> bool:
    """Return whether a column of whole numbers, as read from the files, equals these codes; False for other columns.

    The values themselves are compared, with NumPy alone: far less work than coding them again.
    """
    kind = coded.levels.type
    if coded.has_missing or not pa.types.is_signed_integer(kind) or kind != files.schema.field(name).type:
        return False
    levels = coded.levels.to_numpy()
    room = np.empty(_COMPARED, levels.dtype)
    for start, batch in files.batches([name], rows=_COMPARED):
        column = batch.column(0)
        meant = np.take(levels, coded.codes[start : start + len(column)], out=room[: len(column)], mode="clip")
        if column.null_count or not np.array_equal(meant, column.to_numpy()):
            return False
    return len(files) == len(coded.codes)


def as_column(coded: Coded) -> pa.ChunkedArray:
    """Return codes and levels as an Arrow column without copying; there must be no missing value."""
    # Codes number levels by construction: checking that again takes as long as a scan of the column.
    return pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(coded.codes), coded.levels, safe=False)])


class _CannotCode(Exception):  # noqa: N818  (not an error: the column is then read as a whole)
    """The column has missing values, or too many levels."""


def _code_integers(files: ParquetFiles, name: str, *, known: pa.Array | None) -> Coded:
    from safeswap.arrays.integer_codes import IntegerCodes

    kind = files.schema.field(name).type
    numbers = IntegerCodes(None if known is None else known.to_numpy(), most=len(files))
    codes = _Growing(len(files))
    out = np.empty(_BATCH, np.uint8 if kind.bit_width == 8 else np.uint32)
    for start, batch in files.batches([name], rows=_BATCH):
        column = batch.column(0)
        if column.null_count:
            raise _CannotCode
        values = column.to_numpy()
        found = numbers.code(values, out[: len(values)])
        if known is not None and not np.array_equal(numbers.levels[found], values):
            raise InternalError("a column was encoded incorrectly", code="coding", column=name)
        codes.room(start, len(found), len(numbers.levels))[:] = found
    levels = numbers.take_levels().astype(kind.to_pandas_dtype(), copy=False)
    return Coded(codes.array, pa.array(levels, type=kind), has_missing=False)


def _code_dictionaries(files: ParquetFiles, name: str, *, known: pa.Array | None) -> Coded:
    from safeswap.arrays.integer_codes import look_up

    number_of: dict[Any, int] = {} if known is None else {value: n for n, value in enumerate(known.to_pylist())}
    codes = _Growing(len(files))
    levels, places = None, np.zeros(0, np.uint32)
    for start, batch in files.batches([name], rows=_BATCH):
        column = batch.column(0)
        if not pa.types.is_dictionary(column.type) or column.null_count or column.dictionary.null_count:
            raise _CannotCode
        if levels is None or not column.dictionary.equals(levels):
            levels = column.dictionary
            places = np.array([number_of.setdefault(value, len(number_of)) for value in levels.to_pylist()], np.uint32)
        look_up(places, column.indices.to_numpy(), codes.room(start, len(column), len(number_of)))
    kind = pa.string() if levels is None else levels.type
    return Coded(codes.array, pa.array(list(number_of), type=kind), has_missing=False)


class _Growing:
    """Codes of all records, in the narrowest type for the levels found so far."""

    def __init__(self, records: int) -> None:
        self.array: Codes = np.empty(records, np.uint8)

    def room(self, start: int, records: int, levels: int) -> Codes:
        """Return the slots for the codes of the records from ``start``, wide enough for ``levels`` levels."""
        if levels > np.iinfo(self.array.dtype).max + 1:
            wider: Codes = np.empty(len(self.array), smallest_code_type(levels))
            wider[:start] = self.array[:start]
            self.array = wider
        return self.array[start : start + records]
