"""Local suppression by household: a blank of a household attribute is a blank for all members, and costs their number.

A combination is unsafe if too few persons share it, or too few households where these are the unit. A blank matches
nothing, so every record of an unsafe combination must lose one of its keys, and what it loses may make another
combination unsafe. Blanks are chosen greedily, the one that hits most unsafe combinations for its cost first, until
nothing is unsafe. There is no draw in it: the same file gives the same blanks.

How far that is from the least is bounded household by household: whatever is blanked elsewhere makes nothing safe, so
a household with something unsafe loses a key of its own, or each of its unsafe members loses one of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Floats, Int64s, Rows
from safeswap.errors import InfeasibleError
from safeswap.model.columns import missing_codes, number_cells, to_numbers
from safeswap.model.evidence import Evidence
from safeswap.model.households import Households, find_households
from safeswap.model.invariant import Invariant
from safeswap.model.microdata import Microdata
from safeswap.model.schema import household_attributes, level_texts
from safeswap.model.text import plural

Combination = tuple[Names, float]

_SHORT = 1e-9  # largest rounding error of a sum of weights, as a share


@dataclass(frozen=True, eq=False, kw_only=True)
class HouseholdProblem:
    """The keys of each record, the combinations to protect, and what may be blanked at which cost.

    ``codes`` has a column per key, −1 where a value is missing; it is blanked in place. ``shared`` flags the keys that
    belong to the household.
    """

    names: Names
    codes: list[Int64s] = field(repr=False)
    combinations: tuple[Combination, ...]
    costs: Floats
    allowed: Flags
    shared: Flags
    homes: Households
    by_household: bool
    weights: Floats | None = None

    @classmethod
    def of(
        cls,
        data: Microdata,
        combinations: tuple[Combination, ...],
        *,
        costs: dict[str, float],
        allowed: Names,
        by_household: bool,
        weight: str | None = None,
    ) -> HouseholdProblem:
        """Return the problem of a file."""
        names, ours = tuple(costs), household_attributes(data.schema)
        return cls(
            names=names,
            codes=[_known_codes(data, name) for name in names],
            combinations=combinations,
            costs=np.array([costs[name] for name in names], dtype=np.float64),
            allowed=np.array([name in allowed for name in names]),
            shared=np.array([name in ours for name in names]),
            homes=find_households(data),
            by_household=by_household,
            weights=None if weight is None else to_numbers(data, weight),
        )

    def unsafe(self) -> Iterator[tuple[list[int], Flags, int]]:
        """Yield the keys of each combination, the records with too few like them, and the number of unsafe cells."""
        for keys, tolerance in self.combinations:
            places = [self.names.index(name) for name in keys]
            complete = np.logical_and.reduce([self.codes[place] >= 0 for place in places])
            rows = np.flatnonzero(complete)
            flags = np.zeros(len(complete), dtype=np.bool_)
            if not rows.size:
                yield places, flags, 0
                continue
            cells = number_cells([self.codes[place][rows] for place in places])
            sizes = self._sizes(cells, rows)
            least = tolerance if self.weights is None else tolerance * (1 - _SHORT)
            low = sizes < least
            flags[rows] = low[cells]
            yield places, flags, int(np.count_nonzero(low & (np.bincount(cells, minlength=len(sizes)) > 0)))

    def _sizes(self, cells: Int64s, rows: Rows) -> Floats | Int64s:
        """Return the size of each cell: persons, weights, or households with a member in it."""
        if self.by_household:
            pairs = np.unique(cells * len(self.homes) + self.homes.of_record[rows])
            return np.bincount(pairs // len(self.homes), minlength=int(cells.max()) + 1)
        return np.bincount(cells, None if self.weights is None else self.weights[rows])

    def least_cost(self) -> float:
        """Return a cost that no answer is below: for each household its cheapest key, or its members' if that is less.

        A member loses at least the cheapest key of each unsafe combination it is in; a combination of the household's
        keys alone is not ended by members.
        """
        homes = self.homes
        of_person = np.zeros(len(self.codes[0]))
        of_household = np.full(len(homes), np.inf)
        for places, flags, _ in self.unsafe():
            theirs = [self.costs[j] for j in places if self.allowed[j] and not self.shared[j]]
            of_person[flags] = np.maximum(of_person[flags], min(theirs, default=np.inf))
            touched = np.unique(homes.of_record[flags])
            for j in (j for j in places if self.allowed[j] and self.shared[j]):
                known = np.bincount(homes.of_record[self.codes[j] >= 0], minlength=len(homes))
                of_household[touched] = np.minimum(of_household[touched], self.costs[j] * known[touched])
        least = np.minimum(np.bincount(homes.of_record, of_person, len(homes)), of_household)
        return float(least[np.isfinite(least)].sum())

    def by_dimension(self) -> dict[int, int]:
        """Return the number of unsafe combinations of values by number of keys."""
        found: dict[int, int] = {}
        for places, _, cells in self.unsafe():
            found[len(places)] = found.get(len(places), 0) + cells
        return found

    def count(self) -> tuple[int, int]:
        """Return the number of unsafe combinations of values, and of records in one."""
        found = list(self.unsafe())
        somewhere = np.logical_or.reduce([flags for _, flags, _ in found])
        return sum(cells for _, _, cells in found), int(np.count_nonzero(somewhere))


def _known_codes(data: Microdata, name: str) -> Int64s:
    coded = data.coded(name)
    return np.where(missing_codes(data, name)[coded.codes], -1, coded.codes.astype(np.int64))


def blank_households(problem: HouseholdProblem) -> dict[str, Rows]:
    """Blank until nothing is unsafe; return the rows of each key that were blanked."""
    before = [codes >= 0 for codes in problem.codes]
    while (hits := _count_hits(problem)) is not None:
        _blank_best(problem, hits)
    lost = {name: before[j] & (problem.codes[j] < 0) for j, name in enumerate(problem.names)}
    return {name: np.flatnonzero(flags) for name, flags in lost.items() if flags.any()}


def _count_hits(problem: HouseholdProblem) -> Floats | None:
    """Count, for each record and key, the unsafe combinations that blanking it would end; None if nothing is unsafe."""
    hits = np.zeros((len(problem.codes[0]), len(problem.names)))
    stuck, some = 0, False
    for places, flags, _ in problem.unsafe():
        if not flags.any():
            continue
        some = True
        open_places = [place for place in places if problem.allowed[place]]
        if not open_places:
            stuck += int(np.count_nonzero(flags))
        hits[np.ix_(np.flatnonzero(flags), np.array(open_places, dtype=np.int64))] += 1
    if stuck:
        raise InfeasibleError(
            f"{plural(stuck, 'record cannot be made safe', 'records cannot be made safe')}: all keys of an unsafe "
            "combination are in keep",
            code="cannot-be-safe",
            hint="keep fewer attributes, recode first, or lower the tolerance",
            records=stuck,
        )
    return hits if some else None


def _blank_best(problem: HouseholdProblem, hits: Floats) -> None:
    """Blank, in each household with something unsafe, what hits most for its cost: its own key, or one per member."""
    homes, shared = problem.homes, problem.shared
    ratios = np.where(shared | ~problem.allowed, -1.0, hits / problem.costs)
    best = ratios.argmax(axis=1)
    of_person = np.take_along_axis(ratios, best[:, None], axis=1)[:, 0]
    highest = np.zeros(len(homes))
    np.maximum.at(highest, homes.of_record, of_person)
    ours = np.flatnonzero(shared & problem.allowed)
    of_household, which = np.zeros(len(homes)), np.zeros(len(homes), dtype=np.int64)
    for j in ours:
        known = np.bincount(homes.of_record[problem.codes[j] >= 0], minlength=len(homes))
        gain = np.bincount(homes.of_record, hits[:, j], len(homes)) / (problem.costs[j] * np.maximum(known, 1))
        better = gain > of_household
        of_household[better], which[better] = gain[better], j
    whole = (of_household > 0) & (of_household >= highest)
    for j in ours:
        problem.codes[j][(whole & (which == j))[homes.of_record]] = -1
    alone = np.flatnonzero((of_person > 0) & ~whole[homes.of_record])
    for j in np.unique(best[alone]):
        problem.codes[j][alone[best[alone] == j]] = -1


@dataclass(frozen=True)
class NothingUnsafeOfHouseholds(Invariant):
    """Every combination of values that occurs does so in at least as many households as its tolerance.

    Recounted from the columns of the result by Arrow, without the code that chose the blanks.
    """

    combinations: tuple[Combination, ...]
    household: str

    @property
    def sentence(self) -> str:
        """The promise in words."""
        least = {tolerance for _, tolerance in self.combinations}
        number = f"{min(least):g}" if len(least) == 1 else "as many as its tolerance"
        return f"Every combination of values of the protected keys occurs in at least {number} households."

    def problem(self, evidence: Evidence) -> str:
        """Count the combinations of values that occur in fewer households."""
        data, homes = evidence.after, find_households(evidence.before)
        unsafe = 0
        for keys, tolerance in self.combinations:
            columns = {f"c{i}": _as_text(data, name) for i, name in enumerate(keys)}
            table = pa.table({**columns, "home": homes.of_record}).drop_null()
            counted = table.group_by(list(columns), use_threads=False).aggregate([("home", "count_distinct")])
            unsafe += int(np.count_nonzero(counted["home_count_distinct"].to_numpy() < tolerance))
        return plural(unsafe, "combination of values is unsafe", "combinations of values are unsafe") if unsafe else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """Restrict the promise to combinations whose keys are all released, if households are told."""
        left = tuple(each for each in self.combinations if set(each[0]) <= set(names))
        return NothingUnsafeOfHouseholds(left, self.household) if left and self.household in names else None


def _as_text(data: Microdata, name: str) -> pa.Array:
    """Return the values as texts, null where one is missing."""
    column = data.table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    gone = set(data.schema[name].missing)
    known = column.combine_chunks()
    texts = iter(level_texts(known.drop_null()))
    told = (next(texts) if ok else None for ok in known.is_valid().to_pylist())
    return pa.array([None if text in gone else text for text in told], pa.string())
