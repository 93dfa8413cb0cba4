"""Write tables to files: complete or not at all, and equal when read again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import OutputError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.files.columns import drop_unused_levels, refuse_nul
from safeswap.files.dialect import default_delimiter
from safeswap.files.formats import list_writable
from safeswap.model.columns import is_bytes
from safeswap.model.microdata import Microdata


class Result(Protocol):
    """The result of a method as a writer sees it: the data only."""

    @property
    def data(self) -> Microdata:
        """The masked microdata."""


Writable: TypeAlias = pa.Table | Microdata | Result
_FEW_FIELDS = 1 << 22
_PLAIN_NAME = re.compile(r"[^\W_][\w.\- ]*", re.ASCII)


def as_table(data: Writable) -> pa.Table:
    """Return the Arrow table of any writable value."""
    if isinstance(data, pa.Table):
        return data
    return data.table if isinstance(data, Microdata) else data.data.table


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
    fields = _plain_fields(written, delimiter)
    with atomic_write(path, force=force, mode=mode) as part, part.open("wb") as file:
        file.write((delimiter.join(_header_field(name) for name in table.column_names) + "\n").encode())
        if fields is not None:
            file.write(_join_fields(fields, delimiter))
        else:
            import polars as pl

            pl.DataFrame(pl.from_arrow(written)).write_csv(file, include_header=False, separator=delimiter)


def write_parquet(
    data: Writable,
    path: str | os.PathLike[str],
    *,
    compression: str = "snappy",
    force: bool = False,
    mode: int = PRIVATE_FILE,
) -> None:
    """Write Parquet with the values and their types, and nothing about their source.

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
        parquet.write_table(table, part, compression=compression)


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
    from safeswap.files.labelled import list_losses

    write(data, path, force=force)
    return list_losses(data, Path(path).suffix)


def _header_field(name: str) -> str:
    # Anything unusual is quoted, so that a header is never taken for another dialect.
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _plain_fields(table: pa.Table, delimiter: str) -> list[pa.Array] | None:
    """Return the columns as fields of a small file of text, whole numbers and truth values; None for any other.

    The same bytes as Polars writes, without importing it: that takes longer than writing a small file.
    """
    if not 0 < table.num_rows * table.num_columns <= _FEW_FIELDS:
        return None
    fields = []
    for column in table.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            fields.append(_quote_fields(column, delimiter))
        elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            fields.append(column.cast(kind).cast(pa.large_string()).combine_chunks())
        else:
            return None
    return fields


def _quote_fields(column: pa.ChunkedArray, delimiter: str) -> pa.Array:
    """Quote the texts that need it; of a column of categories, only the levels are looked at."""
    column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    texts = (column.dictionary if pa.types.is_dictionary(column.type) else column).cast(pa.large_string())
    needs_quotes = pc.equal(texts, "")
    for special in (delimiter, '"', "\n", "\r"):
        needs_quotes = pc.or_(needs_quotes, pc.match_substring(texts, special))
    mark, nothing = _text('"'), _text("")
    quoted = pc.binary_join_element_wise(mark, pc.replace_substring(texts, '"', '""'), mark, nothing)
    fields = pc.if_else(needs_quotes, quoted, texts)
    return fields.take(column.indices) if pa.types.is_dictionary(column.type) else fields


def _join_fields(fields: list[pa.Array], delimiter: str) -> pa.Buffer:
    """Return the lines of a file, one after another; a missing value is an empty field."""
    options = {"null_handling": "replace", "null_replacement": ""}
    last = pc.binary_join_element_wise(fields[-1], _text("\n"), _text(""), **options)
    lines = pc.binary_join_element_wise(*fields[:-1], last, _text(delimiter), **options)
    return lines.buffers()[2]


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
