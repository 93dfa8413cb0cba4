"""Read a true value off what should be consistent with it: household mates, nested areas, weights, edit rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, ClassVar

import numpy as np

from safeswap.arrays.types import Flags
from safeswap.attacks.base import Outcome, Setting, Skipped
from safeswap.attacks.inference import Votes
from safeswap.errors import SpecError
from safeswap.model.columns import to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, level_texts
from safeswap.model.text import plural

_FOLLOWS = 0.6
"""A value is asked of a group if at least this share of its members agree; what is only related tells of all alike."""


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
        """Ask every group; the pair of columns that tells most counts."""
        pairs = list(self.groups(setting))
        if not pairs:
            return Skipped(attack=self.name, reason=self.lacking)
        found = [outcome for group, value in pairs if (outcome := self._ask(setting, group, value)) is not None]
        if not found:
            return Skipped(attack=self.name, reason="no changed attribute is constant within groups")
        return max(found, key=lambda outcome: outcome.advantage)

    def _ask(self, setting: Setting, group: str, value: str) -> Outcome | None:
        groups, column = setting.column(group).after.astype(np.int64), setting.column(value)
        truth, seen = column.before.astype(np.int64), column.after.astype(np.int64)
        inside = groups < len(setting.column(group).levels)
        votes_cast = inside & (seen < len(column.levels))
        votes = Votes(groups[votes_cast], seen[votes_cast], int(groups.max(initial=0)) + 1)
        together = inside & (np.bincount(groups)[groups] > 2)
        heard = together & votes_cast
        agreeing = votes.count(groups, seen) == votes.most[groups]
        if not heard.any() or agreeing[heard].mean() < _FOLLOWS or np.count_nonzero(np.bincount(seen[votes_cast])) < 2:
            return None
        asked = np.flatnonzero((truth != seen) & together)
        if not len(asked):
            return None
        right = votes.without_own(groups[asked], truth[asked], groups[asked], seen[asked])
        # Whoever knows that one of two values was changed knows it: strangers tell as much of that as mates do.
        others = groups[np.roll(asked, len(asked) // 2)]
        blind = votes.guess_blindly(truth[asked])
        strangers = np.where(others == groups[asked], blind, votes.guess(others, truth[asked]))
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
    title: ClassVar[str] = "Read an area off a smaller one"
    intruder: ClassVar[str] = "the release, and that areas nest"
    lacking: ClassVar[str] = "no level of a geography was changed beside another"

    def groups(self, setting: Setting) -> Iterator[tuple[str, str]]:
        """Yield every finer level with every coarser one that was changed."""
        areas = [a.name for a in setting.released.schema.iter_kind(Kind.GEOGRAPHY) if a.name in setting.names]
        levels = {name: setting.column(name).cardinality for name in areas}
        return ((f, c) for c in areas if c in setting.changed for f in areas if levels[f] > levels[c])


class Weights(Vote):
    """Read a stratum off the weight. The intruder has the release; weights that stayed with their record betray it."""

    name: ClassVar[str] = "weights"
    title: ClassVar[str] = "Read a stratum off the weight"
    intruder: ClassVar[str] = "the release alone"
    lacking: ClassVar[str] = "there is no weight"

    def groups(self, setting: Setting) -> Iterator[tuple[str, str]]:
        """Yield every weight with every changed attribute."""
        weights = [a.name for a in setting.released.schema.iter_kind(Kind.WEIGHT) if a.name in setting.names]
        return ((weight, value) for weight in weights for value in setting.changed if value != weight)


class EditRules:
    """Name as swapped whoever breaks a rule of combinations that cannot be, such as a married child.

    The intruder has the release and common sense. A right guess is a record that was changed; the baseline is the share
    of changed records, which naming anyone would reach.
    """

    name: ClassVar[str] = "edit_rules"
    title: ClassVar[str] = "Name whoever breaks a rule as swapped"
    intruder: ClassVar[str] = "the release, and rules of what cannot be"
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
    return Outcome(
        attack=attack,
        success=success,
        baseline=share,
        trials=number,
        against="naming anyone",
        sentence=f"Of {plural(number, 'record')} that {how}, {success:.1%} were changed; of all, {share:.1%}.",
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
        hint='e.g. {"age": {"max": 15}, "civil": ["married"]} for what cannot be',
    )
