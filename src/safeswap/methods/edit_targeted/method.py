"""The targeted Confidentiality Edit: exchange in every combination of the keys that has too few records.

Source: Moore 1996, Preliminary recommendations for disclosure limitation for the 2000 Census, sections VII to XIV. The
variant for release draws record and partner by the secret key, because anyone can replay the printed one.

It promises that every combination below tolerance was changed or counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, model_validator

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s, Integers
from safeswap.engines.base import Drawn, Move, Need, Records
from safeswap.errors import SpecError
from safeswap.methods.edit_targeted.classes import SortedClasses, Walked, identifier_order, letter_walk, sort_classes
from safeswap.methods.edit_targeted.keyed_walk import (
    CellLabels,
    ClassLabels,
    DrawKeys,
    RowLabels,
    draw_kept,
    keyed_walk,
    mixed_strata,
)
from safeswap.methods.edit_targeted.near_optimal import near_optimal_order
from safeswap.methods.exchange import (
    MISSING_KEYS,
    Columns,
    Described,
    ExchangingMethod,
    refuse_missing,
    require_categorical,
)
from safeswap.model.audit import move_within
from safeswap.model.columns import has_distinct_levels, missing_codes
from safeswap.model.effect import Effect, Permuted
from safeswap.model.evidence import Evidence, bit_codes
from safeswap.model.geography import check_nesting, geography_levels
from safeswap.model.invariant import (
    ChangedRecords,
    DisjointPairs,
    Invariant,
    KeptMargin,
    PairsAgree,
    PairsDiffer,
    ReplaysFromAudit,
    SameRows,
    UntouchedColumns,
)
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import ScenarioName, fill_in
from safeswap.model.schema import Kind, Schema
from safeswap.model.spec import (
    CATEGORIES,
    AddNoise,
    GeographyCodes,
    MaskSpec,
    MissingKeys,
    Plan,
    refuse_repeats,
    takes,
)
from safeswap.model.text import list_names, plural

LEFT = "left"
"""The fact of an audit that counts the combinations below tolerance in which no record changed."""

_BLOCK = 1 << 15
_STEP = 1 << 22
_SMALL_TABLE = 1 << 16
_SHORT = (1 << 16) - 1


@dataclass(frozen=True)
class TreatedClasses(Invariant):
    """Every combination of the keys with fewer records than the tolerance has a changed record, or is counted.

    Combinations are recounted from the columns of the original, without the code that sorted it.
    """

    keys: Names
    tolerance: int

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return (
            f"Every combination of {list_names(self.keys)} with fewer than {plural(self.tolerance, 'record')} "
            "has a record that was changed, or is counted as left in the audit record."
        )

    def problem(self, evidence: Evidence) -> str:
        """Compare the number left with the audit record."""
        left = self._left(evidence)
        stated = evidence.audit.facts.get(LEFT)
        if left == stated:
            return ""
        found = plural(left, "combination below tolerance has", "combinations below tolerance have")
        return f"{found} no changed record, the audit record counts {stated}"

    def _left(self, evidence: Evidence) -> int:
        changed = np.zeros(len(evidence.before), dtype=np.bool_)
        for name in evidence.before.attributes:
            flags = evidence.changed(name)
            if flags is not None:
                changed |= flags
        keys = [evidence.before.table.column(name) for name in self.keys]
        sizes = _dictionary_sizes(keys)
        if sizes is not None and prod(sizes) <= max(_SMALL_TABLE, 2 * len(changed)):
            return _left_by_places(keys, sizes, changed, self.tolerance)
        columns = {f"k{i}": bit_codes(column) for i, column in enumerate(keys)}
        table = pa.table({**columns, "changed": pa.array(changed)})
        classes = table.group_by(list(columns), use_threads=False).aggregate([("changed", "count"), ("changed", "any")])
        small = pc.less(classes["changed_count"], self.tolerance)
        return pc.sum(pc.and_(small, pc.invert(classes["changed_any"]))).as_py() or 0


def _dictionary_sizes(columns: list[pa.ChunkedArray]) -> list[int] | None:
    """Return the number of values of each column; None without a single dictionary, or with missing values."""
    for column in columns:
        if not pa.types.is_dictionary(column.type) or column.null_count or not has_distinct_levels(column):
            return None
    return [len(column.chunk(0).dictionary) for column in columns]


def _left_by_places(columns: list[pa.ChunkedArray], sizes: list[int], changed: Flags, tolerance: int) -> int:
    """Count the combinations left, in a table with a slot for each possible one."""
    groups = _groups([column.chunk(0).indices.to_numpy() for column in columns], sizes)
    counts: Integers = np.zeros(prod(sizes), dtype=np.int32 if len(changed) < 2**31 else np.int64)
    moved = np.zeros(len(counts), dtype=np.bool_)
    room: Integers = np.empty(min(_STEP, len(changed)), dtype=np.uint32 if len(counts) < 2**32 else np.int64)
    for start in range(0, len(changed), _STEP):
        places = room[: len(changed) - start]
        for first in range(0, len(places), _BLOCK):
            _put_places(places[first : first + _BLOCK], groups, start + first)
        moved[places[changed[start : start + _STEP]]] = True
        # Sorted, so that the table, which may be much larger than the cache, is passed through in order.
        places.sort()
        ends = np.append(np.flatnonzero(places[1:] != places[:-1]), len(places) - 1)
        counts[places[ends]] += np.diff(ends, prepend=-1)
    return int(np.count_nonzero((counts > 0) & (counts < tolerance) & ~moved))


def _groups(indices: list[Integers], sizes: list[int]) -> list[list[tuple[Integers, int]]]:
    """Group adjacent columns whose combinations fit short integers, which are fastest in NumPy."""
    groups: list[list[tuple[Integers, int]]] = [[]]
    for column, size in zip(indices, sizes, strict=True):
        if groups[-1] and prod(n for _, n in groups[-1]) * size > _SHORT:
            groups.append([])
        groups[-1].append((column, size))
    return groups


def _put_places(places: Integers, groups: list[list[tuple[Integers, int]]], start: int) -> None:
    """Write the slot of each record's combination from ``start`` on; in blocks, to stay in the cache."""
    some = slice(start, start + len(places))
    places[:] = 0
    for group in groups:
        size = prod(n for _, n in group)
        part: Integers = group[0][0][some].astype(np.uint16 if size <= _SHORT else places.dtype)
        for column, number in group[1:]:
            part *= number
            part += column[some].astype(part.dtype)
        places *= size
        places += part


EXCHANGES = ("geography", "continuous", "categorical")
"""The values to exchange, in the order of Moore's (1996) three methods, numbered from 1."""


def _accept_number(value: Any) -> Any:
    """Accept methods by the paper's number, also as text."""
    numbered = {str(number): name for number, name in enumerate(EXCHANGES, start=1)}
    return numbered.get(str(value), value)


class EditTargetedSpec(MaskSpec):
    """Sort by the key variables, and exchange in each of their combinations that has too few records.

    >>> spec = EditTargetedSpec(keys=["Beds", "Baths"], exchange=1, geography=["County", "Tract"], within=["State"])
    >>> spec.exchange, spec.tolerance, spec.sorted_keys
    ('geography', 3, ('Beds', 'Baths'))
    """

    method: ClassVar[str] = "edit_targeted"

    keys: Annotated[
        Names,
        Field(
            min_length=1,
            description="key variables, in the order in which the file is sorted",
            json_schema_extra=takes(*CATEGORIES, ordered=True),
        ),
    ]
    exchange: Annotated[
        Literal["geography", "continuous", "categorical"],
        BeforeValidator(_accept_number),
        Field(
            description="what is exchanged: 1 geography (all levels together), 2 continuous (all such items together), "
            "3 categorical (the first key in which the two records differ)"
        ),
    ] = "geography"
    geography: Annotated[
        Names,
        Field(
            description="geographic codes to exchange, from coarse to fine; default: all",
            json_schema_extra=takes("geography", ordered=True),
        ),
    ] = ()
    geography_codes: GeographyCodes = "unique"
    continuous: Annotated[
        Names,
        Field(
            description="continuous items to exchange; default: all numeric ones", json_schema_extra=takes("numeric")
        ),
    ] = ()
    within: Annotated[
        Names,
        Field(
            description="attributes, such as the state, across whose values nothing is exchanged",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ] = ()
    tolerance: Annotated[int, Field(ge=2, description="Q: a combination of the keys with fewer records is treated")] = 3
    order: Annotated[
        Literal["given", "near_optimal"],
        Field(description="sort by the keys as given, or in the order that disturbs order_by least"),
    ] = "given"
    order_by: Annotated[
        Names,
        Field(
            description="continuous items for which a near-optimal order is sought", json_schema_extra=takes("numeric")
        ),
    ] = ()
    variant: Annotated[
        Literal["keyed", "letter"],
        Field(description="keyed: for release; letter: as printed; anyone can replay it, so never for release"),
    ] = "keyed"
    candidates: Annotated[
        int, Field(ge=10, le=1000, description="number of records among which a partner is drawn, if available")
    ] = 10
    keep_fraction: Annotated[
        float, Field(gt=0, le=1, description="share of the combinations below tolerance to treat")
    ] = 1.0
    missing_keys: MissingKeys = "refuse"
    scenario: ScenarioName = ""

    @model_validator(mode="before")
    @classmethod
    def _reads_scenario(cls, values: Any) -> Any:
        return fill_in(values, keys="names", tolerance="least")

    @model_validator(mode="after")
    def _is_consistent(self) -> EditTargetedSpec:
        refuse_repeats(self, "keys", "geography", "continuous", "within", "order_by")
        if not self.sorted_keys:
            raise ValueError("all keys are also in within: nothing is left to sort by")
        exchanged = {"geography": self.geography, "continuous": self.continuous, "categorical": ()}[self.exchange]
        fixed = sorted(set(exchanged) & set(self.within))
        if fixed:
            raise ValueError(f"{fixed[0]!r} cannot be exchanged and be the same within a pair")
        if set(self.continuous) & set(self.keys):
            raise ValueError("a continuous item cannot be a key")
        if self.order == "near_optimal" and not self.order_by:
            raise ValueError("a near-optimal order needs order_by, the continuous items to disturb least")
        return self

    @property
    def sorted_keys(self) -> Names:
        """The keys without those that are equal within a pair anyway."""
        return tuple(name for name in self.keys if name not in self.within)


def check_edit(data: Microdata, spec: EditTargetedSpec) -> Names:
    """Refuse a specification that does not fit these data; return the attributes to exchange."""
    names = tuple(dict.fromkeys((*spec.keys, *spec.within)))
    require_categorical(data.schema, names, what="a key variable", code="key-not-categorical")
    if spec.missing_keys == "refuse":
        flags = {name: missing_codes(data, name) for name in names}
        counts = {name: int(np.count_nonzero(f[data.coded(name).codes])) for name, f in flags.items() if f.any()}
        refuse_missing(counts, code="missing-keys", hint=MISSING_KEYS)
    exchanged = _exchanged_columns(data.schema, spec)
    if spec.exchange == "continuous":
        _check_continuous(data, exchanged)
    elif spec.exchange == "geography":
        _check_geography(data, exchanged)
        if spec.geography_codes == "unique":
            check_nesting(data, exchanged)
    return exchanged


def _exchanged_columns(schema: Schema, spec: EditTargetedSpec) -> Names:
    """Return the columns that an edit may change, including those taken from the schema."""
    if spec.exchange == "categorical":
        return spec.sorted_keys
    if spec.exchange == "continuous":
        return spec.continuous or tuple(
            each.name for each in schema.iter_kind(Kind.NUMERIC) if each.name not in spec.within
        )
    return spec.geography or tuple(name for name in geography_levels(schema) if name not in spec.within)


def _exchanged_blocks(schema: Schema, spec: EditTargetedSpec) -> list[Names]:
    """Return the groups of columns that move together."""
    exchanged = _exchanged_columns(schema, spec)
    return [(name,) for name in exchanged] if spec.exchange == "categorical" else [exchanged]


def _check_geography(data: Microdata, levels: Names) -> None:
    if not levels:
        raise SpecError(
            "there is no geographic code to exchange",
            code="no-geography",
            hint="name the codes, from coarse to fine: geography=[…]; or exchange something else",
        )
    for name in levels:
        if not data.schema[name].kind.is_categorical:
            raise SpecError(
                f"{name!r} is {data.schema[name].kind.value} and not a geographic code",
                code="not-geography",
                hint="describe it as geography in the schema, or omit it",
                attribute=name,
            )


def _check_continuous(data: Microdata, items: Names) -> None:
    if not items:
        raise SpecError(
            "there is no continuous item to exchange",
            code="no-continuous-item",
            hint="describe some attributes as numeric and name them: continuous=[…]; or exchange something else",
        )
    for name in items:
        if data.schema[name].kind is not Kind.NUMERIC:
            raise SpecError(
                f"{name!r} is {data.schema[name].kind.value} and not numeric",
                code="not-numeric",
                hint="name numeric attributes as continuous items",
                attribute=name,
            )


@dataclass(frozen=True, kw_only=True)
class EditPlan(Plan):
    """Number of combinations of the keys that need an exchange, and that can have one; each asks for one pair."""

    classes: int = 0
    below: int = 0
    tolerance: int = 3
    keep_fraction: float = field(default=1.0, repr=False)

    @property
    def least_tolerance(self) -> float:
        """The tolerance."""
        return self.tolerance

    def blur(self, add: AddNoise) -> Self:
        """Return the plan with noise in its totals."""
        about = (self.below, self.classes)
        below = add(self.below, "plan", *about)
        feasible = add(self.feasible, "plan", *about, most=below)
        classes = max(below, add(self.classes, "plan", *about, most=self.records))
        return self._with_totals(int(self.keep_fraction * below + 0.5), feasible, below=below, classes=classes)

    @property
    def sentence(self) -> str:
        """The plan in words."""
        some = plural(self.classes, "combination of the keys has", "combinations of the keys have")
        text = f"{self.below:,} of {some} fewer than {plural(self.tolerance, 'record')}"
        text += f"; {self.asked:,} of them are to be treated" if self.asked < self.below else ""
        if self.is_feasible:
            return text
        binds = f", since {' and '.join(self.binds)} leaves no partner" if self.binds else ""
        return f"{text}; at most {self.feasible:,} can be{binds}"


class EditTargeted(ExchangingMethod):
    """Exchange where the keys single out too few records."""

    name: ClassVar[str] = "edit_targeted"
    title: ClassVar[str] = "Targeted Confidentiality Edit of rare combinations of the key variables"
    spec_type: ClassVar[type[EditTargetedSpec]] = EditTargetedSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Moore 1996, Preliminary recommendations for disclosure limitation for the 2000 Census, SRD report RR96/06",
    )

    needs: ClassVar[frozenset[Need]] = frozenset({Need.WHOLE_FILE})

    def columns(self, schema: Schema, spec: EditTargetedSpec) -> Columns:
        """Return the keys, what is exchanged, and what orders the keys.

        >>> from safeswap.model.schema import Attribute
        >>> places = [Attribute(name=name, kind=Kind.GEOGRAPHY) for name in ("State", "Tract")]
        >>> schema = Schema(attributes=(*places, Attribute(name="Beds"), Attribute(name="Roof")))
        >>> EditTargeted().columns(schema, EditTargetedSpec(keys=["Beds"], within=["State"]))
        Columns(read=('Beds', 'Tract', 'State'), changed=('Tract',))
        """
        changed = _exchanged_columns(schema, spec)
        order = spec.order_by if spec.order == "near_optimal" else ()
        return Columns(read=tuple(dict.fromkeys((*spec.keys, *changed, *spec.within, *order))), changed=changed)

    def plan(self, data: Microdata, spec: EditTargetedSpec) -> EditPlan:
        """Count the combinations below tolerance, and those that can be treated."""
        return _plan_edit(_prepare(data, spec), spec)

    def draw(self, records: Records, spec: EditTargetedSpec, key: Key, *, replicate: int = 0) -> Drawn:
        """Sort and walk. Combinations left without an exchange are counted in the facts.

        The walk visits all classes in the order of their values, and a window may reach far: it needs the whole file.
        """
        data = records.held
        assert data is not None  # noqa: S101  (declared in ``needs``)
        edit = _prepare(data, spec)
        keys = DrawKeys.derive(key.secret, data, replicate=replicate)
        wanting = draw_kept(data, edit.classes, edit.below, fraction=spec.keep_fraction, keys=keys)
        if spec.variant == "letter":
            walked = letter_walk(edit.classes, wanting)
        else:
            walked = keyed_walk(data, edit.classes, wanting, edit.labels, candidates=spec.candidates, keys=keys)
        part = _Part(data, edit, walked)
        moves = tuple(move for pairs in walked.pairs for move in part.exchange(pairs, spec))
        return Drawn(
            plan=_plan_edit(edit, spec),
            moves=moves,
            made=sum(len(move.pairs) for move in moves),
            facts=_facts(data, part, edit=edit, spec=spec, walked=walked, wanting=wanting),
            releasable=spec.variant == "keyed",
        )

    def effects(self, schema: Schema, spec: EditTargetedSpec) -> tuple[Effect, ...]:
        """Return that values moved: categories attribute by attribute, items and areas together."""
        return tuple(Permuted(block, spec.within) for block in _exchanged_blocks(schema, spec))

    def invariants(self, data: Described, spec: EditTargetedSpec) -> tuple[Invariant, ...]:
        """Promise margins kept, columns untouched, every combination below tolerance treated or counted."""
        exchanged = _exchanged_columns(data.schema, spec)
        untouched = tuple(name for name in data.attributes if name not in exchanged)
        blocks = _exchanged_blocks(data.schema, spec)
        promises: list[Invariant] = [
            SameRows(),
            UntouchedColumns(untouched),
            *(KeptMargin((name,)) for name in exchanged),
            *(KeptMargin((*block, *spec.within)) for block in blocks if len(block) + len(spec.within) > 1),
            DisjointPairs(),
            PairsDiffer(exchanged, "any"),
            ChangedRecords(),
            ReplaysFromAudit(),
            TreatedClasses((*spec.within, *spec.sorted_keys), spec.tolerance),
        ]
        if spec.within:
            promises.append(PairsAgree(spec.within))
        return tuple(promises)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Edit:
    """The file prepared for the walk."""

    keys: Names
    exchanged: Names
    classes: SortedClasses
    below: Flags
    labels: RowLabels


