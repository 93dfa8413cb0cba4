"""Learn something about a person: a sensitive value from the keys, or a description that fits one person only."""

from __future__ import annotations

from itertools import combinations
from typing import ClassVar

import numpy as np

from safeswap.arrays.cells import is_dense
from safeswap.arrays.counter_random import uniforms
from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats, Int64s
from safeswap.attacks.base import Outcome, Setting, Skipped, guess_right
from safeswap.measures.aligned import align
from safeswap.model.columns import number_cells
from safeswap.model.score import Comparison

_GUESSES = 1000
_SEED = 20_260  # of the intruder's own draws, which are no secret


class AttributeInference:
    """Guess the sensitive value of a person as the most frequent one among released records with the same keys.

    The intruder has the true keys of the target. What the others' records tell of a person is no disclosure, so the
    baseline is the same guess about control records, which were held out before masking; without any, the same guess
    about each target from the released records of all others.
    """

    name: ClassVar[str] = "attribute_inference"
    title: ClassVar[str] = "Guess a sensitive value from the keys"
    intruder: ClassVar[str] = "the true keys of a person"
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"original", "scenario", "sensitive"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Guess each sensitive attribute; the one that is guessed best against its baseline counts."""
        assert setting.scenario is not None  # noqa: S101  (a need)
        found = [self._infer(setting, name) for name in setting.scenario.sensitive]
        return max(found, key=lambda outcome: outcome.advantage)

    def _infer(self, setting: Setting, name: str) -> Outcome:
        assert setting.scenario is not None  # noqa: S101  (a need)
        keys = setting.scenario.keys
        before, after = setting.cells(keys)
        value = setting.column(name)
        votes = Votes(after, value.after.astype(np.int64), int(max(before.max(initial=0), after.max(initial=0))) + 1)
        right = votes.guess(before, value.before.astype(np.int64))
        if setting.control is None:
            others = votes.without_own(before, value.before.astype(np.int64), after, value.after.astype(np.int64))
            baseline, control, against = float(others.mean()), float(len(others)), "the records of all others"
        else:
            guessed = self._guess_control(setting, keys, name)
            baseline = float(guessed.mean()) if len(guessed) else 0.0
            control, against = float(len(guessed)), "control records"
        success = float(right.mean())
        return Outcome(
            attack=self.name,
            success=success,
            baseline=baseline,
            trials=len(right),
            control=control,
            against=against,
            sentence=f"{name} is guessed right for {success:.1%} of the records; from {against}, for {baseline:.1%}.",
            detail={"attribute": name},
        )

    def _guess_control(self, setting: Setting, keys: Names, name: str) -> Floats:
        assert setting.control is not None  # noqa: S101  (asked by the caller)
        both = Comparison(before=setting.control, after=setting.released, attributes=())
        columns = [align(both, key) for key in keys]
        joint = number_cells([np.concatenate([c.before, c.after]).astype(np.int64) for c in columns])
        cells, released = joint[: len(setting.control)], joint[len(setting.control) :]
        value = align(both, name)
        votes = Votes(released, value.after.astype(np.int64), int(joint.max(initial=0)) + 1)
        return votes.guess(cells, value.before.astype(np.int64))


class Votes:
    """How often each value occurs in each cell of the release, and what the most frequent one is."""

    def __init__(self, cells: Int64s, values: Int64s, number: int) -> None:
        self._width = int(values.max(initial=0)) + 1
        self._table: Int64s | None = None
        if is_dense(number * self._width, len(cells)):
            self._table = np.bincount(cells * self._width + values, minlength=number * self._width)
            pairs = np.flatnonzero(self._table)
            self._counts = self._table[pairs]
        else:
            pairs, self._counts = np.unique(cells * self._width + values, return_counts=True)
        self._pairs, own = pairs, pairs // self._width
        self.most = np.zeros(number, dtype=np.int64)
        np.maximum.at(self.most, own, self._counts)
        self.tied = np.bincount(own[self._counts == self.most[own]], minlength=number)
        self.next = np.bincount(own[self._counts == self.most[own] - 1], minlength=number)
        self._overall = np.bincount(values, minlength=self._width)

    def count(self, cells: Int64s, values: Int64s) -> Int64s:
        """Return how often a value occurs in a cell."""
        known = values < self._width
        wanted = cells * self._width + np.where(known, values, 0)
        if self._table is not None:
            return np.where(known, self._table[wanted], 0)
        place = np.minimum(np.searchsorted(self._pairs, wanted), max(len(self._pairs) - 1, 0))
        return np.where(known & (self._pairs[place] == wanted), self._counts[place], 0)

    def guess(self, cells: Int64s, values: Int64s) -> Floats:
        """Return the chance that the guess for a cell is this value; an empty cell takes the overall favourite."""
        right = guess_right(self.count(cells, values), self.most[cells], self.tied[cells])
        return np.where(self.most[cells] > 0, right, self.guess_blindly(values))

    def without_own(self, cells: Int64s, values: Int64s, own_cells: Int64s, own_values: Int64s) -> Floats:
        """Return the chance of a right guess if the target's own released record is left out."""
        here = own_cells == cells
        own = np.where(here, self.count(cells, own_values), 0)
        most, tied, after = self.most[cells], self.tied[cells], self.next[cells]
        on_top = here & (own == most)
        alone = on_top & (tied == 1)
        least = np.where(alone, most - 1, most)
        ties = np.where(alone, after + 1, np.where(on_top, tied - 1, tied))
        mine = self.count(cells, values) - (here & (values == own_values))
        return np.where(least > 0, guess_right(mine, least, ties), self.guess_blindly(values))

    def guess_blindly(self, values: Int64s) -> Floats:
        """Return the chance that the most frequent value of all is this one."""
        favourite = self._overall == self._overall.max()
        known = np.minimum(values, self._width - 1)
        return np.where((values < self._width) & favourite[known], 1 / favourite.sum(), 0.0)


