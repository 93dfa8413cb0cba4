"""An intruder who holds a masked person file asks the mates: what belongs together betrays what was changed.

Each attack uses the masked columns alone, and its success is the share of changed values that it restores, beside what
blind guessing of the most frequent value restores. That is what a release would have given away; a release refuses each
of these maskings. ``python -m tests.attacks.test_household_mates`` prints the figures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.dwellings import column
from tests.hand_made import KEY, masked_by, true_pairs
from tests.households import persons

import safeswap as ss
from safeswap.errors import UnsafeRelease
from safeswap.model.audit import Exchange
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata

DATA = persons()
GEOGRAPHY = {"method": "swap", "swap": ["region", "county"], "true_swap": "any", "rate": 0.1}
REGION_ALONE = {"method": "swap", "swap": ["region"], "rate": 0.1}  # refused as a spec: made by hand, to be attacked
PRAM = {"method": "pram", "attributes": ["tenure"]}
EDIT = {"method": "edit_targeted", "keys": ["age", "sex", "edu"], "geography": ["region", "county"], "tolerance": 3}
SUPPRESS = {"method": "suppress", "combinations": [["county", "tenure", "sex"]], "tolerance": 3}
SUPPRESS |= {"keep": ["county", "sex"]}
NUMBERS = {"method": "swap", "swap": ["edu", "sex", "age"], "true_swap": "any", "rate": 0.4}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of the values that were changed, how many an attack restores, and how many blind guessing does."""

    changed: int
    restored: int
    blind: int

    @property
    def rate(self) -> float:
        return self.restored / self.changed

    @property
    def chance(self) -> float:
        return self.blind / self.changed

    def __str__(self) -> str:
        return f"{self.restored:>5,} of {self.changed:>5,} restored ({self.rate:.0%}; blind guessing {self.chance:.0%})"


def asked_of_mates(data: Microdata, group: str, value: str) -> list[Any]:
    """What most records of the same group say; with two of one mind each, what the record itself says, as it is."""
    votes: dict[Any, Counter[Any]] = {}
    pairs = list(zip(column(data, group), column(data, value), strict=True))
    for home, said in pairs:
        if said is not None:
            votes.setdefault(home, Counter())[said] += 1
    guesses = []
    for home, said in pairs:
        ranked = votes.get(home, Counter()).most_common(2)
        tied = len(ranked) == 2 and ranked[0][1] == ranked[1][1]
        guesses.append(said if not ranked or (tied and said is not None) else ranked[0][0])
    return guesses


def read_off(masked: Masked, group: str, value: str) -> Outcome:
    """The attack: each record's value is taken to be that of its mates; on records with two mates or more."""
    sizes = Counter(column(masked.data, group))
    asked = [sizes[home] > 2 for home in column(masked.data, group)]
    truth, seen = column(masked.original, value), column(masked.data, value)
    guesses = asked_of_mates(masked.data, group, value)
    common = Counter(seen).most_common(1)[0][0]
    changed = [row for row in range(len(truth)) if truth[row] != seen[row] and asked[row]]
    return Outcome(
        changed=len(changed),
        restored=sum(guesses[row] == truth[row] for row in changed),
        blind=sum(common == truth[row] for row in changed),
    )


def joined(masked: Masked, on: str, values: tuple[str, ...]) -> Outcome:
    """The attack: another file has one untouched column and the true values; records are joined on that column."""
    held = {}
    for number, *true in zip(*(column(masked.original, name) for name in (on, *values)), strict=True):
        held.setdefault(number, []).append(tuple(true))
    truth = list(zip(*(column(masked.original, name) for name in values), strict=True))
    seen = list(zip(*(column(masked.data, name) for name in values), strict=True))
    common = Counter(seen).most_common(1)[0][0]
    changed = [row for row in range(len(truth)) if truth[row] != seen[row]]
    found = [held[number] for number in column(masked.data, on)]
    return Outcome(
        changed=len(changed),
        restored=sum(len(found[row]) == 1 and found[row][0] == truth[row] for row in changed),
        blind=sum(common == truth[row] for row in changed),
    )


