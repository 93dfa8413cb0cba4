"""Normalise Arrow tables to the form the rest of the package relies on; drop unused levels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.errors import InputError, OutputError
from safeswap.model.microdata import code_column, share_dictionary, unify_dictionaries
from safeswap.model.text import plural

_MANY_RECORDS = 1_000_000
_RUN = 1 << 16


def normalise_table(table: pa.Table, *, file: str = "", is_valid: bool = False) -> pa.Table:
    """Return the table with distinct names, flat columns, valid text (unless that is known), and no metadata.

    Types that few functions of Arrow support (views, run-end encoding, extensions) become their plain counterparts; the
    values stay as they are. Metadata are dropped: they may contain anything, such as an index or unused categories.

    >>> table = pa.table({"a": pa.array(["x"], type=pa.string_view())}, metadata={"made by": "somebody"})
    >>> normalise_table(table).schema.to_string()
    'a: string'
    """
    _check_names(table.column_names, file)
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        plain = _as_plain(_unwrap_extension(column), name, file, is_valid=is_valid)
        columns.append(share_dictionary(plain))
    fields = [pa.field(name, column.type) for name, column in zip(table.column_names, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields))


def _check_names(names: list[str], file: str) -> None:
    where = {"file": file} if file else {}
    if not names:
        raise InputError("there are no columns", code="no-columns", hint="give data with named columns", **where)
    seen: set[str] = set()
    for position, name in enumerate(names, start=1):
        if not name:
            raise InputError(
                f"column {position:,} has no name",
                code="unnamed-column",
                hint="name every column",
                column=position,
                **where,
            )
        if name in seen:
            raise InputError(
                f"two columns are called {name!r}",
                code="duplicate-column",
                hint="give every column a unique name",
                column=name,
                columns=[i for i, other in enumerate(names, start=1) if other == name],
                **where,
            )
        seen.add(name)


def _unwrap_extension(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the storage of an extension type, also inside dictionaries."""
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], type=column.type.storage_type)
    if not pa.types.is_dictionary(column.type) or not isinstance(column.type.value_type, pa.BaseExtensionType):
        return column
    parts = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.storage, c.type.ordered) for c in column.chunks]
    kind = pa.dictionary(column.type.index_type, column.type.value_type.storage_type, column.type.ordered)
    return pa.chunked_array(parts, type=kind)


def _as_plain(column: pa.ChunkedArray, name: str, file: str, *, is_valid: bool) -> pa.ChunkedArray:
    kind = column.type
    wrapped = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    if pa.types.is_nested(kind.value_type if wrapped else kind):
        raise InputError(
            f"column {name!r} holds lists or structures, not single values",
            code="nested-column",
            hint="split it into several columns, or drop it",
            column=name,
            **({"file": file} if file else {}),
        )
    if not is_valid:
        _check_content(column, name, file)
    if pa.types.is_run_end_encoded(kind):
        runs = [pc.run_end_decode(chunk) for chunk in column.chunks]
        return pa.chunked_array(runs, type=kind.value_type)
    target = _plain_type(kind)
    return column if target == kind else column.cast(target)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_dictionary(kind) and _plain_type(kind.value_type) != kind.value_type:
        return pa.dictionary(kind.index_type, _plain_type(kind.value_type), ordered=kind.ordered)
    return kind


