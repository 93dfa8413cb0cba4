"""The problem of local suppression: which values to blank so that no combination of keys is unsafe.

Records that agree in every key form one class, so an answer states how many records of a class blank which keys. A set
of keys is a bit mask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from safeswap.arrays.combinations import (
    Classes,
    cell_codes,
    cell_sizes,
    decode_mask,
    find_small_cells,
    lowest_safe,
    matching_sizes,
    published_sizes,
)
from safeswap.arrays.types import Flags, Floats, Int64s

Meaning = Literal["none", "own", "vouching"]

MOST_ENUMERATED = 12
"""Up to this many keys every set of keys is considered; above, sets of few keys only."""

_FEW = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Combinations with the sizes they must reach, the cost of blanking each key, and the keys that may be blanked.

    ``members`` counts the records of each class; a record of it adds ``unit`` to the size of a cell.
    """

    classes: Classes
    members: Int64s
    combinations: tuple[tuple[int, float], ...]
    costs: Floats
    allowed: int
    meaning: Meaning

    @cached_property
    def unit(self) -> Floats:
        """The contribution of one record of each class to the size of a cell: 1, or its weight."""
        return self.classes.sizes / np.maximum(self.members, 1)

    @cached_property
    def blank(self) -> Int64s:
        """The keys of each class that are blank in the file."""
        masks = np.zeros(len(self.classes), np.int64)
        for key in range(len(self.costs)):
            masks |= self.classes.is_blank(key).astype(np.int64) << key
        return masks

    @cached_property
    def needed(self) -> tuple[float, ...]:
        """The size that each combination's cells must reach."""
        return tuple(float(lowest_safe(tolerance, self.classes.sizes)) for _, tolerance in self.combinations)

    @cached_property
    def keys(self) -> int:
        """The keys of all combinations."""
        return reduce(or_, (mask for mask, _ in self.combinations))

    @cached_property
    def is_closed(self) -> bool:
        """True if every combination of the keys is listed, all at one tolerance.

        Records that agree in more keys agree in fewer, so the largest combination that a record has decides.
        """
        every = len({mask for mask, _ in self.combinations}) == (1 << self.keys.bit_count()) - 1
        return every and len(set(self.needed)) == 1

    @cached_property
    def candidates(self) -> Int64s:
        """Sets of keys that may be blanked together, cheapest first, including the empty and the full set."""
        return candidate_masks(self.allowed, self.costs)

    def cost(self, masks: npt.NDArray[Any]) -> Floats:
        """Return the cost of blanking these sets of keys."""
        total = np.zeros(np.shape(masks), np.float64)
        for key, cost in enumerate(self.costs):
            total += cost * ((masks >> key) & 1)
        return total


@dataclass(frozen=True, eq=False)
class Blanking:
    """``numbers`` records of ``classes`` blank the keys ``masks``; each pair of class and keys occurs once."""

    classes: Int64s
    masks: Int64s
    numbers: Int64s

    def cost(self, problem: Problem) -> float:
        """Return the total cost."""
        return float(problem.cost(self.masks) @ self.numbers)

    @property
    def values(self) -> int:
        """The number of blanked values."""
        ones = np.array([int(mask).bit_count() for mask in self.masks], np.int64)
        return int(ones @ self.numbers)


NOTHING = Blanking(*(np.empty(0, np.int64) for _ in range(3)))


def gather(classes: npt.NDArray[Any], masks: npt.NDArray[Any], numbers: npt.NDArray[Any] | None = None) -> Blanking:
    """Build a blanking from lists in which a pair may occur several times, or blank nothing.

    >>> found = gather(np.array([3, 3, 1]), np.array([1, 1, 0]))
    >>> found.classes.tolist(), found.masks.tolist(), found.numbers.tolist()
    ([3], [1], [2])
    """
    counts = np.ones(classes.size, np.int64) if numbers is None else numbers
    some = (masks != 0) & (counts > 0)
    pairs, place = np.unique(np.stack([classes[some], masks[some]], axis=1), axis=0, return_inverse=True)
    total = np.bincount(place.ravel(), counts[some], len(pairs)).astype(np.int64)
    return Blanking(pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), total)


