"""Answer quickly where a blank matches nothing: each record keeps keys that enough others keep too.

A record that shares the keys it keeps with enough others, who keep them as well, is safe in every combination it still
has. So one count per record suffices, however many combinations are listed. Sets of keys are tried in order of cost.
Records that are enough together with those settled before (which keep at least the same keys) blank the set and are
settled; nothing later takes their matches away. Finally values are given back, one key at a time, where their records
stay safe.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.combinations import cell_codes, cell_sizes, decode_mask
from safeswap.arrays.compiled import njit
from safeswap.arrays.sparse import scramble
from safeswap.arrays.types import Flags, Floats, Int64s, UInt64s
from safeswap.methods.suppress.problem import Blanking, Problem, gather

# Compiled loops of the greedy answer: take one record at a time and choose its blanked keys again.
#
# A record is in one cell of every combination of which it blanks nothing. Where blanks count as values, the records
# that blank the same keys and agree in all others are a *group*, kept in a hash table by a sum of random words, one
# per key and value. That two groups share a sum is as unlikely as guessing a key.

_ONE = np.uint64(1)
_COMPANY = 0.01  # largest bonus for many potential look-alikes


def draw_words(columns: tuple[npt.NDArray[Any], ...], blanks: tuple[int, ...]) -> tuple[UInt64s, UInt64s]:
    """Return a random word for each class and key (equal values, equal words), and one for each key's blank."""
    found = np.empty((columns[0].size, len(columns)), np.uint64)
    for key, column in enumerate(columns):
        found[:, key] = mix_words(column.astype(np.uint64) + (np.uint64(key + 1) << np.uint64(40)))
    blank = np.array([(key + 1 << 40) + code for key, code in enumerate(blanks)], np.uint64)
    return found, mix_words(blank)


def mix_words(numbers: UInt64s) -> UInt64s:
    """Hash each number to a well-mixed word."""
    x = (numbers + _ONE) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def group_names(word: UInt64s, blank_word: UInt64s, blanked: npt.NDArray[np.int64]) -> UInt64s:
    """Return the group names of records with some of their keys blanked."""
    chosen = ((blanked[:, None] >> np.arange(blank_word.size)) & 1).astype(np.bool_)
    names: UInt64s = np.where(chosen, blank_word[None, :], word).sum(axis=1, dtype=np.uint64)
    names[names == 0] = 1
    return names


@njit(cache=True, nogil=True)
def group_name(word, blank_word, blanked):  # type: ignore[no-untyped-def]
    """Return the group name of one record."""
    total = np.uint64(0)
    for key in range(word.size):
        total += blank_word[key] if blanked >> key & 1 else word[key]
    return total if total != 0 else _ONE  # 0 marks an empty slot


@njit(cache=True, nogil=True)
def place(names, name):  # type: ignore[no-untyped-def]
    """Return the slot of a name in the table, or the empty slot where it would go (size 0)."""
    last = np.uint64(names.size - 1)
    at = scramble(name) & last
    while names[at] != 0 and names[at] != name:
        at = (at + _ONE) & last
    return at


@njit(cache=True, nogil=True)
def add(names, sizes, more, values):  # type: ignore[no-untyped-def]
    """Add to the sizes of groups; return how many of them are new in the table."""
    entered = 0
    for i in range(more.size):
        at = place(names, more[i])
        if names[at] == 0:
            names[at] = more[i]
            entered += 1
        sizes[at] += values[i]
    return entered


@njit(cache=True, nogil=True)
def move(blanked, cells, masks, unit, cell_sizes, word, blank_word, names, sizes, grouped):  # type: ignore[no-untyped-def]
    """Add a record to its cells and its group, or remove it with a negative unit; return the number of new groups."""
    for c in range(masks.size):
        if cells[c] >= 0 and not blanked & masks[c]:
            cell_sizes[cells[c]] += unit
    if not grouped or blanked == 0:
        return 0
    name = group_name(word, blank_word, blanked)
    at = place(names, name)
    new = names[at] == 0
    names[at] = name
    sizes[at] += unit
    return 1 if new else 0


@njit(cache=True, nogil=True)
def count_exposed(size, needed, scale):  # type: ignore[no-untyped-def]
    """Return how many records a cell of this size exposes."""
    return size / scale if 1e-9 * scale < size < needed else 0.0


@njit(cache=True, nogil=True)
def count_lacking(size, needed, scale):  # type: ignore[no-untyped-def]
    """Return how many records a group of this size lacks."""
    return (needed - size) / scale if 1e-9 * scale < size < needed else 0.0


