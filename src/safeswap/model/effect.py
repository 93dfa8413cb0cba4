"""The effects of a step on columns, and the counts that survive any sequence of steps.

A method declares its effects; everything said of a result relative to the original follows from them:

::

    Coarsened    every value became a coarser one, by the same rule in all records
    Permuted     values moved together between records that agree in the attributes ``within``
    Blanked      some values became missing, the others stayed
    Redrawn      values were drawn again, with the counts by ``within`` kept in expectation
    Replaced     anything else; the joint counts in ``keeps`` stay
    Dropped      the column is not released
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from safeswap.arrays.names import Names


@dataclass(frozen=True)
class Effect:
    """Something that a step does to these columns."""

    columns: Names

    def reaches(self, names: Iterable[str]) -> bool:
        """Return whether any of these columns is affected."""
        return not set(self.columns).isdisjoint(names)


@dataclass(frozen=True)
class Coarsened(Effect):
    """Every value became a coarser one, by the same rule in all records: what is released is true."""


@dataclass(frozen=True)
class Permuted(Effect):
    """The values of all these columns moved together between records that agree in ``within``."""

    within: Names = ()


@dataclass(frozen=True)
class Blanked(Effect):
    """Some values became missing; the others are what they were."""


@dataclass(frozen=True)
class Redrawn(Effect):
    """Values of each column were redrawn, so that counts by it and ``within`` are kept in expectation."""

    within: Names = ()


@dataclass(frozen=True)
class Replaced(Effect):
    """Values were replaced by others; the joint counts by each group of ``keeps`` are what they were."""

    keeps: tuple[Names, ...] = ()


@dataclass(frozen=True)
class Dropped(Effect):
    """The columns are omitted from a release; until then they are empty."""


class Quality(IntEnum):
    """A margin's counts compared with those of the original, best first."""

    EXACT = 0
    AT_MOST = 1
    EXPECTED = 2


@dataclass(frozen=True)
class Margin:
    """Counts by these columns together, in the released categories, compared with the original.

    ``AT_MOST``: no cell of records without a missing value has more records than in the original.
    """

    columns: frozenset[str]
    quality: Quality = Quality.EXACT

    def apply(self, effect: Effect) -> Iterator[Margin]:
        """Yield what is left of the margin after an effect."""
        hit = self.columns.intersection(effect.columns)
        if not hit or isinstance(effect, Coarsened):
            yield self
            return
        yield Margin(self.columns - hit, self.quality)
        for names, quality in self._kept_by(effect):
            yield Margin(self.columns.intersection(names), quality)

    def _kept_by(self, effect: Effect) -> Iterator[tuple[Iterable[str], Quality]]:
        if isinstance(effect, Permuted):
            yield (*effect.columns, *effect.within), self.quality
        elif isinstance(effect, Replaced):
            yield from ((names, self.quality) for names in effect.keeps)
        elif isinstance(effect, Blanked) and self.quality is not Quality.EXPECTED:
            yield self.columns, Quality.AT_MOST
        elif isinstance(effect, Redrawn) and self.quality is not Quality.AT_MOST:
            yield from (((name, *effect.within), Quality.EXPECTED) for name in effect.columns)

    def implies(self, other: Margin) -> bool:
        """Return whether another margin follows from this one: fewer columns, no better quality."""
        return other.columns <= self.columns and other.quality >= self.quality


def surviving_margins(names: Iterable[str], effects: Iterable[Effect]) -> tuple[Margin, ...]:
    """Return the margins of these columns that all effects leave, each as large as possible.

    >>> swapped = Permuted(("Region",), within=("Sex",))
    >>> for margin in surviving_margins(["Age", "Region", "Sex"], [swapped, Blanked(("Age",))]):
    ...     print(sorted(margin.columns), margin.quality.name)
    ['Region', 'Sex'] EXACT
    ['Age', 'Sex'] AT_MOST
    """
    margins = {Margin(frozenset(names))}
    for effect in effects:
        margins = _drop_implied({left for margin in margins for left in margin.apply(effect) if left.columns})
    return tuple(sorted(margins, key=lambda margin: (margin.quality, sorted(margin.columns))))


def _drop_implied(margins: set[Margin]) -> set[Margin]:
    """Drop what follows from another margin."""
    return {each for each in margins if not any(other != each and other.implies(each) for other in margins)}
