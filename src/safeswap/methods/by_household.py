"""Household attributes are changed for all members or for none, by every method.

A specification that changes household attributes is carried out on the file of households (one record each), and the
result goes to all members: rates, ranks and group sizes count households. What a method only looks at may belong to
the members: two households then agree in it if they have the same composition, the multiset of their members' values.

The record of the masking is one of persons, so that it is undone, verified and released like any other: the first
member of each household exchanges its values with the first member of another, and the values of all others are
replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s
from safeswap.errors import InfeasibleError, SafeswapError, SpecError
from safeswap.methods.household_promises import HouseholdView, MatesAgree, OfAttributes, OfHouseholds
from safeswap.model.audit import Audit, Exchange, Replacement
from safeswap.model.columns import aligned_columns, flag_changes, missing_codes, number_cells
from safeswap.model.effect import Blanked, Coarsened, Dropped, Effect, Permuted, Replaced
from safeswap.model.households import (
    Households,
    Reduction,
    check_constant,
    expand,
    find_holders,
)
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema, household_attributes, require_household
from safeswap.model.spec import AddNoise, MaskSpec, Plan
from safeswap.model.text import plural, quote_name

_OF_RECORDS = (SameRows, UntouchedColumns, ReplaysFromAudit)
"""Promises that hold for the person file as they are, and are made for all its columns."""


class ByHousehold:
    """Mixed into every method: specifications that change household attributes run on the file of households.

    A method that treats households itself declares ``takes_households = True`` and is left as it is; one that cannot
    treat them gives the reason in ``refuses_households``.
    """

    def plan(self, data: Microdata, spec: Any) -> Plan:
        """Return what would be done, on households if household attributes are changed."""
        own: Any = super()
        if parts := _divide(self, data.schema, spec):
            return PartsPlan.of(spec, len(data), [self.plan(data, part) for part in parts])
        task = find_task(self, data, spec)
        if task is None:
            return own.plan(data, spec)  # type: ignore[no-any-return]
        with task.telling_households():
            return task.plan(own.plan(task.reduced, spec))

    def apply(self, data: Microdata, spec: Any, *, key: Key, replicate: int = 0) -> Masked:
        """Mask the data, household by household if household attributes are changed."""
        own: Any = super()
        if parts := _divide(self, data.schema, spec):
            masked = [self.apply(data, part, key=key, replicate=replicate) for part in parts]
            return _join_masked(spec, data, masked, key=key, replicate=replicate)
        task = find_task(self, data, spec)
        if task is None:
            return own.apply(data, spec, key=key, replicate=replicate)  # type: ignore[no-any-return]
        with task.telling_households():
            masked = own.apply(task.reduced, spec, key=key, replicate=replicate)
        return task.expand(masked, key=key)

    def invariants(self, data: Any, spec: Any) -> tuple[Invariant, ...]:
        """Return the promises; those of the file of households are checked on that file."""
        own: Any = super()
        if parts := _divide(self, data.schema, spec):
            changed = [_list_changed(self.effects(data.schema, part)) for part in parts]
            return _join_promises(data, changed, [self.invariants(data, part) for part in parts])
        task = find_task(self, data, spec) if isinstance(data, Microdata) else None
        if task is None:
            return own.invariants(data, spec)  # type: ignore[no-any-return]
        return task.promises(own.invariants(task.reduced, spec))

    def effects(self, schema: Schema, spec: Any) -> tuple[Effect, ...]:
        """Return what may happen to which columns, in terms of persons."""
        own: Any = super()
        found: tuple[Effect, ...] = own.effects(schema, spec)
        shared = household_attributes(schema)
        return tuple(_extend_to_persons(effect, schema) if effect.reaches(shared) else effect for effect in found)


_MIXED: dict[type[Any], type[Any]] = {}


def _mix(method: type[Any]) -> type[Any]:
    if method not in _MIXED:
        known = {"__module__": method.__module__, "__qualname__": method.__qualname__, "__doc__": method.__doc__}
        _MIXED[method] = type(method.__name__, (ByHousehold, method), known)
    return _MIXED[method]


def treat_households(method: Any) -> Any:
    """Return the method with :class:`ByHousehold` mixed in; one that declares no effects as it is.

    >>> from safeswap.methods.swap import Swap
    >>> isinstance(treat_households(Swap()), Swap)
    True
    """
    if isinstance(method, ByHousehold) or not hasattr(method, "effects") or getattr(method, "takes_households", False):
        return method
    mixed = object.__new__(_mix(type(method)))
    mixed.__dict__.update(getattr(method, "__dict__", {}))
    return mixed


def _list_changed(effects: tuple[Effect, ...]) -> Names:
    """Return the columns of which values are changed, and not by the same rule for equal values."""
    found = (name for effect in effects if not isinstance(effect, Coarsened | Dropped) for name in effect.columns)
    return tuple(dict.fromkeys(found))


def _extend_to_persons(effect: Effect, schema: Schema) -> Effect:
    """Return an effect on the file of households as one on persons.

    Households that exchange values may differ in size, so counts of persons are kept only if partners agree in the
    composition of a member's attribute, and hence in size. A composition does not tell codes of "no answer" from
    blanks, so counts by an attribute that has such codes are not kept.
    """
    if isinstance(effect, Coarsened | Dropped | Blanked):
        return effect
    shared = set(household_attributes(schema))
    if isinstance(effect, Permuted) and set(effect.within) - shared:
        told = tuple(name for name in effect.within if name in shared or not schema[name].missing)
        return replace(effect, within=told)
    return Replaced(effect.columns)


def changed_by_household(method: Any, schema: Schema, spec: Any) -> Names:
    """Return the household attributes that a method would change for whole households; empty if it treats none."""
    if not isinstance(method, ByHousehold) or not (shared := household_attributes(schema)):
        return ()
    return tuple(name for name in _list_changed(method.effects(schema, spec)) if name in shared)


# Attributes of households and of persons in one specification: each group on its own level, if the method treats each
# attribute by itself.


def _divide(method: Any, schema: Schema, spec: Any) -> tuple[Any, ...]:
    """Return the specification of the person's attributes and that of the household's; empty if only one is needed."""
    shared = household_attributes(schema)
    if not shared or hasattr(method, "refuses_households"):
        return ()
    changed = _list_changed(method.effects(schema, spec))
    ours, theirs = (tuple(name for name in changed if (name in shared) == is_ours) for is_ours in (True, False))
    role = next((name for name in ("attributes", "swap") if name in type(spec).model_fields), None)
    # A specification that does not say so treats its attributes together.
    if not ours or not theirs or role is None or getattr(spec, "treats_together", True):
        return ()
    return spec.replace(**{role: theirs}), spec.replace(**{role: ours})


@dataclass(frozen=True, kw_only=True)
class PartsPlan(Plan):
    """The plans for the attributes of persons and for those of households."""

    parts: tuple[Plan, ...] = field(repr=False)

    @property
    def least_tolerance(self) -> float:
        """That of the parts."""
        return min(each.least_tolerance for each in self.parts)

    def blur(self, add: AddNoise) -> Self:
        """Return the plan with noise in the totals of both parts."""
        parts = tuple(each.blur(add) for each in self.parts)
        asked, feasible = (max(getattr(each, name) for each in parts) for name in ("asked", "feasible"))
        return replace(self, parts=parts, asked=asked, feasible=feasible)

    @classmethod
    def of(cls, spec: MaskSpec, records: int, parts: list[Plan]) -> PartsPlan:
        """Return the plan of both parts."""
        asked, feasible = (max(getattr(each, name) for each in parts) for name in ("asked", "feasible"))
        return cls(method=spec.method, records=records, asked=asked, feasible=feasible, parts=tuple(parts))

    @property
    def is_feasible(self) -> bool:
        """True if both parts are feasible."""
        return all(each.is_feasible for each in self.parts)

    @property
    def sentence(self) -> str:
        """Both plans in plain words."""
        return "; ".join(each.sentence for each in self.parts)

    @property
    def details(self) -> dict[str, Any]:
        """The facts of both plans."""
        return {name: value for each in self.parts for name, value in each.details.items()}


def _join_masked(spec: Any, data: Microdata, parts: list[Masked], *, key: Key, replicate: int) -> Masked:
    """Return the maskings of different attributes as one."""
    changed = [(name, each.data) for each in parts for name in each.audit.changed_attributes]
    after = data.with_columns({name: source.table.column(name) for name, source in changed}, {})
    after = replace(after, schema=after.schema.replace(*(source.schema[name] for name, source in changed)))
    audits = [each.audit for each in parts]
    touched = np.logical_or.reduce([audit.touched() for audit in audits])
    return Masked.by(
        spec,
        data,
        after,
        PartsPlan.of(spec, len(data), [each.plan for each in parts]),
        key=key,
        replicate=replicate,
        made=int(np.count_nonzero(touched)),
        exchanges=tuple(each for audit in audits for each in audit.exchanges),
        replacements=tuple(each for audit in audits for each in audit.replacements),
        releasable=all(audit.releasable for audit in audits),
        facts={**dict(audits[0].facts), **dict(audits[1].facts), "unit": "records"},
    )


def _join_promises(data: Any, changed: list[Names], parts: list[tuple[Invariant, ...]]) -> tuple[Invariant, ...]:
    touched = {name for names in changed for name in names}
    untouched = tuple(name for name in data.attributes if name not in touched)
    inner = [
        OfAttributes(each, names)
        for names, promises in zip(changed, parts, strict=True)
        for each in promises
        if not isinstance(each, _OF_RECORDS)
    ]
    return (SameRows(), *((UntouchedColumns(untouched),) if untouched else ()), ReplaysFromAudit(), *inner)


@dataclass(frozen=True, kw_only=True)
class HouseholdPlan(Plan):
    """The plan of a method on the file of households."""

    households: int
    inner: Plan = field(repr=False)

    @property
    def least_tolerance(self) -> float:
        """That of the plan on the file of households."""
        return self.inner.least_tolerance

    def blur(self, add: AddNoise) -> Self:
        """Return the plan with noise in its totals."""
        inner = self.inner.blur(add)
        return replace(self, inner=inner, asked=inner.asked, feasible=inner.feasible)

    @property
    def is_feasible(self) -> bool:
        """True if the plan on the file of households is feasible."""
        return self.inner.is_feasible

    @property
    def sentence(self) -> str:
        """The plan in plain words, with its unit."""
        told = _name_households(self.inner.sentence)
        return f"of {plural(self.households, 'household')}, each changed as a whole: {told}"

    @property
    def details(self) -> dict[str, Any]:
        """The facts of the plan of the method, and the number of households."""
        return {**self.inner.details, "households": self.households}


def _name_households(text: str) -> str:
    """Return what is said of the records of the file of households, in words for the person file.

    >>> _name_households("7 records have a value cut off")
    '7 households have a value cut off'
    """
    return re.sub(r"\b([Rr])ecord(s?)\b", lambda found: ("H" if found[1] == "R" else "h") + "ousehold" + found[2], text)


@dataclass(frozen=True, eq=False)
class Task:
    """A specification on the file of households: the person file, its reduction, and the attributes changed."""

    data: Microdata
    spec: MaskSpec
    changed: Names
    reduction: Reduction
    homes: Households
    reduced: Microdata

    def plan(self, inner: Plan) -> HouseholdPlan:
        """Return the plan in terms of the person file."""
        known = {each.name: getattr(inner, each.name) for each in fields(Plan) if each.name != "records"}
        return HouseholdPlan(records=len(self.data), households=len(self.homes), inner=inner, **known)

    @contextmanager
    def telling_households(self) -> Iterator[None]:
        """Let an error about the file of households speak of households, and of records of the person file."""
        try:
            yield
        except SafeswapError as error:
            rows = error.fields.get("records")
            at = isinstance(rows, list) and rows and all(isinstance(row, int) for row in rows)
            first = {"records": [int(self.homes.first[row - 1]) + 1 for row in rows]} if at and rows else {}
            told = {**error.fields, **first, "households": len(self.homes)}
            text = _name_households(error.message)
            if isinstance(rows, dict):  # by attribute: members' attributes had the gaps of all that were looked at
                told["records"] = counts = {name: count for name in rows if (count := self._count_gaps(name))}
                listed = ", ".join(
                    f"{quote_name(name)} ({plural(count, 'household')})" for name, count in counts.items()
                )
                text = f"there are missing values in {listed}"
            if first:  # positions in the message are those of the file of households
                text = text.partition(", the first in ")[0] + f", the first in record {first['records'][0]:,}"
            raise type(error)(text, code=error.code, hint=error.hint, **told) from None

    def _count_gaps(self, name: str) -> int:
        """Count the households in which a member has no value of an attribute."""
        gaps = missing_codes(self.data, name)[self.data.coded(name).codes]
        return len(np.unique(self.homes.of_record[gaps & (self.homes.of_record < len(self.homes))]))

    def expand(self, masked: Masked, *, key: Key) -> Masked:
        """Return the masking of the file of households as one of the person file."""
        changed = [name for name in self.changed if name in masked.audit.changed_attributes]
        columns = {name: expand(masked.data.table.column(name), self.homes) for name in changed}
        after = self.data.with_columns(columns, {})
        described = [masked.data.schema[name] for name in changed]
        after = replace(after, schema=after.schema.replace(*described))
        audit = replace(masked.audit, exchanges=tuple(skip_idle(each, self.reduced) for each in masked.audit.exchanges))
        # Counted on the values: a household may get the value that it had from another one.
        differ = [_differs(data.table.column(name) for data in (self.reduced, masked.data)) for name in changed]
        counted = int(np.count_nonzero(np.logical_or.reduce(differ))) if differ else 0
        facts = {**dict(audit.facts), "households": len(self.homes), "households_changed": counted}
        if audit.unit == "records":
            facts["unit"] = "households"
        return Masked.by(
            self.spec,
            self.data,
            after,
            self.plan(masked.plan),
            key=key,
            replicate=audit.replicate,
            made=audit.made,
            exchanges=tuple(replace(each, pairs=self.homes.first[each.pairs]) for each in audit.exchanges),
            replacements=tuple(self._replacements(audit, changed)),
            releasable=audit.releasable,
            compensating=audit.compensating,
            facts=facts,
        )

    def _replacements(self, audit: Audit, changed: list[str]) -> Iterator[Replacement]:
        """Yield the values to put back: of first members what the method replaced, of all others what they had."""
        is_first = np.zeros(len(self.data), dtype=np.bool_)
        is_first[self.homes.first] = True
        for name in changed:
            own = [each for each in audit.replacements if each.attribute == name]
            pairs = [each.pairs.ravel() for each in audit.exchanges if name in each.attributes]
            members = self.homes.members(_join([*pairs, *(each.rows for each in own)]))
            others = members[~is_first[members]]
            original = self.data.table.column(name)
            rows = _join([*(self.homes.first[each.rows] for each in own), others])
            parts = [*(each.before for each in own), *original.take(pa.array(others)).chunks]
            order = np.argsort(rows, kind="stable")
            before = _concat(parts, own[0].before.type if own else original.type).take(pa.array(order))
            if len(rows):
                yield Replacement(attribute=name, rows=rows[order], before=before)

    def promises(self, inner: tuple[Invariant, ...]) -> tuple[Invariant, ...]:
        """Return the promises of the person file: households change as a whole, and what holds of their file."""
        untouched = tuple(name for name in self.data.attributes if name not in self.changed)
        view = HouseholdView(self.reduction)
        of_households = (OfHouseholds(each, view) for each in inner if not isinstance(each, _OF_RECORDS))
        own = require_household(self.data.schema)
        return (
            SameRows(),
            *((UntouchedColumns(untouched),) if untouched else ()),
            MatesAgree(self.changed, own),
            ReplaysFromAudit(),
            *of_households,
        )


def find_task(method: Any, data: Microdata, spec: Any) -> Task | None:
    """Return the task on the file of households; None if no household attribute is changed."""
    shared = household_attributes(data.schema)
    if not shared:
        return None
    changed = _list_changed(method.effects(data.schema, spec))
    ours = tuple(name for name in changed if name in shared)
    if not ours:
        return None
    _refuse_mixture(method, data.schema, changed, ours)
    check_constant(data, shared)
    read = method.columns(data.schema, spec).read if hasattr(method, "columns") else changed
    for name in read:
        data.schema[name]  # an unknown attribute gets its own clear error
    theirs = [name for name in read if name not in shared and name != require_household(data.schema)]
    weights = tuple(name for name in theirs if data.schema[name].kind is Kind.WEIGHT)
    theirs = [name for name in theirs if name not in weights]
    _refuse_differing(spec, theirs)
    blank = getattr(spec, "missing_keys", "") == "refuse"
    homes = find_holders(data, shared)
    if len(homes) < 2:
        raise InfeasibleError(
            "there is only one household: nothing can be exchanged or hidden among others",
            code="one-household",
            hint="give a file of several households",
            households=len(homes),
        )
    groups = tuple(_group_names(spec, theirs))
    reduction = Reduction(names=shared, groups=groups, weights=weights, blank=blank)
    return Task(data, spec, ours, reduction, homes, reduction.apply(data, homes))


def _refuse_mixture(method: Any, schema: Schema, changed: Names, ours: Names) -> None:
    """Refuse what cannot be done to whole households."""
    household = ", ".join(map(repr, ours[:3]))
    if reason := getattr(method, "refuses_households", ""):
        raise SpecError(
            f"{method.name} cannot change {household} for whole households: {reason}",
            code="household-not-supported",
            hint="omit it, use another method for it, or mask the file of households",
            method=method.name,
            attributes=list(ours),
        )
    persons = [name for name in changed if name not in ours and name in schema]
    if persons:
        own = ", ".join(map(repr, persons[:3]))
        raise SpecError(
            f"{household} {'is' if len(ours) == 1 else 'are'} the household's and {own} the person's: "
            f"{method.name} changes them together, and they have different units",
            code="household-and-person",
            hint="split it into two steps, one for the household's attributes and one for the person's (noise and "
            "swaps that treat each attribute by itself need not be divided)",
            household=list(ours),
            person=persons,
        )


def _refuse_differing(spec: Any, persons: list[str]) -> None:
    if wrong := [name for name in getattr(spec, "differ", ()) if name in persons]:
        raise SpecError(
            f"{wrong[0]!r} is a person attribute: two households cannot be required to differ in it",
            code="household-and-person",
            hint="name household attributes in differ",
            person=wrong,
        )


def _group_names(spec: Any, names: list[str]) -> Iterator[Names]:
    """Yield the members' attributes that a specification looks at together, one group per parameter."""
    left = dict.fromkeys(names)
    for value in _iter_names(spec):
        together = tuple(name for name in value if name in left)
        if together:
            yield together
        for name in together:
            del left[name]
    if left:
        yield tuple(left)


