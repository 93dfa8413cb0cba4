"""Write tables to files: complete or not at all, and equal when read again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.errors import OutputError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.files.columns import drop_unused_levels, refuse_nul
from safeswap.files.encoding import default_delimiter
from safeswap.files.formats import list_writable
from safeswap.model.microdata import Microdata, is_bytes, share_dictionary
from safeswap.model.schema import Attribute, Schema
from safeswap.model.text import plural


class Result(Protocol):
    """The result of a method as a writer sees it: the data only."""

    @property
    def data(self) -> Microdata:
        """The masked microdata."""


Writable: TypeAlias = pa.Table | Microdata | Result
Fields: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.uint8]]
"""The number of each record's field, where each field begins and ends, and the bytes of all."""

_IN_ORDER = np.empty(0, np.int32)
_FEW_FIELDS = 1 << 22
_BATCH = 1 << 14
_SPECIAL = ('"', "\n", "\r")
_PLAIN_NAME = re.compile(r"[^\W_][\w.\- ]*", re.ASCII)
_TEXT_FORMAT = re.compile(r"A\d+|%-?\d+s")


def as_table(data: Writable) -> pa.Table:
    """Return the Arrow table of any writable value."""
    if isinstance(data, pa.Table):
        return data
    return data.table if isinstance(data, Microdata) else data.data.table


def schema_of(data: Writable) -> Schema:
    """Return the description of any writable value; a bare table has only names."""
    if isinstance(data, pa.Table):
        return Schema(attributes=tuple(Attribute(name=name) for name in data.column_names))
    return data.schema if isinstance(data, Microdata) else data.data.schema


def write_csv(
    data: Writable,
    path: str | os.PathLike[str],
    *,
    delimiter: str = ",",
    force: bool = False,
    mode: int = PRIVATE_FILE,
) -> None:
    """Write UTF-8 text with a header line. Fields are quoted only where necessary.

    A missing value is an empty field, an empty text is ``""``: ``read`` distinguishes them. Text columns come back
    exactly; numbers are written so that they parse to the same number.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "toy.csv"
    ...     write_csv(pa.table({"id": ["007", "8"], "Sex": ["", None]}), path)
    ...     path.read_text()
    'id,Sex\\n007,""\\n8,\\n'
    """
    table = as_table(data)
    if table.num_columns == 1:
        delimiter = default_delimiter(Path(path))  # unused, but must be the one assumed on reading
    written = _writable_as_text(table)
    with atomic_write(path, force=force, mode=mode) as part, part.open("wb") as file:
        file.write((delimiter.join(_header_field(name) for name in table.column_names) + "\n").encode())
        write_lines(written, file, delimiter)


def write_parquet(
    data: Writable,
    path: str | os.PathLike[str],
    *,
    compression: str = "snappy",
    force: bool = False,
    mode: int = PRIVATE_FILE,
) -> None:
    """Write Parquet with the values and their types, and nothing about their source.

    Columns as they were read from a Parquet file are copied from it byte for byte, in its row groups.

    >>> import tempfile, pathlib, pyarrow.parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "toy.parquet"
    ...     write_parquet(pa.table({"a": [1, 2]}, metadata={"index": "secret"}), path)
    ...     b"secret" in path.read_bytes(), pyarrow.parquet.read_table(path).to_pydict()
    (False, {'a': [1, 2]})
    """
    from pyarrow import parquet

    table = drop_unused_levels(as_table(data)).replace_schema_metadata(None)
    with atomic_write(path, force=force, mode=mode) as part:
        if not _write_copied(data, table, part, compression):
            parquet.write_table(table, part, compression=compression)


def _write_copied(data: Writable, table: pa.Table, part: Path, compression: str) -> bool:
    """Write the columns that nothing was done to in the bytes of the Parquet file they come from; False if none can."""
    if isinstance(data, pa.Table):
        return False
    stored = data.stored if isinstance(data, Microdata) else data.data.stored
    if stored is None:
        return False
    from safeswap.files.rewrite import write_copied

    return write_copied(table, stored, part, compression)


def write(data: Writable, path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE) -> None:
    """Write in the format that the suffix names: csv, tsv, parquet, dta, sav or zsav."""
    written = list_writable()
    found = written.get(Path(path).suffix.lower())
    if found is None or found.write is None:
        raise OutputError(
            "the file's suffix is not that of a format that can be written",
            code="unknown-format",
            hint="use one of " + ", ".join(written),
            file=os.fspath(path),
        )
    found.write(data, path, force=force, mode=mode)


