"""The setting of an attack and its outcome: success, baseline, advantage, and an interval.

An attack makes guesses. ``success`` is the share of right ones, ``baseline`` the share that a guess without the
release, or on records that were never masked, would get right, and

    advantage = (success − baseline) / (1 − baseline),

0 for a release that tells nothing beyond the baseline, 1 for one that tells all. The interval is that of the advantage:
both shares move to the ends of their Wilson intervals at 95%; a baseline that was not estimated stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, sqrt
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Floats, Int64s
from safeswap.errors import SpecError
from safeswap.measures.aligned import AlignedColumn, align, changed_names
from safeswap.model.columns import number_cells
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Resolved
from safeswap.model.schema import Kind
from safeswap.model.score import Comparison
from safeswap.model.text import plural

Z = 1.959963984540054
"""The 97.5% quantile of the normal distribution."""

FEWEST = 30
"""With fewer guesses, or fewer control records, an interval says nearly nothing, and the outcome says so."""


def wilson(share: float, trials: float) -> tuple[float, float]:
    """Return the Wilson interval at 95% of a share of these trials; everything for none, the share for infinitely many.

    >>> low, high = wilson(0.5, 100)
    >>> round(low, 4), round(high, 4), wilson(0.25, float("inf"))
    (0.4038, 0.5962, (0.25, 0.25))
    """
    if trials == inf:
        return share, share
    if not trials:
        return 0.0, 1.0
    centre = share + Z**2 / (2 * trials)
    spread = Z * sqrt(share * (1 - share) / trials + Z**2 / (4 * trials**2))
    scale = 1 + Z**2 / trials
    # The ends of the shares 0 and 1 are exact, not within rounding: a limit of 0 is not exceeded by 1e-18.
    low = 0.0 if share == 0 else max(0.0, (centre - spread) / scale)
    return low, 1.0 if share == 1 else min(1.0, (centre + spread) / scale)


def advantage_of(success: float, baseline: float) -> float:
    """Return how much of what a baseline leaves unknown is found out.

    >>> advantage_of(0.75, 0.5), advantage_of(1.0, 1.0)
    (0.5, 0.0)
    """
    return (success - baseline) / (1 - baseline) if baseline < 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one attack; totals only, no record.

    ``trials`` is the number of guesses, ``against`` what the baseline is.

    >>> Outcome(attack="linkage", success=0.6, baseline=0.2, trials=100, against="a blind guess", sentence="").advantage
    0.49999999999999994
    """

    attack: str
    success: float
    baseline: float
    trials: int
    against: str
    sentence: str
    control: float = inf  # the number of trials behind the baseline; infinite if it is known
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def advantage(self) -> float:
        """The intruder's gain over the baseline, at most 1."""
        return advantage_of(self.success, self.baseline)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the advantage at 95%."""
        low, high = wilson(self.success, self.trials)
        least, most = wilson(self.baseline, self.control)
        # Where all of the baseline may be right, nothing can be gained: that is 0, and above what is less than 0.
        ends = advantage_of(low, most), advantage_of(high, least)
        return min(ends), max(ends)

    @property
    def is_telling(self) -> bool:
        """True if guesses and control records were enough to say anything."""
        return self.trials >= FEWEST and self.control >= FEWEST

    @property
    def note(self) -> str:
        """The caveats; empty if there are none."""
        if self.trials < FEWEST:
            return f"only {plural(self.trials, 'guess', 'guesses')}: too few to judge"
        return "" if self.is_telling else f"only {plural(int(self.control), 'control record')}: too few to judge"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json``, records and reports."""
        return {
            "attack": self.attack,
            "success": self.success,
            "baseline": self.baseline,
            "advantage": self.advantage,
            "interval": list(self.interval),
            "trials": self.trials,
            "control": None if self.control == inf else int(self.control),
            "against": self.against,
            "sentence": self.sentence,
            "note": self.note,
            "detail": dict(self.detail),
        }


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """An attack that was not tried, and why."""

    attack: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"attack": self.attack, "reason": self.reason}


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """The release under attack, and the agency's own knowledge to judge the outcome by.

    ``comparison`` has the original and the release, record by record; without an original its two files are the same.
    ``control`` has records that were held out before masking. ``rules`` are combinations that cannot be: for each
    attribute the levels, or bounds. ``traces`` are what a scan of the bundle found. If only some columns are
    released, ``only`` names them. ``order`` gives for each released row its row in the original.
    """

    comparison: Comparison
    has_original: bool = True
    scenario: Resolved | None = None
    control: Microdata | None = None
    masked: Masked | None = None
    rules: tuple[Mapping[str, Any], ...] = ()
    tables: tuple[Names, ...] = ()
    tolerance: int = 3
    earlier: tuple[Microdata, ...] = ()
    bundle: Path | None = None
    traces: tuple[str, ...] = ()
    only: Names | None = None
    order: Int64s | None = None

    @property
    def released(self) -> Microdata:
        """The released file."""
        return self.comparison.after

    @property
    def original(self) -> Microdata:
        """The original file."""
        return self.comparison.before

    @cached_property
    def names(self) -> Names:
        """The released attributes that have a meaning, without numbers of records and households."""
        return tuple(name for name in self._at_hand if not self.released.schema[name].kind.is_unit_number)

    @cached_property
    def households(self) -> Names:
        """The released numbers of households; new numbers reveal as much as the old ones."""
        return tuple(name for name in self._at_hand if self.released.schema[name].kind is Kind.HOUSEHOLD)

    @cached_property
    def _at_hand(self) -> Names:
        only = set(self.released.attributes if self.only is None else self.only)
        return tuple(name for name in self.released.attributes if name in self.original.schema and name in only)

    @cached_property
    def changed(self) -> Names:
        """The attributes of which a value was changed, and not just made coarser."""
        differ = changed_names(self.comparison)
        return tuple(name for name in self.names if name in differ and self.column(name).changed)

    @cached_property
    def touched(self) -> Flags:
        """The records with a changed value, by the files themselves."""
        flags = np.zeros(len(self.released), dtype=np.bool_)
        for name in self.changed:
            flags |= self.column(name).before != self.column(name).after
        return flags

    def column(self, name: str) -> AlignedColumn:
        """Return an attribute coded alike before and after."""
        return align(self.comparison, name)

    def cells(self, names: Sequence[str]) -> tuple[Int64s, Int64s]:
        """Return the number of each record's combination of attributes, before and after, numbered alike."""
        columns = [self.column(name) for name in names]
        if len(columns) == 1:
            before = columns[0].before.astype(np.int64)
            return before, columns[0].after.astype(np.int64) if columns[0].changed else before
        joint = number_cells([np.concatenate([c.before, c.after]).astype(np.int64) for c in columns])
        return joint[: len(self.original)], joint[len(self.original) :]


