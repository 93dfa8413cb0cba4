"""Targeted record swapping: households at risk, and a share of all, exchange places with similar households.

The analyst is told the effect by level of the geography, which is never published: risk before and after, who is rare
and still in the true area, how far partners live apart, how tables changed, and how often an intruder would name the
true area of a household that was moved for its risk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from safeswap.arrays import keyed
from safeswap.arrays.compiled import njit, python_if_little
from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int32s, Int64s, Integers
from safeswap.engines.base import Drawn, Move, Records
from safeswap.engines.memory import MemoryRecords
from safeswap.methods.exchange import Columns, Described, ExchangingMethod
from safeswap.methods.household_swap.households import Households, read_households
from safeswap.methods.household_swap.members import pair_members, sort_heads
from safeswap.methods.household_swap.pairing import FIXED, pair_risky
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.methods.household_swap.swapping import (
    PER_MILLION,
    STEPS_PER_PERSON,
    Population,
    Risk,
    Rules,
    Swapped,
    swap_in_rounds,
    swap_once,
)
from safeswap.model.audit import Facts
from safeswap.model.effect import Effect, Permuted, Replaced
from safeswap.model.evidence import PairEvidence
from safeswap.model.invariant import (
    AttributesPromise,
    ChangedRecords,
    DisjointPairs,
    Invariant,
    KeptMargin,
    PairPromise,
    PairsAgree,
    PairsDiffer,
    ReplaysFromAudit,
    SameRows,
    UntouchedColumns,
)
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.model.spec import Plan, Relaxation
from safeswap.model.text import list_names, plural

_MOST_TRIED = 5
_PLANNING = Key(bytes(32))
"""Draws for trial swaps: how many households can be swapped does not depend on the draws."""


@dataclass(frozen=True, kw_only=True)
class HouseholdPlan(Plan):
    """Households at risk by level, how many of them can be swapped, and what that means for the rate.

    ``asked`` counts the households at risk, ``feasible`` those of them that some pairing allows to swap.
    ``rate_needed`` is the share swapped for risk alone, ``rate_expected`` that of a trial swap with all rounds, and
    ``needing_less`` says by change of the specification which rate it would need.
    """

    households: int
    at_risk: Mapping[str, int] = field(default_factory=dict)
    rate_needed: float = 0.0
    rate_asked: float = 0.0
    rate_expected: float = 0.0
    needing_less: Mapping[str, float] = field(default_factory=dict)
    crossing: Mapping[str, float] = field(default_factory=dict)
    proved: bool = True

    @property
    def sentence(self) -> str:
        """The plan in words."""
        levels = ", ".join(f"{count:,} at {name}" for name, count in self.at_risk.items() if count)
        text = f"{self.asked:,} of {plural(self.households, 'household')} must move" + (
            f" ({levels})" if levels else ""
        )
        if self.asked:
            text += f"; {'all' if self.is_feasible else f'{self.feasible:,}'} of them can"
            text += "" if self.proved else " at least"
        text += f"; about {self.rate_expected:.2%} of the households will be swapped"
        if any(self.crossing.values()):
            text += f" ({', '.join(f'{share:.1%} of them to another {name}' for name, share in self.crossing.items())})"
        if self.rate_needed > self.rate_asked:
            text += f", more than the rate of {self.rate_asked:.2%}, because of those at risk"
        if self.needing_less:
            text += "; needed for risk " + ", ".join(f"with {c}: {r:.2%}" for c, r in self.needing_less.items())
        return text


@dataclass(frozen=True, kw_only=True)
class HouseholdOutcome(Plan):
    """The outcome of a household swap. ``asked`` and ``feasible`` count pairs of persons, as for every exchange."""

    households: int
    at_risk: int
    covered: int
    swapped: int

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        found = "all" if self.covered == self.at_risk else f"{self.covered:,}"
        text = f"{self.swapped:,} of {plural(self.households, 'household')} swapped"
        return text + (f"; {found} of {self.at_risk:,} at risk moved" if self.at_risk else "")


@dataclass(frozen=True)
class _HouseholdPromise(AttributesPromise, PairPromise):
    household: str = ""

    @property
    def compared(self) -> Names:
        """The attributes named, and the number of the household."""
        return (self.household, *self.attributes)

    @property
    def unit(self) -> str:
        """The number of the household."""
        return self.household


@dataclass(frozen=True)
class HouseholdsStayTogether(_HouseholdPromise):
    """All members of a household have the same values of these attributes after, as before."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return f"The members of a household stay together: they have the same {list_names(self.attributes)}."

    def problem(self, evidence: PairEvidence) -> str:
        """Count households that were torn apart: some members changed and others not, or they differ now."""
        torn = evidence.count_torn(self.household, self.attributes)
        return f"{plural(torn, 'household has', 'households have')} members in different areas" if torn else ""


