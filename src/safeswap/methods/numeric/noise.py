"""Additive noise: normal deviates, independent or with the correlations of the data.

Sources: Kim 1986; Brand 2002. The promise is about moments, in expectation: see :class:`NoiseSpec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np

from safeswap.arrays import keyed, moments
from safeswap.arrays.types import Flags, Floats
from safeswap.errors import SpecError
from safeswap.methods.exchange import Columns
from safeswap.methods.numeric.spec import AddedNoise, MissingStays, NoiseSpec
from safeswap.methods.value_change import (
    Draws,
    FileFacts,
    ValueChangingMethod,
    ValuePlan,
    numeric_columns,
    rounding_step,
    stated_decimals,
)
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change, decimals_of, finite_numbers, write_numbers
from safeswap.model.schema import Kind, Schema
from safeswap.model.text import plural

_PRODUCTS = 1 << 14
_MOST_IN_PARTS = 16  # attributes
"""Multiplications at a time."""


@dataclass(frozen=True, kw_only=True)
class _Added:
    """The noise of one attribute: the weight of each attribute's deviate, and the decimals of the result."""

    weights: tuple[float, ...]
    places: int | None


class Noise(ValueChangingMethod):
    """Add normal noise to numeric attributes."""

    name: ClassVar[str] = "noise"
    title: ClassVar[str] = "Normal noise added to numeric attributes"
    spec_type: ClassVar[type[NoiseSpec]] = NoiseSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Kim 1986, A method for limiting disclosure in microdata based on random noise and transformation",
        "Brand 2002, Microdata protection through noise addition",
    )

    def plan(self, data: Microdata, spec: NoiseSpec) -> ValuePlan:
        """Count the records with a value to which noise is added."""
        return self._plan(numeric_columns(data, spec.attributes), spec, _find_dates(data, spec))

    def _plan(self, columns: list[Floats], spec: NoiseSpec, dates: Flags) -> ValuePlan:
        records = len(columns[0])
        missing = np.logical_and.reduce([np.isnan(values) for values in columns])
        some = records - int(np.count_nonzero(missing)) if spec.size or spec.days else 0
        sizes = [f"{spec.size:g} standard deviations"] if spec.days is None or not dates.all() else []
        sizes += [f"{spec.days:g} day{'' if spec.days == 1 else 's'}"] if spec.days is not None else []
        text = f"{spec.kind} noise of {' and of '.join(sizes)} in {plural(some, 'record')}"
        return ValuePlan.of(spec, records, some, text)

    def columns(self, schema: Schema, spec: NoiseSpec) -> Columns:
        """Return the attributes: noise depends on nothing else."""
        return Columns(read=spec.attributes, changed=spec.attributes)

    def facts(self, data: Microdata, spec: NoiseSpec) -> FileFacts:
        """Return, for each attribute, how the deviates are mixed, and its decimals."""
        columns = numeric_columns(data, spec.attributes)
        dates = _find_dates(data, spec)
        added: dict[str, _Added] = {}
        if spec.size or spec.days:
            root = _matrix_root(_noise_covariance(columns, spec, dates))
            for j, (name, values) in enumerate(zip(spec.attributes, columns, strict=True)):
                decimals = stated_decimals(data.schema, name, spec.decimals)
                places = decimals_of(values) if decimals is None else decimals
                added[name] = _Added(weights=tuple(root[:, j].tolist()), places=places)
        return FileFacts(plan=self._plan(columns, spec, dates), schema=data.schema, by_attribute=added)

    def changes(self, batch: Microdata, facts: FileFacts, spec: NoiseSpec, draws: Draws) -> Mapping[str, Change]:
        """Draw one deviate per record and attribute, mix and scale them, add and round."""
        changes: dict[str, Change] = {}
        if not facts.by_attribute:
            return changes
        root = np.array([facts.by_attribute[name].weights for name in spec.attributes]).T.copy()
        before = {name: finite_numbers(batch, name) for name in spec.attributes}
        values = [np.empty(len(batch)) for _ in before]
        # What a chunk of records needs stays in the cache; many attributes are mixed in one product.
        size = keyed.CHUNK if len(root) <= _MOST_IN_PARTS else max(1, len(batch))
        chunks = [draws.word_chunks(batch, name, chunk=size) for name in spec.attributes]
        for drawn in zip(*chunks, strict=True):
            run = slice(drawn[0][0], drawn[0][0] + len(drawn[0][1]))
            deviates = np.empty((len(drawn[0][1]), len(before)))
            for j, (_, words) in enumerate(drawn):
                deviates[:, j] = keyed.normals(words[:, 0])
            mixed = _mix(deviates, root)
            for j, (known, out) in enumerate(zip(before.values(), values, strict=True)):
                np.add(known[run], mixed[:, j], out=out[run])
        for (name, known), out in zip(before.items(), values, strict=True):
            places = facts.by_attribute[name].places
            changes[name] = write_numbers(batch, name, out, known, places=places, written=True)
        return changes

    def invariants(self, data: Microdata, spec: NoiseSpec) -> tuple[Invariant, ...]:
        """Promise the moments of the added noise, and untouched columns."""
        columns = numeric_columns(data, spec.attributes)
        promises: list[Invariant] = [
            SameRows(),
            UntouchedColumns(tuple(name for name in data.attributes if name not in spec.attributes)),
            MissingStays(spec.attributes),
            ReplaysFromAudit(),
        ]
        if not (spec.size or spec.days):
            return (*promises, UntouchedColumns(spec.attributes))
        covariance = _noise_covariance(columns, spec, _find_dates(data, spec))
        deviations = np.sqrt(np.diag(covariance))
        rounding = [
            rounding_step(values, stated_decimals(data.schema, name, spec.decimals))
            for name, values in zip(spec.attributes, columns, strict=True)
        ]
        pairs = [*((j, j) for j in range(len(columns))), *combinations(range(len(columns)), 2)]
        promises += [
            AddedNoise(
                spec.attributes[i],
                spec.attributes[j],
                (float(deviations[i]), float(deviations[j])),
                float(covariance[i, j] / (deviations[i] * deviations[j])),
                (rounding[i], rounding[j]),
            )
            for i, j in pairs
        ]
        return tuple(promises)


