"""Undo the masking: find out which records were changed, repeat a deterministic rule, search for a small seed."""

from __future__ import annotations

from itertools import combinations
from math import inf
from typing import Any, ClassVar

import numpy as np

from safeswap.arrays.types import Int64s
from safeswap.attacks.base import Outcome, Setting, Skipped
from safeswap.attacks.consistency import name_swapped
from safeswap.attacks.replay import replay_rate
from safeswap.model.key import Key

_KNOWN = 25
SEEDS = 256
"""The seeds that are tried: enough to show that a small one is found; a longer search finds a longer one."""
_CONTROL = 16
"""So many seeds that fit less well show what a wrong one restores by chance."""
_MOST_RECORDS = 20_000


class SwappedRecords:
    """Name as swapped whoever has a pair of values, one of a changed attribute, that occurs nowhere else.

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
            cells = a.after.astype(np.int64) * b.cardinality + b.after
            named |= _occurrences(cells) == 1
        return name_swapped(self.name, named, setting.touched, "have a pair of values that occurs once")


def _occurrences(cells: Int64s) -> Int64s:
    most = int(cells.max(initial=0)) + 1
    if most <= 4 * len(cells) + 1024:
        return np.bincount(cells, minlength=most)[cells]
    _, inverse, counts = np.unique(cells, return_inverse=True, return_counts=True)
    found: Int64s = counts[inverse.ravel()]
    return found


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
