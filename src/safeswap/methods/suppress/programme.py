"""Find the least that must be blanked, as an integer programme over classes of records.

Each participating class and each set of keys that could be blanked in its records gives a number of records (a
*choice*). A cell of a combination is either empty or large enough. Classes that do not take part stay as they are, and
sets of keys that cost much more than the cheapest are replaced by one *escape*, which pays for them but is free of
constraints: both only relax the problem, so the optimum is a lower bound of the whole problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.combinations import cell_ranks, decode_mask
from safeswap.arrays.highs import Programme
from safeswap.arrays.types import Floats, Int64s
from safeswap.methods.suppress.problem import Problem, count_company, least_masks, unseen_price
from safeswap.methods.suppress.sweeps import draw_words, group_names, mix_words

_NOBODY = -1
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class BlankingProgramme:
    """A programme, and the meaning of its columns: ``classes`` and ``masks`` of choices; −1 for all other columns.

    ``donors`` are columns that call outside records into a cell, blanking their ``masks``.
    """

    programme: Programme
    classes: Int64s
    masks: Int64s
    escapes: Int64s  # by column: the class that escapes, or −1
    donors: Int64s  # by column: a class of the cell that calls, or −1
    component: Int64s  # by column
    row_component: Int64s


@dataclass
class _Builder:
    """Accumulates columns, rows, and matrix entries as triples."""

    costs: list[Floats] = field(default_factory=list)
    upper: list[Floats] = field(default_factory=list)
    meaning: list[Int64s] = field(default_factory=list)  # class, mask, escape, donor by column
    entries: list[tuple[Int64s, Int64s, Floats]] = field(default_factory=list)
    low: list[Floats] = field(default_factory=list)
    high: list[Floats] = field(default_factory=list)
    columns: int = 0
    rows: int = 0

    def add_columns(self, costs: npt.ArrayLike, upper: npt.ArrayLike, **meaning: Int64s) -> Int64s:
        """Append columns; return their numbers."""
        cost, most = np.broadcast_arrays(np.asarray(costs, float), np.asarray(upper, float))
        table = np.full((cost.size, 4), _NOBODY, np.int64)
        for name, values in meaning.items():
            table[:, ("class", "mask", "escape", "donor").index(name.rstrip("_"))] = values
        self.costs.append(cost.ravel())
        self.upper.append(most.ravel())
        self.meaning.append(table)
        self.columns += cost.size
        return np.arange(self.columns - cost.size, self.columns)

    def add_rows(self, number: int, low: npt.ArrayLike, high: npt.ArrayLike) -> Int64s:
        """Append rows; return their numbers."""
        self.low.append(np.broadcast_to(np.asarray(low, float), (number,)))
        self.high.append(np.broadcast_to(np.asarray(high, float), (number,)))
        self.rows += number
        return np.arange(self.rows - number, self.rows)

    def enter(self, rows: Int64s, columns: Int64s, values: npt.ArrayLike) -> None:
        """Append entries of the matrix."""
        self.entries.append((rows, columns, np.broadcast_to(np.asarray(values, float), rows.shape)))

    def build(self) -> BlankingProgramme:
        """Build the programme, and label its independent parts."""
        from scipy import sparse  # slow to import, and every command that accounts for a masking comes here

        rows, columns, values = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        matrix = sparse.csr_array((values, (rows, columns)), shape=(self.rows, self.columns))
        links = sparse.coo_array(
            (np.ones(rows.size), (rows, self.rows + columns)), shape=(self.rows + self.columns,) * 2
        )
        _, part = sparse.csgraph.connected_components(links, directed=False)
        meaning = np.concatenate(self.meaning)
        return BlankingProgramme(
            programme=Programme(
                costs=np.concatenate(self.costs),
                upper=np.concatenate(self.upper),
                matrix=matrix,
                low=np.concatenate(self.low),
                high=np.concatenate(self.high),
            ),
            classes=meaning[:, 0],
            masks=meaning[:, 1],
            escapes=meaning[:, 2],
            donors=meaning[:, 3],
            component=part[self.rows :].astype(np.int64),
            row_component=part[: self.rows].astype(np.int64),
        )


def build(problem: Problem, taking_part: Int64s, *, slack: Floats) -> BlankingProgramme:
    """Build the programme for ``taking_part``; choices cost at most ``slack`` more than the cheapest.

    Where blanks are values, a choice that one class leaves to its escape could fill a cell for another. There all
    classes get the choices that lead to the same sets of blanks, those of the file included.
    """
    builder = _Builder()
    _, least = least_masks(problem, taking_part)
    dearest = least + slack
    if problem.meaning == "own":
        dearest = slack.max() - problem.cost(problem.blank[taking_part] & problem.keys)
    choices = _choices(problem, taking_part, dearest)
    if problem.meaning == "none":
        choices = _drop_duplicates(problem, taking_part, choices)
    columns = builder.add_columns(
        problem.cost(choices.masks), problem.members[choices.classes], class_=choices.classes, mask=choices.masks
    )
    balance = builder.add_rows(taking_part.size, problem.members[taking_part], problem.members[taking_part])
    builder.enter(balance[choices.rows], columns, 1.0)
    escapes = _add_escapes(problem, taking_part, np.maximum(dearest, least - 2 * _ROUNDING), builder, balance)
    for c in range(len(problem.combinations)):
        if problem.meaning == "none":
            _keep_cells(problem, c, taking_part, choices, columns, escapes, builder)
        else:
            _fill_cells(problem, c, taking_part, choices, columns, builder)
    return builder.build()


@dataclass(frozen=True, eq=False)
class _Choices:
    rows: Int64s  # positions among the classes that take part
    classes: Int64s
    masks: Int64s

    def select(self, kept: npt.NDArray[Any]) -> _Choices:
        return _Choices(self.rows[kept], self.classes[kept], self.masks[kept])


def _choices(problem: Problem, taking_part: Int64s, dearest: Floats) -> _Choices:
    prices = problem.cost(problem.candidates)
    near = problem.candidates[prices <= dearest.max(initial=0.0) + _ROUNDING]
    able = count_company(problem, taking_part, near) >= 1
    able &= problem.cost(near)[None, :] <= (dearest + _ROUNDING)[:, None]
    rows, places = np.nonzero(able)
    return _Choices(rows, taking_part[rows], near[places])


def _drop_duplicates(problem: Problem, taking_part: Int64s, choices: _Choices) -> _Choices:
    """Keep only the cheapest of a class's choices that leave the same cells in danger."""
    salts = mix_words(np.arange(len(problem.combinations), dtype=np.uint64))
    sign = np.zeros(choices.rows.size, np.uint64)
    for c, (mask, _) in enumerate(problem.combinations):
        danger = _find_endangered(problem, c, taking_part)
        hit = ((choices.masks & mask) != 0) & (danger[choices.rows] >= 0)
        sign[hit] += salts[c]
    order = np.lexsort((choices.masks, problem.cost(choices.masks), sign, choices.rows))
    first = np.ones(order.size, np.bool_)
    first[1:] = (np.diff(choices.rows[order]) != 0) | (sign[order][1:] != sign[order][:-1])
    return choices.select(np.sort(order[first]))


