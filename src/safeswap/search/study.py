"""The outcome of a study: one row per candidate, the frontier, and what speaks for a choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap import registry
from safeswap.errors import InfeasibleError, SpecError
from safeswap.kernels import candidate, dominance
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.spec import MaskSpec, Names
from safeswap.model.study import StudySpec
from safeswap.search.objective import Objective, as_objective

if TYPE_CHECKING:
    from safeswap.search.evaluate import Evaluator, Group
    from safeswap.search.run import Block

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """All candidates of a study with their figures. Figures only: no masked record is in here.

    ``table`` has one row per candidate: number, specification, label, swap attributes, constraint, rate, replicate,
    pairs made, the reason where it was rejected, and a column per measure.
    """

    spec: StudySpec
    table: pa.Table
    specs: tuple[MaskSpec, ...]  # by the number in the column "specification"
    facts: Mapping[str, Any]  # what may be said about the data without disclosing a record
    two_way: npt.NDArray[np.float32] | None = None  # (candidates, tables, measures)
    table_pairs: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def scores(self, measure: str) -> Floats:
        """The figures of one measure, a number per candidate; not a number where it was rejected."""
        if measure not in self.spec.measures:
            raise SpecError(
                f"{measure!r} was not measured in this study",
                code="unknown-measure",
                hint="measured were: " + ", ".join(self.spec.measures),
            )
        values: Floats = self.table.column(measure).to_numpy()
        return values

    def axes(self, risk: str | None = None, distortion: str | None = None) -> tuple[Floats, Floats]:
        """Risk and distortion of every candidate; by default the first measure of each kind."""
        return self.scores(risk or self.spec.risk[0]), self.scores(distortion or self.spec.distortion[0])

    def frontier(
        self, *, risk: str | None = None, distortion: str | None = None, rate: float | None = None
    ) -> npt.NDArray[np.int64]:
        """The undominated candidates by number, from least to most distortion; of one rate, or of all."""
        y, x = self.axes(risk, distortion)
        rows = np.arange(len(self))
        if rate is not None:
            rows = np.flatnonzero(np.isclose(self.table.column("rate").to_numpy(), rate))
        best = rows[dominance.undominated(y[rows], x[rows])]
        ordered: npt.NDArray[np.int64] = best[np.lexsort((y[best], x[best]))]
        return ordered

    def rejected(self) -> pa.Table:
        """The candidates that could not be made, with the reason."""
        import pyarrow.compute as pc

        bad = self.table.filter(pc.not_equal(self.table.column("reason"), ""))
        return bad.select(["candidate", "label", "constraint", "rate", "replicate", "reason"])

    def summary(self, *, risk: str | None = None, distortion: str | None = None) -> pa.Table:
        """One row per specification: mean and spread over its replicates, and how often it is on the frontier."""
        y, x = self.axes(risk, distortion)
        number = self.table.column("specification").to_numpy()
        replicate = self.table.column("replicate").to_numpy()
        on_frontier = np.zeros(len(self))
        for r in np.unique(replicate):
            rows = np.flatnonzero(replicate == r)
            on_frontier[rows] = dominance.undominated(y[rows], x[rows])
        columns: dict[str, Any] = {"specification": np.arange(len(self.specs))}
        first = np.searchsorted(number[np.argsort(number, kind="stable")], np.arange(len(self.specs)))
        rows = np.argsort(number, kind="stable")[first]
        for name in ("label", "constraint", "rate"):
            columns[name] = self.table.column(name).take(pa.array(rows))
        for axis, values in (("risk", y), ("distortion", x)):
            mean, spread = _mean_and_spread(values, number, len(self.specs))
            columns[f"{axis}_mean"], columns[f"{axis}_sd"] = mean, spread
        made = np.bincount(number, weights=~np.isnan(y), minlength=len(self.specs))
        columns["replicates"] = made.astype(np.int64)
        with np.errstate(invalid="ignore"):
            columns["on_frontier"] = np.bincount(number, weights=on_frontier, minlength=len(self.specs)) / made
        return pa.table(columns)

    def choose(
        self,
        objective: str | Objective | Callable[[float, float], float] | None = None,
        *,
        risk: str | None = None,
        distortion: str | None = None,
    ) -> Choice:
        """One candidate, and why this one.

        The specification is chosen by its mean over the replicates, since one draw is noise; of its draws the one
        nearest to the mean, since picking the luckiest would make the figures look better than they are.
        """
        from safeswap.search.choice import chosen

        return chosen(self, as_objective(objective or self.spec.objective), risk=risk, distortion=distortion)

    def distortion_table(self, number: int, measure: str) -> pa.Table | None:
        """The 2-way distortion tables of one candidate: attribute a, attribute b, value."""
        if self.two_way is None:
            return None
        values = self.two_way[number, :, candidate.TABLE_MEASURES.index(measure)]
        a, b = zip(*self.table_pairs, strict=True) if self.table_pairs else ((), ())
        return pa.table({"a": list(a), "b": list(b), measure: values.astype(np.float64)})

    def __repr__(self) -> str:
        rejected = int(np.isnan(self.scores(self.spec.risk[0])).sum())
        return (
            f"<Study of {len(self.specs):,} specifications × {self.spec.replicates:,} replicates: "
            f"{len(self):,} candidates, {rejected:,} rejected, {len(self.frontier()):,} on the frontier>"
        )

    def _repr_html_(self) -> str:
        from safeswap.charts.map import map_html

        page: str = map_html(self, standalone=False)
        return page


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice:
    """The chosen candidate and what speaks for it."""

    study: Study
    candidate: int
    spec: MaskSpec
    replicate: int
    risk: float
    distortion: float
    objective: str
    dominates: int
    rivals: pa.Table
    certainty: float | None
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for ``--json`` and for reports."""
        return {
            "candidate": self.candidate,
            "spec": self.spec.as_dict(),
            "replicate": self.replicate,
            "risk": self.risk,
            "distortion": self.distortion,
            "objective": self.objective,
            "dominates": self.dominates,
            "rivals": self.rivals.to_pylist(),
            "certainty": self.certainty,
            "sentence": self.sentence,
        }

    def __repr__(self) -> str:
        return self.sentence