@dataclass(frozen=True)
class KeptHouseholds(_HouseholdPromise):
    """The number of households by these attributes together is the same before and after."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return f"The numbers of households by {list_names(self.attributes)} are exactly as before."

    def problem(self, evidence: PairEvidence) -> str:
        """Count the cells whose number of households changed."""
        moved = evidence.count_moved_units(self.household, self.attributes)
        return (
            f"{plural(moved, 'cell has', 'cells have')} a different number of households from before" if moved else ""
        )


class HouseholdSwap(ExchangingMethod):
    """Exchange the geography of whole households with similar households elsewhere."""

    name: ClassVar[str] = "household_swap"
    title: ClassVar[str] = "Targeted record swapping: households at risk change places with similar ones"
    spec_type: ClassVar[type[HouseholdSwapSpec]] = HouseholdSwapSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Shlomo, Tudor & Groom 2010, Data swapping for protecting census tables",
        "Eurostat & Census Hub project on methods for protecting 2021 census data: targeted record swapping",
        "Edmonds 1965, Paths, trees, and flowers",
    )
    takes_households: ClassVar[bool] = True  # whole households change places

    def columns(self, schema: Schema, spec: HouseholdSwapSpec) -> Columns:
        """Return every attribute with a role, and the geography with what is carried along."""
        full = spec.resolve(schema)
        assert full.household is not None  # noqa: S101  (resolved)
        profile = full.profiles[0]
        communal = () if full.communal is None else (full.communal,)
        read = (
            full.household,
            *full.geography,
            *full.carry_along,
            *full.risk_variables,
            *full.risk,
            *profile,
            *communal,
        )
        return Columns(read=tuple(dict.fromkeys(read)), changed=(*full.geography, *full.carry_along))

    def plan(self, data: Microdata, spec: HouseholdSwapSpec) -> HouseholdPlan:
        """Return how many households are at risk and can be swapped, by trial swaps with draws that are no secret."""
        full = spec.resolve(data.schema)
        found = _read_planned(data, full)
        depth = found.population.areas.depth
        rules = _rules(full, shift=PER_MILLION // 2)
        risk = _limit_risk(found, full)
        needed = swap_once(found.population, replace(rules, rate_per_million=0), risk)
        done = swap_in_rounds(found.population, rules, risk, k=_k(full), rounds=full.rounds)
        movable = max(len(found) - found.immovable - found.communal, 1)
        at_risk = np.bincount(_movable_required(found, risk), minlength=depth + 1)[:depth]
        covered = _count_covered(found, risk, needed)
        rate_needed = int(np.count_nonzero(needed.partner >= 0)) / movable
        facts = describe_swap(found, full, done)
        return HouseholdPlan(
            method=self.name,
            records=len(data),
            asked=int(at_risk.sum()),
            feasible=covered,
            at_most=None if needed.proved else int(at_risk.sum()),
            binds=() if covered == at_risk.sum() else full.loosest,
            relaxations=_relaxations(data, full, found, covered, int(at_risk.sum())),
            households=len(found),
            at_risk={name: int(n) for name, n in zip(full.geography, at_risk, strict=True)},
            rate_needed=rate_needed,
            rate_asked=full.rate,
            rate_expected=int(np.count_nonzero(done.partner >= 0)) / movable,
            needing_less=_needing_less(data, full) if full.rate and rate_needed > full.rate else {},
            crossing=facts["crossing"],
            proved=needed.proved,
        )

    def draw(self, records: Records, spec: HouseholdSwapSpec, key: Key, *, replicate: int = 0) -> Drawn:
        """Decide which households change places; members of a pair are paired in the order of their draws.

        Where partners differ in size, each member takes the values of one of the partner's members, who share them.
        """
        full, found, done = self._decide(records, spec, key, replicate)
        heads = sort_heads(done.partner, found.population.draw)
        found = replace(found, population=found.population.without_draws())  # of a hundred million persons, 350 MB
        context = ("data", records.schema.name, len(records), self.name, "members", replicate)
        rows, even = pair_members(records, found, done.partner, heads, keyed.derive(key.secret, *context))
        plan = _outcome(self.name, len(records), found, done, len(rows))
        figures = cache(lambda: describe_swap(found, full, done))
        later: dict[str, Any] = {name: lambda name=name: figures()[name] for name in _LATER}
        facts = Facts({**({} if even else {"unit": "records"}), **_totals(found, full, done)}, **later)
        move = Move((*full.geography, *full.carry_along), records.pair_rows(rows), directed=not even, mutual=not even)
        return Drawn(plan=plan, moves=(move,), made=len(rows), facts=facts)

    def _decide(
        self, records: Records, spec: HouseholdSwapSpec, key: Key, replicate: int
    ) -> tuple[HouseholdSwapSpec, Households, Swapped]:
        full = spec.resolve(records.schema)
        context = ("data", records.schema.name, len(records), self.name)
        found = read_households(records, full, key, keyed.derive(key.secret, *context, "order", replicate))
        shift = int.from_bytes(keyed.derive(key.secret, *context, "rounding", replicate)[:8], "little") % PER_MILLION
        risk = _limit_risk(found, full)
        done = swap_in_rounds(found.population, _rules(full, shift=shift), risk, k=_k(full), rounds=full.rounds)
        return full, found, done

    def effects(self, schema: Schema, spec: HouseholdSwapSpec) -> tuple[Effect, ...]:
        """Return that the geography moved between similar households."""
        full = spec.resolve(schema)
        moved = (*full.geography, *full.carry_along)
        return (Permuted(moved, full.loosest),) if full.match_size else (Replaced(moved),)

    def invariants(self, data: Described, spec: HouseholdSwapSpec) -> tuple[Invariant, ...]:
        """Promise that households stay together and keep their partner's kind, and that only their places change."""
        full = spec.resolve(data.schema)
        assert full.household is not None  # noqa: S101  (resolved)
        moved = (*full.geography, *full.carry_along)
        untouched = tuple(name for name in data.attributes if name not in moved)
        bottom = full.area(len(full.geography) - 1)
        common: tuple[Invariant, ...] = (
            SameRows(),
            UntouchedColumns(untouched),
            HouseholdsStayTogether(moved, full.household),
            KeptHouseholds((*bottom, *full.loosest), full.household),
        )
        if not full.match_size:
            return (*common, ReplaysFromAudit())
        return (
            *common,
            KeptMargin((*bottom, *full.loosest)),
            *([KeptMargin(moved)] if len(moved) > 1 else []),
            DisjointPairs(),
            *([PairsAgree(full.loosest)] if full.loosest else []),
            PairsDiffer(full.geography, "any"),
            ChangedRecords(),
            ReplaysFromAudit(),
        )


