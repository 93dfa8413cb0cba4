"""Replay: how many changed records an intruder gets back who does the targeted edit once more, on the release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Flags, Rows
from safeswap.measures.aligned import AlignedColumn, aligned, require_same_records
from safeswap.measures.base import AttributeNames, ParametricMeasure, chosen_attributes
from safeswap.model.columns import same_memory
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.score import Axis, Comparison, Score

if TYPE_CHECKING:
    from safeswap.methods.edit_targeted.classes import Walked


LETTER = "the walk by the letter"
UNSEEN = "the walk by the letter, order within classes unknown"
GUESSED = "the keyed walk under a guessed key"
_GUESS = bytes(32)  # any key will do: the intruder does not know the right one


class Replay(ParametricMeasure):
    """The share of changed records whose original values come back when the edit is done again on the release.

    The intruder has the release in the order and with the identifiers that it has inside, the source code, and all
    parameters but the key: the worst case. An exchange undoes itself, so where the keys that sort the file have not
    changed, the walk by the letter leads to the same pairs again.

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
        """The best that the intruder's ways reach; the detail has one line for each of them."""
        require_same_records(comparison)
        keys = tuple(n for n in chosen_attributes(comparison, self.keys) if n not in self.within)
        names = self.exchanged or changed_attributes(comparison)
        columns = [aligned(comparison, name) for name in names]
        changed = np.zeros(len(comparison.before), dtype=np.bool_)
        for column in columns:
            changed |= column.before != column.after
        if not changed.any():
            return self._score(0.0, "Nothing was changed: there is nothing to restore.", names, None)
        rows = []
        for way, walked in self._walks(comparison.after, keys, names).items():
            sources = self._sources(comparison.after, walked, keys, names)
            rows.append({"way": way, **_outcome(columns, sources, changed)})
        chance = _by_chance(columns, changed)
        detail = pa.Table.from_pylist([*rows, {"way": "chance alone", "rate": chance}])
        value = max(float(row["rate"]) for row in rows)
        sentence = (
            f"Doing the edit once more on the release gives back {value:.2%} of the {np.count_nonzero(changed):,} "
            f"records that were changed; guessing values alone would give {chance:.2%}."
        )
        return self._score(value, sentence, names, detail)

    def _walks(self, release: Microdata, keys: tuple[str, ...], names: tuple[str, ...]) -> dict[str, Walked]:
        """Who the intruder thinks was exchanged with whom, each way as he would find it."""
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

    def _sources(self, release: Microdata, walked: Walked, keys: tuple[str, ...], names: tuple[str, ...]) -> list[Rows]:
        """For each exchanged attribute, the record of the release from which the intruder takes its value."""
        sources = [np.arange(len(release), dtype=np.int64) for _ in names]
        for pairs in reversed(walked.pairs):  # the last exchange is the first to be undone
            chosen = _first_keys(release, keys, pairs) if self.first_key else None
            for name, source in zip(names, sources, strict=True):
                mine = pairs if chosen is None else pairs[chosen == keys.index(name)]
                a, b = mine[:, 0], mine[:, 1]
                source[a], source[b] = source[b], source[a]
        return sources


def _first_keys(release: Microdata, keys: tuple[str, ...], pairs: Rows) -> Rows:
    """The place of the first key in which the two records of each pair differ."""
    columns, _ = release.coded_columns(keys)
    differ = [column[pairs[:, 0]] != column[pairs[:, 1]] for column in columns]
    found: Rows = np.argmax(np.stack(differ), axis=0)
    return found


def _outcome(columns: list[AlignedColumn], sources: list[Rows], changed: Flags) -> dict[str, float | int]:
    """How many changed records come back, and how many genuine ones the intruder spoils."""
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


def _by_chance(columns: list[AlignedColumn], changed: Flags) -> float:
    """The chance that another record's values, drawn from the whole file, are the ones that a changed record had."""
    from safeswap.arrays import cells

    joint = [np.concatenate([column.before, column.after]) for column in columns]
    codes, _ = cells.pack(joint, [column.cardinality for column in columns])
    values, inverse, counts = np.unique(codes[: changed.size], return_inverse=True, return_counts=True)
    own = counts[inverse[changed]]
    place = np.minimum(np.searchsorted(values, codes[changed.size :][changed]), values.size - 1)
    # He knows that what stands there now is wrong.
    others = changed.size - np.where(values[place] == codes[changed.size :][changed], counts[place], 0)
    return float(np.mean(own / np.maximum(others, 1)))


def replay_rate(masked: Masked) -> Score:
    """How many changed records of a targeted edit come back by replay; all parameters are taken from the edit itself.

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
    """The attributes that differ between the two files, the identifier left out."""
    found = []
    for attribute in comparison.before.schema.attributes:
        name = attribute.name
        if attribute.kind is Kind.IDENTIFIER or name not in comparison.after.schema:
            continue
        if same_memory(comparison.before.table.column(name), comparison.after.table.column(name)):
            continue
        if aligned(comparison, name).changed:
            found.append(name)
    return tuple(found)
