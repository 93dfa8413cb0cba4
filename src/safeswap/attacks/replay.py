"""Undo the masking: find out which records were changed, repeat a deterministic rule, search for a small seed.

The replay attack repeats the targeted edit on the release and counts the changed records that come back.
"""

from __future__ import annotations

from itertools import combinations
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays import cells
from safeswap.arrays.types import Flags, Int64s, Rows
from safeswap.attacks.base import Outcome, Setting, Skipped
from safeswap.attacks.inference import name_swapped
from safeswap.measures.aligned import AlignedColumn, align, require_same_records
from safeswap.measures.base import AttributeNames, ParametricMeasure, choose_attributes
from safeswap.model.columns import same_memory
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
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
    of_changes: ClassVar[bool] = True
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

        guess = DrawKeys.derive(_GUESS, release, replicate=0)
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
    """Return the attributes that differ between the two files, except numbers of records and households."""
    found = []
    for attribute in comparison.before.schema.attributes:
        name = attribute.name
        if attribute.kind.is_unit_number or name not in comparison.after.schema:
            continue
        if same_memory(comparison.before.table.column(name), comparison.after.table.column(name)):
            continue
        if align(comparison, name).changed:
            found.append(name)
    return tuple(found)


_KNOWN = 25
SEEDS = 256
"""The seeds that are tried: enough to show that a small one is found; a longer search finds a longer one."""
_CONTROL = 16
"""Number of seeds that fit less well, which show what a wrong one restores by chance."""
_MOST_RECORDS = 20_000


class SwappedRecords:
    """Flag as swapped the records with a pair of values, one of a changed attribute, that occurs nowhere else.

    The intruder has the release, and knows which attributes were exchanged: rare pairs are those that an exchange
    makes. A right guess is a record that was changed; the baseline is the share of changed records.
    """

    name: ClassVar[str] = "swapped_records"
    title: ClassVar[str] = "Find out which records were swapped"
    intruder: ClassVar[str] = "the release, and which attributes were exchanged"
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"original", "changes"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Count every pair of a changed attribute with another categorical one."""
        schema = setting.released.schema
        names = [name for name in setting.names if schema[name].kind.is_categorical]
        changed = [name for name in setting.changed if name in names]
        pairs = [pair for pair in combinations(names, 2) if set(pair) & set(changed)]
        if not pairs:
            return Skipped(attack=self.name, reason="no two categorical attributes, one of them changed, are released")
        named = np.zeros(len(setting.released), dtype=np.bool_)
        for one, other in pairs:
            a, b = setting.column(one), setting.column(other)
            named |= cells.record_cell_counts([a.after, b.after], [a.cardinality, b.cardinality]) == 1
        return name_swapped(self.name, named, setting.touched, "have a pair of values that occurs once")


class ReplayedRules:
    """Repeat the targeted edit on the release. The intruder has the source code and all parameters but the key."""

    name: ClassVar[str] = "replay"
    title: ClassVar[str] = "Repeat the edit on the release"
    intruder: ClassVar[str] = "the release, the source code, and all parameters but the key"
    quick: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"original", "masked", "changes"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Walk once more, in each way the intruder can."""
        masked = setting.masked
        if masked is None or masked.audit.method != "edit_targeted":
            return Skipped(attack=self.name, reason="only a targeted edit follows a rule that can be repeated")
        score = replay_rate(masked)
        if score.detail is None:
            return Skipped(attack=self.name, reason="nothing was changed")
        *ways, chance = score.detail.to_pylist()
        return Outcome(
            attack=self.name,
            success=score.value,
            baseline=min(1.0, len(ways) * float(chance["rate"])),  # the best of several ways counts
            trials=int(max(way["changed"] for way in ways)),
            against="values drawn at random",
            sentence=score.sentence,
        )