def _iter_names(spec: Any) -> Iterator[tuple[str, ...]]:
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
            yield value
        elif isinstance(value, BaseModel):
            yield from _iter_names(value)


def skip_idle(exchange: Exchange, data: Microdata) -> Exchange:
    """Return a directed exchange without the moves between equal values, which change nothing; others as they are.

    Who would have taken from such a record takes from where that one took: the result is the same, one to one.

    >>> from safeswap.model.schema import Attribute
    >>> data = Microdata(pa.table({"A": ["x", "y", "y"]}), Schema(attributes=(Attribute(name="A"),)))
    >>> ring = Exchange(attributes=("A",), pairs=np.array([[0, 1], [1, 2], [2, 0]]), directed=True)
    >>> skip_idle(ring, data).pairs.tolist()
    [[0, 2], [2, 0]]
    """
    if not exchange.directed:
        return exchange
    cells = number_cells([data.coded(name).codes.astype(np.int64) for name in exchange.attributes])
    source = exchange.permutation(len(data))
    idle = cells == cells[source]
    takers = exchange.pairs[~idle[exchange.pairs[:, 0]], 0]
    givers = source[takers]
    while (passing := idle[givers]).any():
        givers[passing] = source[givers[passing]]
    return replace(exchange, pairs=np.stack([takers, givers], axis=1))


def _differs(columns: Iterable[pa.ChunkedArray]) -> Flags:
    return flag_changes(*aligned_columns(*columns))


def _join(parts: list[Int64s]) -> Int64s:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _concat(parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return the parts as one array; those with dictionaries of their own get a common one."""
    if pa.types.is_dictionary(kind):
        joined = pa.chunked_array([part.cast(kind) for part in parts], type=kind).unify_dictionaries().combine_chunks()
    else:
        joined = pa.chunked_array([part.cast(kind) for part in parts], type=kind).combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined
