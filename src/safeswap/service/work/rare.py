"""Rare levels, which too few records have to be named: hide them in texts, tables and the order of levels."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import exp, factorial, prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from safeswap.arrays import keyed
from safeswap.arrays.hiding import hide_cells, perturb
from safeswap.arrays.types import Counts, Flags, Rows
from safeswap.files.describe import hide_levels_of
from safeswap.files.infer import order_of_levels
from safeswap.measures.risk.risky import Risky
from safeswap.measures.table_check import TableCheck
from safeswap.methods.value_change import record_words
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
    axes = [_axis(masked, name, tolerance) for name in attributes]
    if prod(map(len, axes)) > _MOST_PLACES:
        raise _too_large()
    rare = [rare_texts(masked.original, name, tolerance) for name in attributes]
    is_recoded = bool(masked.original.past) or masked.spec.method == "recode"
    is_sampled = is_recoded or len(attributes) > _MOST_EXACT
    sample = Sample(masked.original, key) if is_sampled else None
    before, after = (count_cells(data, attributes, axes, rare, sample) for data in (masked.original, masked.data))
    if int(((before > 0) | (after > 0)).sum()) > MOST_CELLS:
        raise _too_large()
    hide = _hide_sampled if is_sampled else _hide_cells
    # Per attribute the levels without counts: the rare ones and those hidden with them.
    levels = [frozenset({RARE, *hidden_texts(masked.original, name, tolerance)}) for name in attributes]
    hidden = hide([before, after], axes, levels, tolerance)
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

    def _words(self, purpose: str) -> npt.NDArray[np.uint64]:
        return record_words(self.data, self.key, "tables", purpose, replicate=0)


def _hide_sampled(
    tables: list[Counts], axes: Sequence[Sequence[str]], unshown: Sequence[frozenset[str]], tolerance: int
) -> Flags:
    hidden = _hide_unshown(tables, axes, unshown)
    for table in tables:
        hidden |= (table > 0) & (table < tolerance)
    return hidden


def _axis(masked: Masked, name: str, tolerance: int) -> list[str]:
    rare = rare_texts(masked.original, name, tolerance)
    found = {text for data in (masked.original, masked.data) for text in level_texts(data.coded(name).levels)}
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


def _hide_unshown(tables: list[Counts], axes: Sequence[Sequence[str]], unshown: Sequence[frozenset[str]]) -> Flags:
    """Return the occupied cells of levels without counts."""
    occupied = np.logical_or.reduce([table > 0 for table in tables])
    hidden = np.zeros(occupied.shape, dtype=np.bool_)
    for number, (axis, names) in enumerate(zip(axes, unshown, strict=True)):
        mine = np.array([text in names for text in axis]).reshape([-1 if i == number else 1 for i in range(len(axes))])
        hidden |= mine & occupied
    return hidden


def _hide_cells(
    tables: list[Counts], axes: Sequence[Sequence[str]], unshown: Sequence[frozenset[str]], tolerance: int
) -> Flags:
    hidden = _hide_unshown(tables, axes, unshown)
    small = sum(int(((table > 0) & (table < tolerance)).sum()) for table in tables)
    if small * hidden.size * 2 ** len(axes) > _MOST_WORK:
        raise _too_large()
    found = hide_cells(tables, tolerance, hidden=hidden)
    if found is None:
        raise Unprocessable(
            "the table is too sparse: its small counts could be worked out from the others",
            code="too-sparse",
            hint="name fewer attributes, or recode them",
        )
    return found


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
    if any(stated < tolerance for _, stated in as_combinations(combinations).stated()):
        raise Unprocessable(
            f"the tolerance of this project is {tolerance}",
            code="tolerance-floor",
            hint="state a tolerance that is not smaller",
        )


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise for totals of small cells. It follows from key, count and subject: asking again gives the same figure."""

    key: Key
    tolerance: int

    def add(self, count: int, *subject: object, most: int | None = None) -> int:
        """Return a figure for a count; 0 is exact."""
        # With the count among the subject, no two counts of one subject have the same noise, which would cancel out.
        word = int.from_bytes(keyed.derive(self.key.secret, "totals", count, *map(str, subject))[:8], "big")
        shown = perturb(count, self.tolerance, word)
        return shown if most is None else min(shown, most)

    def spread_of(self, totals: int) -> int:
        """Return how far the sum of that many noisy totals is from the truth at most, 19 times out of 20.

        >>> Noise(key=Key.generate(), tolerance=3).spread_of(15)
        33
        """
        return round(2 * self.tolerance * sqrt(2 * totals))  # twice the standard deviation


def perturb_risky(found: Risky, noise: Noise) -> Risky:
    """Return the totals of unsafe combinations with noise.

    The noise follows from the records that are concerned, however the question is put.
    """
    words = record_words(found.data, noise.key, "risky", "cells", replicate=0)[:, 0]
    combinations = []
    for each, (_, _, rows, sizes) in zip(found.combinations, found.cells(), strict=True):
        which = (*sorted(each.keys), int(words[rows].sum()), float(sizes.sum()))
        combinations.append(
            replace(
                each,
                occupied=noise.add(each.occupied, "occupied", *which),
                unsafe=noise.add(each.unsafe, "unsafe", *which),
                records=noise.add(each.records, "records", *which, most=found.records),
            )
        )
    every = int(words[found.rows()].sum())
    keys = (
        replace(
            each,
            records=noise.add(each.records, "key", each.key, every, most=found.records),
            alone=noise.add(each.alone, "alone", each.key, every, most=found.records),
        )
        for each in found.keys
    )
    records = noise.add(found.unsafe_records, "union", every, most=found.records)
    return replace(found, unsafe_records=records, combinations=tuple(combinations), keys=tuple(keys))


def perturb_advice(found: AdviceList, before: int, combinations: Any, noise: Noise) -> AdviceList:
    """Return recommended recodes with noise in the numbers of combinations; ``before`` is the number shown now."""
    asked = sorted(f"{sorted(keys)} {stated}" for keys, stated in as_combinations(combinations).stated())

    def perturb(each: Advice) -> Advice:
        left = noise.add(each.unsafe, "advice", *asked, each.step.as_dict(), most=before)
        return replace(each, unsafe=left, removed=before - left)

    return replace(found, unsafe=before, advice=tuple(perturb(each) for each in found))


def perturb_cells(cells: dict[str, Any], noise: Noise) -> dict[str, Any]:
    """Return the description's numbers of cells with noise; the small ones together instead of by their counts."""
    which = sorted(cells["attributes"])
    occupied = noise.add(cells["occupied"], "described", *which, most=cells["possible"])
    number = noise.add(sum(cells["small"].values()), "small", *which, most=occupied)
    return {**cells, "occupied": occupied, "small": {f"<{noise.tolerance}": number} if cells["small"] else {}}


def perturb_check(found: TableCheck, noise: Noise) -> dict[str, Any]:
    """Return the totals of checked tables, with noise in the numbers of small cells, and a sentence."""
    tables = []
    for table in found.as_dict()["tables"]:
        which = sorted(table["variables"])
        small = noise.add(table["small"], "small", *which, most=table["cells"])
        occupied = noise.add(table["occupied"], "occupied", *which, most=table["cells"])
        derived = noise.add(table["derived"], "derived", *which, most=small)
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
