"""Learn something about a person: a sensitive value from the keys, or a description that fits one person only.

A true value may also be read off what should be consistent with it: household mates, nested areas, weights, edit rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import inf
from typing import Any, ClassVar

import numpy as np

from safeswap.arrays.cells import count_dense, is_dense, pack
from safeswap.arrays.counter_random import uniforms
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Floats, Int64s
from safeswap.attacks.base import Outcome, Setting, Skipped, guess_right
from safeswap.errors import SpecError
from safeswap.measures.aligned import align
from safeswap.model.columns import number_cells, to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, level_texts
from safeswap.model.score import Comparison
from safeswap.model.text import plural

_GUESSES = 1000
_SEED = 20_260  # of the intruder's own draws, which are no secret
_NEAR = 0.05
"""A number is guessed right within this share of the truth."""


class AttributeInference:
    """Guess the sensitive value of a person as the most frequent one among released records with the same keys.

    A number is also guessed as the median of those records, which is right if it is within 5% of the truth: noise and
    averages leave hardly any number as it was. Who has no value has nothing to be learned, and a missing value is no
    guess.

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
        keys = setting.scenario.keys
        found = [each for name in setting.scenario.sensitive for each in self._infer(setting, keys, name)]
        if not found:
            return Skipped(attack=self.name, reason="no sensitive value is known")
        return max(found, key=lambda outcome: outcome.advantage)

    def _infer(self, setting: Setting, keys: Names, name: str) -> Iterator[Outcome]:
        """Yield the outcome of every way to guess an attribute."""
        control, against = setting.control, "the records of all others"
        for guess, how in ((_guess_levels, "right"), (_guess_numbers, "within 5%")):
            right, baseline = guess(setting.comparison, keys, name)
            if control is not None:
                held = Comparison(before=control, after=setting.released, attributes=())
                baseline, against = guess(held, keys, name, has_own=False)[0], "control records"
            if len(right):
                yield self._tell(right, baseline, name, against, how)

    def _tell(self, right: Floats, baseline: Floats, name: str, against: str, how: str) -> Outcome:
        success, blind = float(right.mean()), float(baseline.mean()) if len(baseline) else 0.0
        return Outcome(
            attack=self.name,
            success=success,
            baseline=blind,
            trials=len(right),
            control=float(len(baseline)),
            against=against,
            sentence=f"{name} is guessed {how} for {success:.1%} of the records that have it; from {against}, for "
            f"{blind:.1%}.",
            detail={"attribute": name},
        )


def _guess_levels(files: Comparison, keys: Names, name: str, *, has_own: bool = True) -> tuple[Floats, Floats]:
    """Return, by target, the chance to guess the value, and to guess it without the target's own released record.

    Control records have none of their own.
    """
    targets, released, number = _number_keys(files, keys)
    value = align(files, name)
    truth, seen = value.before.astype(np.int64), value.after.astype(np.int64)
    codes = {text for data in (files.before, files.after) for text in data.schema[name].missing}
    is_value = np.array([*(text not in codes for text in level_texts(value.levels)), False], dtype=np.bool_)
    known, cast = is_value[truth], is_value[seen]
    if not cast.any():
        return _no_guess(known)
    votes = Votes(released[cast], seen[cast], number)
    right = votes.guess(targets, truth)
    # A record without a value casts no vote that could be left out.
    others = votes.without_own(targets, truth, np.where(cast, released, -1), seen) if has_own else right
    return right[known], others[known]


def _guess_numbers(files: Comparison, keys: Names, name: str, *, has_own: bool = True) -> tuple[Floats, Floats]:
    """As :func:`_guess_levels`, by the median of numbers; no targets where the attribute is no number."""
    if any(data.schema[name].kind is not Kind.NUMERIC for data in (files.before, files.after)):
        return np.empty(0), np.empty(0)
    targets, released, number = _number_keys(files, keys)
    truth, seen = (to_numbers(data, name) for data in (files.before, files.after))
    known = np.isfinite(truth)
    if not np.isfinite(seen).any():
        return _no_guess(known)
    medians = Medians(released, seen, number)
    guess = medians.guess(targets)
    others = medians.guess_without_own(targets, released) if has_own else guess
    right, without = (np.abs(each - truth) <= _NEAR * np.abs(truth) for each in (guess, others))
    return right[known].astype(np.float64), without[known].astype(np.float64)