@njit(cache=True, nogil=True)
def sweep(  # type: ignore[no-untyped-def]
    items,
    blanked,
    cells,
    masks,
    needed,
    units,
    company,
    candidates,
    prices,
    cell_sizes,
    word,
    blank_word,
    names,
    sizes,
    group_needed,
    price_of_unsafe,
    growing,
    scale,
):
    """Choose again for each item in turn; return how many changed, and how many groups are new in the table.

    ``cells`` holds the cell number by item and combination, or −1 where it does not matter. ``company`` gives, by item
    and candidate, the number of potential look-alikes as a multiple of what is needed. ``group_needed`` is the required
    size of a group, 0 where groups do not matter. With ``growing`` nothing blanked is given back: the record blanks
    something of every combination in which it is unsafe, or at least one more key.
    """
    changed, entered, grouped = 0, 0, group_needed > 0
    combinations = masks.size
    concerned, gains = np.empty(combinations, np.int64), np.empty(combinations, np.float64)
    bound = np.zeros(combinations, np.bool_)
    for position in range(items.size):
        i = items[position]
        unit = units[i]
        move(blanked[i], cells[i], masks, -unit, cell_sizes, word[i], blank_word, names, sizes, grouped)
        number, kept = 0, 0.0
        for c in range(combinations):
            if cells[i, c] < 0:
                continue
            size = cell_sizes[cells[i, c]]
            gain = count_exposed(size + unit, needed[c], scale) - count_exposed(size, needed[c], scale)
            stuck = growing and not blanked[i] & masks[c] and size + unit < needed[c]
            if gain != 0 or stuck:
                concerned[number], gains[number], bound[number] = c, gain, stuck
                kept += min(0.0, gain)  # least penalty, or largest gain
                number += 1
        at_best = price_of_unsafe * (kept - (unit / scale if grouped else 0.0))
        best, best_cost = blanked[i], np.inf
        for k in range(candidates.size):
            chosen = candidates[k]
            if prices[k] + at_best >= best_cost:
                break
            if company[i, k] < 1:
                continue
            if growing and (blanked[i] & ~chosen or (grouped and chosen == blanked[i])):
                continue
            unsafe = 0.0
            for n in range(number):
                if not masks[concerned[n]] & chosen:
                    unsafe += gains[n] if not bound[n] else np.inf
            if grouped and chosen != 0:
                size = sizes[place(names, group_name(word[i], blank_word, chosen))]
                unsafe += count_lacking(size + unit, group_needed, scale) - count_lacking(size, group_needed, scale)
            cost = prices[k] + _COMPANY / company[i, k] + price_of_unsafe * unsafe
            if cost < best_cost - 1e-9:
                best, best_cost = chosen, cost
        changed += best != blanked[i]
        blanked[i] = best
        entered += move(best, cells[i], masks, unit, cell_sizes, word[i], blank_word, names, sizes, grouped)
    return changed, entered


@njit(cache=True, nogil=True)
def rearrange(  # type: ignore[no-untyped-def]
    chosen, blanked, cells, masks, units, cell_sizes, word, blank_word, names, sizes, grouped
):
    """Give every record its chosen blanks; return how many groups are new in the table."""
    entered = 0
    for i in range(blanked.size):
        if blanked[i] != chosen[i]:
            move(blanked[i], cells[i], masks, -units[i], cell_sizes, word[i], blank_word, names, sizes, grouped)
            entered += move(
                chosen[i], cells[i], masks, units[i], cell_sizes, word[i], blank_word, names, sizes, grouped
            )
            blanked[i] = chosen[i]
    return entered


_OPEN = -1


def settle_by_published_keys(problem: Problem, *, end: float = inf) -> Blanking | None:
    """Return an answer that leaves nothing unsafe, or None if keys that must be kept prevent it.

    At ``end`` (monotonic clock) all keys of the remaining records are blanked.
    """
    settling = _Settling(problem)
    *others, every = problem.candidates.tolist()
    for mask in (*others, every):
        if mask != every and monotonic() >= end:
            continue
        for blank in np.unique(settling.blank[settling.is_open]).tolist():
            if not mask & blank or mask == every:
                settling.settle(mask, blank)
    if settling.is_open.any():
        return None
    for key in sorted(decode_mask(problem.allowed), key=lambda key: -problem.costs[key]):
        if monotonic() < end:
            settling.give_back(key)
    blanked = settling.missing & settling.keys & ~settling.blank  # keys of no combination stay
    return gather(np.arange(problem.members.size), blanked, problem.members)


class _Settling:
    """The keys that each class will lack, or −1 while undecided."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.keys = problem.keys
        self.needed = max(problem.needed)
        self.blank: Int64s = problem.blank & self.keys
        self.missing: Int64s = np.full(problem.members.size, _OPEN, np.int64)

    @property
    def is_open(self) -> Flags:
        flags: Flags = self.missing == _OPEN
        return flags

    def settle(self, mask: int, blank: int) -> None:
        """Let classes with these blanks blank these keys too, where enough then share the remaining keys."""
        asking = self.is_open & (self.blank == blank)
        left = self.keys & ~(mask | blank)
        counted = asking | (~self.is_open & ((self.missing & left) == 0))
        enough = asking & (self._sizes(left, counted) >= self.needed)
        self.missing[enough] = mask | blank

    def give_back(self, key: int) -> None:
        """Give a key back to the classes that are safe with it; no other class becomes less safe."""
        bit = 1 << key
        able = ((self.missing & ~self.blank) & bit) != 0
        for missing in np.unique(self.missing[able]).tolist():
            asking = able & (self.missing == missing)
            left = self.keys & ~(missing ^ bit)
            sizes = self._sizes(left, (self.missing & left) == 0) + self.problem.classes.sizes
            self.missing[asking & (sizes >= self.needed)] = missing ^ bit

    def _sizes(self, keys: int, counted: Flags) -> Floats:
        """Return, for each class, the size of the counted classes that agree with it in these keys."""
        found = self.problem.classes
        sizes = np.where(counted, found.sizes, 0).astype(np.float64)
        if not keys:
            return np.full(sizes.size, inf)  # a record without published keys is in no combination
        codes, possible = cell_codes(found, decode_mask(keys))
        total: Floats = cell_sizes(codes, possible, sizes)[codes]
        return total
