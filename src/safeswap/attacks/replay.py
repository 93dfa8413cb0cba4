"""Replay attack: repeat the targeted edit on the release and count the changed records that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Flags, Rows
from safeswap.measures.aligned import AlignedColumn, align, require_same_records
from safeswap.measures.base import AttributeNames, ParametricMeasure, choose_attributes
from safeswap.model.columns import same_memory
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.methods.edit_targeted.classes import Walked


LETTER = "the walk by the letter"
UNSEEN = "the walk by the letter, order within classes unknown"
GUESSED = "the keyed walk under a guessed key"
_GUESS = bytes(32)  # any key will do: the intruder does not know the right one


class Replay(ParametricMeasure):
    """The share of changed records whose original values come back when the edit is repeated on the release.

    The worst case: the intruder has the release with its internal order and identifiers, the source code, and all
    parameters except the key. An exchange is its own inverse, so where the keys that sort the file are unchanged, the
    walk by the letter leads to the same pairs again.

    >>> Replay(keys=("Beds", "Baths"), tolerance=2).text
    'replay:keys=Beds+Baths,tolerance=2'
    """

    name: ClassVar[str] = "replay"
    title: ClassVar[str] = "records restored by replaying the targeted edit"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Moore (1996), Preliminary Recommendations for Disclosure Limitation for the 2000 Census",
    )

    keys: Annotated[AttributeNames, Field(description="keys in sort order; all categorical attributes if empty")] = ()
    exchanged: Annotated[
        AttributeNames, Field(description="what was exchanged; every attribute that changed if empty")
    ] = ()
    within: Annotated[AttributeNames, Field(description="attributes across whose values nothing was exchanged")] = ()
    tolerance: Annotated[int, Field(ge=2, description="Q: combinations of the keys with fewer records exchange")] = 3
    candidates: Annotated[int, Field(ge=2, le=1000, description="among how many records partners were drawn")] = 10
    first_key: Annotated[
        bool, Field(description="one key was exchanged per pair, the first in which the two records differ")
    ] = False

    def score(self, comparison: Comparison) -> Score:
        """Score the intruder's most successful way; the detail has one row for each way."""
        require_same_records(comparison)
        keys = tuple(n for n in choose_attributes(comparison, self.keys) if n not in self.within)
        names = self.exchanged or changed_attributes(comparison)
        columns = [align(comparison, name) for name in names]
        changed = np.zeros(len(comparison.before), dtype=np.bool_)
        for column in columns:
            changed |= column.before != column.after
        if not changed.any():
            return self._score(0.0, "Nothing was changed: there is nothing to restore.", names, None)
        rows = []
        for way, walked in self._guess_pairs(comparison.after, keys, names).items():
            sources = self._trace_sources(comparison.after, walked, keys, names)
            rows.append({"way": way, **_count_outcome(columns, sources, changed)})
        chance = _chance_rate(columns, changed)
        detail = pa.Table.from_pylist([*rows, {"way": "chance alone", "rate": chance}])
        value = max(float(row["rate"]) for row in rows)
        sentence = (
            f"Doing the edit once more on the release gives back {value:.2%} of the "
            f"{plural(int(np.count_nonzero(changed)), 'changed record')}; guessing values alone would give "
            f"{chance:.2%}."
        )
        return self._score(value, sentence, names, detail)

    def _guess_pairs(self, release: Microdata, keys: tuple[str, ...], names: tuple[str, ...]) -> dict[str, Walked]:
        """Reconstruct the exchanged pairs in each of the intruder's ways."""
        from safeswap.methods.edit_targeted.classes import identifier_order, letter_walk, sort_classes
        from safeswap.methods.edit_targeted.keyed_walk import CellLabels, DrawKeys, keyed_walk, record_draws

        guess = DrawKeys.derived(_GUESS, release, replicate=0)
        shuffled = np.argsort(record_draws(release, guess)).astype(np.uint32)
        seen = sort_classes(release, keys, within=self.within, ties=identifier_order(release))
        unseen = sort_classes(release, keys, within=self.within, ties=shuffled)
        failing = seen.sizes < self.tolerance
        moved = (*self.within, *keys) if self.first_key else names
        labels = CellLabels(release, moved)
        drawn = keyed_walk(release, seen, failing, labels, candidates=self.candidates, keys=guess)
        return {LETTER: letter_walk(seen, failing), UNSEEN: letter_walk(unseen, failing), GUESSED: drawn}

    def _trace_sources(
        self, release: Microdata, walked: Walked, keys: tuple[str, ...], names: tuple[str, ...]
    ) -> list[Rows]:
        """Return, for each exchanged attribute, the record of the release from which the intruder takes its value."""
        sources = [np.arange(len(release), dtype=np.int64) for _ in names]
        for pairs in reversed(walked.pairs):  # the last exchange is the first to be undone
            chosen = _first_differing_keys(release, keys, pairs) if self.first_key else None
            for name, source in zip(names, sources, strict=True):
                mine = pairs if chosen is None else pairs[chosen == keys.index(name)]
                a, b = mine[:, 0], mine[:, 1]
                source[a], source[b] = source[b], source[a]
        return sources


