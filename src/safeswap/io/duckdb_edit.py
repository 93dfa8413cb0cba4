"""The Confidentiality Edit of 1990 of a file that does not fit in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safeswap.engines.base import Constraint
from safeswap.engines.duckdb_households import DuckDBHouseholds
from safeswap.io.duckdb_exchanges import Attributes, StoredExchanges
from safeswap.io.memory_edit import looked_at
from safeswap.io.parquet_files import ParquetFiles
from safeswap.kernels import keyed
from safeswap.kernels.types import Names
from safeswap.methods.edit_1990 import Edit1990, edited, sample_key
from safeswap.methods.edit_1990_checks import check_counted
from safeswap.model.edit_1990_spec import Edit1990Spec
from safeswap.model.invariant import Invariant
from safeswap.model.schema import Schema

if TYPE_CHECKING:
    from safeswap.io.mask_files import Job


class DuckDBEdit1990(StoredExchanges):
    """The pairs of households in DuckDB, and what was found on the way."""

    facts: Mapping[str, Any]

    def __init__(self, files: ParquetFiles, schema: Schema, spec: Edit1990Spec, *, job: Job, work: Path) -> None:
        self.spec = spec
        super().__init__(files, schema, looked_at(schema, spec), job=job, work=work)

    def _draw(self, job: Job) -> None:
        households = DuckDBHouseholds(
            self.engine,
            self.stream,
            self.spec,
            draw_key=sample_key(self.stream, job.key, replicate=job.replicate),
            identity_key=keyed.derive(job.key.secret, "identity"),
        )
        households.count()
        check_counted(households, self.part, self.spec)
        found = households.partners()
        self.plan = edited(found, self.spec, records=len(self.stream))
        self.exchanges = ((self.spec.exchanged, found.pairs),)
        self.facts = found.facts()

    def _constraint(self, names: Names) -> Constraint:
        return Constraint(equal=self.spec.matched, unequal=(self.spec.differing,))

    def _kept(self, names: Names) -> Sequence[Names]:
        return self.spec.kept

    def _promises(self) -> tuple[Invariant, ...]:
        return Edit1990().invariants(Attributes(self.part.names), self.spec)  # type: ignore[arg-type]