def _add_escapes(problem: Problem, taking_part: Int64s, dearest: Floats, builder: _Builder, balance: Int64s) -> Int64s:
    """Add a column per class for everything costlier than its choices; −1 where nothing is."""
    prices = np.unique(np.append(problem.cost(problem.candidates), unseen_price(problem)))
    place = np.searchsorted(prices, dearest + _ROUNDING, side="right")
    some = np.flatnonzero((place < prices.size) & (prices[np.minimum(place, prices.size - 1)] < np.inf))
    columns = np.full(taking_part.size, _NOBODY, np.int64)
    columns[some] = builder.add_columns(
        prices[place[some]], problem.members[taking_part[some]], escape=taking_part[some]
    )
    builder.enter(balance[some], columns[some], 1.0)
    return columns


def neighbours(problem: Problem, taking_part: Int64s) -> Int64s:
    """Return the classes in cells that could become too small if participating classes blank their keys."""
    found = [np.empty(0, np.int64)]
    for c, (mask, _) in enumerate(problem.combinations):
        ranks, _ = cell_ranks(problem.classes, decode_mask(mask))
        cells = np.unique(_find_endangered(problem, c, taking_part))
        found.append(np.flatnonzero(np.isin(ranks, cells[cells >= 0])))
    return np.unique(np.concatenate(found))