def _prepare(data: Microdata, spec: EditTargetedSpec) -> _Edit:
    exchanged = check_edit(data, spec)
    keys = spec.sorted_keys
    if spec.order == "near_optimal":
        keys = near_optimal_order(data, keys, spec.order_by).keys
    ties = identifier_order(data) if spec.variant == "letter" else None  # the keyed walk arranges classes itself
    classes = sort_classes(data, keys, within=spec.within, ties=ties)
    # Records of two classes always differ in some key.
    labels: RowLabels = ClassLabels(classes) if spec.exchange == "categorical" else CellLabels(data, exchanged)
    below = classes.sizes < spec.tolerance
    return _Edit(keys=keys, exchanged=exchanged, classes=classes, below=below, labels=labels)


def _plan_edit(edit: _Edit, spec: EditTargetedSpec) -> EditPlan:
    below = int(np.count_nonzero(edit.below))
    asked = int(spec.keep_fraction * below + 0.5)
    feasible = min(asked, int(np.count_nonzero(edit.below & mixed_strata(edit.classes, edit.below, edit.labels))))
    return EditPlan(
        method="edit_targeted",
        records=edit.classes.codes.size,
        asked=asked,
        feasible=feasible,
        binds=(*spec.within, *edit.exchanged) if feasible < asked else (),
        classes=edit.classes.strata.size,
        below=below,
        tolerance=spec.tolerance,
        keep_fraction=spec.keep_fraction,
    )


