"""Rank swapping: exchange values that are near in rank between records.

Sources: Moore 1996 (Controlled data-swapping techniques for masking public use microdata sets); Domingo-Ferrer & Torra
2001. Every attribute is swapped on its own, so its distribution is unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from safeswap.arrays import moments
from safeswap.arrays.compiled import njit, run_all
from safeswap.arrays.free_places import FreePlaces, find_lowest_bit, is_free, take_nth
from safeswap.arrays.keyed import KeyedWords
from safeswap.arrays.types import Floats, Integers, Rows, UInt32s, Words
from safeswap.engines.memory import exchange
from safeswap.errors import SpecError
from safeswap.methods.numeric.spec import KeptMean, MissingStays, RanksNear, RankSwapSpec
from safeswap.methods.value_change import (
    ValuePlan,
    make_draws,
    refuse_constant,
    refuse_extreme,
    refuse_few,
    rounding_step,
)
from safeswap.model.audit import Exchange, Replacement
from safeswap.model.effect import Effect, Permuted, Replaced
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
from safeswap.model.schema import Kind, Schema
from safeswap.model.text import list_names, plural

# Values, draws and row numbers are packed into one word each, as far as they fit: plain words are sorted by their
# digits in a few passes, without looking anything up. Large arrays are made here and not in the kernels: NumPy asks for
# huge pages, Numba does not, and at 10⁷ records small pages take longer than the work on them.

_SCALES = (1.0, 10.0, 100.0, 1000.0)
_EXACT = 2.0**52
_ATTEMPTS = 4
_MOST_TIED = 1 << 18  # sorted at once: they fit the cache, and their arrays are reused
_TOGETHER = 512  # records, by vector instructions
_WORD = 64
_HALF = np.uint64(32)
_NOT_ASKED = np.empty(0, dtype=np.uint32)


def rank_values(values: Floats, words: KeyedWords) -> tuple[UInt32s, Words, UInt32s]:
    """Return rows by ascending value, equal ones by their words; for each a key of its value, and half a word to draw.

    The values are overwritten: at 10⁶ records a tenth of the time goes by until fresh memory is there.

    >>> rank_values(np.array([2.0, 1.0, 2.0]), KeyedWords(np.arange(3), bytes(32)))[0].tolist()
    [1, 2, 0]
    """
    rows, halves, draws = np.empty((3, len(values)), dtype=np.uint32)  # together large enough for huge pages
    if not len(values):
        return rows, np.empty(0, dtype=np.uint64), draws
    keys = _sort_keys(_order_keys(values), words, rows, halves)
    _gather(halves, rows, draws)
    return rows, keys, draws


def order_records(columns: Sequence[Floats], words: KeyedWords) -> Rows:
    """Return rows by ascending values of the columns, the first before the second; equal ones by their words.

    >>> columns = np.array([2.0, 1.0, 2.0]), np.array([0.5, 0.5, 0.0])
    >>> order_records(columns, KeyedWords(np.arange(3), bytes(32))).tolist()
    [1, 2, 0]
    """
    keys = [_order_keys(values.copy()) for values in columns] if len(columns[0]) else []
    bits = [int(each.max()).bit_length() for each in keys]
    if not keys or sum(bits) > _WORD:
        first, second = words.whole().T
        return np.asarray(np.lexsort((second, first, *reversed(columns))))
    together = keys[0]
    for each, width in zip(keys[1:], bits[1:], strict=True):
        together <<= np.uint64(width)
        together |= each
    del keys
    rows = np.empty(len(together), dtype=np.int64)
    _sort_keys(together, words, rows)
    return rows


def _sort_keys(
    keys: Words, words: KeyedWords, rows: Integers, halves: UInt32s = _NOT_ASKED, attempts: int = _ATTEMPTS
) -> Words:
    """Fill in the rows by key and words, and half of each second word, if asked for; return the keys in that order.

    The keys given are overwritten where they and the rows fit a word together.
    """
    if not attempts:  # equal words, which no two records have
        first, second = words.whole().T
        rows[:] = np.lexsort((second, first, keys))
        return np.asarray(keys[rows])
    row_bits = (len(keys) - 1).bit_length()
    spare = 64 - row_bits - int(keys.max()).bit_length()  # bits for the draw; negative: the keys are cut
    packed = keys if spare >= 0 else np.empty_like(keys)
    for start, part in words.chunks():
        end = start + len(part)
        _pack(keys[start:end], part, (row_bits, start, spare), packed[start:end], halves[start:end])
    packed.sort()  # rows ascend where all above is equal
    _unpack_rows(packed, row_bits, rows)
    start, room = 0, min(_MOST_TIED, len(packed))
    while start < len(packed):
        # Ties are sorted by their number and by what was cut off, which leaves more bits for the draw.
        places, numbers = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.uint64)
        tied, start = _list_tied(packed, row_bits, start, places, numbers)
        if not tied:
            room *= 2  # the next tie is longer
            continue
        places, numbers = places[:tied], numbers[:tied]
        some, order = rows[places], np.empty(tied, dtype=np.int64)
        if spare < 0:
            numbers <<= np.uint64(-spare)
            numbers |= keys[some] & ((np.uint64(1) << np.uint64(-spare)) - np.uint64(1))
        _sort_keys(numbers, words.take(some), order, attempts=attempts - 1)
        rows[places] = some[order]
    if spare < 0:
        return np.asarray(keys[rows])
    if row_bits + spare < _WORD:
        packed >>= np.uint64(row_bits + spare)  # in place: at 10⁷ records fresh memory costs more than the shift
    else:  # all values are equal
        packed[:] = 0
    return packed


def _order_keys(values: Floats) -> Words:
    """Return whole numbers in the order of the values, from 0: the values in their last decimal, else their bits.

    The values are overwritten.
    """
    for scale in _SCALES:
        if _are_whole(values, scale):
            _scale(values, scale)
            keys: Words = values.view(np.uint64)
            keys -= keys.min()
            return keys
    values += 0.0  # −0.0 becomes 0.0
    bits = values.view(np.int64)
    signed = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return np.asarray(signed.view(np.uint64) - np.uint64(int(signed.min()) % 2**64))


@njit(cache=True, nogil=True, error_model="numpy")
def _are_whole(values: Floats, scale: float) -> bool:
    """Return whether all values are whole multiples of 1 / ``scale``, and not too large."""
    for start in range(0, len(values), _TOGETHER):
        some = values[start : start + _TOGETHER]
        others = 0  # counted, not branched upon: the loop becomes vector instructions
        for i in range(len(some)):
            multiple = np.rint(some[i] * scale)
            others += (multiple / scale != some[i]) | (abs(multiple) >= _EXACT)
        if others:
            return False
    return True


@njit(cache=True, nogil=True)
def _scale(values: Floats, scale: float) -> None:
    """Put the multiples of 1 / ``scale``, moved above 0, in the place of the values."""
    multiples = values.view(np.int64)
    for i in range(len(values)):
        multiples[i] = np.int64(np.rint(values[i] * scale)) + np.int64(_EXACT)


@njit(cache=True, nogil=True)
def _pack(keys: Words, words: Words, layout: tuple[int, int, int], packed: Words, halves: UInt32s) -> None:
    """Put the key, the leading bits of the first word and the row into a word; set half the second word apart."""
    row_bits, row, spare = np.uint64(layout[0]), np.uint64(layout[1]), layout[2]
    first, second = words[:, 0], words[:, 1]
    if spare > 0:
        up, down = np.uint64(spare), np.uint64(64 - spare)
        for i in range(len(keys)):
            packed[i] = (keys[i] << up | first[i] >> down) << row_bits | (row + np.uint64(i))
    else:
        down = np.uint64(-spare)
        for i in range(len(keys)):
            packed[i] = keys[i] >> down << row_bits | (row + np.uint64(i))
    for i in range(len(halves)):
        halves[i] = second[i] >> _HALF


@njit(cache=True, nogil=True)
def _unpack_rows(packed: Words, row_bits: int, rows: Integers) -> None:
    mask = (np.uint64(1) << np.uint64(row_bits)) - np.uint64(1)
    for i in range(len(packed)):
        rows[i] = packed[i] & mask


@njit(cache=True, nogil=True)
def _list_tied(packed: Words, row_bits: int, start: int, places: Rows, numbers: Words) -> tuple[int, int]:
    """List the next rows that tie, all but the row being equal: their places, and for each the number of its tie.

    Return how many they are, of whole ties as far as there is room, and where the others start.
    """
    shift, found, tie = np.uint64(row_bits), 0, np.uint64(0)
    while start < len(packed):
        stop = min(start + _TOGETHER, len(packed) - 1)
        some, following = packed[start:stop], packed[start + 1 : stop + 1]
        equal = 0
        for i in range(len(some)):
            equal += some[i] >> shift == following[i] >> shift
        if not equal:
            start = stop if stop + 1 < len(packed) else len(packed)
        while equal and start < stop:
            end = start + 1
            while end < len(packed) and packed[end] >> shift == packed[start] >> shift:
                end += 1
            if end - start > 1:
                if found + end - start > len(places):
                    return found, start
                for place in range(start, end):
                    places[found], numbers[found] = place, tie
                    found += 1
                tie += np.uint64(1)
            start = end
    return found, start


# Pairing goes from the lowest value upwards; the partner is drawn from the free records above (Moore 1996).


def pairs_within(keys: Words, rows: UInt32s, draws: UInt32s, window: int) -> Rows:
    """Draw disjoint pairs of rows at most ``window`` positions apart whose values differ.

    ``rows`` are in the order of their values, ``keys`` equal where these are. The lowest row without a partner takes,
    with equal probability, one of the free rows above it within the window that have another value; if there is none it
    keeps its value.

    >>> draws = np.zeros(4, np.uint32)
    >>> pairs_within(np.array([1, 2, 3, 4], np.uint64), np.array([3, 2, 1, 0], np.uint32), draws, 1).tolist()
    [[3, 2], [1, 0]]
    """
    pairs = np.empty((len(keys) // 2, 2), dtype=np.int64)
    places = pairs.reshape(-1).view(np.uint32)[: pairs.size].reshape(-1, 2)  # in the first half of the pairs' memory
    made = _pair_within(keys, draws, window, FreePlaces.all_of(len(keys)), places)
    _look_up(rows, places[:made], pairs)
    return pairs[:made]


@njit(cache=True, nogil=True)
def _gather(values: UInt32s, rows: UInt32s, gathered: UInt32s) -> None:
    for i in range(len(rows)):
        gathered[i] = values[rows[i]]


@njit(cache=True, nogil=True)
def _look_up(rows: UInt32s, places: UInt32s, pairs: Rows) -> None:
    """Turn positions into rows. One load waits for another only while pairing, which so takes half the time."""
    for i in range(len(places) - 1, -1, -1):  # from the last: a pair takes more room than its places
        pairs[i, 0], pairs[i, 1] = rows[places[i, 0]], rows[places[i, 1]]


@njit(cache=True, nogil=True)
def _pair_within(keys: Words, draws: UInt32s, window: int, line: FreePlaces, pairs: UInt32s) -> int:
    """Fill in the pairs, as positions; return their number."""
    number = len(keys)
    made = 0
    behind, end = 0, 0  # partners are free positions from the one to before the other
    below, free = 0, 0  # free positions before, and between
    for place in range(len(line.bits)):
        word = line.bits[place]  # the positions of this word that have not had their turn
        while word:
            i = 64 * place + int(find_lowest_bit(word))
            word &= word - np.uint64(1)
            last = min(number, i + window + 1)
            free += last - end
            end = last
            if behind <= i:  # the positions skipped to get to this one are all taken
                below, free, behind = below + 1, free - 1, i + 1
            while behind < end and keys[behind] == keys[i]:
                one = is_free(line, behind)
                below += one
                free -= one
                behind += 1
            if free == 0:
                continue
            # The leading half of a word times a number below 2³², truncated: uniform to one part in 2³².
            drawn = int((np.uint64(draws[i]) * np.uint64(free)) >> _HALF)
            partner = take_nth(line, below + drawn)
            pairs[made, 0], pairs[made, 1] = i, partner
            if partner >> 6 == place:  # seldom: a load of every word again would wait for the search
                word &= line.bits[place]
            free -= 1
            made += 1
    return made


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
        return self._plan(_ordered_columns(data, spec), spec)

    def _plan(self, columns: dict[str, _Column], spec: RankSwapSpec) -> ValuePlan:
        pairs = sum(column.between // 2 for column in columns.values()) if spec.window else 0
        widths = {spec.ranks(column.known) for column in columns.values()}
        width = f"{min(widths):,}" if len(widths) == 1 else f"{min(widths):,} to {max(widths):,}"
        text = (
            f"up to {plural(pairs, 'pair exchanges', 'pairs exchange')} values of {list_names(spec.attributes)} "
            f"over at most {width} ranks"
        )
        return ValuePlan.of(spec, len(next(iter(columns.values())).values), pairs, text)

    def apply(self, data: Microdata, spec: RankSwapSpec, *, key: Key, replicate: int = 0) -> Masked:
        """Order, pair and exchange; then set the groups at the ends to their means, if requested."""
        columns = _ordered_columns(data, spec)
        plan = self._plan(columns, spec)
        orders: dict[str, UInt32s] = {}
        exchanged: dict[str, Rows] = {}

        words = make_draws(data, key, self.name, replicate=replicate).lazy_words(data, spec.attributes)

        def draw(name: str) -> None:
            orders[name], exchanged[name] = _draw_pairs(columns[name], words[name], spec)

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

    def effects(self, schema: Schema, spec: RankSwapSpec) -> tuple[Effect, ...]:
        """Return that values moved, or were replaced if the ends are averaged."""
        kind = Replaced if spec.top or spec.bottom else Permuted
        return tuple(kind((name,)) for name in spec.attributes)

    def invariants(self, data: Microdata, spec: RankSwapSpec) -> tuple[Invariant, ...]:
        """Promise margins kept (or means, if the ends are averaged), near ranks and untouched columns."""
        columns = _ordered_columns(data, spec)
        untouched = tuple(name for name in data.attributes if name not in spec.attributes)
        promises: list[Invariant] = [SameRows(), UntouchedColumns(untouched), DisjointPairs(), ReplaysFromAudit()]
        promises += [MissingStays(spec.attributes), PairsDiffer(spec.attributes, "any")]
        for name, column in columns.items():
            promises.append(RanksNear(name, spec.ranks(column.known)))
            if spec.top or spec.bottom:
                promises.append(KeptMean(name, rounding_step(column.values, None)))
            else:
                promises.append(KeptMargin((name,)))
        return tuple(promises if spec.top or spec.bottom else [*promises, ChangedRecords()])


@dataclass(frozen=True, kw_only=True)
class _Column:
    """An attribute as numbers in their order, and the number of known values: at each end, and between."""

    values: Floats
    bottom: int
    top: int
    between: int

    @classmethod
    def of(cls, values: Floats, spec: RankSwapSpec) -> _Column:
        known = len(values) - int(np.count_nonzero(np.isnan(values)))
        bottom, top = (int(round(share * known, 6)) for share in (spec.bottom, spec.top))
        return cls(values=values, bottom=bottom, top=top, between=known - bottom - top)

    @property
    def known(self) -> int:
        return self.bottom + self.between + self.top


def _ordered_columns(data: Microdata, spec: RankSwapSpec) -> dict[str, _Column]:
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
                hint="omit top and bottom, or name numeric attributes only",
                attribute=name,
            )
        column = columns[name] = _Column.of(ordered_numbers(data, name), spec)
        refuse_constant(name, column.values)
        if spec.top or spec.bottom:
            refuse_extreme(name, column.values)
        refuse_few(name, column.top, "top")
        refuse_few(name, column.bottom, "bottom")
    return columns


def _draw_pairs(column: _Column, words: KeyedWords, spec: RankSwapSpec) -> tuple[UInt32s, Rows]:
    """Return the known rows in the order of their values, and the pairs of rows that exchange them.

    The values are overwritten unless means of them are taken.
    """
    values = column.values
    if column.known < len(values):
        known = np.flatnonzero(~np.isnan(values))
        order, keys, draws = rank_values(values[known], words.take(known))
        order = known.astype(np.uint32)[order]
    else:
        is_needed = column.bottom or column.top
        order, keys, draws = rank_values(values.copy() if is_needed else values, words)
    between = slice(column.bottom, column.bottom + column.between)
    return order, pairs_within(keys[between], order[between], draws[between], spec.ranks(len(order)))


def _average_ends(
    data: Microdata, columns: dict[str, _Column], orders: dict[str, UInt32s], spec: RankSwapSpec
) -> tuple[Microdata, tuple[Replacement, ...]]:
    replacements = []
    for name, column in columns.items():
        if not (column.top or column.bottom):
            continue
        now = ordered_numbers(data, name)
        values = now.copy()
        written = np.zeros(len(values), dtype=np.bool_)
        for rows in (orders[name][: column.bottom], orders[name][column.bottom + column.between :]):
            if len(rows):
                values[rows] = moments.mean(column.values[rows])
                written[rows] = True
        change = changed_numbers(data, name, values, now, written=written)
        if change.replacement is not None:
            data = data.with_columns({name: change.column}, {})
            replacements.append(change.replacement)
    return data, tuple(replacements)
