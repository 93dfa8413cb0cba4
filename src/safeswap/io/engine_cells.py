"""Two Parquet files side by side as counts of cells, counted out of memory or in Spark."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.engines.duckdb_store import limit_bytes
from safeswap.engines.record_words import column_keys, record_words
from safeswap.engines.spilled_cells import SpilledCells
from safeswap.engines.tallied_cells import TalliedCells
from safeswap.io.compare_files import changed_columns, check_alike, files_differ, together
from safeswap.io.counted_cells import cell_attributes
from safeswap.io.described_files import described_files
from safeswap.io.leftovers import working_directory
from safeswap.io.parquet_files import ParquetFiles, open_parquet
from safeswap.kernels.types import Names
from safeswap.model.equality import aligned_columns, different
from safeswap.model.schema import Schema
from safeswap.model.score import CountedCells

_ROWS = 1 << 18


def count_in_duckdb(
    before: Path,
    after: Path,
    *,
    attributes: Sequence[str] | None,
    limit: int,
    reading: Mapping[str, Any],
    memory_limit: str = "1GB",
) -> CountedCells:
    """The cells of ``attributes``, by default all categorical ones; records correspond by their position.

    What does not fit in memory is spilt to a directory of its own among the system's temporary files. Counting needs
    no database and less than any ``memory_limit`` of use; a limit that is none is refused all the same.
    """
    limit_bytes(memory_limit)
    first, second = open_parquet(before), open_parquet(after)
    schema = described_files(first, **reading)
    check_alike(first, second)
    names = cell_attributes(schema, attributes)
    changed = tuple(changed_columns(first, second, schema.names))
    seen = _Seen(schema, names, changed)
    with working_directory() as work:
        cells = SpilledCells(work, records=len(first))
        for mine, theirs in together(first, second, names, changed, rows=_ROWS):
            cells.add(*seen.look(mine, theirs))
        found = cells.tallied(limit=limit)
    first.check_unchanged()
    second.check_unchanged()
    return counted(schema, names, found, untouched=seen.untouched, moved=seen.moved, changed=frozenset(seen.differ))


def count_in_spark(
    before: Path,
    after: Path,
    *,
    attributes: Sequence[str] | None,
    limit: int,
    reading: Mapping[str, Any],
    session: Any = None,
    threads: int | None = None,
) -> CountedCells:
    """The same by a Spark cluster; records correspond by their identifier."""
    from safeswap.engines.capabilities import CAPABILITIES, not_supported
    from safeswap.engines.spark_cells import compared
    from safeswap.io.spark_files import opened, spark_session

    first, second = open_parquet(before), open_parquet(after)
    schema = described_files(first, **reading)
    _check_same_columns(first, second)
    names = cell_attributes(schema, attributes)
    if schema.identifier is None:
        raise not_supported("spark", CAPABILITIES["positions"])
    with spark_session(session, threads, records=len(first)) as spark:
        found = compared(opened(spark, first, schema), opened(spark, second, schema), names, limit=limit)
    first.check_unchanged()
    second.check_unchanged()
    if found.records != len(first):
        raise files_differ("the records of the second file have other identifiers")
    told = {"untouched": found.untouched, "moved": found.moved, "changed": found.changed}
    return counted(schema, names, found.cells, **told)


def counted(schema: Schema, names: Names, found: TalliedCells, **told: Any) -> CountedCells:
    """The cells as measures look at them."""
    return CountedCells(
        schema=schema,
        attributes=names,
        joint=found.joint,
        small_cells=found.small_cells,
        small_untouched=found.small_untouched,
        **told,
    )


class _Seen:
    """Records of both files as they pass by: which took part, and the words of their cells."""

    def __init__(self, schema: Schema, names: Names, changed: Names) -> None:
        self._own = None if schema.identifier is None else schema.identifier.name
        self._names, self._changed = names, changed
        keys = column_keys(secrets.token_bytes(32), len(names))  # words have a meaning within this call only
        self._keys = dict(zip(names, keys, strict=True))
        self.untouched = self.moved = 0
        self.differ: set[str] = set()

    def look(self, mine: pa.RecordBatch, theirs: pa.RecordBatch) -> tuple[Any, npt.NDArray[np.bool_], Any]:
        """Cells before, who took part, and their cells after."""
        touched = np.zeros(mine.num_rows, dtype=np.bool_)
        for name in self._changed:
            sides = (pa.chunked_array([side.column(name)]) for side in (mine, theirs))
            flags = different(*aligned_columns(*sides))
            if flags.any():
                if name == self._own:
                    raise files_differ("the records of the second file have other identifiers, or another order")
                self.differ |= {name} & set(self._names)
                touched |= flags
        rows = pa.array(np.flatnonzero(touched))
        before = self._words(mine, self._names)
        # What did not change is in the words already.
        moved = [name for name in self._names if name in self._changed]
        old, new = (self._words(side.select(moved).take(rows), moved) for side in (mine, theirs))
        after = before[touched] ^ old ^ new if moved else before[touched]
        self.untouched += mine.num_rows - len(rows)
        self.moved += int((before[touched] != after).any(axis=1).sum())
        return before, touched, after

    def _words(self, batch: pa.RecordBatch, names: Sequence[str]) -> Any:
        return record_words([batch.column(name) for name in names], [self._keys[name] for name in names])


def _check_same_columns(first: ParquetFiles, second: ParquetFiles) -> None:
    """Spark writes types in its own way, so that names and numbers of records are all that can be compared."""
    if len(first) != len(second) or first.schema.names != second.schema.names:
        raise files_differ(f"the two files do not fit: {len(first):,} records and {len(second):,}, or other columns")
