"""What the columns of Parquet files are, without reading all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from safeswap.io.parquet_files import ParquetFiles
from safeswap.model.checked import checked
from safeswap.model.schema import Schema


@checked
def described_files(
    files: ParquetFiles,
    *,
    schema: Schema | str | Path | None = None,
    identifier: str | None = None,
    kinds: Mapping[str, Any] | None = None,
    missing: Sequence[str] = (),
    name: str | None = None,
) -> Schema:
    """What the columns are, as :func:`safeswap.io.read.read` would find; what must be guessed is, from a sample."""
    from safeswap.io.agreement import described
    from safeswap.io.columns import settled
    from safeswap.io.schema_file import read_schema

    known = read_schema(schema) if isinstance(schema, str | Path) else schema
    return described(
        settled(_sample(files), file=str(files.root)),
        schema=known,
        stated={},
        identifier=identifier,
        kinds=kinds or {},
        missing=missing,
        name=files.root.name.split(".", 1)[0] if name is None else name,
        file=str(files.root),
    )


def _sample(files: ParquetFiles, *, records: int = 100_000, runs: int = 10) -> pa.Table:
    """All records of a small file, else runs of them from row groups all over the files."""
    from pyarrow import parquet

    if len(files) <= records:
        return files.table(files.schema.names)
    places = [(part, group) for part in files.parts for group, rows in enumerate(part.groups) if rows]
    chosen = places[:: max(1, len(places) // runs)][:runs]
    tables = []
    for part, group in chosen:
        with parquet.ParquetFile(part.path) as file:
            first = next(file.iter_batches(batch_size=records // len(chosen), row_groups=[group], use_threads=False))
            tables.append(pa.Table.from_batches([first]).replace_schema_metadata(None))
    return pa.concat_tables(tables)
