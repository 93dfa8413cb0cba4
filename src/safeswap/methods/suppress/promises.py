"""Promises of local suppression, counted again from the columns of the output.

::

    OnlyBlanks               values became missing, and nothing else happened to them
    NothingUnsafe            no combination of keys singles out too few records
    EnoughByPublishedKeys    no record is singled out by its published keys

Nothing here is shared with the search for blanks, so that a fault of the search does not hide itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats, Int64s
from safeswap.model.columns import to_numbers
from safeswap.model.combination import Missing
from safeswap.model.evidence import Evidence
from safeswap.model.invariant import AttributesPromise, Invariant
from safeswap.model.microdata import Microdata
from safeswap.model.schema import level_texts
from safeswap.model.text import list_names, plural

_SHORT = 1e-9  # largest rounding error of a sum of weights, as a share
_WORDS = {
    "none": "a missing value matching nothing",
    "own": "a missing value being a separate value",
    "any": "a record counting by the keys that it has",
    "vouching": "a missing value matching every value and counting for others",
}


@dataclass(frozen=True)
class OnlyBlanks(AttributesPromise):
    """Every value that differs from the original is missing."""

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return f"Values of {list_names(self.attributes)} were blanked; none was changed in any other way."

    def problem(self, evidence: Evidence) -> str:
        """Describe the first attribute in which a value became another one."""
        for name in self.attributes:
            flags = evidence.changed(name)
            if flags is None:
                continue
            wrong = int(np.count_nonzero(flags & evidence.after.table.column(name).is_valid().to_numpy()))
            if wrong:
                return plural(
                    wrong, f"value of {name} was changed to another", f"values of {name} were changed to others"
                )
        return ""


@dataclass(frozen=True)
class NothingUnsafe(Invariant):
    """Every combination of values that occurs has at least the tolerance, under the stated meaning of missing."""

    is_about_result: ClassVar[bool] = True

    combinations: tuple[tuple[Names, float], ...]
    missing: Missing
    weight: str | None = None

    @property
    def sentence(self) -> str:
        """The promise in words."""
        least = {tolerance for _, tolerance in self.combinations}
        number = f"{min(least):g}" if len(least) == 1 else "as many as its tolerance"
        unit = "records" if self.weight is None else f"units of {self.weight}"
        names = list_names(dict.fromkeys(name for keys, _ in self.combinations for name in keys))
        one = len(self.combinations) == 1
        lists = f"values of {names}" if one else f"values in {len(self.combinations):,} combinations of {names}"
        together = " together" if one and len(self.combinations[0][0]) > 1 else ""
        return f"No {lists}{together} are shared by fewer than {number} {unit}, {_WORDS[self.missing]}."

    def problem(self, evidence: Evidence) -> str:
        """Count the unsafe combinations of values, and name the keys of the first list that has some."""
        if gone := _describe_lost_weight(evidence.after, self.weight):
            return gone
        unsafe = {keys: left for keys, left in recount_unsafe(evidence.after, self) if left}
        if not unsafe:
            return ""
        first = " × ".join(next(iter(unsafe)))
        found = plural(sum(unsafe.values()), "combination of values is", "combinations of values are")
        return f"{found} unsafe, for instance some of {first}"

    def for_users_of(self, names: Names) -> Invariant | None:
        """Restrict the promise to combinations whose keys are all released."""
        if self.weight is not None and self.weight not in names:
            return None
        left = tuple(each for each in self.combinations if set(each[0]) <= set(names))
        return NothingUnsafe(left, self.missing, self.weight) if left else None


@dataclass(frozen=True)
class EnoughByPublishedKeys(Invariant):
    """Every record shares its published key values with enough records that have all these keys."""

    is_about_result: ClassVar[bool] = True

    keys: Names
    tolerance: float
    weight: str | None = None

    @property
    def sentence(self) -> str:
        """The promise in words."""
        unit = "records" if self.weight is None else f"units of {self.weight}"
        return (
            f"Every record shares all published values of its keys ({list_names(self.keys)}) with records that "
            f"have them too: at least {self.tolerance:g} {unit}, its own included."
        )

    def problem(self, evidence: Evidence) -> str:
        """Count the records below the tolerance."""
        if gone := _describe_lost_weight(evidence.after, self.weight):
            return gone
        below = self.records_below(evidence.after)
        return f"{plural(below, 'record is', 'records are')} below {self.tolerance:g}" if below else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """Restrict the promise to the released keys: records that agree in more keys agree in fewer."""
        if self.weight is not None and self.weight not in names:
            return None
        left = tuple(name for name in self.keys if name in names)
        return EnoughByPublishedKeys(left, self.tolerance, self.weight) if left else None

    def records_below(self, data: Microdata) -> int:
        """Count the records below the tolerance on their published keys."""
        columns = [_codes(data, name, stated=True) for name in self.keys]
        weights = None if self.weight is None else to_numbers(data, self.weight)
        cells, sizes, members = _cells(columns, weights)
        least = self.tolerance if weights is None else self.tolerance * (1 - _SHORT)
        is_low = _published_sizes(cells, sizes, np.arange(len(cells))) < least
        return int(members[is_low & (cells >= 0).any(axis=1)].sum())  # without a key there is nothing to agree in


def _describe_lost_weight(data: Microdata, weight: str | None) -> str:
    """Say that sums of weights cannot be counted, if the weight is missing; empty if they can."""
    lost = weight is not None and bool(np.isnan(to_numbers(data, weight)).any())
    return f"{weight} is missing, so its sums cannot be computed" if lost else ""


def recount_unsafe(data: Microdata, promise: NothingUnsafe) -> Iterable[tuple[Names, int]]:
    """Yield each combination of keys with its number of unsafe combinations of values."""
    names = dict.fromkeys(name for keys, _ in promise.combinations for name in keys)
    # Codes that mean "no answer" are missing, unless missing values are values of their own.
    columns = {name: _codes(data, name, stated=promise.missing != "own") for name in names}
    weights = None if promise.weight is None else to_numbers(data, promise.weight)
    distinct, totals, _ = _cells(list(columns.values()), weights)
    places = {name: place for place, name in enumerate(names)}
    for keys, tolerance in promise.combinations:
        cells, sizes, _ = _cells([distinct[:, places[key]] for key in keys], totals)
        if promise.missing == "none":
            complete = (cells >= 0).all(axis=1)
            cells, sizes = cells[complete], sizes[complete]
        least = tolerance if weights is None else tolerance * (1 - _SHORT)
        low = sizes < least
        if promise.missing in ("any", "vouching") and low.any():
            matched = _matching_sizes if promise.missing == "vouching" else _published_sizes
            low[low] = matched(cells, sizes, np.flatnonzero(low)) < least
        yield keys, int(np.count_nonzero(low))


def _codes(data: Microdata, name: str, *, stated: bool) -> Int64s:
    """Encode the column as integers, −1 where a value is missing."""
    column = data.table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type) or not len(column):
        return np.full(len(column), -1, np.int64)
    encoded = column.dictionary_encode().unify_dictionaries()
    codes = np.concatenate([chunk.indices.fill_null(-1).to_numpy().astype(np.int64) for chunk in encoded.chunks])
    if stated and data.schema[name].missing:
        texts = level_texts(encoded.chunk(0).dictionary)
        blank = np.array([*(text in data.schema[name].missing for text in texts), True])
        codes[blank[codes]] = -1
    return codes


def _cells(
    columns: list[Int64s], weights: npt.NDArray[Any] | None
) -> tuple[Int64s, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the distinct combinations of codes (one per row), the weight or row count of each, and its row count."""
    names = [f"c{i}" for i in range(len(columns))]
    table = pa.table(dict(zip(names, columns, strict=True)))
    if weights is not None:
        table = table.append_column("w", pa.array(weights))
    sums = [] if weights is None else [("w", "sum")]
    counted = table.group_by(names, use_threads=False).aggregate([([], "count_all"), *sums])
    numbers_of_rows = counted["count_all"].to_numpy()
    sizes = numbers_of_rows if weights is None else counted["w_sum"].to_numpy()
    return np.stack([counted[name].to_numpy() for name in names], axis=1), sizes, numbers_of_rows


