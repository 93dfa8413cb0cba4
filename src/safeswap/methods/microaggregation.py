"""Microaggregation: records that are alike get the mean of their group.

Sources: Domingo-Ferrer & Mateo-Sanz 2002; Domingo-Ferrer & Torra 2005 (MDAV); Hansen & Mukherjee 2003 (univariate).
Nothing is drawn by the key but the order of records whose values are equal.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from safeswap.engines.base import Engine
from safeswap.errors import InfeasibleError
from safeswap.kernels import microaggregates, moments
from safeswap.kernels.types import Floats, Names, Rows
from safeswap.methods.value_change import ValuePlan, masked_by, numeric_columns, record_words, rounding_of
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change, changed_numbers
from safeswap.model.numeric_invariants import GroupsOfAtLeast, KeptMean, MissingStays
from safeswap.model.numeric_spec import MicroaggregationSpec
from safeswap.model.several import several


class Microaggregation:
    """Put the mean of at least k records in the place of each of their values."""

    name: ClassVar[str] = "microaggregation"
    title: ClassVar[str] = "Microaggregation of numeric attributes"
    spec_type: ClassVar[type[MicroaggregationSpec]] = MicroaggregationSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Domingo-Ferrer & Mateo-Sanz 2002, Practical data-oriented microaggregation for statistical disclosure control",
        "Domingo-Ferrer & Torra 2005, Ordinal, continuous and heterogeneous k-anonymity through microaggregation",
        "Hansen & Mukherjee 2003, A polynomial algorithm for optimal univariate microaggregation",
    )

    def plan(self, data: Microdata, spec: MicroaggregationSpec, *, engine: Engine) -> ValuePlan:
        """How many records have the values that are grouped; refused where they are fewer than k."""
        columns = dict(zip(spec.attributes, numeric_columns(data, spec.attributes), strict=True))
        sizes = [len(_complete(columns, names)) for names in _blocks(spec)]
        if min(sizes) < spec.k:
            raise InfeasibleError(
                f"groups of {spec.k:,} records are asked for, and {min(sizes):,} have all the values",
                code="too-few-records",
                hint="ask for smaller groups, or group fewer attributes together",
                asked=spec.k,
                feasible=min(sizes),
            )
        some = max(sizes) if spec.k > 1 else 0
        left = len(data) - min(sizes)
        staying = several(left, "record with a missing value stays", "records with a missing value stay")
        return ValuePlan(
            method=self.name,
            records=len(data),
            asked=some,
            feasible=some,
            text=f"{several(some, 'record')} in groups of at least {spec.k:,}"
            + (f"; {staying} unchanged" if left else ""),
        )

    def apply(
        self, data: Microdata, spec: MicroaggregationSpec, *, key: Key, engine: Engine, replicate: int = 0
    ) -> Masked:
        """Group, and write the means of the groups."""
        plan = self.plan(data, spec, engine=engine)
        columns = dict(zip(spec.attributes, numeric_columns(data, spec.attributes), strict=True))
        changes: dict[str, Change] = {}
        for names in _blocks(spec) if spec.k > 1 else ():
            words = record_words(data, key, self.name, "+".join(names), replicate=replicate)
            rows = _complete(columns, names)
            # In an order that follows from values and identifiers: the order of the file plays no part.
            by_words = (words[rows, 1], words[rows, 0])
            rows = rows[np.lexsort((*by_words, *(columns[name][rows] for name in reversed(names))))]
            groups = _groups([columns[name][rows] for name in names], spec)
            written = np.zeros(len(data), dtype=np.bool_)
            written[rows] = True
            for name in names:
                values = columns[name].copy()
                values[rows] = _means(columns[name][rows], groups)[groups]
                changes[name] = changed_numbers(
                    data, name, values, columns[name], decimals=spec.decimals, written=written
                )
        return masked_by(data, spec, plan, changes, key=key, replicate=replicate)

    def invariants(self, data: Microdata, spec: MicroaggregationSpec) -> tuple[Invariant, ...]:
        """Groups of at least k, means kept but for rounding, columns untouched."""
        columns = numeric_columns(data, spec.attributes)
        return (
            SameRows(),
            UntouchedColumns(tuple(name for name in data.attributes if name not in spec.attributes)),
            MissingStays(spec.attributes),
            ReplaysFromAudit(),
            *(GroupsOfAtLeast(names, spec.k) for names in _blocks(spec)),
            *(
                KeptMean(name, rounding_of(values, spec.decimals))
                for name, values in zip(spec.attributes, columns, strict=True)
            ),
        )


def _blocks(spec: MicroaggregationSpec) -> list[Names]:
    """The attributes that are grouped together."""
    return [spec.attributes] if spec.groups == "mdav" else [(name,) for name in spec.attributes]


def _complete(columns: dict[str, Floats], names: Names) -> Rows:
    return np.flatnonzero(~np.isnan([columns[name] for name in names]).any(axis=0))


def _groups(columns: list[Floats], spec: MicroaggregationSpec) -> Rows:
    """The group of each record; several attributes count alike, each in its standard deviation."""
    if spec.groups == "univariate":
        return np.asarray(microaggregates.best_runs(columns[0], spec.k)[0])
    scaled = [values / (moments.standard_deviation(values) or 1.0) for values in columns]
    return microaggregates.mdav(np.stack(scaled, axis=1), spec.k)[0]


def _means(values: Floats, groups: Rows) -> Floats:
    return np.asarray(np.bincount(groups, weights=values) / np.bincount(groups))