def _read_planned(data: Microdata, spec: HouseholdSwapSpec) -> Households:
    return read_households(MemoryRecords(data, _PLANNING), spec, _PLANNING, bytes(32))


def _rules(spec: HouseholdSwapSpec, *, shift: int) -> Rules:
    return Rules(
        rate_per_million=round(spec.rate * PER_MILLION),
        shift=shift,
        near=spec.partner == "near",
        crowd=spec.crowd,
        spread=spec.spread,
        is_limit=spec.over_rate == "riskiest",
    )


def _k(spec: HouseholdSwapSpec) -> int:
    """Return the k by which trial swaps are judged; 0 if the risk is not from counts, or limited by the rate."""
    return spec.k if spec.risk_variables and spec.over_rate == "swap" else 0


def _limit_risk(found: Households, spec: HouseholdSwapSpec) -> Risk:
    if spec.over_rate == "swap":
        return found.risk
    movable = len(found) - found.immovable - found.communal
    most = round(spec.rate * PER_MILLION) * movable // (2 * PER_MILLION)
    return found.risk.riskiest(most, found.population.draw, found.population.areas.depth)


def _movable_required(found: Households, risk: Risk) -> Int64s:
    movable = found.population.movable
    return (risk.required if movable is None else risk.required[movable]).astype(np.int64)


def _count_covered(found: Households, risk: Risk, done: Swapped) -> int:
    return int(np.count_nonzero((risk.required < found.population.areas.depth) & (done.partner >= 0)))


def _relaxations(
    data: Microdata, spec: HouseholdSwapSpec, found: Households, covered: int, at_risk: int
) -> tuple[Relaxation, ...]:
    """Return what would help where not all can be swapped: a looser profile, a smaller k, other sizes."""
    if covered == at_risk:
        return ()
    tried: list[tuple[str, HouseholdSwapSpec]] = []
    if spec.loosest:
        tried.append(
            (f"drop {spec.loosest[-1]} in a further profile", spec.replace(similar=(*spec.similar, spec.loosest[:-1])))
        )
    if spec.match_size:
        tried.append(("match_size=False", spec.replace(match_size=False)))
    if spec.k > 2 and spec.risk_variables:
        tried.append((f"k={spec.k - 1}", spec.replace(k=spec.k - 1)))
    helpful = []
    for change, other in tried:
        again = _read_planned(data, other)
        done = swap_once(again.population, _rules(other.replace(rate=0.0), shift=0), again.risk)
        helpful.append(Relaxation(change=change, feasible=_count_covered(again, again.risk, done)))
    return tuple(helpful)