class Attack(Protocol):
    """One way to attack a release. It says what the intruder has, and how it works, in its docstring and fields."""

    name: ClassVar[str]
    title: ClassVar[str]
    intruder: ClassVar[str]
    quick: ClassVar[bool]
    needs: ClassVar[frozenset[str]]

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Attack."""
        ...


ABSENT = {
    "original": "needs the original to check the guesses",
    "scenario": "needs a scenario that states the keys",
    "sensitive": "needs a scenario with sensitive attributes",
    "rules": "needs rules for impossible combinations",
    "bundle": "needs the bundle as written",
    "tables": "needs the tables that are published",
    "earlier": "needs earlier releases of the same records",
    "changes": "nothing was changed",
    "masked": "needs the masking with its record",
}
"""Why an attack is skipped, by what it lacks."""


def find_lacking(attack: Attack, setting: Setting) -> str:
    """Return why an attack cannot be tried; empty if it can."""
    scenario = setting.scenario
    at_hand = {
        "original": setting.has_original,
        "scenario": scenario is not None and bool(scenario.keys),
        "sensitive": scenario is not None and bool(scenario.sensitive),
        "rules": bool(setting.rules),
        "bundle": setting.bundle is not None,
        "tables": bool(setting.tables),
        "earlier": bool(setting.earlier),
        "masked": setting.masked is not None,
    }
    lacking = [need for need in attack.needs if need != "changes" and not at_hand[need]]
    if lacking:
        return ABSENT[min(lacking)]
    if "changes" in attack.needs and not setting.touched.any():
        return ABSENT["changes"]
    return "" if len(setting.released) else "there are no records"


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """The outcomes of all attacks tried, and those that were skipped; prints as a table."""

    outcomes: tuple[Outcome, ...]
    skipped: tuple[Skipped, ...] = ()

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __getitem__(self, attack: str) -> Outcome:
        """Return the outcome of an attack by its name."""
        for outcome in self.outcomes:
            if outcome.attack == attack:
                return outcome
        skipped = next((each.reason for each in self.skipped if each.attack == attack), "")
        tried = ", ".join(outcome.attack for outcome in self.outcomes) or "none"
        raise SpecError(
            f"the attack {attack!r} was not tried" + (f": it {skipped}" if skipped else ""),
            code="unknown-attack",
            hint=f"tried were: {tried}",
        )

    @property
    def best(self) -> Outcome | None:
        """The attack with the largest advantage among those with enough guesses."""
        telling = [outcome for outcome in self.outcomes if outcome.is_telling]
        return max(telling, key=lambda outcome: outcome.advantage, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "attacks": [outcome.as_dict() for outcome in self.outcomes],
            "skipped": [each.as_dict() for each in self.skipped],
        }

    def __repr__(self) -> str:
        names = [*(each.attack for each in self.outcomes), *(each.attack for each in self.skipped)]
        width = max(map(len, names), default=0)
        lines = [
            f"{o.attack:<{width}}  {o.success:7.2%}  {o.baseline:8.2%}  {o.advantage:9.1%}"
            f"  [{o.interval[0]:6.1%}, {o.interval[1]:6.1%}]  {o.sentence}" + (f" ({o.note})" if o.note else "")
            for o in self.outcomes
        ]
        head = [f"{'attack':<{width}}  success  baseline  advantage  [interval at 95%]"] if lines else []
        return "\n".join(
            [*head, *lines, *(f"{each.attack:<{width}}  not tried: {each.reason}" for each in self.skipped)]
        )


def guess_right(counts: Int64s, most: Int64s, tied: Int64s) -> Floats:
    """Return the chance to name a value by taking the most frequent one, at random among equals.

    >>> guess_right(np.array([3, 2]), np.array([3, 3]), np.array([2, 1])).tolist()
    [0.5, 0.0]
    """
    return np.where((counts == most) & (most > 0), 1 / np.maximum(tied, 1), 0.0)
