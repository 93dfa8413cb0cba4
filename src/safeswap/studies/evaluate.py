"""Score specifications: quickly from touched records, or in general by masking with any method.

Both give the same numbers. The quick way covers plain swaps and the measures it knows; everything else is masked in
memory, measured and discarded. No masked file is kept or shown: from several draws of one file, the most frequent
value per record would reveal the original.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from safeswap import registry
from safeswap.arrays.names import Names
from safeswap.arrays.two_way import MEASURES as TABLE_MEASURES
from safeswap.arrays.two_way import MOST_PLACES
from safeswap.errors import InternalError, SafeswapError
from safeswap.measures.aligned import refuse_blind
from safeswap.measures.base import Measure
from safeswap.measures.tables import distortion_tables
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.score import Comparison
from safeswap.model.spec import MaskSpec, SwapSpec
from safeswap.model.study import ConstraintSet, Figures, StudySpec
from safeswap.studies.quick import QuickWay, Replicate, SwapGroup

MOST_TABLE_BYTES = 1 << 30
"""If the 2-way tables of all candidates would take more than this, none are kept."""


@dataclass(frozen=True, eq=False)
class Group:
    """Candidates that differ only in the rate: their pairs are the first ones of the same walk."""

    specs: tuple[MaskSpec, ...]
    labels: Names = ()
    constraint: ConstraintSet | None = None


class Evaluator:
    """Scorer of candidates, with everything that they share. Thread-safe."""

    def __init__(
        self, data: Microdata, study: StudySpec, key: Key, *, candidates: int, measures: Sequence[Measure] | None = None
    ) -> None:
        self.data = data
        self.study = study
        self.key = key
        self.keys = study.keys or data.schema.categorical
        self.table_pairs = choose_tables(data, self.keys, candidates)
        self._measures = measures or [registry.measure(text) for text in study.measures]
        further = _other_attributes(study, data)
        self._way = QuickWay(data, self.keys, further, self._measures, key, tables=bool(self.table_pairs))
        self._replicates: OrderedDict[int, Replicate] = OrderedDict()
        self._most_replicates = (os.cpu_count() or 1) + 1
        self._lock = threading.Lock()

    def prepare(self, group: Group) -> SwapGroup | Group:
        """Return the group with everything its replicates share, if it can be scored from touched records."""
        if self._way.measures is None:
            return group
        swaps = plain_swaps(group.specs)
        is_quick = len(swaps) == len(group.specs) and all(map(self._is_quick, swaps))
        return self._way.group(swaps) if is_quick else group

    def _is_quick(self, spec: SwapSpec) -> bool:
        """Return whether a swap can be scored from touched records alone.

        A swap of numeric attributes only, or one with signed zeros, is masked instead: that says what does not apply.
        """
        seen = any(name in self.keys or self.data.schema[name].kind.is_categorical for name in spec.swap)
        return seen and not self._way.has_signed_zeros(spec)

    def cost(self, group: SwapGroup | Group) -> int:
        """Estimate the cost of a group in records read."""
        if isinstance(group, SwapGroup):
            return 4 * int(group.asked[-1]) + 3000 * len(group.specs)
        return 20 * len(self.data) * len(group.specs)

    def figures(self, group: SwapGroup | Group, replicate: int) -> Figures:
        """Score the candidates of a group under one keyed order. A failing candidate does not stop the others."""
        if isinstance(group, SwapGroup):
            return self._replicate(replicate).evaluate(group)
        return Figures.joined([self._mask_and_score(spec, replicate) for spec in group.specs])

    def _replicate(self, number: int) -> Replicate:
        """Return a replicate from a small cache, since several threads work on one replicate."""
        with self._lock:
            found = self._replicates.pop(number, None) or Replicate(self._way, number)
            self._replicates[number] = found
            while len(self._replicates) > self._most_replicates:
                self._replicates.popitem(last=False)
            return found

    def _mask_and_score(self, spec: MaskSpec, replicate: int) -> Figures:
        try:
            method = registry.method(spec.method)
            masked = method.apply(self.data, spec, key=self.key, replicate=replicate)
            touched = masked.audit.perturbed()
            seen = Comparison(before=self.data, after=masked.data, attributes=self.keys, touched=touched)
            refuse_blind(seen, self._measures)
            scores = np.array([[measure.score(seen).value for measure in self._measures]])
            return Figures(scores, np.array([masked.audit.made]), ("",), self._two_way(seen))
        except InternalError:
            raise
        except SafeswapError as error:
            reason = error.message
        except Exception as error:  # noqa: BLE001  (a plug-in may fail in any way; its words could quote a record)
            reason = f"it failed with {type(error).__name__}"
        tables = (len(self.table_pairs), len(TABLE_MEASURES)) if self.table_pairs else None
        return Figures.rejected([reason], measures=len(self._measures), tables=tables)

    def _two_way(self, seen: Comparison) -> npt.NDArray[np.float32] | None:
        if not self.table_pairs:
            return None
        table = distortion_tables(seen, ways=2, measures=TABLE_MEASURES, attributes=self.keys)
        values = [table.column(measure).to_numpy() for measure in TABLE_MEASURES]
        return np.stack(values, axis=1).astype(np.float32)[None]


def plain_swaps(specs: Sequence[MaskSpec]) -> tuple[SwapSpec, ...]:
    """Return the swaps whose pairs are the first ones of a walk, all attributes at once."""
    swaps = (spec for spec in specs if isinstance(spec, SwapSpec))
    return tuple(s for s in swaps if len(s.stages) == 1 and s.targeting is None and s.on_shortfall == "error")


def choose_tables(data: Microdata, keys: Names, candidates: int) -> tuple[tuple[str, str], ...]:
    """Return the 2-way tables whose distortion is kept for every candidate: all, or none if that is too much."""
    _, sizes = data.coded_columns(keys)
    places = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    kept_bytes = candidates * comb(len(keys), 2) * len(TABLE_MEASURES) * 4
    if places > MOST_PLACES or kept_bytes > MOST_TABLE_BYTES:
        return ()
    return tuple((a, b) for i, a in enumerate(keys) for b in keys[i + 1 :])


def _other_attributes(study: StudySpec, data: Microdata) -> Names:
    """Return the attributes that swaps may use besides those that form the cells."""
    stated = plain_swaps([registry.make_spec(values) for values in study.others])
    named = [
        *(study.attributes or data.schema.categorical),
        *(name for constraint in study.constraints for name in (*constraint.fixed, *constraint.differ)),
        *(name for spec in stated for name in (*spec.swap, *spec.fixed, *spec.differ)),
    ]
    return tuple(dict.fromkeys(named))