def _find_endangered(problem: Problem, c: int, taking_part: Int64s) -> Int64s:
    """Return each class's cell number in a combination if it could become too small; −1 if it is safe, or lost."""
    (mask, _), needed = problem.combinations[c], problem.needed[c]
    sizes = problem.classes.sizes.astype(np.float64)
    ranks, number = cell_ranks(problem.classes, decode_mask(mask))
    whole = np.bincount(ranks, sizes, number)
    moving = np.bincount(ranks[taking_part], sizes[taking_part], number)
    here = ((whole >= needed) & (whole - moving < needed))[ranks[taking_part]]
    here &= (problem.blank[taking_part] & mask) == 0
    return np.where(here, ranks[taking_part].astype(np.int64), _NOBODY)


def _keep_cells(
    problem: Problem,
    c: int,
    taking_part: Int64s,
    choices: _Choices,
    columns: Int64s,
    escapes: Int64s,
    builder: _Builder,
) -> None:
    """Require that a cell in danger stays large enough, or loses all of its participating records."""
    mask, needed = problem.combinations[c][0], problem.needed[c]
    danger = _find_endangered(problem, c, taking_part)
    inside = np.flatnonzero(danger >= 0)
    if not inside.size:
        return
    ranks, number = cell_ranks(problem.classes, decode_mask(mask))
    cells, of_row = np.unique(danger[inside], return_inverse=True)
    stays = builder.add_columns(0.0, np.ones(cells.size))
    keep = builder.add_rows(cells.size, -np.inf, np.bincount(ranks, problem.classes.sizes, number)[cells])
    builder.enter(keep, stays, needed)
    members = problem.members[taking_part[inside]].astype(np.float64)
    leave = builder.add_rows(inside.size, members, np.inf)
    builder.enter(leave, stays[of_row], members)
    able = escapes[inside] >= 0
    builder.enter(leave[able], escapes[inside][able], 1.0)
    place = np.full(taking_part.size, _NOBODY, np.int64)
    place[inside] = np.arange(inside.size)
    hit = np.flatnonzero(((choices.masks & mask) != 0) & (place[choices.rows] >= 0))
    rows = place[choices.rows[hit]]
    builder.enter(leave[rows], columns[hit], 1.0)
    builder.enter(keep[of_row[rows]], columns[hit], problem.unit[choices.classes[hit]])


def _fill_cells(
    problem: Problem, c: int, taking_part: Int64s, choices: _Choices, columns: Int64s, builder: _Builder
) -> None:
    """Require that a cell (blanks being values) is empty or large enough; outside records may be called into it."""
    names = CellNames(problem, c)
    outside = np.setdiff1d(np.arange(problem.members.size), taking_part)
    cells, first, of_choice = np.unique(
        names.of(choices.classes, choices.masks), return_index=True, return_inverse=True
    )
    there = names.sizes(cells, outside)
    open_ = np.flatnonzero(there < problem.needed[c])
    number = np.full(cells.size, _NOBODY, np.int64)
    number[open_] = np.arange(open_.size)
    some = np.flatnonzero(number[of_choice] >= 0)
    cell = number[of_choice[some]]
    opened = builder.add_columns(0.0, np.ones(open_.size))
    fill = builder.add_rows(open_.size, -there[open_], np.inf)
    builder.enter(fill, opened, -problem.needed[c])
    builder.enter(fill[cell], columns[some], problem.unit[choices.classes[some]])
    # Several choices of a class can lead to one cell; their sum is at most its records.
    pairs, of_pair = np.unique(np.stack([choices.classes[some], cell], axis=1), axis=0, return_inverse=True)
    only_open = builder.add_rows(len(pairs), -np.inf, 0.0)
    builder.enter(only_open[of_pair.ravel()], columns[some], 1.0)
    builder.enter(only_open, opened[pairs[:, 1]], -problem.members[pairs[:, 0]].astype(np.float64))
    if outside.size:
        _call_donors(problem, c, outside, choices.select(first[open_]), fill, builder)