class SinglingOut:
    """Describe exactly one person: combinations of three attributes that occur once in the release.

    The intruder has the release alone, and claims that one such description fits exactly one person of the original.
    The baseline does the same with a file that has the values of the release, each column in an order of its own, so
    that it tells nothing of anyone; with control records, it is how often the same descriptions fit one of them.
    """

    name: ClassVar[str] = "singling_out"
    title: ClassVar[str] = "Describe exactly one person"
    intruder: ClassVar[str] = "the release alone"
    quick: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"original"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Draw descriptions that occur once, and look them up in the original."""
        names = setting.scenario.keys if setting.scenario is not None and setting.scenario.keys else setting.names
        names = tuple(name for name in names if setting.released.schema[name].kind.is_categorical) or names
        sets = list(combinations(names, min(3, len(names))))
        if not sets:
            return Skipped(attack=self.name, reason="there is no attribute to describe by")
        chosen = [sets[int(u * len(sets))] for u in uniforms(_SEED, min(20, len(sets)), 1)]
        each = -(-_GUESSES // len(chosen))
        hits, tried, blind, blind_tried = 0, 0, 0, 0
        for number, group in enumerate(dict.fromkeys(chosen)):
            found = self._guess(setting, group, each, number)
            hits, tried, blind, blind_tried = (
                a + b for a, b in zip((hits, tried, blind, blind_tried), found, strict=True)
            )
        if not tried:
            return Skipped(attack=self.name, reason="no combination of three attributes occurs once")
        success, baseline = hits / tried, blind / max(blind_tried, 1)
        against = "columns shuffled by themselves" if setting.control is None else "control records"
        return Outcome(
            attack=self.name,
            success=success,
            baseline=baseline,
            trials=tried,
            control=float(blind_tried),
            against=against,
            sentence=f"{success:.1%} of the descriptions that occur once in the release fit exactly one person.",
        )

    def _guess(self, setting: Setting, names: Names, number: int, purpose: int) -> tuple[int, int, int, int]:
        before, after = setting.cells(names)
        cells = int(max(before.max(initial=0), after.max(initial=0))) + 1
        was, now = np.bincount(before, minlength=cells), np.bincount(after, minlength=cells)
        once = np.flatnonzero(now == 1)
        picked = once[(uniforms(_SEED + purpose, min(number, len(once)), 2) * len(once)).astype(np.int64)]
        hits = int(np.count_nonzero(was[picked] == 1))
        if setting.control is not None:
            return hits, len(picked), *self._on_control(setting, names, after, picked)
        return hits, len(picked), *self._on_shuffled(setting, names, number, purpose)

    def _on_shuffled(self, setting: Setting, names: Names, number: int, purpose: int) -> tuple[int, int]:
        """Describe persons of a file that has the values of the release, each column in an order of its own."""
        columns, records = [setting.column(name) for name in names], len(setting.released)
        orders = [np.argsort(uniforms(_SEED + purpose, records, 3 + j)) for j in range(len(names))]
        shuffled = [column.after[order] for column, order in zip(columns, orders, strict=True)]
        joint = number_cells(
            [np.concatenate([c.before, s]).astype(np.int64) for c, s in zip(columns, shuffled, strict=True)]
        )
        cells = int(joint.max(initial=0)) + 1
        was, now = (np.bincount(part, minlength=cells) for part in (joint[: len(joint) - records], joint[-records:]))
        once = np.flatnonzero(now == 1)
        picked = once[(uniforms(_SEED + purpose, min(number, len(once)), 2) * len(once)).astype(np.int64)]
        return int(np.count_nonzero(was[picked] == 1)), len(picked)

    def _on_control(self, setting: Setting, names: Names, after: Int64s, picked: Int64s) -> tuple[int, int]:
        """Count the descriptions that fit exactly one control record."""
        assert setting.control is not None  # noqa: S101  (asked by the caller)
        both = Comparison(before=setting.control, after=setting.released, attributes=())
        columns = [align(both, name) for name in names]
        joint = number_cells([np.concatenate([c.before, c.after]).astype(np.int64) for c in columns])
        held = np.bincount(joint[: len(setting.control)], minlength=int(joint.max(initial=0)) + 1)
        rows = np.zeros(int(after.max(initial=0)) + 1, dtype=np.int64)
        rows[after] = np.arange(len(after))
        fits = held[joint[len(setting.control) :][rows[picked]]]
        return int(np.count_nonzero(fits == 1)), len(picked)
