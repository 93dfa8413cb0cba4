"""The targeted Confidentiality Edit: exchange in every combination of the keys that has too few records.

Source: Moore 1996, Preliminary recommendations for disclosure limitation for the 2000 Census, sections VII to XIV. The
variant for release draws record and partner by the secret key, since the printed one can be replayed by anybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from safeswap.engines.base import Engine
from safeswap.engines.keyed_walk import DrawKeys, kept, keyed_walk
from safeswap.engines.row_labels import CellLabels, ClassLabels, RowLabels, mixed_strata
from safeswap.engines.sorted_classes import SortedClasses, Walked, identifier_order, letter_walk, sort_classes
from safeswap.kernels import keyed
from safeswap.kernels.types import Flags, Int64s, Names
from safeswap.methods.edit_checks import check_edit
from safeswap.methods.exchange import compensating
from safeswap.methods.near_optimal import near_optimal_order
from safeswap.model.audit import Audit, Exchange
from safeswap.model.edit_spec import EditTargetedSpec
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
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.plan import Plan
from safeswap.model.treated_classes import LEFT, TreatedClasses


@dataclass(frozen=True, kw_only=True)
class EditPlan(Plan):
    """How many combinations of the keys need an exchange, and how many can have one; each asks for one pair."""

    classes: int = 0
    below: int = 0
    tolerance: int = 3

    @property
    def sentence(self) -> str:
        """The plan in plain words."""
        text = f"{self.below:,} of {self.classes:,} combinations of the keys have fewer than {self.tolerance} records"
        text += f"; {self.asked:,} of them are to be treated" if self.asked < self.below else ""
        if self.is_feasible:
            return text
        binds = f", since {' and '.join(self.binds)} leaves no partner" if self.binds else ""
        return f"{text}; at most {self.feasible:,} can be{binds}"


class EditTargeted:
    """Exchange where the keys single out too few records."""

    name: ClassVar[str] = "edit_targeted"
    title: ClassVar[str] = "Targeted Confidentiality Edit of rare combinations of the key variables"
    spec_type: ClassVar[type[EditTargetedSpec]] = EditTargetedSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Moore 1996, Preliminary recommendations for disclosure limitation for the 2000 Census, SRD report RR96/06",
    )

    def plan(self, data: Microdata, spec: EditTargetedSpec, *, engine: Engine) -> EditPlan:
        """How many combinations are below tolerance, and how many of them can be treated."""
        return _planned(_prepared(data, spec), spec)

    def apply(self, data: Microdata, spec: EditTargetedSpec, *, key: Key, engine: Engine, replicate: int = 0) -> Masked:
        """Sort, walk, exchange. What stays below tolerance without an exchange is counted in the audit record."""
        edit = _prepared(data, spec)
        keys = DrawKeys.derived(key.secret, data, replicate=replicate)
        wanting = kept(data, edit.classes, edit.below, fraction=spec.keep_fraction, keys=keys)
        if spec.variant == "letter":
            walked = letter_walk(edit.classes, wanting)
        else:
            walked = keyed_walk(data, edit.classes, wanting, edit.labels, candidates=spec.candidates, keys=keys)
        masked, exchanges = data, []
        for drawn in walked.pairs:
            for names, pairs in _true_exchanges(masked, edit, spec, drawn):
                masked = engine.exchange(masked, names, pairs)
                exchanges.append(Exchange(attributes=names, pairs=pairs))
        plan = _planned(edit, spec)
        audit = Audit(
            method=self.name,
            spec=spec.as_dict(),
            records=len(data),
            asked=plan.asked,
            feasible=plan.feasible,
            made=sum(len(exchange.pairs) for exchange in exchanges),
            exchanges=tuple(exchanges),
            key_id=key.id,
            releasable=key.releasable and spec.variant == "keyed",
            algorithm=keyed.ALGORITHM,
            replicate=replicate,
            data_name=data.schema.name,
            compensating=compensating(data, masked, tuple(exchanges)) if exchanges else 0,
            facts=_facts(data, masked, edit=edit, spec=spec, walked=walked, wanting=wanting),
        )
        return Masked(original=data, data=masked, spec=spec, plan=plan, audit=audit)

    def invariants(self, data: Microdata, spec: EditTargetedSpec) -> tuple[Invariant, ...]:
        """Margins kept, columns untouched, every combination below tolerance treated or counted."""
        exchanged = check_edit(data, spec)
        untouched = tuple(name for name in data.attributes if name not in exchanged)
        blocks = [(name,) for name in exchanged] if spec.exchange == "categorical" else [exchanged]
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
    """The file made ready for the walk."""

    keys: Names
    exchanged: Names
    classes: SortedClasses
    below: Flags
    labels: RowLabels


def _prepared(data: Microdata, spec: EditTargetedSpec) -> _Edit:
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


def _planned(edit: _Edit, spec: EditTargetedSpec) -> EditPlan:
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
    )


def _true_exchanges(data: Microdata, edit: _Edit, spec: EditTargetedSpec, pairs: Int64s) -> list[tuple[Names, Int64s]]:
    """What is exchanged between which rows, without the pairs that an exchange would leave as they are."""
    names = edit.keys if spec.exchange == "categorical" else edit.exchanged
    columns, _ = data.coded_columns(names)
    differ = np.stack([column[pairs[:, 0]] != column[pairs[:, 1]] for column in columns], axis=1)
    if spec.exchange != "categorical":
        pairs = pairs[differ.any(axis=1)]
        return [(names, pairs)] if len(pairs) else []
    first = np.where(differ.any(axis=1), differ.argmax(axis=1), -1)
    return [((name,), pairs[first == i]) for i, name in enumerate(names) if (first == i).any()]


def _facts(
    before: Microdata, after: Microdata, *, edit: _Edit, spec: EditTargetedSpec, walked: Walked, wanting: Flags
) -> dict[str, Any]:
    """Counts for the report and for Theorem A.3; nothing about any one record."""
    pairs = np.concatenate([np.zeros((0, 2), dtype=np.int64), *walked.pairs])
    rows = np.unique(pairs)
    changed = np.zeros(rows.size, dtype=np.bool_)
    for name in edit.exchanged:
        changed |= before.coded(name).codes[rows] != after.coded(name).codes[rows]
    classes = edit.classes.class_of(rows)
    alive = np.zeros(edit.below.size, dtype=np.bool_)
    alive[classes[changed]] = True
    left = edit.below & ~alive
    levels = (*spec.within, *edit.exchanged) if spec.exchange == "geography" else spec.within
    stamp = {"not_for_release": "done by the letter it can be replayed"} if spec.variant == "letter" else {}
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
        "pairs_within": {name: _agreeing(before, name, pairs) for name in levels},
    }


def _agreeing(data: Microdata, name: str, pairs: Int64s) -> int:
    codes = data.coded(name).codes
    return int(np.count_nonzero(codes[pairs[:, 0]] == codes[pairs[:, 1]]))