def _needing_less(data: Microdata, spec: HouseholdSwapSpec) -> dict[str, float]:
    """Return the rate that risk alone would need by a smaller k or with larger cells, and the riskiest first."""
    tried: dict[str, HouseholdSwapSpec] = {}
    if spec.k > 2:
        tried[f"k={spec.k - 1}"] = spec.replace(k=spec.k - 1)
    if len(spec.risk_variables) > 1:
        for name in spec.risk_variables[:_MOST_TRIED]:
            left = tuple(other for other in spec.risk_variables if other != name)
            tried[f"{name} left out of the risk variables"] = spec.replace(risk_variables=left)
    if spec.over_rate == "swap":
        tried["the riskiest only, up to the rate"] = spec.replace(over_rate="riskiest")
    found = {}
    for change, other in tried.items():
        again = _read_planned(data, other)
        done = swap_once(again.population, _rules(other.replace(rate=0.0), shift=0), _limit_risk(again, other))
        movable = max(len(again) - again.immovable - again.communal, 1)
        found[change] = int(np.count_nonzero(done.partner >= 0)) / movable
    return found


def _outcome(name: str, records: int, found: Households, done: Swapped, made: int) -> HouseholdOutcome:
    depth = found.population.areas.depth
    movable = np.ones(len(found), dtype=np.bool_) if found.population.movable is None else found.population.movable
    risky = (done.risk.required < depth) & movable
    alone = risky & (done.partner < 0)
    return HouseholdOutcome(
        method=name,
        records=records,
        asked=made + int(found.size[alone].sum()),
        feasible=made,
        at_most=None if done.proved else made + int(found.size[alone].sum()),
        households=len(found),
        at_risk=int(np.count_nonzero(risky)),
        covered=int(np.count_nonzero(risky & ~alone)),
        swapped=int(np.count_nonzero(done.partner >= 0)),
    )


_LATER = ("crossing", "by_profile", "rare_before", "rare_after", "rare_and_true", "undoing", "misplaced", "by_level")
"""Facts that take a pass over the persons: computed when they are asked for."""


def _totals(found: Households, spec: HouseholdSwapSpec, done: Swapped) -> dict[str, Any]:
    plan = _outcome(spec.method, 0, found, done, 0)
    return {
        "households": len(found),
        "households_swapped": plan.swapped,
        "households_at_risk": plan.at_risk,
        "at_risk_swapped": plan.covered,
        "at_risk_left": plan.at_risk - plan.covered,
        "largest_number_proved": done.proved,
        "target": done.target,
        "short_of_target": done.short,
        "required_by_later_rounds": list(done.added),
        "without_geography": found.immovable,
        "communal_establishments": found.communal,
        "persons_outside_households": found.outside,
    }


_KEYS_PER_HOUSEHOLD = 4  # of more, households are sorted instead of counted


def describe_swap(found: Households, spec: HouseholdSwapSpec, done: Swapped) -> dict[str, Any]:
    """Return the figures by level and profile, as plain values."""
    with python_if_little(STEPS_PER_PERSON * len(found.numbers), pair_risky):
        return _describe(found, spec, done)


def _describe(found: Households, spec: HouseholdSwapSpec, done: Swapped) -> dict[str, Any]:
    people, levels = found.population, found.population.areas.levels
    old, new = people.ranks, done.move(people.ranks)
    heads = np.flatnonzero(done.partner >= 0)
    heads = heads[heads < done.partner[heads]]
    crossing = {
        name: float(np.mean(levels[place, old[heads]] != levels[place, new[heads]])) if len(heads) else 0.0
        for place, name in enumerate(spec.geography)
    }
    facts: dict[str, Any] = {"crossing": crossing, "by_profile": _by_profile(found, spec, done, heads)}
    before, after, true = (dict.fromkeys(spec.geography, 0) for _ in range(3))
    if spec.k and spec.risk_variables:
        known = done.risk.rare
        was = people.count_rare(spec.k, old)[0] if known is None else np.cumsum(known)
        for name, *counts in zip(spec.geography, was.tolist(), *people.count_rare(spec.k, new), strict=False):
            before[name], after[name], true[name] = map(int, counts)
    facts |= {"rare_before": before, "rare_after": after, "rare_and_true": true}
    facts["undoing"] = undoing_chance(people, done, new)
    facts["misplaced"] = dict(zip(spec.geography, people.misplaced(new), strict=True))
    facts["by_level"] = [
        {
            "level": name,
            "partners in another area": round(crossing[name], 4),
            "rare persons before": before[name],
            "rare persons after": after[name],
            "rare and in the true area": true[name],
            "share of the table misplaced": round(facts["misplaced"][name], 5),
        }
        for name in spec.geography
    ]
    return facts


