"""Parquet and Arrow files: refused by what they declare, then decoded at full speed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from safeswap.io.limits import Limits
from safeswap.io.parquet_pages import WIDTH, check_pages
from safeswap.io.sources import Format, corrupt

_PLAIN_TEXT_BYTES = 4  # a text stored plainly takes at least its length, four bytes; less means a dictionary
_SMALL_CHUNK = 2**16
_WIDE = 256  # columns


def read_parquet(path: Path, *, limits: Limits) -> pa.Table:
    """Read a Parquet file whose footer declares no more than the limits allow.

    Text columns that the file stores as dictionaries stay dictionaries: their codes are taken over, not made anew.

    >>> import tempfile, pyarrow.parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.parquet"
    ...     pyarrow.parquet.write_table(pa.table({"Sex": ["F", "M"] * 50, "Age": range(100)}), path)
    ...     [str(kind) for kind in read_parquet(path, limits=Limits()).schema.types]
    ['dictionary<values=string, indices=int8, ordered=0>', 'int64']
    """
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            footer = file.metadata
        limits.check(file=str(path), columns=footer.num_columns, records=footer.num_rows)
        dictionaries = dictionary_columns(footer)
        limits.check(file=str(path), decoded_bytes=sum(map(_declared_bytes, _chunks(footer))))
        check_pages(path, footer, limits=limits, dictionaries=frozenset(dictionaries))
        return _decoded(path, footer.schema.to_arrow_schema().names, sorted(dictionaries))
    except (pa.ArrowException, OSError, ValueError):
        raise corrupt(path, Format.PARQUET) from None


def _decoded(path: Path, names: list[str], dictionaries: list[str]) -> pa.Table:
    """The columns, each narrowed as soon as it is decoded: four bytes per code never stand in memory all at once."""
    from pyarrow import parquet

    def columns(some: list[str]) -> list[pa.ChunkedArray]:
        with parquet.ParquetFile(path, read_dictionary=dictionaries) as file:
            found = file.read(columns=some, use_threads=False)
            return [narrowed(found.column(name)) for name in some]

    if len(set(names)) < len(names):  # names that occur twice are refused later, with their positions
        with parquet.ParquetFile(path, read_dictionary=dictionaries) as file:
            return file.read()
    # Each opening reads the whole footer: a wide file is opened a few times only.
    few = 1 if len(names) <= _WIDE else -(-len(names) // (2 * pa.cpu_count()))
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        read = threads.map(columns, [names[at : at + few] for at in range(0, len(names), few)])
        return pa.table([column for some in read for column in some], names=names)


def narrowed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary column with codes as short as its levels allow; any other column as it is.

    >>> long = pa.chunked_array([pa.array(["F", "M", None]).dictionary_encode()])
    >>> str(narrowed(long).type), narrowed(long).to_pylist()
    ('dictionary<values=string, indices=int8, ordered=0>', ['F', 'M', None])
    """
    if not pa.types.is_dictionary(column.type) or not column.num_chunks:
        return column
    column = column.unify_dictionaries()
    levels = column.chunk(0).dictionary
    shortest = next(t for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64()) if len(levels) <= 2 ** (t.bit_width - 1))
    if shortest.bit_width >= column.type.index_type.bit_width:
        return column
    ordered = column.type.ordered
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(c.indices.cast(shortest), levels, ordered=ordered) for c in column.chunks]
    )


def _chunks(footer: Any) -> list[Any]:
    groups, columns = range(footer.num_row_groups), range(footer.num_columns)
    return [footer.row_group(group).column(column) for group in groups for column in columns]


def dictionary_columns(footer: Any) -> set[str]:
    """The text columns of which every part is a dictionary with short codes, and not just begins as one."""
    stored = [chunk for chunk in _chunks(footer) if chunk.physical_type == "BYTE_ARRAY"]
    plain = {chunk.path_in_schema for chunk in stored if not _is_dictionary(chunk)}
    return {chunk.path_in_schema for chunk in stored} - plain


def _is_dictionary(chunk: Any) -> bool:
    size = chunk.total_uncompressed_size
    return bool(chunk.has_dictionary_page and size < _PLAIN_TEXT_BYTES * chunk.num_values + _SMALL_CHUNK)


def _declared_bytes(chunk: Any) -> int:
    """What a column chunk takes in memory, at least, if it holds what the footer declares."""
    return max(0, int(chunk.total_uncompressed_size), WIDTH.get(chunk.physical_type, 4) * int(chunk.num_values))


def read_arrow(path: Path, *, found: Format, limits: Limits) -> pa.Table:
    """Read an Arrow IPC file or stream (Feather 2 is one), batch by batch, and check every buffer of it.

    >>> import tempfile, pyarrow.feather
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.feather"
    ...     pyarrow.feather.write_feather(pa.table({"a": [1, 2]}), path)
    ...     read_arrow(path, found=Format.ARROW, limits=Limits()).to_pydict()
    {'a': [1, 2]}
    """
    try:
        with pa.OSFile(str(path)) as source:
            reader = pa.ipc.open_file(source) if found is Format.ARROW else pa.ipc.open_stream(source)
            limits.check(file=str(path), columns=len(reader.schema))
            batches, records, size = [], 0, 0
            for batch in _batches(reader, found):
                # Offsets in a damaged file can point anywhere; nothing is looked up before they are checked.
                batch.validate(full=True)
                records, size = records + batch.num_rows, size + batch.nbytes
                limits.check(file=str(path), records=records, decoded_bytes=size)
                batches.append(batch)
            return pa.Table.from_batches(batches, schema=reader.schema)
    except (pa.ArrowException, OSError, ValueError):
        raise corrupt(path, found) from None


def _batches(reader: Any, found: Format) -> Any:
    if found is Format.ARROW:
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return reader