def _call_donors(problem: Problem, c: int, outside: Int64s, cells: _Choices, fill: Int64s, builder: _Builder) -> None:
    """Let outside records join a cell; one that must blank something anyway pays only the rest."""
    mask, needed = problem.combinations[c][0], problem.needed[c]
    spent = np.zeros(problem.members.size)
    bound = outside[problem.classes.sizes[outside] < needed]
    spent[bound] = least_masks(problem, bound)[1]
    kinds, of_class = np.unique(np.stack([spent[outside], problem.blank[outside]], axis=1), axis=0, return_inverse=True)
    blanks = (cells.masks | problem.blank[cells.classes]) & mask
    heaviest = float(problem.unit[outside].max())
    for pattern in np.unique(blanks[blanks != 0]):
        here = np.flatnonzero(blanks == pattern)
        for kind, (before, blank) in enumerate(kinds):
            able = outside[of_class.ravel() == kind]
            there = _agreeing_records(problem, mask & ~int(pattern), able)[cells.classes[here]]
            some = here[there > 0]
            more = np.int64(pattern) & ~np.int64(blank)
            # With several combinations the same blanks may serve them all, so none can be charged.
            price = max(0.0, float(problem.cost(np.array(more))) - before) if len(problem.combinations) == 1 else 0.0
            called = builder.add_columns(price, there[there > 0], donor=cells.classes[some], mask=blanks[some])
            builder.enter(fill[some], called, heaviest)


def _agreeing_records(problem: Problem, keys: int, able: Int64s) -> Floats:
    """Count, for each class, the records of able classes that agree with it in these keys, none of them blank."""
    if not keys:
        return np.full(problem.members.size, float(problem.members[able].sum()))
    ranks, number = cell_ranks(problem.classes, decode_mask(keys))
    complete = problem.classes.complete(decode_mask(keys))
    able = able if complete is None else able[complete[able]]
    found: Floats = np.bincount(ranks[able], problem.members[able], number)[ranks].astype(np.float64)
    return found


class CellNames:
    """The names of one combination's cells, a blank being a value."""

    def __init__(self, problem: Problem, c: int) -> None:
        self._keys = np.array(decode_mask(problem.combinations[c][0]), np.int64)
        word, blank = draw_words(problem.classes.columns, problem.classes.blanks)
        self._word, self._blank = np.ascontiguousarray(word[:, self._keys]), blank[self._keys]
        self._sizes = problem.classes.sizes

    def of(self, classes: Int64s, masks: Int64s) -> npt.NDArray[np.uint64]:
        """Name the cell of records of these classes with these keys blanked."""
        chosen = np.zeros(classes.size, np.int64)
        for place, key in enumerate(self._keys):
            chosen |= ((masks >> key) & 1) << place
        return group_names(self._word[classes], self._blank, chosen)

    def sizes(self, cells: npt.NDArray[np.uint64], classes: Int64s) -> Floats:
        """Sum, for each of the (sorted) cells, the size of these classes when unchanged."""
        if not cells.size:
            return np.zeros(0)
        names = self.of(classes, np.zeros(classes.size, np.int64))
        place = np.minimum(np.searchsorted(cells, names), cells.size - 1)
        here = cells[place] == names
        found: Floats = np.bincount(place[here], self._sizes[classes[here]], cells.size).astype(np.float64)
        return found