def _by_profile(found: Households, spec: HouseholdSwapSpec, done: Swapped, heads: Int64s) -> list[dict[str, Any]]:
    """Count the pairs of households by the strictest profile in which they agree."""
    waiting = np.ones(len(heads), dtype=np.bool_)
    rows = []
    for names, cell in zip(spec.profiles, found.population.profiles, strict=True):
        agree = waiting & (cell[heads] == cell[done.partner[heads]])
        common = (*names, *(["number of persons"] if spec.match_size else []))
        rows.append({"partners agree in": ", ".join(common) or "nothing", "pairs": int(np.count_nonzero(agree))})
        waiting &= ~agree
    return rows


def undoing_chance(people: Population, done: Swapped, new: Int32s) -> dict[str, float | None]:
    """Return how often an intruder who knows all but the key names the true area of a household moved for its risk.

    The intruder sees the swapped file and knows the rules: partners agree in the loosest profile, live in another area
    at the level that had to be left, and are sought in the next wider area first. For a household with a partner at
    risk, every household at risk of its cell in the narrowest such scope is a candidate, and the area in which most of
    them are shown is the guess; ``intruder`` is the mean chance that the true one is drawn from the candidates.
    ``baseline`` is that of naming an area at random among all households of the cell, and ``households`` the number of
    those moved for their risk. ``new`` are the areas shown.
    """
    cell, areas, number = people.profiles[-1], people.areas, people.areas.levels.shape[1]
    is_risky = (done.required < areas.depth) & (done.partner >= 0)
    if not is_risky.any():
        return {"intruder": None, "baseline": None, "households": 0}
    first, shown, true = cell[is_risky] * np.int64(number), new[is_risky], people.ranks[is_risky]

    def share(candidates: Flags, scopes: Iterable[int]) -> float:
        below = _count_below(cell, new, candidates, number)

        def count(begin: Any, end: Any) -> Integers:  # an area of any level is a range of areas
            return below(first + end) - below(first + begin)

        total = count(0, number)
        for scope in scopes:
            area, starts = areas.levels[scope, shown], areas.starts[scope]
            total = np.where(area == areas.levels[scope, true], count(starts[area], starts[area + 1]), total)
        return float((count(true, true + 1) / np.maximum(total - count(shown, shown + 1), 1)).mean())

    widest_first = range(areas.depth)  # so that the narrowest one counts
    chances = {"intruder": share(is_risky, widest_first), "baseline": share(done.partner != FIXED, ())}
    return {**chances, "households": int(np.count_nonzero(is_risky))}


def _count_below(cell: Integers, area: Int32s, counted: Flags, areas: int) -> Callable[[Any], Integers]:
    """Return a function that counts the households whose cell × areas + area is below each of some numbers.

    >>> cell, area = np.array([1, 0, 1, 0], np.uint16), np.array([1, 1, 1, 0], np.int32)
    >>> _count_below(cell, area, np.array([True, True, True, False]), 2)(np.array([0, 2, 3, 9])).tolist()
    [0, 1, 1, 3]
    """
    above = (int(cell.max(initial=0)) + 1) * areas
    if above > _KEYS_PER_HOUSEHOLD * len(cell):
        ordered = np.sort(cell[counted] * np.int64(areas) + area[counted])
        return lambda numbers: np.searchsorted(ordered, numbers)
    sums = np.zeros(above + 1, dtype=np.int32)
    _count_keys(cell, area, counted, areas, sums)
    np.cumsum(sums, out=sums)
    return lambda numbers: sums[np.minimum(numbers, above)]


@njit(cache=True, nogil=True)
def _count_keys(cell, area, counted, areas, counts):  # type: ignore[no-untyped-def]
    for i in range(len(cell)):
        counts[np.int64(cell[i]) * areas + area[i] + 1] += counted[i]