def candidate_masks(allowed: int, costs: Floats) -> Int64s:
    """Return sets of the allowed keys, cheapest first: all sets, or with many keys the small sets and the full one.

    >>> candidate_masks(0b101, np.array([2.0, 1.0, 1.0])).tolist()
    [0, 4, 1, 5]
    """
    keys = decode_mask(allowed)
    if len(keys) <= MOST_ENUMERATED:
        chosen = np.arange(1 << len(keys), dtype=np.int64)
    else:
        few = np.arange(1 << len(keys), dtype=np.int64) if len(keys) <= 20 else _few_bits(len(keys))
        ones = np.array([int(mask).bit_count() for mask in few])
        chosen = np.append(few[ones <= _FEW], (1 << len(keys)) - 1)
    masks, price = np.zeros(chosen.size, np.int64), np.zeros(chosen.size)
    for place, key in enumerate(keys):
        taken = (chosen >> place) & 1
        masks |= taken << key
        price += costs[key] * taken
    ordered: Int64s = masks[np.lexsort((masks, price))]
    return ordered


def _few_bits(keys: int) -> Int64s:
    single = np.int64(1) << np.arange(keys, dtype=np.int64)
    found = [np.zeros(1, np.int64)]
    for _ in range(_FEW):
        found.append(np.unique((found[-1][:, None] | single[None, :]).ravel()))
    return np.unique(np.concatenate(found))


def apply_blanking(problem: Problem, blanking: Blanking) -> tuple[Classes, Int64s, Int64s]:
    """Return the classes after blanking, and for each the class it came from and the keys blanked in it."""
    taken = np.zeros(len(problem.members), np.int64)
    np.add.at(taken, blanking.classes, blanking.numbers)
    left = problem.members - taken
    if (left < 0).any():
        raise ValueError("more records are blanked than a class has")
    stay = np.flatnonzero(left)
    source = np.concatenate([stay, blanking.classes])
    masks = np.concatenate([np.zeros(stay.size, np.int64), blanking.masks])
    numbers = np.concatenate([left[stay], blanking.numbers])
    whole = problem.classes
    columns = []
    for key, column in enumerate(whole.columns):
        codes = column[source]
        columns.append(np.where((masks >> key) & 1, codes.dtype.type(whole.blanks[key]), codes))
    sizes = numbers if whole.sizes.dtype.kind == "i" else numbers * problem.unit[source]
    return replace(whole, columns=tuple(columns), sizes=sizes), source, masks


def unsafe_classes(problem: Problem, found: Classes) -> Flags:
    """Flag each class that is in a too small cell of some combination."""
    if problem.meaning == "none" and problem.is_closed:
        keys = decode_mask(problem.keys)
        # A record that publishes no key is in no combination, also in a file of fewer records than the tolerance.
        has_key: Flags = ~np.logical_and.reduce([found.is_blank(key) for key in keys])
        return has_key & (published_sizes(found, keys) < problem.needed[0])
    unsafe = np.zeros(len(found), np.bool_)
    for mask, tolerance in problem.combinations:
        keys = decode_mask(mask)
        if problem.meaning == "vouching":
            sizes = matching_sizes(found, keys)
            unsafe |= sizes < lowest_safe(tolerance, sizes)
        else:
            unsafe |= find_small_cells(found, keys, tolerance, skip_blank=problem.meaning == "none").is_small
    return unsafe


def is_safe(problem: Problem, blanking: Blanking) -> bool:
    """Return True if nothing unsafe would be left."""
    return not unsafe_classes(problem, apply_blanking(problem, blanking)[0]).any()


def blank_everything(problem: Problem) -> Blanking:
    """Blank every allowed value in every record: if this is not safe, nothing is."""
    masks = problem.allowed & ~problem.blank
    return gather(np.arange(len(problem.members)), masks, problem.members)


def restore_needless(problem: Problem, blanking: Blanking) -> Blanking:
    """Drop the blanks of records that would be safe without them: only unsafe records are blanked.

    For the meaning ``none``, where restored values make no other record less safe.
    """
    while blanking.classes.size:
        needless = _flag_needless(problem, blanking)
        if not needless.any():
            break
        blanking = Blanking(blanking.classes[~needless], blanking.masks[~needless], blanking.numbers[~needless])
    return blanking


def _flag_needless(problem: Problem, blanking: Blanking) -> Flags:
    found, _, _ = apply_blanking(problem, blanking)
    asked, number = blanking.classes, blanking.classes.size
    together = replace(
        found,
        columns=tuple(
            np.concatenate([column, whole[asked]])
            for column, whole in zip(found.columns, problem.classes.columns, strict=True)
        ),
        sizes=np.concatenate([found.sizes, np.zeros(number, found.sizes.dtype)]),
    )
    safe = np.ones(number, np.bool_)
    for mask, needed in _deciding_combinations(problem, problem.blank[asked]):
        keys = decode_mask(mask)
        codes, possible = cell_codes(together, keys)
        complete = together.complete(keys)
        sizes = together.sizes if complete is None else np.where(complete, together.sizes, 0)
        there = cell_sizes(codes, possible, sizes)[codes[-number:]]
        itself = np.where((blanking.masks & mask) != 0, problem.unit[asked], 0.0)
        safe &= ((problem.blank[asked] & mask) != 0) | (there + itself >= needed)
        if not safe.any():
            break
    return safe