def _published_sizes(cells: Int64s, sizes: npt.NDArray[Any], asked: Int64s) -> Floats:
    """Return, for the asked cells, the size of all cells that have their published keys and agree in them."""
    total = np.zeros(asked.size, np.float64)
    patterns, of_cell = np.unique(cells[asked] < 0, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        here = np.flatnonzero(of_cell.ravel() == number)
        left = cells[:, ~pattern]
        able = np.flatnonzero((left >= 0).all(axis=1))
        names = np.full(len(cells), -1, np.int64)
        names[able] = _number_rows(left[able])
        total[here] = np.bincount(names[able], sizes[able])[names[asked[here]]]
    return total


def _matching_sizes(cells: Int64s, sizes: npt.NDArray[Any], asked: Int64s) -> Floats:
    """Return, for the asked cells, the size of all cells that agree wherever neither has a missing value."""
    total = np.zeros(asked.size, np.float64)
    patterns, of_cell = np.unique(cells < 0, axis=0, return_inverse=True)
    of_cell = of_cell.ravel()
    for mine in np.unique(of_cell[asked]):
        here = np.flatnonzero(of_cell[asked] == mine)
        for other in range(len(patterns)):
            shared = np.flatnonzero(~(patterns[mine] | patterns[other]))
            there = np.flatnonzero(of_cell == other)
            names = _number_rows(np.concatenate([cells[np.ix_(asked[here], shared)], cells[np.ix_(there, shared)]]))
            by_name = np.bincount(names[here.size :], sizes[there], int(names.max()) + 1)
            total[here] += by_name[names[: here.size]]
    return total


def _number_rows(rows: Int64s) -> Int64s:
    """Number the rows of codes: equal rows get equal numbers, from 0 without gaps."""
    names = np.zeros(len(rows), np.int64)
    for column in rows.T:
        _, names = np.unique(names * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    return names.ravel().astype(np.int64)
