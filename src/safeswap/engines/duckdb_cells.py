"""Cells of two files counted in DuckDB: two words stand for a cell, and a line for each is all that is kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.engines.duckdb_store import Store
from safeswap.engines.tallied_cells import TalliedCells, tallied
from safeswap.kernels.keyed import Words


class StoredCells:
    """Counts of cells before and after, batch after batch."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table = store.new_table("w0 UBIGINT, w1 UBIGINT, b BIGINT, a BIGINT, u BIGINT")

    def add(self, before: Words, touched: npt.NDArray[np.bool_], after: Words) -> None:
        """Count records: their cells before, which of them took part, and the cells of these after."""
        cells = np.concatenate([before, after])
        was = np.ones(len(cells), dtype=np.int64)
        was[len(before) :] = 0
        stayed = np.append(~touched, np.zeros(len(after), dtype=np.bool_)).astype(np.int64)
        now = stayed.copy()
        now[len(before) :] = 1
        columns = [np.ascontiguousarray(cells[:, 0]), np.ascontiguousarray(cells[:, 1]), was, now, stayed]
        rows = pa.table([pa.array(column) for column in columns], names=["w0", "w1", "b", "a", "u"])
        summed = "SELECT w0, w1, sum(b), sum(a), sum(u) FROM incoming GROUP BY w0, w1"
        self._store.insert(self._table, rows, select=summed)

    def tallied(self, *, limit: int) -> TalliedCells:
        """The cells by their counts, those of all batches put together."""
        kinds = self._store.rows(
            f"SELECT b, a, sum(u), count(*) FROM (SELECT sum(b) AS b, sum(a) AS a, sum(u) AS u "  # noqa: S608
            f"FROM {self._table} GROUP BY w0, w1) GROUP BY b, a"
        )
        return tallied([tuple(map(int, kind)) for kind in kinds], limit=limit)  # type: ignore[misc]