def _check_content(column: pa.ChunkedArray, name: str, file: str) -> None:
    """Refuse invalid UTF-8 and dictionary codes out of range, which foreign files may contain."""
    where = {"column": name, **({"file": file} if file else {})}
    if not all(_is_valid(c.dictionary if isinstance(c, pa.DictionaryArray) else c) for c in column.chunks):
        raise InputError(
            f"column {name!r} holds text that is not UTF-8",
            code="wrong-encoding",
            hint="rewrite the file with its text in UTF-8",
            **where,
        )
    if not all(_is_valid(chunk) for chunk in column.chunks if isinstance(chunk, pa.DictionaryArray)):
        raise InputError(
            f"column {name!r} is damaged: it refers to categories that do not exist",
            code="corrupt-file",
            hint="create or download the file again",
            **where,
        )


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def refuse_nul(table: pa.Table) -> None:
    """Refuse texts with NUL characters, which readers of text files, Stata and SPSS cannot handle.

    >>> refuse_nul(pa.table({"a": ["x\\0"]}))
    Traceback (most recent call last):
    safeswap.errors.OutputError: column 'a' holds NUL characters in 1 text
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            continue
        chunks = [c.dictionary if isinstance(c, pa.DictionaryArray) else c for c in column.chunks]
        number = sum(pc.sum(pc.match_substring(chunk, "\0")).as_py() or 0 for chunk in chunks if _holds_nul(chunk))
        if number:
            raise OutputError(
                f"column {name!r} holds NUL characters in {plural(number, 'text')}",
                code="not-representable",
                hint="remove them before masking, or write Parquet",
                column=name,
            )


def _holds_nul(texts: pa.Array) -> bool:
    """Return whether there is a NUL byte in the bytes of some texts, which are looked through faster than the texts."""
    width = 8 if pa.types.is_large_string(texts.type) else 4
    _, offsets, content = texts.buffers()
    if content is None or not len(texts):
        return False
    first, last = (
        int.from_bytes(offsets[width * at : width * (at + 1)], "little")
        for at in (texts.offset, texts.offset + len(texts))
    )
    return not np.frombuffer(content, np.uint8)[first:last].all()


def distinct_count(column: pa.ChunkedArray) -> int:
    """Count the distinct values of a column, missing excluded.

    >>> distinct_count(pa.chunked_array([["a", "b"], ["a", None]]))
    2
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if len(column) < _MANY_RECORDS:
        return int(pc.count_distinct(column, mode="only_valid").as_py())
    if pa.types.is_integer(column.type) or pa.types.is_float64(column.type):
        return _count_numbers(column)
    import polars as pl  # uses all cores, several times as fast as Arrow, but slow to import

    return pl.Series(column).n_unique() - bool(column.null_count)


def _count_numbers(column: pa.ChunkedArray) -> int:
    """Count distinct numbers; NaN is one. Sorting plain numbers is several times as fast as any hash table."""
    numbers = np.sort(column.drop_null().to_numpy() if column.null_count else column.to_numpy())
    if not len(numbers):
        return 0
    steps = numbers[1:] != numbers[:-1]
    several_nan = int(np.count_nonzero(numbers != numbers)) - 1  # noqa: PLR0124  (sorted to the end, each unlike itself)
    return 1 + int(np.count_nonzero(steps)) - max(several_nan, 0)


def drop_unused_levels(table: pa.Table) -> pa.Table:
    """Drop dictionary entries that do not occur; keep the values and the order of the other entries.

    A dictionary can list categories that no record has (any more): they would reveal what was removed.

    >>> column = pa.DictionaryArray.from_arrays(pa.array([1, 1]), pa.array(["gone", "here"]))
    >>> drop_unused_levels(pa.table({"a": column}))["a"].chunk(0).dictionary.to_pylist()
    ['here']
    """
    columns = [_compact(column) if pa.types.is_dictionary(column.type) else column for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _compact(column: pa.ChunkedArray) -> pa.ChunkedArray:
    column = unify_dictionaries(column)
    if _uses_every_level(column):
        return column
    coded = code_column(column)
    used = np.flatnonzero(np.bincount(coded.codes, minlength=len(coded.levels) + 1)[: len(coded.levels)])
    lookup = np.full(len(coded.levels) + 1, -1, dtype=np.int64)
    lookup[used] = np.arange(used.size)
    codes = lookup[coded.codes]
    kind = column.type
    indices = pa.array(codes, mask=codes < 0 if coded.has_missing else None).cast(kind.index_type)
    compacted = pa.DictionaryArray.from_arrays(indices, coded.levels.take(pa.array(used)), ordered=kind.ordered)
    return pa.chunked_array([compacted])


def _uses_every_level(column: pa.ChunkedArray) -> bool:
    """Return whether every dictionary entry occurs; usually decided by the first few records."""
    if column.num_chunks == 0:
        return True
    seen = np.zeros(len(column.chunk(0).dictionary), dtype=np.bool_)
    for chunk in column.chunks:
        for start in range(0, len(chunk), _RUN):
            seen[chunk.indices.slice(start, _RUN).drop_null().to_numpy()] = True
            if seen.all():
                return True
    return bool(seen.all())
