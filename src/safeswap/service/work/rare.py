"""Rare levels, which too few records have to be named: hide them in texts, tables and the order of levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import exp, factorial, prod, sqrt
from typing import Any

import numpy as np
from pydantic import Field

from safeswap.arrays import keyed
from safeswap.arrays.hiding import hide_cells, perturb
from safeswap.arrays.types import Counts, Flags, Rows, UInt64s, Words
from safeswap.files.describe import CellSummary, hide_levels_of
from safeswap.files.infer import order_of_levels
from safeswap.measures.risk.risky import Risky
from safeswap.measures.table_check import TableCheck
from safeswap.model.combination import as_combinations
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema, level_texts
from safeswap.model.text import plural
from safeswap.service.http.problems import Unprocessable
from safeswap.service.http.wire import Wire
from safeswap.workflow.recode_advice import Advice, AdviceList

RARE = "(rare levels)"
MISSING = "(missing)"


def shown_texts(data: Microdata, name: str, tolerance: int) -> list[str]:
    """Return the levels of an attribute by code, missing last, with rare ones replaced by a common label.

    >>> import pyarrow as pa
    >>> from safeswap import read
    >>> towns = pa.table({"Town": ["A", "A", "B"]})
    >>> shown_texts(read(towns, kinds={"Town": "nominal"}), "Town", 2)
    ['A', '(rare levels)', '(missing)']
    """
    coded = data.coded(name)
    rare, _ = _hide(data, name, tolerance)
    named = zip(level_texts(coded.levels), rare[:-1], strict=True)
    return [*(RARE if is_rare else text for text, is_rare in named), MISSING]


def rare_texts(data: Microdata, name: str, tolerance: int) -> frozenset[str]:
    """Return the levels of an attribute that must not be named."""
    named = zip(level_texts(data.coded(name).levels), shown_texts(data, name, tolerance), strict=False)
    return frozenset(text for text, shown in named if shown == RARE)


def hidden_texts(data: Microdata, name: str, tolerance: int) -> frozenset[str]:
    """Return the levels that are named but not counted, since their counts would reveal those of rare ones.

    Missing is one of them if few values are missing.
    """
    rare, hidden = _hide(data, name, tolerance)
    hidden[-1] |= rare[-1]
    named = zip([*level_texts(data.coded(name).levels), MISSING], hidden, strict=True)
    return frozenset(text for text, is_hidden in named if is_hidden)


def _hide(data: Microdata, name: str, tolerance: int) -> tuple[Flags, Flags]:
    """Return the rare and the hidden levels as in the description, missing last."""
    coded = data.coded(name)
    counts = np.bincount(coded.codes, minlength=len(coded.levels) + 1)
    rare, hidden = hide_levels_of(data, name, tolerance)
    return rare | (counts == 0), hidden


def restore_rare_levels(schema: Schema, data: Microdata, tolerance: int) -> Schema:
    """Add the hidden levels to a schema whose levels were reordered by someone who was not shown them.

    ``data`` have the old schema. A visible level that was left out stays left out and is reported as an error later.
    """
    changed = [a for a in schema.attributes if a.levels and a.levels != data.schema[a.name].levels]
    return schema.replace(*(a.model_copy(update={"levels": _all_levels(a, data, tolerance)}) for a in changed))


def _all_levels(attribute: Attribute, data: Microdata, tolerance: int) -> tuple[str, ...]:
    before = data.schema[attribute.name].levels
    occurring = [text for text in level_texts(data.coded(attribute.name).levels) if text not in attribute.missing]
    rare = rare_texts(data, attribute.name, tolerance)
    shown = set(occurring) - rare
    unshown = {*rare, *before} - shown - set(attribute.missing)  # levels without records are not shown
    return insert_hidden(attribute.levels, before or order_of_levels(occurring), unshown=unshown)


def insert_hidden(stated: Sequence[str], order: Sequence[str], *, unshown: Set[str]) -> tuple[str, ...]:
    """Insert hidden levels into a new order: each after its old predecessor, or last if it had none.

    >>> insert_hidden(["3", "1"], ["0", "1", "2", "3"], unshown={"0", "2", "other"})
    ('0', '3', '1', '2', 'other')
    """
    placed, behind = list(stated), 0
    for level in order:
        if level in unshown and level not in placed:
            placed.insert(behind, level)
        if level in placed:
            behind = placed.index(level) + 1
    return (*placed, *sorted(unshown - set(placed)))


MOST_CELLS = 20_000
_MOST_PLACES = 10**6
_MOST_WORK = 10**9  # cells examined by complementary suppression
_MOST_EXACT = 2  # attributes of a table that is counted on the file itself
_MOST_DRAWN = 20  # times a record can be in the sample: more have no chance in 64 bits
_REPLACED = 16  # one in this many values is taken from another record


class Cell(Wire):
    """One cell of a table before and after.

    Counts below the tolerance are hidden, and so are those from which they could be derived.
    """

    levels: tuple[str, ...]
    before: int | None
    after: int | None
    changed: bool | None


class BeforeAfterAnswer(Wire):
    """A table of the original and of the masked data, side by side."""

    attributes: tuple[str, ...]
    tolerance: int
    is_sampled: bool = Field(default=False, description="Counted on a random sample, as large as the file on average.")
    cells: tuple[Cell, ...]


def before_after(masked: Masked, attributes: tuple[str, ...], *, tolerance: int, key: Key) -> BeforeAfterAnswer:
    """Return a table before and after masking, without counts below ``tolerance`` and those that would reveal them.

    Rare levels are combined under one label. Tables of three or more attributes, and of recoded files, are counted on a
    sample: hiding cells cannot protect several of them against being combined or subtracted. All of them are counted on
    one :class:`Sample`, so that together they reveal no more than it does.

    >>> import safeswap
    >>> masked = safeswap.swap(safeswap.datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> table = before_after(masked, ("Race",), tolerance=3, key=safeswap.Key.generate())
    >>> [(cell.levels[0], cell.before) for cell in table.cells]
    [('Non-White', 7080), ('White', 41762)]
    """
    for name in attributes:
        if not masked.original.schema[name].kind.is_categorical:
            raise Unprocessable("a table needs categorical attributes", code="not-categorical", attribute=name)
    both = masked.original, masked.data
    axes = [_axis(both, name, tolerance) for name in attributes]
    if prod(map(len, axes)) > _MOST_PLACES:
        raise _too_large()
    rare = [rare_texts(masked.original, name, tolerance) for name in attributes]
    is_recoded = bool(masked.original.past) or masked.spec.method == "recode"
    is_sampled = is_recoded or len(attributes) > _MOST_EXACT
    sample = Sample(masked.original, key) if is_sampled else None
    before, after = (count_cells(data, attributes, axes, rare, sample) for data in both)
    if int(((before > 0) | (after > 0)).sum()) > MOST_CELLS:
        raise _too_large()
    # Per attribute the levels without counts: the rare ones and those hidden with them.
    levels = [frozenset({RARE, *hidden_texts(masked.original, name, tolerance)}) for name in attributes]
    if is_sampled:
        hidden = _hide_sampled([before, after], axes, levels, tolerance)
    else:
        own = [np.isin(axis, _axis(both[:1], name, tolerance)) for axis, name in zip(axes, attributes, strict=True)]
        hidden = _hide_cells((before, after), own, _are_unshown(axes, levels), attributes, tolerance)
    cells = tuple(_cells(axes, before, after, hidden))
    return BeforeAfterAnswer(attributes=attributes, tolerance=tolerance, is_sampled=is_sampled, cells=cells)


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample of the records in which some values are those of other records. It follows from key and records.

    A record is in it a Poisson number of times, 1 on average: any count may be behind any figure. One value in sixteen
    is taken from a random record, so that no combination of values is known to occur.
    """

    data: Microdata
    key: Key

    @cached_property
    def weights(self) -> Counts:
        """The number of times each record is in the sample."""
        terms = np.cumsum([exp(-1) / factorial(number) for number in range(_MOST_DRAWN)])
        return np.searchsorted(terms, self._words("number")[:, 0] / 2.0**64, side="right").astype(np.int64)

    def rows(self, name: str) -> Rows:
        """The record from which each record has its value of an attribute."""
        words, own = self._words(f"values of {name}"), np.arange(len(self.data))
        others = (words[:, 1] % np.uint64(max(len(own), 1))).astype(np.int64)
        return np.where(words[:, 0] < np.uint64(2**64 // _REPLACED), others, own)

    def _words(self, purpose: str) -> Words:
        return place_words(self.key, len(self.data), f"tables, {purpose}")


def place_words(key: Key, records: int, purpose: str) -> Words:
    """Return two uniform words per record, known by its place in the file: another description gives no other words."""
    return keyed.record_words(np.arange(records), keyed.derive(key.secret, "places", purpose, records))


def _hide_sampled(
    tables: list[Counts], axes: Sequence[Sequence[str]], unshown: Sequence[frozenset[str]], tolerance: int
) -> Flags:
    hidden: Flags = _are_unshown(axes, unshown) & np.logical_or.reduce([table > 0 for table in tables])
    for table in tables:
        hidden |= (table > 0) & (table < tolerance)
    return hidden


def _axis(files: Sequence[Microdata], name: str, tolerance: int) -> list[str]:
    """Return the levels of an attribute in some files as they are shown; what is rare is so in the first."""
    rare = rare_texts(files[0], name, tolerance)
    found = {text for data in files for text in level_texts(data.coded(name).levels)}
    return sorted({*(found - rare), MISSING, *({RARE} if found & rare else ())})


def count_cells(
    data: Microdata,
    attributes: Sequence[str],
    axes: Sequence[Sequence[str]],
    rare: Sequence[frozenset[str]],
    sample: Sample | None = None,
) -> Counts:
    """Count the records in each cell, or those of a sample, with rare levels combined."""
    places = []
    for name, axis, hidden in zip(attributes, axes, rare, strict=True):
        coded, position = data.coded(name), {text: at for at, text in enumerate(axis)}
        texts = [*(RARE if text in hidden else text for text in level_texts(coded.levels)), MISSING]
        codes = coded.codes if sample is None else coded.codes[sample.rows(name)]
        places.append(np.array([position[text] for text in texts], dtype=np.int64)[codes])
    sizes = tuple(map(len, axes))
    flat = np.ravel_multi_index(tuple(places), sizes)
    weights = None if sample is None else sample.weights
    return np.bincount(flat, weights=weights, minlength=prod(sizes)).reshape(sizes).astype(np.int64)


def _are_unshown(axes: Sequence[Sequence[str]], unshown: Sequence[frozenset[str]]) -> Flags:
    """Flag the cells of levels without counts."""
    found = np.zeros(tuple(map(len, axes)), dtype=np.bool_)
    for number, (axis, names) in enumerate(zip(axes, unshown, strict=True)):
        mine = np.array([text in names for text in axis])
        found |= mine.reshape([-1 if i == number else 1 for i in range(len(axes))])
    return found


def _hide_cells(
    tables: tuple[Counts, Counts], own: Sequence[Flags], unshown: Flags, names: Sequence[str], tolerance: int
) -> Flags:
    """Return the cells to hide in a table before and after.

    What is hidden before masking is chosen from that table alone, over its ``own`` levels and in the order of the names
    of its axes: beside another result, or in another order, each small cell would be hidden with other cells, and
    these would be shown in turn.
    """
    small = sum(int(((table > 0) & (table < tolerance)).sum()) for table in tables)
    if small * unshown.size * 2 ** len(names) > _MOST_WORK:
        raise _too_large()
    order = np.argsort(names)
    before, after = (table.transpose(order) for table in tables)
    unshown = unshown.transpose(order)
    first = np.ix_(*(own[axis] for axis in order))
    found = hide_cells([before[first]], tolerance, hidden=(unshown & (before > 0))[first])
    if found is not None:
        hidden = unshown & ((before > 0) | (after > 0))
        hidden[first] |= found
        found = hide_cells([before, after], tolerance, hidden=hidden)
    if found is None:
        raise Unprocessable(
            "the table is too sparse: its small counts could be worked out from the others",
            code="too-sparse",
            hint="name fewer attributes, or recode them",
        )
    return found.transpose(np.argsort(order))


def _cells(axes: Sequence[Sequence[str]], before: Counts, after: Counts, hidden: Flags) -> list[Cell]:
    cells = []
    for levels, first, then, is_hidden in zip(product(*axes), before.flat, after.flat, hidden.flat, strict=True):
        if is_hidden:
            cells.append(Cell(levels=levels, before=None, after=None, changed=None))
        elif first or then:
            cells.append(Cell(levels=levels, before=int(first), after=int(then), changed=bool(first != then)))
    return cells


def _too_large() -> Unprocessable:
    return Unprocessable(f"the table has more than {MOST_CELLS:,} cells", code="too-large", hint="fewer attributes")


def check_tolerance(combinations: Any, tolerance: int) -> None:
    """Refuse to count combinations below less than the project's tolerance: that would reveal small counts."""
    refuse_below(tolerance, *(stated for _, stated in as_combinations(combinations).stated()))


def refuse_below(tolerance: int, *stated: float) -> None:
    """Refuse a tolerance smaller than the project's."""
    if any(each < tolerance for each in stated):
        raise Unprocessable(
            f"the tolerance of this project is {tolerance}",
            code="tolerance-floor",
            hint="state a tolerance that is not smaller",
        )


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise for totals of small cells. It follows from key, count and subject: asking again gives the same figure.

    A subject is the records or the cells that are counted, and never the words of the question: the same total asked
    for in many ways would have many figures, and their mean would be the total.
    """

    key: Key
    tolerance: int

    def add(self, count: int, *subject: object, most: int | None = None) -> int:
        """Return a figure for a count; 0 is exact."""
        # With the count among the subject, no two counts of one subject have the same noise, which would cancel out.
        word = int.from_bytes(keyed.derive(self.key.secret, "totals", count, *map(str, subject))[:8], "big")
        shown = perturb(count, self.tolerance, word)
        return shown if most is None else min(shown, most)

    def words(self, records: int) -> UInt64s:
        """Return a word per record, to tell the records of a total by their sum."""
        return place_words(self.key, records, "totals")[:, 0]

    def spread_of(self, totals: int) -> int:
        """Return how far the sum of that many noisy totals is from the truth at most, 19 times out of 20.

        >>> Noise(key=Key.generate(), tolerance=3).spread_of(15)
        33
        """
        return round(2 * self.tolerance * sqrt(2 * totals))  # twice the standard deviation


def perturb_risky(found: Risky, noise: Noise) -> Risky:
    """Return the totals of unsafe combinations with noise."""
    subjects = found.subjects(noise.words(len(found.data)))
    combinations = (
        replace(
            each,
            occupied=noise.add(each.occupied, "occupied", partition),
            unsafe=noise.add(each.unsafe, "unsafe", which),
            records=noise.add(each.records, "records", which, most=found.records),
        )
        for each, which, partition in zip(found.combinations, subjects.combinations, subjects.partitions, strict=True)
    )
    keys = (
        replace(
            each,
            records=noise.add(each.records, "records", within, most=found.records),
            alone=noise.add(each.alone, "records", alone, most=found.records),
        )
        for each, (within, alone) in zip(found.keys, subjects.keys, strict=True)
    )
    records = noise.add(found.unsafe_records, "records", subjects.every, most=found.records)
    return replace(found, unsafe_records=records, combinations=tuple(combinations), keys=tuple(keys))


def perturb_advice(found: AdviceList, now: Risky, noise: Noise) -> AdviceList:
    """Return recommended recodes with noise in the numbers of combinations; ``now`` is what is unsafe without them."""
    before = perturb_risky(now, noise).unsafe
    times = Counter(each for each in now.subjects(noise.words(len(now.data))).combinations if each)
    # One combination that is asked for many times would have its total multiplied, and not the noise.
    wide = replace(noise, tolerance=noise.tolerance * max(times.values(), default=1))

    def perturb(each: Advice) -> Advice:
        left = wide.add(each.unsafe, "advice", *sorted(times), each.step.as_dict(), most=before)
        return replace(each, unsafe=left, removed=before - left)

    return replace(found, unsafe=before, advice=tuple(perturb(each) for each in found))


def perturb_cells(cells: CellSummary, noise: Noise) -> dict[str, Any]:
    """Return the description's numbers of cells with noise; the small ones together instead of by their counts."""
    occupied = noise.add(cells.occupied, "occupied", cells.squares, most=cells.possible)
    number = noise.add(sum(cells.small), "small", cells.squares, most=occupied)
    small = {f"<{noise.tolerance}": number} if cells.small else {}
    return {**cells.as_dict(), "occupied": occupied, "small": small}


def perturb_check(found: TableCheck, noise: Noise) -> dict[str, Any]:
    """Return the totals of checked tables, with noise in the numbers of small cells, and a sentence."""
    tables = []
    for checked, table in zip(found.tables, found.as_dict()["tables"], strict=True):
        squares = int(np.square(checked.table.counts).sum())
        small = noise.add(table["small"], "small", squares, most=table["cells"])
        occupied = noise.add(table["occupied"], "occupied", squares, most=table["cells"])
        derived = noise.add(table["derived"], "derived", squares, most=small)
        tables.append({**table, "small": small, "occupied": occupied, "derived": derived})
    small, derived = (sum(table[name] for table in tables) for name in ("small", "derived"))
    sentence = found.sentence
    if not found.is_safe:
        back = f"about {derived:,}" if derived else "none"
        sentence = (
            f"about {plural(small, 'cell is', 'cells are')} above 0 and below {found.tolerance:,}; "
            f"were they withheld, the published figures would give {back} of them back"
        )
    return {**found.as_dict(), "sentence": sentence, "small": small, "derived": derived, "tables": tables}
