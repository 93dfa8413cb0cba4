"""Rank swapping: exchange values that are near in rank between records.

Sources: Moore 1996 (Controlled data-swapping techniques for masking public use microdata sets); Domingo-Ferrer & Torra
2001. Every attribute is swapped on its own, so its distribution is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from safeswap.arrays import moments
from safeswap.arrays.compiled import njit
from safeswap.arrays.order import bucket_sort
from safeswap.arrays.threads import run_all
from safeswap.arrays.types import Floats, Rows, Words
from safeswap.engines.memory import exchange
from safeswap.errors import SpecError
from safeswap.methods.numeric.promises import KeptMean, MissingStays, RanksNear
from safeswap.methods.numeric.spec import RankSwapSpec
from safeswap.methods.value_change import (
    ValuePlan,
    record_words,
    refuse_constant,
    refuse_extreme,
    refuse_few,
    rounding_step,
)
from safeswap.model.audit import Exchange, Replacement
from safeswap.model.invariant import (
    ChangedRecords,
    DisjointPairs,
    Invariant,
    KeptMargin,
    PairsDiffer,
    ReplaysFromAudit,
    SameRows,
    UntouchedColumns,
)
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import changed_numbers, ordered_numbers
from safeswap.model.schema import Kind
from safeswap.model.text import several

# Pairing goes from the lowest value upwards; the partner is drawn from the free records above (Moore 1996). The r-th
# free record of a window is found by a tree of counts (Fenwick 1994), in logarithmic time for any width.

_HALF = np.uint64(32)


def rank_order(values: Floats, words: Words) -> Rows:
    """Return rows by ascending value; equal values in the order of their draws (two words per record).

    Records are first ordered by their draws, in linear time, and then sorted by a stable sort.

    >>> rank_order(np.array([2.0, 1.0, 2.0]), np.array([[5, 0], [9, 0], [3, 0]], np.uint64)).tolist()
    [1, 2, 0]
    """
    if not len(values):
        return np.empty(0, dtype=np.int64)
    by_draw, met = bucket_sort(np.arange(len(values), dtype=np.int64), np.ascontiguousarray(words[:, 0]))
    if met:  # two 64-bit draws are equal: the second word decides
        by_draw = np.lexsort((words[:, 1], words[:, 0]))
    return np.asarray(by_draw[np.argsort(values[by_draw], kind="stable")])


@njit(cache=True, nogil=True)
def pairs_within(ordered: Floats, draws: Words, window: int) -> Rows:
    """Draw disjoint pairs of positions at most ``window`` apart whose values differ.

    ``ordered`` are the values in ascending order, ``draws`` one uniform word per position. The lowest position without
    a partner takes, with equal probability, one of the free positions above it within the window that have another
    value; if there is none it keeps its value.

    >>> pairs_within(np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(4, np.uint64), 1).tolist()
    [[0, 1], [2, 3]]
    """
    number = len(ordered)
    tree = _build_tree(number)
    taken = np.zeros(number, dtype=np.bool_)
    pairs = np.empty((number // 2, 2), dtype=np.int64)
    made = 0
    behind = 0  # the first position above i with another value
    for i in range(number):
        if behind <= i:
            behind = i + 1
        while behind < number and ordered[behind] == ordered[i]:
            behind += 1
        end = min(number, i + window + 1)
        if taken[i] or behind >= end:
            continue
        below = _count_free_before(tree, behind)
        free = _count_free_before(tree, end) - below
        if free == 0:
            continue
        # The leading half of a word times a number below 2³², truncated: uniform to one part in 2³².
        drawn = int(((draws[i] >> _HALF) * np.uint64(free)) >> _HALF)
        partner = _find_nth_free(tree, below + drawn)
        taken[i] = taken[partner] = True
        _take(tree, i)
        _take(tree, partner)
        pairs[made, 0], pairs[made, 1] = i, partner
        made += 1
    return pairs[:made]


@njit(cache=True, nogil=True)
def _build_tree(number: int) -> npt.NDArray[np.int32]:
    tree = np.empty(number + 1, dtype=np.int32)
    for i in range(number + 1):
        tree[i] = i & -i
    return tree


@njit(cache=True, nogil=True)
def _count_free_before(tree: npt.NDArray[np.int32], place: int) -> int:
    total = 0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@njit(cache=True, nogil=True)
def _take(tree: npt.NDArray[np.int32], place: int) -> None:
    place += 1
    while place < len(tree):
        tree[place] -= 1
        place += place & -place


@njit(cache=True, nogil=True)
def _find_nth_free(tree: npt.NDArray[np.int32], n: int) -> int:
    """Return the free position with n free positions before it."""
    place = 0
    step = 1
    while 2 * step < len(tree):
        step *= 2
    while step:
        if place + step < len(tree) and tree[place + step] <= n:
            place += step
            n -= tree[place]
        step //= 2
    return place


class RankSwap:
    """Exchange values between records near in rank."""

    name: ClassVar[str] = "rank_swap"
    title: ClassVar[str] = "Rank swapping of numeric and ordinal attributes"
    spec_type: ClassVar[type[RankSwapSpec]] = RankSwapSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Moore 1996, Controlled data-swapping techniques for masking public use microdata sets, SRD report RR96/04",
        "Domingo-Ferrer & Torra 2001, A quantitative comparison of disclosure control methods for microdata",
    )

    def plan(self, data: Microdata, spec: RankSwapSpec) -> ValuePlan:
        """Return the width of the window and the maximum number of pairs."""
        columns = _ordered_columns(data, spec)
        pairs = sum(_Ends.of(values, spec).between // 2 for values in columns.values()) if spec.window else 0
        widths = {spec.ranks(int(np.count_nonzero(~np.isnan(values)))) for values in columns.values()}
        width = f"{min(widths):,}" if len(widths) == 1 else f"{min(widths):,} to {max(widths):,}"
        text = (
            f"up to {several(pairs, 'pair exchanges', 'pairs exchange')} values of {', '.join(spec.attributes)} "
            f"over at most {width} ranks"
        )
        return ValuePlan.of(spec, data, pairs, text)

    def apply(self, data: Microdata, spec: RankSwapSpec, *, key: Key, replicate: int = 0) -> Masked:
        """Order, pair and exchange; then set the groups at the ends to their means, if requested."""
        plan = self.plan(data, spec)
        columns = _ordered_columns(data, spec)
        orders: dict[str, Rows] = {}
        exchanged: dict[str, Rows] = {}

        def draw(name: str) -> None:
            words = record_words(data, key, self.name, name, replicate=replicate)
            orders[name], exchanged[name] = _draw_pairs(columns[name], words, spec)

        run_all(draw, spec.attributes)
        masked = data
        exchanges = []
        for name in spec.attributes:
            if len(exchanged[name]):
                masked = exchange(masked, (name,), exchanged[name])
                exchanges.append(Exchange(attributes=(name,), pairs=exchanged[name]))
        masked, replacements = _average_ends(masked, columns, orders, spec)
        made = sum(len(exchange.pairs) for exchange in exchanges)
        facts = {"made": made, "exchanges": tuple(exchanges), "replacements": replacements}
        return Masked.by(spec, data, masked, plan, key=key, replicate=replicate, **facts)

    def invariants(self, data: Microdata, spec: RankSwapSpec) -> tuple[Invariant, ...]:
        """Promise margins kept (or means, if the ends are averaged), near ranks and untouched columns."""
        columns = _ordered_columns(data, spec)
        untouched = tuple(name for name in data.attributes if name not in spec.attributes)
        promises: list[Invariant] = [SameRows(), UntouchedColumns(untouched), DisjointPairs(), ReplaysFromAudit()]
        promises += [MissingStays(spec.attributes), PairsDiffer(spec.attributes, "any")]
        for name, values in columns.items():
            promises.append(RanksNear(name, spec.ranks(int(np.count_nonzero(~np.isnan(values))))))
            if spec.top or spec.bottom:
                promises.append(KeptMean(name, rounding_step(values, None)))
            else:
                promises.append(KeptMargin((name,)))
        return tuple(promises if spec.top or spec.bottom else [*promises, ChangedRecords()])


@dataclass(frozen=True, kw_only=True)
class _Ends:
    """The number of known values at each end, and between."""

    bottom: int
    top: int
    between: int

    @classmethod
    def of(cls, values: Floats, spec: RankSwapSpec) -> _Ends:
        known = int(np.count_nonzero(~np.isnan(values)))
        bottom, top = (int(round(share * known, 6)) for share in (spec.bottom, spec.top))
        return cls(bottom=bottom, top=top, between=known - bottom - top)


def _ordered_columns(data: Microdata, spec: RankSwapSpec) -> dict[str, Floats]:
    """Return the attributes as numbers in their order; refuse attributes without an order or variation."""
    columns = {}
    for name in spec.attributes:
        if data.schema[name].kind in (Kind.NOMINAL, Kind.GEOGRAPHY, Kind.HOUSEHOLD):
            raise SpecError(
                f"{name!r} is {data.schema[name].kind.value}: its values have no order to swap by",
                code="no-order",
                hint="name numeric or ordinal attributes, or use the method swap",
                attribute=name,
            )
        if (spec.top or spec.bottom) and data.schema[name].kind is Kind.ORDINAL:
            raise SpecError(
                f"{name!r} is ordinal: its ends have no mean",
                code="no-mean",
                hint="leave out top and bottom, or name numeric attributes only",
                attribute=name,
            )
        columns[name] = ordered_numbers(data, name)
        refuse_constant(name, columns[name])
        if spec.top or spec.bottom:
            refuse_extreme(name, columns[name])
        ends = _Ends.of(columns[name], spec)
        refuse_few(name, ends.top, "top")
        refuse_few(name, ends.bottom, "bottom")
    return columns


def _draw_pairs(values: Floats, words: Words, spec: RankSwapSpec) -> tuple[Rows, Rows]:
    """Return the known rows in the order of their values, and the pairs of rows that exchange them."""
    known = np.flatnonzero(~np.isnan(values))
    order = known[rank_order(values[known], words[known])]
    ends = _Ends.of(values, spec)
    between = order[ends.bottom : ends.bottom + ends.between]
    draws = np.ascontiguousarray(words[between, 1])
    found = pairs_within(values[between], draws, spec.ranks(len(known)))
    return order, between[found]


def _average_ends(
    data: Microdata, columns: dict[str, Floats], orders: dict[str, Rows], spec: RankSwapSpec
) -> tuple[Microdata, tuple[Replacement, ...]]:
    replacements = []
    for name, before in columns.items():
        ends = _Ends.of(before, spec)
        if not (ends.top or ends.bottom):
            continue
        now = ordered_numbers(data, name)
        values = now.copy()
        written = np.zeros(len(values), dtype=np.bool_)
        for rows in (orders[name][: ends.bottom], orders[name][ends.bottom + ends.between :]):
            if len(rows):
                values[rows] = moments.mean(before[rows])
                written[rows] = True
        change = changed_numbers(data, name, values, now, written=written)
        if change.replacement is not None:
            data = data.with_columns({name: change.column}, {})
            replacements.append(change.replacement)
    return data, tuple(replacements)