def _mean_and_spread(values: Floats, group: npt.NDArray[np.int64], groups: int) -> tuple[Floats, Floats]:
    known = ~np.isnan(values)
    number = np.bincount(group[known], minlength=groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(group[known], weights=values[known], minlength=groups) / number
        squares = np.bincount(group[known], weights=(values[known] - mean[group[known]]) ** 2, minlength=groups)
        return mean, np.sqrt(squares / (number - 1))


def study_of(spec: StudySpec, key: Key, evaluator: Evaluator, groups: tuple[Group, ...], blocks: list[Block]) -> Study:
    """Put the figures of all blocks into one table."""
    data = evaluator.data
    specs = [(s, group) for group in groups for s in group.specs]
    count = len(specs)
    repeat = len(blocks)

    def every(values: list[Any]) -> list[Any]:
        return values * repeat

    columns: dict[str, Any] = {
        "candidate": np.arange(count * repeat),
        "specification": np.tile(np.arange(count), repeat),
        "label": every([label_of(data, s, group.labels) for s, group in specs]),
        "swap": every([list(group.labels) for _, group in specs]),
        "constraint": every([group.constraint.label if group.constraint else "" for _, group in specs]),
        "rate": every([getattr(s, "rate", None) for s, _ in specs]),
        "replicate": np.repeat([block.replicate for block in blocks], count),
        "pairs": np.concatenate([block.made for block in blocks]),
        "reason": [reason for block in blocks for reason in block.reasons],
    }
    scores = np.concatenate([block.scores for block in blocks])
    columns |= {name: scores[:, i] for i, name in enumerate(spec.measures)}
    columns["rate"] = pa.array(columns["rate"], type=pa.float64())
    tables = None
    if all(block.tables is not None for block in blocks):
        tables = np.concatenate([block.tables for block in blocks if block.tables is not None])
    return Study(
        spec=spec,
        table=pa.table(columns),
        specs=tuple(s for s, _ in specs),
        facts=facts_of(data, evaluator.keys, key),
        two_way=tables,
        table_pairs=evaluator.table_pairs if tables is not None else (),
    )


def label_of(data: Microdata, spec: MaskSpec, names: Names) -> str:
    """A short label: the letters of the swapped attributes, their names where they have none, else the method."""
    if not names:
        return spec.method
    letters = [data.schema[name].letter for name in names]
    return "".join(letters) if all(letters) else "+".join(names)


def facts_of(data: Microdata, keys: Names, key: Key) -> dict[str, Any]:
    """What is said about the data in a study: names, numbers of levels, the risk before. No record, no small count."""
    from safeswap.kernels import cells

    columns, cardinalities = data.coded_columns(keys)
    counted = cells.cell_counts(columns, cardinalities).counts
    return {
        "name": data.schema.name,
        "records": len(data),
        "attributes": [
            {
                "name": name,
                "letter": data.schema[name].letter,
                "kind": data.schema[name].kind.value,
                "levels": len(data.coded(name).levels),
            }
            for name in keys
        ],
        "cells": len(counted),
        "possible_cells": int(np.prod([float(c) for c in cardinalities])),
        "risk_before": float(counted[counted < 3].sum() / max(len(data), 1)),
        "for_release": key.releasable,
        "key_id": key.id,
    }


def spec_from(values: Mapping[str, Any]) -> MaskSpec:
    """A specification from plain values, by the registry."""
    return registry.make_spec(values)


def no_candidate(objective: Objective) -> InfeasibleError:
    """Nothing satisfies the rule."""
    return InfeasibleError(
        f"no candidate satisfies: {objective.sentence}",
        code="no-candidate",
        hint="raise the cap, add higher rates or other attributes to the study",
    )
