"""A swap of a file that does not fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safeswap.engines.base import Constraint
from safeswap.io.duckdb_exchanges import Attributes, StoredExchanges
from safeswap.io.memory_swap import needed
from safeswap.io.parquet_files import ParquetFiles
from safeswap.kernels.types import Names
from safeswap.methods.swap import Swap, constraint_of
from safeswap.model.invariant import Invariant
from safeswap.model.schema import Schema
from safeswap.model.spec import SwapSpec

if TYPE_CHECKING:
    from safeswap.io.mask_files import Job


class DuckDBSwap(StoredExchanges):
    """The pairs of a swap in DuckDB."""

    def __init__(self, files: ParquetFiles, schema: Schema, spec: SwapSpec, *, job: Job, work: Path) -> None:
        self.spec = spec
        super().__init__(files, schema, set(needed(schema, spec)), job=job, work=work)

    def _draw(self, job: Job) -> None:
        self.plan, drawn = Swap().drawn(
            self.stream, self.spec, key=job.key, engine=self.engine, replicate=job.replicate
        )
        self.exchanges = tuple(zip(self.spec.stages, drawn, strict=True))

    def _constraint(self, names: Names) -> Constraint:
        return constraint_of(self.spec, names)

    def _kept(self, names: Names) -> Sequence[Names]:
        return [(*names, *self.spec.fixed)]

    def _promises(self) -> tuple[Invariant, ...]:
        return Swap().invariants(Attributes(self.part.names), self.spec)  # type: ignore[arg-type]