def count_agreeing(problem: Problem, keys: int, *, spare: bool = False) -> Floats:
    """Return, for each class, the size of all classes that agree with it in these keys, none of them blank.

    This is the number of records that could share a cell of a combination whose other keys are all blank. With
    ``spare``, count only those whose class stays large enough without them, or is too small anyway.
    """
    found, chosen = problem.classes, decode_mask(keys)
    counted = found.sizes
    if spare:
        needed = max(problem.needed)
        counted = np.where(counted >= needed, counted - needed, counted)
    if not chosen:
        return np.full(len(found), float(counted.sum()))
    codes, possible = cell_codes(found, chosen)
    sizes = cell_sizes(codes, possible, counted)[codes].astype(np.float64)
    complete = found.complete(chosen)
    if complete is not None:
        sizes[~complete] = 0.0
    return sizes


def count_company(
    problem: Problem, classes: Int64s, candidates: Int64s, *, spare: bool = False
) -> npt.NDArray[np.float32]:
    """Return, by class and candidate, the records that could look alike, as a multiple of the number needed.

    Below 1 its records cannot be safe with these blanks, whatever happens to others: in some combination too few
    records agree in the remaining keys. Under the meaning ``none`` a combination with a blank needs no other records.
    Blanking what is blank anyway is no choice, and counts as 0. With ``spare`` only records that can be spared are
    counted.
    """
    found = np.full((classes.size, candidates.size), np.inf, np.float32)
    known: dict[tuple[int, bool], Floats] = {}
    for blank in np.unique(problem.blank[classes]):
        rows = np.flatnonzero(problem.blank[classes] == blank)
        part = found[rows]
        part[:, (candidates & blank) != 0] = 0.0
        for mask, needed in _deciding_combinations(problem, candidates | blank):
            left = mask & ~(candidates | blank)
            for keys in np.unique(left) if problem.meaning != "none" else (mask,):
                others = (int(keys), spare and bool(keys != mask))
                if others not in known:
                    known[others] = count_agreeing(problem, others[0], spare=others[1])[classes]
                share = known[others][rows] / needed
                if problem.meaning == "none":
                    share[share >= 1] = np.inf
                some, there = np.flatnonzero(share < np.inf), np.flatnonzero(left == keys)
                if some.size:
                    part[np.ix_(some, there)] = np.minimum(part[np.ix_(some, there)], share[some, None])
        found[rows] = part
    return found


def _deciding_combinations(problem: Problem, missing: Int64s) -> list[tuple[int, float]]:
    """Return the combinations that decide about records lacking one of these sets of keys, with the required sizes.

    If every combination is listed, and a blank matches nothing, these are the sets of remaining keys.
    """
    if problem.meaning == "none" and problem.is_closed:
        return [(int(keys), problem.needed[0]) for keys in np.unique(problem.keys & ~missing) if keys]
    return [(mask, needed) for (mask, _), needed in zip(problem.combinations, problem.needed, strict=True)]


def least_masks(problem: Problem, classes: Int64s) -> tuple[Int64s, Floats]:
    """Return, for each class, a cheapest set of keys to blank as far as its own records decide, and a lower bound.

    No answer can spend less than the bound on a record of the class. Cheap sets are tried first, and the others only
    for classes that need them.
    """
    least = np.full(classes.size, problem.candidates[-1])
    open_rows = np.arange(classes.size)
    prices = problem.cost(problem.candidates)
    for price in np.unique(prices):
        tier = problem.candidates[prices == price]
        ok = count_company(problem, classes[open_rows], tier) >= 1
        done = ok.any(axis=1)
        least[open_rows[done]] = tier[ok.argmax(axis=1)[done]]
        open_rows = open_rows[~done]
        if not open_rows.size:
            break
    return least, np.minimum(problem.cost(least), unseen_price(problem))


def unseen_price(problem: Problem) -> float:
    """Return the least cost of the sets of keys that are not candidates: they have more than a few keys."""
    keys = list(decode_mask(problem.allowed))
    if len(keys) <= MOST_ENUMERATED:
        return np.inf
    return float(np.sort(problem.costs[keys])[: _FEW + 1].sum())