def made(spec: dict[str, Any]) -> Masked:
    if spec is REGION_ALONE:
        pairs = true_pairs(DATA, "region")[: len(DATA) // 20]
        return masked_by(DATA, Exchange(attributes=("region",), pairs=pairs))
    return ss.mask(DATA, spec, key=KEY)


ATTACKS = {
    "mates vote on a swapped county": (GEOGRAPHY, "ref", "county", 0.8, "household-split"),
    "mates vote on a swapped region": (GEOGRAPHY, "ref", "region", 0.8, "household-split"),
    "mates are known by their rent": (GEOGRAPHY, "rent", "county", 0.8, "household-split"),
    "mates vote on a randomised tenure": (PRAM, "ref", "tenure", 0.6, "household-split"),
    "mates vote on an edited county": (EDIT, "ref", "county", 0.8, "household-split"),
    "a mate has what was blanked": (SUPPRESS, "ref", "tenure", 0.4, "household-split"),
    "the county tells the swapped region": (REGION_ALONE, "county", "region", 0.95, "geography-split"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_the_mates_tell_is_not_released(name: str, tmp_path: Path) -> None:
    spec, group, value, least, code = ATTACKS[name]
    masked = made(spec)
    outcome = read_off(masked, group, value)
    print(f"{name}: {outcome}")
    assert outcome.rate > least
    assert outcome.rate > outcome.chance + 0.1
    with pytest.raises(UnsafeRelease) as caught:
        ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY)
    found = {(each["code"], each["column"]) for each in caught.value.fields["findings"]}
    assert (code, value) in found
    assert not list(tmp_path.iterdir())


def test_no_refusal_holds_a_value(tmp_path: Path) -> None:
    for spec in (GEOGRAPHY, PRAM, EDIT, SUPPRESS, REGION_ALONE):
        with pytest.raises(UnsafeRelease) as caught:
            ss.release(made(spec), tmp_path / "public", audit=tmp_path / "audit", key=KEY)
        told = f"{caught.value} {caught.value.hint} {caught.value.fields}"
        values = {str(value) for name in ("region", "county", "tenure", "rent") for value in column(DATA, name)}
        assert not [value for value in values if f"{value}" in told.replace(",", "").split()]


def test_without_what_tells_the_mates_it_may_leave(tmp_path: Path) -> None:
    masked = made(GEOGRAPHY)
    with pytest.raises(UnsafeRelease):
        ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY, drop=["ref"])
    done = ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY, drop=["ref", "rent"])
    assert done.records == len(DATA)


@pytest.mark.parametrize("swap", [["edu"], ["sex", "age"], ["income"]])
def test_what_each_member_has_of_its_own_may_be_swapped(swap: list[str], tmp_path: Path) -> None:
    masked = ss.swap(DATA, swap=swap, true_swap="any", rate=0.1, key=KEY)
    assert ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY).records == len(DATA)


def test_whole_households_may_change_places(tmp_path: Path) -> None:
    homes = np.array(column(DATA, "ref"))
    starts = np.flatnonzero(np.r_[True, homes[1:] != homes[:-1]])
    sizes = np.diff(np.r_[starts, len(homes)])
    county = np.array(column(DATA, "county"))
    pairs = []
    for size in range(1, 6):
        free = list(starts[sizes == size])
        while len(free) > 1:
            one, other = free.pop(), free.pop()
            if county[one] != county[other]:
                pairs += [(one + member, other + member) for member in range(size)]
    masked = masked_by(DATA, Exchange(attributes=("region", "county"), pairs=np.array(pairs)))
    done = ss.release(masked_as_any(masked), tmp_path / "public", audit=tmp_path / "audit", key=KEY)
    assert done.records == len(DATA)


def masked_as_any(masked: Masked) -> Masked:
    from dataclasses import replace

    return replace(masked, spec=masked.spec.replace(true_swap="any"))


def test_an_untouched_number_joins_every_record_and_is_listed(tmp_path: Path) -> None:
    masked = made(NUMBERS)
    outcome = joined(masked, "expend", ("edu", "sex", "age"))
    print(f"joined on expend: {outcome}")
    assert outcome.rate > 0.99
    assert outcome.chance < 0.05
    done = ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY)
    listed = [remark.message for remark in done.remarks if remark.code == "joinable"]
    distinct = len(set(column(DATA, "expend")))
    assert listed == [f"'expend': {distinct:,} distinct values, unchanged: every record can be joined on it"]
    again = {"drop": ["expend"], "second_release": "without the number that joins"}
    dropped = ss.release(masked, tmp_path / "other", audit=tmp_path / "elsewhere", key=KEY, **again)
    assert not [remark for remark in dropped.remarks if remark.code == "joinable"]


def main() -> None:
    """Print what each attack restores."""
    for name, (spec, group, value, _, code) in ATTACKS.items():
        print(f"{name:40} {read_off(made(spec), group, value)}; now refused: {code}")
    print(f"{'joined on an untouched number':40} {joined(made(NUMBERS), 'expend', ('edu', 'sex', 'age'))}; now listed")


if __name__ == "__main__":
    main()
