"""The outcome of a study: one row per candidate, the frontier, and what speaks for a choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap import registry
from safeswap.arrays import dominance
from safeswap.arrays.two_way import MEASURES as TABLE_MEASURES
from safeswap.arrays.types import Floats, Int64s
from safeswap.errors import SpecError
from safeswap.measures.base import compared
from safeswap.model.checked import checked
from safeswap.model.spec import MaskSpec
from safeswap.model.study import StudySpec
from safeswap.studies.objective import Objective, as_objective

if TYPE_CHECKING:
    from safeswap.studies.choice import Choice


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """All candidates of a study with their figures. Figures only: no masked record is in here.

    ``table`` has one row per candidate, replicate after replicate: number, specification (number and text), label,
    swap attributes, constraint, rate, replicate, outcome, pairs made, the reason where it was rejected, and a column
    per measure.
    """

    spec: StudySpec
    table: pa.Table
    specs: tuple[MaskSpec, ...]  # by the number in the column "specification"
    facts: Mapping[str, Any]  # what may be said about the data without disclosing a record
    two_way: npt.NDArray[np.float32] | None = None  # (candidates, tables, measures)
    table_pairs: tuple[tuple[str, str], ...] = ()
    frame_type: str = "pyarrow"  # in which the caller's own dataframes are

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @checked
    def scores(self, measure: str) -> Floats:
        """The figures of one measure with their signs, a number per candidate; not a number where it was rejected."""
        if measure not in self.spec.measures:
            raise SpecError(
                f"{measure!r} was not measured in this study",
                code="unknown-measure",
                hint="measured were: " + ", ".join(self.spec.measures),
            )
        values: Floats = self.table.column(measure).to_numpy().astype(np.float64, copy=False)
        return values

    @checked
    def axes(self, risk: str | None = None, distortion: str | None = None) -> tuple[Floats, Floats]:
        """Risk and distortion of every candidate, as they are compared; by default the first measure of each kind.

        Where the sign of a measure is a direction, this is its magnitude: far from the original is far either way.
        """
        names = risk or self.spec.risk[0], distortion or self.spec.distortion[0]
        y, x = (compared(registry.measure(name), self.scores(name)) for name in names)
        return y, x

    @checked
    def frontier(self, *, risk: str | None = None, distortion: str | None = None, rate: float | None = None) -> Int64s:
        """The undominated candidates by number, from least to most distortion; of one rate, or of all."""
        y, x = self.axes(risk, distortion)
        rows = np.arange(len(self))
        if rate is not None:
            rows = np.flatnonzero(np.isclose(self._rates(), rate, rtol=1e-9, atol=0.0))
            if not len(rows):
                raise SpecError(
                    f"no candidate of this study has rate {rate:g}",
                    code="unknown-rate",
                    hint="the rates are: " + ", ".join(f"{known:g}" for known in self.spec.rates),
                )
        best = rows[dominance.undominated(y[rows], x[rows])]
        ordered: Int64s = best[np.lexsort((y[best], x[best]))]
        return ordered

    def rejected(self) -> pa.Table:
        """The candidates that could not be made, with the reason."""
        import pyarrow.compute as pc

        bad = self.table.filter(pc.equal(self.table.column("outcome"), "rejected"))
        return bad.select(["candidate", "label", "constraint", "rate", "replicate", "reason"])

    @checked
    def summary(self, *, risk: str | None = None, distortion: str | None = None) -> pa.Table:
        """One row per specification: mean and spread over its replicates, and how often it is on the frontier."""
        y, x = (values.reshape(-1, len(self.specs)) for values in self.axes(risk, distortion))
        first = self.table.slice(0, len(self.specs))
        columns: dict[str, Any] = {
            name: first.column(name) for name in ("specification", "label", "constraint", "rate")
        }
        for axis, values in (("risk", y), ("distortion", x)):
            columns[f"{axis}_mean"], columns[f"{axis}_sd"] = mean_and_spread(values)
        made = (~np.isnan(y)).sum(axis=0)
        columns["replicates"] = made.astype(np.int64)
        on_frontier = np.zeros(len(self.specs))
        for risks, distortions in zip(y, x, strict=True):
            on_frontier += dominance.undominated(risks, distortions)
        columns["on_frontier"] = np.divide(on_frontier, made, out=np.full(len(made), np.nan), where=made > 0)
        # What a specification that was never made has no figure for is null.
        return pa.table(
            {name: pa.array(c, from_pandas=True) if isinstance(c, np.ndarray) else c for name, c in columns.items()}
        )

    @checked
    def choose(
        self,
        objective: str | Objective | Callable[[float, float], float] | None = None,
        *,
        risk: str | None = None,
        distortion: str | None = None,
    ) -> Choice:
        """One candidate, and why this one.

        The specification is chosen by its mean over the replicates, since one draw is noise, from those whose mean
        is on the frontier; of its draws the one nearest to the mean, since picking the luckiest would make the
        figures look better than they are.
        """
        from safeswap.studies.choice import chosen

        rule = as_objective(self.spec.objective if objective is None else objective)
        return chosen(self, rule, risk=risk, distortion=distortion)

    @checked
    def distortion_table(self, number: int, measure: str) -> pa.Table | None:
        """The 2-way distortion tables of one candidate: attribute a, attribute b, value. None where none were kept."""
        if measure not in TABLE_MEASURES:
            raise SpecError(
                f"{measure!r} is not a measure of 2-way tables",
                code="unknown-measure",
                hint="they are: " + ", ".join(TABLE_MEASURES),
            )
        if not 0 <= number < len(self):
            raise SpecError(
                f"there is no candidate {number:,}",
                code="unknown-candidate",
                hint=f"candidates are numbered from 0 to {len(self) - 1:,}",
            )
        if self.two_way is None:
            return None
        values = self.two_way[number, :, TABLE_MEASURES.index(measure)]
        a, b = zip(*self.table_pairs, strict=True) if self.table_pairs else ((), ())
        return pa.table({"a": list(a), "b": list(b), measure: values.astype(np.float64)})

    @checked
    def to_frame(self, part: Literal["candidates", "summary", "frontier", "rejected"] = "candidates") -> Any:
        """A part of the study as a dataframe of the type that the data came in; an Arrow table if from a file.

        >>> import pandas
        >>> from safeswap.workflow import study
        >>> frame = pandas.DataFrame({"A": list("xyxy") * 5, "B": list("ppqq") * 5})
        >>> found = study(frame, rates=[0.5], insecure_seed=1)
        >>> type(found.to_frame("frontier")).__module__.split(".")[0]
        'pandas'
        """
        parts: dict[str, Callable[[], pa.Table]] = {
            "candidates": lambda: self.table,
            "summary": self.summary,
            "frontier": lambda: self.table.take(pa.array(self.frontier())),
            "rejected": self.rejected,
        }
        if part not in parts:
            raise SpecError(
                f"a study has no part {part!r}", code="unknown-part", hint="the parts are: " + ", ".join(parts)
            )
        table = parts[part]()
        if self.frame_type == "pyarrow":
            return table
        import narwhals as nw

        return nw.from_arrow(table, backend=self.frame_type).to_native()  # type: ignore[arg-type]

    def _rates(self) -> Floats:
        rates: Floats = self.table.column("rate").to_numpy().astype(np.float64, copy=False)
        return rates

    def __repr__(self) -> str:
        rejected, frontier = self.rejected().num_rows, len(self.frontier())
        return (
            f"<Study of {len(self.specs):,} specifications × {self.spec.replicates:,} replicates: "
            f"{len(self):,} candidates, {rejected:,} rejected, {frontier:,} on the frontier>"
        )

    def _repr_html_(self) -> str:
        from safeswap.charts.map import map_html

        page: str = map_html(self, standalone=False)
        return page


def mean_and_spread(values: Floats) -> tuple[Floats, Floats]:
    """Per column the mean and the standard deviation over the rows, leaving out what is not a number."""
    known = ~np.isnan(values)
    number = known.sum(axis=0)
    filled = np.where(known, values, 0.0)
    mean = np.divide(filled.sum(axis=0), number, out=np.full(len(number), np.nan), where=number > 0)
    squares = np.square(np.where(known, values - mean, 0.0)).sum(axis=0)
    spread = np.divide(squares, number - 1, out=np.full(len(number), np.nan), where=number > 1)
    return mean, np.sqrt(spread)