def _no_guess(known: Flags) -> tuple[Floats, Floats]:
    """Return that no target is guessed, since no value is released."""
    none = np.zeros(int(np.count_nonzero(known)))
    return none, none


def _number_keys(files: Comparison, keys: Names) -> tuple[Int64s, Int64s, int]:
    """Return the cell of each target and of each released record, numbered alike, and how many there are."""
    columns = [align(files, key) for key in keys]
    joint = number_cells([np.concatenate([c.before, c.after]).astype(np.int64) for c in columns])
    return joint[: len(files.before)], joint[len(files.before) :], int(joint.max(initial=0)) + 1


class Medians:
    """The median of the known numbers of each cell, the lower of two.

    >>> medians = Medians(np.array([0, 0, 0, 1]), np.array([1.0, 2.0, 9.0, 4.0]), 3)
    >>> medians.guess(np.array([0, 1, 2])).tolist()
    [2.0, 4.0, 2.0]
    >>> medians.guess_without_own(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 1])).tolist()
    [2.0, 1.0, 1.0, 2.0]
    """

    def __init__(self, cells: Int64s, numbers: Floats, number: int) -> None:
        rows = np.flatnonzero(np.isfinite(numbers))
        order = rows[np.lexsort((numbers[rows], cells[rows]))]
        self._numbers = numbers[order]
        self._starts = np.searchsorted(cells[order], np.arange(number + 1))
        self._place = np.full(len(numbers), -1, dtype=np.int64)
        self._place[order] = np.arange(len(order)) - self._starts[cells[order]]
        self._overall = float(np.sort(self._numbers)[(len(rows) - 1) // 2])

    def guess(self, cells: Int64s) -> Floats:
        """Return the median of each target's cell, of all numbers if that has none."""
        size = self._starts[cells + 1] - self._starts[cells]
        return self._pick(cells, (size - 1) // 2, size)

    def guess_without_own(self, cells: Int64s, own_cells: Int64s) -> Floats:
        """Return the same without the target's own released record."""
        here = (own_cells == cells) & (self._place >= 0)
        size = self._starts[cells + 1] - self._starts[cells] - here
        middle = (size - 1) // 2
        return self._pick(cells, middle + (here & (self._place <= middle)), size)

    def _pick(self, cells: Int64s, middle: Int64s, size: Int64s) -> Floats:
        some = size > 0
        return np.where(some, self._numbers[np.where(some, self._starts[cells] + middle, 0)], self._overall)


class Votes:
    """The frequency of each value in each cell of the release, and the most frequent one."""

    def __init__(self, cells: Codes | Int64s, values: Codes | Int64s, number: int) -> None:
        self._width = int(values.max(initial=0)) + 1
        self._table: Int64s | None = None
        if is_dense(number * self._width, len(cells)):
            both: list[Codes] = [each.view(f"u{each.itemsize}") for each in (cells, values)]
            self._table = count_dense(*pack(both, [number, self._width])).astype(np.int64)
            self._overall = self._table.reshape(number, self._width).sum(axis=0)
            pairs = np.flatnonzero(self._table)
            self._counts = self._table[pairs]
        else:
            pairs, self._counts = np.unique(cells.astype(np.int64) * self._width + values, return_counts=True)
            self._overall = np.bincount(values, minlength=self._width)
        self._pairs, own = pairs, pairs // self._width
        self.most = np.zeros(number, dtype=np.int64)
        np.maximum.at(self.most, own, self._counts)
        self.tied = np.bincount(own[self._counts == self.most[own]], minlength=number)
        self.next = np.bincount(own[self._counts == self.most[own] - 1], minlength=number)

    @property
    def values(self) -> int:
        """The number of values that occur."""
        return int(np.count_nonzero(self._overall))

    def share_agreeing(self, chosen: Flags) -> float:
        """Return the share of the votes in the chosen cells that are for a most frequent value of their cell.

        >>> Votes(np.array([0, 0, 0, 1]), np.array([5, 5, 6, 7]), 2).share_agreeing(np.array([True, False]))
        0.6666666666666666
        """
        own = self._pairs // self._width
        counts = np.where(chosen[own], self._counts, 0)
        return int(counts[self._counts == self.most[own]].sum()) / max(int(counts.sum()), 1)

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
        """Return the chance of a correct guess if the target's own released record is excluded."""
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
        against = "columns shuffled independently" if setting.control is None else "control records"
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
            return hits, len(picked), *self._attack_control(setting, names, after, picked)
        return hits, len(picked), *self._attack_shuffled(setting, names, number, purpose)

    def _attack_shuffled(self, setting: Setting, names: Names, number: int, purpose: int) -> tuple[int, int]:
        """Describe persons of a file with the values of the release, each column shuffled separately."""
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

    def _attack_control(self, setting: Setting, names: Names, after: Int64s, picked: Int64s) -> tuple[int, int]:
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


_FOLLOWS = 0.6
"""Least share of the members of a group that must agree for their value to be a guess."""


class Vote:
    """Take a changed value to be what the others of the same group say.

    Only values that are constant, or nearly so, within the groups of the release are asked for: those are the ones
    that an intruder sees to be inconsistent. A missing number makes no group, and a missing value is no vote. The
    baseline is the most frequent value of all, or what another group says, whichever tells more.
    """

    name: ClassVar[str]
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"original", "changes"})
    lacking: ClassVar[str]

    def groups(self, setting: Setting) -> Iterator[tuple[str, str]]:
        """Yield the columns that form groups, each with a changed one to ask for."""
        raise NotImplementedError

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Ask every group; the pair of columns that reveals most counts."""
        pairs = list(self.groups(setting))
        if not pairs:
            return Skipped(attack=self.name, reason=self.lacking)
        found = [outcome for group, value in pairs if (outcome := self._ask(setting, group, value)) is not None]
        if not found:
            return Skipped(attack=self.name, reason="no changed attribute is constant within groups")
        return max(found, key=lambda outcome: outcome.advantage)

    def _ask(self, setting: Setting, group: str, value: str) -> Outcome | None:
        groups, column = setting.column(group).after, setting.column(value)
        seen, truth = column.after, column.before
        cells, named = setting.column(group).cardinality, len(setting.column(group).levels)
        sizes = count_dense(groups, cells)
        together = (sizes > 2) & (np.arange(len(sizes)) < named)  # by group
        cast = (groups < named) & (seen < len(column.levels))
        votes = Votes(groups, seen, len(sizes)) if cast.all() else Votes(groups[cast], seen[cast], len(sizes))
        if votes.share_agreeing(together) < _FOLLOWS or votes.values < 2:
            return None
        asked = np.flatnonzero(truth != seen)
        asked = asked[together[groups[asked]]]
        if not len(asked):
            return None
        own, true, now = (codes[asked].astype(np.int64) for codes in (groups, truth, seen))
        right = votes.without_own(own, true, own, now)
        # Whoever knows that one of two values was changed knows it: strangers tell as much of that as mates do.
        others = np.roll(own, len(asked) // 2)
        blind = votes.guess_blindly(true)
        strangers = np.where(others == own, blind, votes.guess(others, true))
        is_blind = blind.mean() >= strangers.mean()
        return Outcome(
            attack=self.name,
            success=float(right.mean()),
            baseline=float(max(blind.mean(), strangers.mean())),
            trials=len(asked),
            control=inf if is_blind else len(asked),
            against="the most frequent value" if is_blind else f"what others of another {group} have",
            sentence=f"{right.mean():.1%} of the changed values of {value} are what others of the same {group} have.",
            detail={"group": group, "attribute": value},
        )


class HouseholdMates(Vote):
    """Ask the other members of the household. The intruder has the release, in which households are numbered."""

    name: ClassVar[str] = "household_mates"
    title: ClassVar[str] = "Ask the other members of the household"
    intruder: ClassVar[str] = "the release alone"
    lacking: ClassVar[str] = "no household is numbered"

    def groups(self, setting: Setting) -> Iterator[tuple[str, str]]:
        """Yield the numbers of households with every changed attribute."""
        return ((home, value) for home in setting.households for value in setting.changed)


class GeographyNesting(Vote):
    """Read one level of geography off another. The intruder has the release, and knows that areas nest."""

    name: ClassVar[str] = "geography_nesting"
    title: ClassVar[str] = "Infer an area from a smaller one"
    intruder: ClassVar[str] = "the release, and that areas nest"
    lacking: ClassVar[str] = "no geographic level was changed that has a finer one beside it"

    def groups(self, setting: Setting) -> Iterator[tuple[str, str]]:
        """Yield every finer level with every coarser one that was changed."""
        areas = [a.name for a in setting.released.schema.iter_kind(Kind.GEOGRAPHY) if a.name in setting.names]
        levels = {name: setting.column(name).cardinality for name in areas}
        return ((f, c) for c in areas if c in setting.changed for f in areas if levels[f] > levels[c])


class Weights(Vote):
    """Infer a stratum from the weight. The intruder has the release; weights left with their record reveal it."""

    name: ClassVar[str] = "weights"
    title: ClassVar[str] = "Infer a stratum from the weight"
    intruder: ClassVar[str] = "the release alone"
    lacking: ClassVar[str] = "there is no weight"

    def groups(self, setting: Setting) -> Iterator[tuple[str, str]]:
        """Yield every weight with every changed attribute."""
        weights = [a.name for a in setting.released.schema.iter_kind(Kind.WEIGHT) if a.name in setting.names]
        return ((weight, value) for weight in weights for value in setting.changed if value != weight)


class EditRules:
    """Flag as swapped the records with an impossible combination of values, such as a married child.

    The intruder has the release and common sense. A right guess is a record that was changed; the baseline is the share
    of changed records, which naming anyone would reach.
    """

    name: ClassVar[str] = "edit_rules"
    title: ClassVar[str] = "Flag records that break a rule as swapped"
    intruder: ClassVar[str] = "the release, and rules for what is impossible"
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"original", "rules", "changes"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Name every record that breaks a rule."""
        named = breaking_rules(setting.released, setting.rules)
        return name_swapped(self.name, named, setting.touched, "break a rule")


def name_swapped(attack: str, named: Flags, touched: Flags, how: str) -> Outcome:
    """Return how often a record named as swapped is one."""
    number, share = int(np.count_nonzero(named)), float(touched.mean())
    success = float(touched[named].mean()) if number else share
    found = f"Of {plural(number, 'record')} that {how}, {success:.1%} were changed; of all, {share:.1%}."
    return Outcome(
        attack=attack,
        success=success,
        baseline=share,
        trials=number,
        against="naming anyone",
        sentence=found if number else f"No records {how}: none can be flagged.",
    )


def breaking_rules(data: Microdata, rules: Iterable[Any]) -> Flags:
    """Flag the records that break a rule: for every attribute of it, one of the levels, or a number within bounds.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="age", kind="numeric"), Attribute(name="civil")))
    >>> data = Microdata(pa.table({"age": [12, 40], "civil": ["married", "married"]}), schema)
    >>> breaking_rules(data, [{"age": {"max": 15}, "civil": ["married"]}]).tolist()
    [True, False]
    """
    broken = np.zeros(len(data), dtype=np.bool_)
    for rule in rules:
        if not isinstance(rule, Mapping) or not rule:
            raise _bad_rule()
        parts = [_matches(data, str(name), stated) for name, stated in rule.items()]
        broken |= np.logical_and.reduce(parts)
    return broken


def _matches(data: Microdata, name: str, stated: Any) -> Flags:
    data.schema[name]  # raises for an unknown attribute
    if isinstance(stated, Mapping):
        bounds = {str(end): value for end, value in stated.items()}
        known = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in bounds.values())
        if not bounds or not set(bounds) <= {"min", "max"} or not known:
            raise _bad_rule()
        numbers = to_numbers(data, name)
        with np.errstate(invalid="ignore"):
            found: Flags = (numbers >= bounds.get("min", -np.inf)) & (numbers <= bounds.get("max", np.inf))
        return found
    levels = [stated] if isinstance(stated, (str, int, float)) else stated
    if not isinstance(levels, (list, tuple)) or not levels:
        raise _bad_rule()
    coded = data.coded(name)
    wanted = {str(level) for level in levels}
    flags = np.array([text in wanted for text in level_texts(coded.levels)] + [False], dtype=np.bool_)
    return flags[coded.codes]


def _bad_rule() -> SpecError:
    return SpecError(
        "a rule gives, for each attribute, a list of levels or bounds",
        code="bad-rule",
        hint='e.g. {"age": {"max": 15}, "civil": ["married"]} for what is impossible',
    )