class SwappedHouseholds:
    """Name where a household that was moved for its risk comes from: one of those that it may have been swapped with.

    The intruder knows the rules: partners agree in the loosest profile and are sought nearby first. The worst case:
    the intruder is told which households were moved and how far, and draws among the candidates of that scope.
    """

    name: ClassVar[str] = "swapped_households"
    title: ClassVar[str] = "Guess where a household was swapped from"
    intruder: ClassVar[str] = "the release, the specification, and which households were moved how far"
    quick: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"original", "masked", "changes"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Use the probability that the swap recorded; of several swaps, the one that reveals most."""
        stages = () if setting.masked is None else setting.masked.stages
        told = [stage.audit.facts.get("undoing") or {} for stage in stages if stage.audit.method == "household_swap"]
        if not told:
            return Skipped(attack=self.name, reason="only a swap of households moves them between areas")
        found = [self._judge(each) for each in told if each.get("households")]
        if not found:
            return Skipped(attack=self.name, reason="no household was moved for its risk")
        return max(found, key=lambda outcome: outcome.advantage)

    def _judge(self, told: dict[str, Any]) -> Outcome:
        return Outcome(
            attack=self.name,
            success=told["intruder"],
            baseline=told["baseline"],
            trials=told["households"],
            against="an area drawn among all households that agree in the loosest profile",
            sentence=f"The area from which a household was moved is drawn in {told['intruder']:.1%} of all trials.",
        )


class SeedSearch:
    """Try small seeds: exchange the released values once more under each, and keep the one that fits what is known.

    The intruder has the masked file in its order or with its identifiers, the source code, the specification, and the
    truth about a few records. Swapping undoes itself, so the right seed gives everything back.
    """

    name: ClassVar[str] = "seed_search"
    title: ClassVar[str] = "Try small seeds"
    intruder: ClassVar[str] = "the masked file, the specification, and the truth about a few records"
    quick: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"original", "masked", "changes"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Swap again under every seed, and count the changed records that the best one restores."""
        from safeswap import registry

        masked = setting.masked
        if masked is None or masked.audit.method != "swap" or masked.parts:
            return Skipped(attack=self.name, reason="only a swap undoes itself")
        if len(setting.released) > _MOST_RECORDS:
            return Skipped(attack=self.name, reason=f"is tried on up to {_MOST_RECORDS:,} records")
        touched = np.flatnonzero(setting.touched)
        known, others = touched[:_KNOWN], touched[_KNOWN:]
        if not len(others):
            return Skipped(attack=self.name, reason="too few records were changed")
        method: Any = registry.method("swap")
        truth, wanted = (self._rows(setting.original, setting, rows) for rows in (known, others))
        best, fits = 0.0, -1.0
        control: list[float] = []
        for seed in range(SEEDS):
            again = method.apply(
                masked.data, masked.spec, key=Key.insecure(seed=seed), replicate=masked.audit.replicate
            )
            right = _share_equal(self._rows(again.data, setting, known), truth)
            if right <= fits and len(control) >= _CONTROL:
                continue
            restored = _share_equal(self._rows(again.data, setting, others), wanted)
            if right > fits:
                control += [best] if fits >= 0 else []
                best, fits = restored, right
            else:
                control.append(restored)
            if fits == 1:
                break
        return Outcome(
            attack=self.name,
            success=best,
            baseline=sum(control) / len(control) if control else 0.0,
            trials=len(others),
            control=len(others) * len(control) or inf,
            against="seeds that fit less well" if control else "the release as it is",
            sentence=f"The best of {SEEDS:,} seeds restores {best:.1%} of the changed records.",
        )

    def _rows(self, data: Any, setting: Setting, rows: Int64s) -> list[tuple[Any, ...]]:
        columns = [data.table.column(name).take(rows).to_pylist() for name in setting.changed]
        return list(zip(*columns, strict=True))


def _share_equal(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> float:
    return sum(a == b for a, b in zip(found, wanted, strict=True)) / max(len(wanted), 1)
