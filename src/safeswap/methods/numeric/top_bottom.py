"""Top and bottom coding: values beyond a bound become the bound, or their mean.

Source: Willenborg & de Waal 2001. Nothing is drawn.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from safeswap.arrays import moments
from safeswap.arrays.types import Flags, Floats
from safeswap.errors import SpecError
from safeswap.methods.exchange import Columns
from safeswap.methods.numeric.spec import KeptMean, MissingStays, TopBottomSpec, WithinBounds
from safeswap.methods.value_change import (
    Draws,
    FileFacts,
    ValueChangingMethod,
    ValuePlan,
    numeric_columns,
    refuse_few,
    rounding_step,
)
from safeswap.model.dates import EPOCH
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change, decimals_of, finite_numbers, write_numbers
from safeswap.model.schema import Kind, Schema
from safeswap.model.spec import Plan
from safeswap.model.text import list_names, plural


class TopBottom(ValueChangingMethod):
    """Cut off the largest and smallest values."""

    name: ClassVar[str] = "top_bottom"
    title: ClassVar[str] = "Top and bottom coding of numeric attributes"
    spec_type: ClassVar[type[TopBottomSpec]] = TopBottomSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Willenborg & de Waal 2001, Elements of Statistical Disclosure Control, Lecture Notes in Statistics 155",
    )

    def plan(self, data: Microdata, spec: TopBottomSpec) -> Plan:
        """Count the records beyond a bound."""
        return self.facts(data, spec).plan

    def _plan(self, beyond: Flags, spec: TopBottomSpec) -> ValuePlan:
        cut = int(np.count_nonzero(beyond))
        text = f"{plural(cut, 'record has', 'records have')} a value of {list_names(spec.attributes)} cut off"
        return ValuePlan.of(spec, len(beyond), cut, text)

    def columns(self, schema: Schema, spec: TopBottomSpec) -> Columns:
        """Return the attributes: bounds depend on nothing else."""
        return Columns(read=spec.attributes, changed=spec.attributes)

    def facts(self, data: Microdata, spec: TopBottomSpec) -> FileFacts:
        """Return the bounds of each attribute, what replaces the values beyond them, and the decimals."""
        cuts: dict[str, _Cut] = {}
        beyond = np.zeros(len(data), dtype=np.bool_)
        for name, values in zip(spec.attributes, _columns(data, spec), strict=True):
            ends = _Ends.of(name, values, _bounds_for(data, name, spec))
            places = _decimal_places(values, ends, spec, is_date=data.schema[name].kind is Kind.DATE)
            is_beyond = (values < ends.low) | (values > ends.high)
            places = decimals_of(values) if places is None else places
            cuts[name] = _Cut(ends=ends, places=places, is_cut=bool(is_beyond.any()))
            beyond |= is_beyond
        return FileFacts(plan=self._plan(beyond, spec), schema=data.schema, by_attribute=cuts)

    def changes(self, batch: Microdata, facts: FileFacts, spec: TopBottomSpec, draws: Draws) -> Mapping[str, Change]:
        """Replace the values beyond the bounds."""
        changes: dict[str, Change] = {}
        for name, cut in facts.by_attribute.items():
            values, ends = finite_numbers(batch, name), cut.ends
            made = np.where(values < ends.low, ends.for_low, np.where(values > ends.high, ends.for_high, values))
            # Write values equal to a bound like those cut off there: the text must not distinguish them.
            written = ((made == ends.for_low) | (made == ends.for_high)) & cut.is_cut
            changes[name] = write_numbers(batch, name, made, values, places=cut.places, written=written)
        return changes

    def invariants(self, data: Microdata, spec: TopBottomSpec) -> tuple[Invariant, ...]:
        """Promise nothing beyond the bounds and the rest untouched; also the mean, if it replaces what is cut off."""
        promises: list[Invariant] = [
            SameRows(),
            UntouchedColumns(tuple(name for name in data.attributes if name not in spec.attributes)),
            MissingStays(spec.attributes),
            ReplaysFromAudit(),
        ]
        for name, values in zip(spec.attributes, _columns(data, spec), strict=True):
            ends = _Ends.of(name, values, _bounds_for(data, name, spec))
            is_date = data.schema[name].kind is Kind.DATE
            unit = rounding_step(values, _decimal_places(values, ends, spec, is_date=is_date))
            promises.append(WithinBounds(name, ends.low, ends.high, (ends.for_low - unit, ends.for_high + unit)))
            if spec.replace_by == "mean":
                promises.append(KeptMean(name, unit))
        return tuple(promises)


def _columns(data: Microdata, spec: TopBottomSpec) -> list[Floats]:
    return numeric_columns(data, spec.attributes, moments=spec.replace_by == "mean")


def _bounds_for(data: Microdata, name: str, spec: TopBottomSpec) -> TopBottomSpec:
    """Return the specification with the bounds of one attribute as numbers: those of a date are days."""
    is_date = data.schema[name].kind is Kind.DATE
    own = (spec.latest, spec.earliest) if is_date else (spec.top, spec.bottom)
    if own == (None, None) and not (spec.top_share or spec.bottom_share):
        raise SpecError(
            f"{name!r} is {'a date' if is_date else 'not a date'} and takes no such bound",
            code="bad-spec",
            hint="give latest or earliest for dates, top or bottom for numbers",
            attribute=name,
        )
    if not is_date:
        return spec
    high, low = (None if day is None else (dt.date.fromisoformat(str(day)) - EPOCH).days for day in own)
    return spec.model_copy(update={"top": high, "bottom": low})


@dataclass(frozen=True, kw_only=True)
class _Ends:
    """The bounds of one attribute, and the values that replace those beyond them."""

    low: float
    high: float
    for_low: float
    for_high: float

    @classmethod
    def of(cls, name: str, values: Floats, spec: TopBottomSpec) -> _Ends:
        known = values[~np.isnan(values)]
        low = -np.inf if spec.bottom is None else spec.bottom
        high = np.inf if spec.top is None else spec.top
        if spec.bottom_share:
            low = _find_rank(known, int(round(spec.bottom_share * len(known), 6)))
        if spec.top_share:
            high = _find_rank(known, len(known) - 1 - int(round(spec.top_share * len(known), 6)))
        below, above = known[known < low], known[known > high]
        if spec.replace_by == "bound":
            return cls(low=float(low), high=float(high), for_low=float(low), for_high=float(high))
        refuse_few(name, len(below), "bottom")
        refuse_few(name, len(above), "top")
        return cls(
            low=float(low),
            high=float(high),
            for_low=moments.mean(below) if len(below) else float(low),
            for_high=moments.mean(above) if len(above) else float(high),
        )


def _find_rank(values: Floats, rank: int) -> float:
    """Return the value with this many others before it in ascending order."""
    return float(np.partition(values, rank)[rank])


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """The coding of one attribute: its ends, its decimals, and whether any record lies beyond an end."""

    ends: _Ends
    places: int | None
    is_cut: bool


def _decimal_places(values: Floats, ends: _Ends, spec: TopBottomSpec, *, is_date: bool) -> int | None:
    """Return the decimals to write: as stated, else a bound as given and a mean with those of the attribute."""
    if is_date:
        return 0
    if spec.decimals is not None or spec.replace_by == "mean":
        return spec.decimals
    stated = np.array([ends.low, ends.high])
    own, bounds = decimals_of(values), decimals_of(stated[np.isfinite(stated)])
    return None if own is None or bounds is None else max(own, bounds)