class _Part:
    """The codes of the records that take part, while they are exchanged."""

    def __init__(self, data: Microdata, edit: _Edit, walked: Walked) -> None:
        self.rows = np.unique(np.concatenate([np.zeros((0, 2), dtype=np.int64), *walked.pairs]))
        self._names = edit.exchanged
        self._keys = edit.keys
        self._before = {
            name: data.coded(name).codes[self.rows] for name in dict.fromkeys((*edit.exchanged, *edit.keys))
        }
        self._now = dict(self._before)

    def exchange(self, pairs: Int64s, spec: EditTargetedSpec) -> list[Move]:
        """Return what is exchanged between which rows, without pairs that an exchange would not change."""
        names = self._keys if spec.exchange == "categorical" else self._names
        places = np.searchsorted(self.rows, pairs)
        differ = np.stack([self._now[name][places[:, 0]] != self._now[name][places[:, 1]] for name in names], axis=1)
        if spec.exchange != "categorical":
            chosen = {names: differ.any(axis=1)}
        else:
            first = np.where(differ.any(axis=1), differ.argmax(axis=1), -1)
            chosen = {(name,): first == i for i, name in enumerate(names)}
        moves = []
        for some, flags in chosen.items():
            if flags.any():
                moves.append(Move(some, pairs[flags]))
                for name in some:
                    self._now[name] = move_within(self._now[name], places[flags], directed=False)
        return moves

    def changed(self) -> Flags:
        """Flag the rows that do not have their own values any more."""
        flags = [self._before[name] != self._now[name] for name in self._names]
        changed: Flags = np.any([np.zeros(len(self.rows), dtype=np.bool_), *flags], axis=0)
        return changed