def list_losses(data: Writable, suffix: str, *, schema: Schema | None = None) -> tuple[str, ...]:
    """List what a file with this suffix would lose of the description of the data, a sentence each.

    Anything that would alter a value or truncate a label is refused instead.

    >>> attribute = Attribute(name="pay", display="DOLLAR8.2")
    >>> list_losses(Microdata(pa.table({"pay": [1.0]}), Schema(attributes=(attribute,))), ".dta")
    ('pay: the display format DOLLAR8.2 becomes %8.2f',)
    """
    schema, written = schema or schema_of(data), list_writable().get(suffix.lower())
    if written is not None and written.package is not None:
        from safeswap.files import labelled

        return labelled.list_losses(schema, as_table(data), written.package.program)
    shown = sum(bool(a.display) and not _TEXT_FORMAT.fullmatch(a.display) for a in schema.attributes)
    lost = ["the label of the file"] if schema.label else []
    return (*lost, f"the display formats of {plural(shown, 'column')}") if shown else tuple(lost)


def write_part(data: Writable, part: Path, target: Path) -> None:
    """Write to the temporary path of a target; an error names the target."""
    try:
        write(data, part, force=True)
    except OutputError as error:
        message = error.message.replace(part.name, target.name)
        raise OutputError(message, code=error.code, hint=error.hint, **{**error.fields, "file": str(target)}) from None


def write_files(files: Mapping[Path, Writable], *, force: bool = False) -> None:
    """Write several files, all or none."""
    with ExitStack() as stack:
        parts = {path: stack.enter_context(atomic_write(path, force=force)) for path in files}
        for path, data in files.items():
            write_part(data, parts[path], path)


def write_microdata(data: Microdata | Result, path: str | os.PathLike[str], *, force: bool = False) -> tuple[str, ...]:
    """Write an internal file in the format of its suffix; return the parts of its description that are lost.

    Writing is atomic. A format that would alter a value or truncate a label is refused.
    """
    write(data, path, force=force)
    return list_losses(data, Path(path).suffix)


def _header_field(name: str) -> str:
    # Anything unusual is quoted, so that a header is never taken for another dialect.
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def write_lines(table: pa.Table, file: BinaryIO, delimiter: str = ",") -> None:
    """Write the records as lines of text, without a header: the same bytes as Polars writes.

    Texts, whole numbers and truth values are written without Polars, which takes longer to import than to write a
    small file, and twice as long for a large one.
    """
    cells = table.num_rows * table.num_columns
    if cells and all(_is_plain(column.type) for column in table.columns):
        if cells <= _FEW_FIELDS:
            file.write(_join_fields([_plain_fields(column, delimiter) for column in table.columns], delimiter))
            return
        if is_worth_compiling(cells):
            _write_batches(table, file, delimiter)
            return
    import polars as pl

    try:
        pl.DataFrame(pl.from_arrow(table)).write_csv(file, include_header=False, separator=delimiter)
    except OSError as error:  # polars gives errno in the message only
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else error.errno, "the file could not be written") from None


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether values are texts, whole numbers or truth values, as such or as categories."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _is_text(kind) or bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _plain_fields(column: pa.ChunkedArray, delimiter: str) -> pa.Array:
    """Return the values as fields; of a column of categories, only the levels are looked at."""
    column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if not pa.types.is_dictionary(column.type):
        return _quote_fields(column, delimiter)
    return _quote_fields(column.dictionary, delimiter).take(column.indices)


def _quote_fields(values: pa.Array, delimiter: str) -> pa.Array:
    """Return values as text, quoted where that is necessary."""
    texts = values.cast(pa.large_string())
    if not _is_text(values.type) or not _need_quotes(texts, delimiter):
        return texts
    needs_quotes = pc.equal(texts, "")
    for special in (delimiter, *_SPECIAL):
        needs_quotes = pc.or_(needs_quotes, pc.match_substring(texts, special))
    mark, nothing = _text('"'), _text("")
    quoted = pc.binary_join_element_wise(mark, pc.replace_substring(texts, '"', '""'), mark, nothing)
    return pc.if_else(needs_quotes, quoted, texts)


def _need_quotes(texts: pa.Array, delimiter: str) -> bool:
    """Return whether some text may need quotes, by the bytes of all."""
    offsets, content = _contents(texts)
    empty = offsets[1:] == offsets[:-1]
    if texts.null_count:
        empty &= texts.is_valid().to_numpy(zero_copy_only=False)
    return bool(empty.any()) or any((content == ord(each)).any() for each in (delimiter, *_SPECIAL))


def _contents(texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return where each text begins and ends in the bytes of all, and these."""
    _, places, content = texts.buffers()
    if not len(texts) or content is None:
        return np.zeros(len(texts) + 1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return offsets - offsets[0], np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]


def _join_fields(fields: list[pa.Array], delimiter: str) -> pa.Buffer:
    """Return the lines of a file, one after another; a missing value is an empty field."""
    options = {"null_handling": "replace", "null_replacement": ""}
    last = pc.binary_join_element_wise(fields[-1], _text("\n"), _text(""), **options)
    lines = pc.binary_join_element_wise(*fields[:-1], last, _text(delimiter), **options)
    return lines.buffers()[2]


def _write_batches(table: pa.Table, file: BinaryIO, delimiter: str) -> None:
    """Write many lines, some at a time, in memory that stays in the cache."""
    columns = [share_dictionary(column) for column in table.columns]
    levels = [_fields_of_levels(column, delimiter) for column in columns]
    marks = [ord(delimiter)] * (len(columns) - 1) + [ord("\n")]
    lines = np.empty(0, np.uint8)
    for start in range(0, table.num_rows, _BATCH):
        pieces = [column.slice(start, _BATCH).combine_chunks() for column in columns]
        fields = [_fields_of(piece, known, delimiter) for piece, known in zip(pieces, levels, strict=True)]
        ends = np.zeros(len(pieces[0]), np.int64)
        for each in fields:
            _add_lengths(*each[:2], ends)
        np.cumsum(ends, out=ends)
        if ends[-1] > lines.size:
            lines = np.empty(2 * ends[-1], np.uint8)
        places = np.append(0, ends[:-1])
        for each, mark in zip(fields, marks, strict=True):
            _place_fields(*each, places, lines, mark)
        file.write(lines[: ends[-1]].data)


def _fields_of_levels(column: pa.ChunkedArray, delimiter: str) -> Fields | None:
    """Return the fields of a column's categories, and an empty one for a missing value; None if it has none."""
    if not pa.types.is_dictionary(column.type):
        return None
    offsets, content = _contents(_quote_fields(column.chunk(0).dictionary, delimiter).fill_null(""))
    return _IN_ORDER, np.append(offsets, offsets[-1]), content


def _fields_of(piece: pa.Array, levels: Fields | None, delimiter: str) -> Fields:
    piece = piece.chunk(0) if isinstance(piece, pa.ChunkedArray) else piece
    if levels is None:
        return _IN_ORDER, *_contents(_quote_fields(piece, delimiter).fill_null(""))
    codes = piece.indices
    if codes.null_count:
        codes = codes.cast(pa.int64()).fill_null(len(piece.dictionary))
    return codes.to_numpy().astype(np.int32, copy=False), *levels[1:]


@njit(cache=True, nogil=True)
def _add_lengths(codes, offsets, lengths):  # type: ignore[no-untyped-def]
    """Add the length of each record's field, and of the mark after it; without codes the fields are in order."""
    for row in range(lengths.size):
        field = np.int64(codes[row]) if codes.size else row
        lengths[row] += offsets[field + 1] - offsets[field] + 1


@njit(cache=True, nogil=True)
def _place_fields(codes, offsets, content, places, lines, mark):  # type: ignore[no-untyped-def]
    """Copy each record's field, and the mark after it, to its place, which moves on to the next field."""
    for row in range(places.size):
        field, place = np.int64(codes[row]) if codes.size else row, places[row]
        for k in range(offsets[field], offsets[field + 1]):
            lines[place] = content[k]
            place += 1
        lines[place] = mark
        places[row] = place + 1


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _writable_as_text(table: pa.Table) -> pa.Table:
    """Refuse bytes and NUL characters, which a text file cannot hold."""
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if is_bytes(kind):
            raise OutputError(
                f"column {field.name!r} holds bytes, which a CSV file cannot",
                code="not-representable",
                hint="write Parquet instead",
                column=field.name,
            )
    refuse_nul(table)
    return table