def _find_dates(data: Microdata, spec: NoiseSpec) -> Flags:
    """Flag the attributes that are dates; refuse ``days`` without a date, and ``size`` 0 with something else."""
    dates = np.array([data.schema[name].kind is Kind.DATE for name in spec.attributes])
    if spec.days is not None and not (dates.any() if spec.size else dates.all()):
        raise SpecError(
            "days is for dates, and none of the attributes is one" if spec.size else "with size 0 only dates change",
            code="bad-spec",
            hint="omit days, or name dates" if spec.size else "name dates only, or give a size for the others",
        )
    return dates


def _noise_covariance(columns: list[Floats], spec: NoiseSpec, dates: Flags) -> Floats:
    """Return size² times the covariance of the data, with a zero off-diagonal for independent noise.

    Variances are over all known values of an attribute, correlations over the complete records. Dates have the
    deviation stated in days, if it is.
    """
    correlation = np.eye(len(columns))
    missing = np.logical_or.reduce([np.isnan(values) for values in columns])
    deviations = None
    if spec.kind == "correlated":
        complete = moments.covariance_of([values[~missing] for values in columns] if missing.any() else columns)
        scale = np.sqrt(np.diag(complete))
        if (scale > 0).all():
            correlation = complete / np.outer(scale, scale)
            np.fill_diagonal(correlation, 1.0)
        deviations = None if missing.any() else scale
    if deviations is None:
        deviations = np.array([moments.standard_deviation(values[~np.isnan(values)]) for values in columns])
    if spec.days is not None:
        wanted = np.where(dates, spec.days, spec.size * deviations)
        return np.asarray(correlation * np.outer(wanted, wanted))
    return np.asarray(spec.size**2 * correlation * np.outer(deviations, deviations))


def _mix(deviates: Floats, root: Floats) -> Floats:
    """Return the product, in which a record has the same bits in every batch.

    A product with a single row is summed in another order than one with several, so that row is doubled. Products of
    few rows at a time run on one thread: on several they would mostly wait for each other. With many attributes the
    order of summing depends on the number of rows, so then there is one product, as there always was.
    """
    rows = deviates if len(deviates) > 1 else np.repeat(deviates, 2, axis=0)
    if len(root) > _MOST_IN_PARTS:
        return np.asarray(rows @ root)[: len(deviates)]
    mixed = np.empty_like(rows)
    step = max(2, _PRODUCTS // root.size)
    starts = [*range(0, len(rows) - 1, step)]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        np.matmul(rows[start:end], root, out=mixed[start:end])
    return mixed[: len(deviates)]


def _matrix_root(covariance: Floats) -> Floats:
    """Return the symmetric square root, which exists even if one attribute depends linearly on the others."""
    scale = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T * scale)