def _first_differing_keys(release: Microdata, keys: tuple[str, ...], pairs: Rows) -> Rows:
    """Return the position of the first key in which the two records of each pair differ."""
    columns, _ = release.coded_columns(keys)
    differ = [column[pairs[:, 0]] != column[pairs[:, 1]] for column in columns]
    found: Rows = np.argmax(np.stack(differ), axis=0)
    return found


def _count_outcome(columns: list[AlignedColumn], sources: list[Rows], changed: Flags) -> dict[str, float | int]:
    """Count the changed records that come back, and the genuine ones that the intruder spoils."""
    right = np.ones(changed.size, dtype=np.bool_)
    for column, source in zip(columns, sources, strict=True):
        right &= column.after[source] == column.before
    restored = int(np.count_nonzero(right & changed))
    return {
        "rate": restored / int(np.count_nonzero(changed)),
        "changed": int(np.count_nonzero(changed)),
        "restored": restored,
        "spoilt": int(np.count_nonzero(~right & ~changed)),
    }


def _chance_rate(columns: list[AlignedColumn], changed: Flags) -> float:
    """Return the chance that the values of a record drawn at random are those that a changed record had."""
    from safeswap.arrays import cells

    joint = [np.concatenate([column.before, column.after]) for column in columns]
    codes, _ = cells.pack(joint, [column.cardinality for column in columns])
    values, inverse, counts = np.unique(codes[: changed.size], return_inverse=True, return_counts=True)
    own = counts[inverse[changed]]
    place = np.minimum(np.searchsorted(values, codes[changed.size :][changed]), values.size - 1)
    # The intruder knows that the current value is wrong.
    others = changed.size - np.where(values[place] == codes[changed.size :][changed], counts[place], 0)
    return float(np.mean(own / np.maximum(others, 1)))


def replay_rate(masked: Masked) -> Score:
    """Score the replay attack on a targeted edit, with all parameters taken from the edit itself.

    >>> Replay().name
    'replay'
    """
    spec = masked.audit.spec
    within = tuple(spec.get("within", ()))
    measure = Replay(
        keys=tuple(masked.audit.facts.get("order", spec.get("keys", ()))),
        within=within,
        tolerance=int(spec.get("tolerance", 3)),
        candidates=int(spec.get("candidates", 10)),
        first_key=spec.get("exchange") == "categorical",
    )
    before, touched = masked.original, masked.audit.touched()
    return measure.score(
        Comparison(before=before, after=masked.data, attributes=before.schema.categorical, touched=touched)
    )


def changed_attributes(comparison: Comparison) -> tuple[str, ...]:
    """Return the attributes that differ between the two files, except the identifier."""
    found = []
    for attribute in comparison.before.schema.attributes:
        name = attribute.name
        if attribute.kind is Kind.IDENTIFIER or name not in comparison.after.schema:
            continue
        if same_memory(comparison.before.table.column(name), comparison.after.table.column(name)):
            continue
        if align(comparison, name).changed:
            found.append(name)
    return tuple(found)