def _facts(
    data: Microdata, part: _Part, *, edit: _Edit, spec: EditTargetedSpec, walked: Walked, wanting: Flags
) -> dict[str, Any]:
    """Return counts for the report and for Theorem A.3; nothing about any single record."""
    pairs = np.concatenate([np.zeros((0, 2), dtype=np.int64), *walked.pairs])
    rows, changed = part.rows, part.changed()
    classes = edit.classes.class_of(rows)
    alive = np.zeros(edit.below.size, dtype=np.bool_)
    alive[classes[changed]] = True
    left = edit.below & ~alive
    levels = (*spec.within, *edit.exchanged) if spec.exchange == "geography" else spec.within
    stamp = {"not_for_release": "in the letter variant it can be replayed"} if spec.variant == "letter" else {}
    return {
        **stamp,
        "order": list(edit.keys),
        "classes": int(edit.below.size),
        "below_tolerance": int(np.count_nonzero(edit.below)),
        "kept": int(np.count_nonzero(wanting)),
        "took_part": int(rows.size),
        "from_above_tolerance": int(np.count_nonzero(~edit.below[classes])),
        "changed": int(np.count_nonzero(changed)),
        "called_for": len(pairs),
        LEFT: int(np.count_nonzero(left)),
        "left_though_kept": int(np.count_nonzero(left & wanting)),
        "pairs_within": {name: _count_agreeing(data, name, pairs) for name in levels},
    }


def _count_agreeing(data: Microdata, name: str, pairs: Int64s) -> int:
    codes = data.coded(name).codes
    return int(np.count_nonzero(codes[pairs[:, 0]] == codes[pairs[:, 1]]))
