"""A small sketch of a file from which the share of records it has in common with another file can be estimated.

A *view* is a small set of columns, fine enough to tell records apart. Its *cells* are the combinations of values that
occur. Of each view the sketch keeps the ``CELLS`` cells with the lowest hash, and how many records each cell has.

Claim: for two files whose values were hashed under one key, every cell that lies below both ceilings and occurs in
either file is listed in the sketch of each file in which it occurs, with its exact count, whatever the order of the
records, the order of the columns, and their names.

Why it holds: the hash of a cell is a function of the *sum* of the words of its values, so it does not depend on the
order of columns, on their names, or on the row. A cell leaves the table only when ``CELLS`` others have lower hashes;
the ceiling is then the lowest hash that left, and nothing at or above it is counted again. So the cells below the
ceiling were counted from their first record to their last. The list is a bottom-k sample of the cells: which ones are
kept depends on the key alone, not on the records.

Views are chosen from a sample of records: all sets of columns that are fine enough, smallest first, and of too many
those that keyed marks of their columns choose, so that two files that share a set of columns choose it alike.

Sketching is linear in the number of records. A sketch is confidential: whoever has the key can ask it whether a
combination of values occurs in the file. Stores keep it sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from math import log
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from safeswap.kernels.threads import run_all, spans
from safeswap.kernels.types import Words

CELLS = 192
MOST_COLUMNS = 16
SAMPLE = 4096
WIDEST = 8  # columns of a view

_MOST_VIEWS, _MOST_TRIED = 384, 4000
_LARGE, _VIEWS_IF_LARGE = 500_000, 128  # a large file needs fewer views, and each costs a pass
_WIDE_VIEWS = 16
_FINE = 200  # cells in the sample from which a view is used; from three times as many no column is added
_FREQUENT = 8  # records of the sample that a value needs to mark its column
_SMALLER_FIRST = 1.7
_NESTED, _FEW, _MANY = 1.02, 20, 4
_CHUNK = 1 << 12
_SLOTS = 8 * CELLS
_LAST = np.uint64(2**64 - 1)


class Sketch(NamedTuple):
    """The cells kept of each view. Rows of ``views`` list columns, ``groups`` gives nested columns one number."""

    records: int
    groups: npt.NDArray[np.int64]
    views: npt.NDArray[np.int64]  # (views, WIDEST), -1 where there are fewer columns
    cells: Words  # (views, CELLS), ascending; the largest number where there are fewer
    counts: npt.NDArray[np.uint32]  # (views, CELLS)
    ceilings: Words  # (views,): every cell below it is listed


def choose_columns(samples: Sequence[Words]) -> list[int]:
    """The columns with the most distinct values in the sample, at most ``MOST_COLUMNS``; constant ones never.

    >>> choose_columns([np.array([1, 1, 1], np.uint64), np.array([1, 2, 1], np.uint64), np.arange(3, dtype=np.uint64)])
    [2, 1]
    """
    distinct = [len(np.unique(sample)) for sample in samples]
    varied = [column for column, number in enumerate(distinct) if number > 1]
    return sorted(varied, key=lambda column: -distinct[column])[:MOST_COLUMNS]


def sketch_words(words: Words, samples: Sequence[Words]) -> Sketch:
    """The sketch of a file, given a keyed word per value: ``words[column, record]``, and those of a sample of records.

    >>> words = np.random.default_rng(1).integers(0, 2**63, (3, 500)).astype(np.uint64)
    >>> sketch = sketch_words(words, list(words))
    >>> sketch.records, sketch.cells.shape[1], bool((sketch.counts.sum(axis=1) == CELLS).all())
    (500, 192, True)
    """
    records = words.shape[1]
    chosen = _choose_views(samples) if len(samples) else []
    chosen = chosen[: _VIEWS_IF_LARGE if records > _LARGE else len(chosen)]
    views = np.full((len(chosen), WIDEST), -1, dtype=np.int64)
    for row, view in enumerate(chosen):
        views[row, : len(view)] = view
    cells = np.full((len(chosen), CELLS), _LAST, dtype=np.uint64)
    counts = np.zeros((len(chosen), CELLS), dtype=np.uint32)
    ceilings = np.full(len(chosen), _LAST, dtype=np.uint64)

    def count(part: tuple[int, int]) -> None:
        which = slice(*part)
        _count_views(words, views[which], cells[which], counts[which], ceilings[which])

    work = min(len(spans(records * max(len(chosen), 1))), max(len(chosen), 1))
    edges = [len(chosen) * place // work for place in range(work + 1)]
    run_all(count, list(pairwise(edges)) if chosen else [])
    return Sketch(records, _group_nested(samples), views, cells, counts, ceilings)


def _choose_views(samples: Sequence[Words]) -> list[tuple[int, ...]]:
    """The sets of columns to look through: some wide ones, then the small ones that are fine enough."""
    fine = min(_FINE, max(2, len(samples[0]) // 2))
    found: list[tuple[int, ...]] = []
    level: list[tuple[int, ...]] = [()]
    while level and len(found) < _MOST_TRIED and len(level[0]) < WIDEST:
        grown = [(*view, column) for view in level for column in range(view[-1] + 1 if view else 0, len(samples))]
        sizes = [_count_cells(samples, view) for view in grown]
        found += [view for view, size in zip(grown, sizes, strict=True) if size >= fine]
        level = [view for view, size in zip(grown, sizes, strict=True) if size < 3 * fine]
    marks = [_mark(sample) for sample in samples]

    def turn(view: tuple[int, ...]) -> float:
        uniform = (_mix_one(sum(marks[column] for column in view)) + 1) / 2**64
        return float(-log(uniform) * _SMALLER_FIRST ** len(view))

    wide = [_draw_wide(marks, number) for number in range(_WIDE_VIEWS)]
    return list(dict.fromkeys((*wide, *sorted(found, key=turn)[:_MOST_VIEWS])))


def _draw_wide(marks: Sequence[int], number: int) -> tuple[int, ...]:
    """As many columns as a view may have, drawn by their marks: alike where the columns are alike."""
    order = sorted(range(len(marks)), key=lambda column: _mix_one(marks[column] + number))
    return tuple(sorted(order[:WIDEST]))


def _mark(sample: Words) -> int:
    """A word that stands for a column in whatever file it occurs: the lowest among those of its frequent values."""
    words, counts = np.unique(sample, return_counts=True)
    frequent = words[counts >= _FREQUENT]
    return int(frequent[0]) if len(frequent) else 1


def _group_nested(samples: Sequence[Words]) -> npt.NDArray[np.int64]:
    """A number per column, the same where one of two many-valued columns follows from the other."""
    number = np.arange(len(samples))
    distinct = [len(np.unique(sample)) for sample in samples]
    for one, other in combinations(range(len(samples)), 2):
        fewer, more = sorted((distinct[one], distinct[other]))
        if fewer < _FEW or more > len(samples[0]) / _MANY:
            continue
        if len(np.unique(samples[one] + samples[other])) <= _NESTED * more:
            number[number == number[other]] = number[one]
    return number.astype(np.int64)


def _count_cells(samples: Sequence[Words], view: Sequence[int]) -> int:
    total = samples[view[0]].copy()
    for column in view[1:]:
        total += samples[column]
    return int(_count_distinct(total))


def _mix_one(word: int) -> int:
    return int(_mix(np.uint64(word % 2**64)))


@numba.njit(cache=True, nogil=True)
def _mix(word):  # type: ignore[no-untyped-def]
    """A bijection of 64-bit words in which every bit of the input moves every bit of the output (SplitMix64)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def _count_distinct(words):  # type: ignore[no-untyped-def]
    table = np.zeros(4 * SAMPLE, np.uint64)
    found = 0
    for word in words:
        mixed = _mix(word) | np.uint64(1)
        slot = (mixed >> np.uint64(8)) % np.uint64(table.size)
        while table[slot] != 0 and table[slot] != mixed:
            slot = (slot + np.uint64(1)) % np.uint64(table.size)
        found += table[slot] == 0
        table[slot] = mixed
    return found


@numba.njit(cache=True, nogil=True)
def _count_views(words, views, cells, counts, ceilings):  # type: ignore[no-untyped-def]
    """Count the lowest cells of each view, a chunk of records at a time so that their words stay in the cache."""
    table = np.zeros((views.shape[0], _SLOTS), np.uint64)
    number = np.zeros((views.shape[0], _SLOTS), np.uint32)
    used = np.zeros(views.shape[0], np.int64)
    hashes = np.empty(_CHUNK, np.uint64)
    for start in range(0, words.shape[1], _CHUNK):
        part = hashes[: min(_CHUNK, words.shape[1] - start)]
        for view in range(views.shape[0]):
            _hash_cells(words, start, views[view], part)
            used[view], ceilings[view] = _count_hashes(part, table[view], number[view], used[view], ceilings[view])
    for view in range(views.shape[0]):
        used[view], ceilings[view] = _keep_lowest(table[view], number[view], used[view], ceilings[view])
        here = np.flatnonzero(table[view])
        order = here[np.argsort(table[view][here])]
        for place in range(order.size):
            cells[view, place] = table[view, order[place]]
            counts[view, place] = number[view, order[place]]


@numba.njit(cache=True, nogil=True)
def _hash_cells(words, start, view, out):  # type: ignore[no-untyped-def]
    """The hashes of some records' cells, in loops plain enough for the compiler to do several records at once."""
    first = words[view[0], start : start + out.size]
    for row in range(out.size):
        out[row] = first[row]
    for place in range(1, view.size):
        if view[place] < 0:
            break
        more = words[view[place], start : start + out.size]
        for row in range(out.size):
            out[row] += more[row]
    for row in range(out.size):
        out[row] = _mix(out[row]) | np.uint64(1)  # never 0, which is an empty slot


@numba.njit(cache=True, nogil=True)
def _count_hashes(hashes, table, number, used, ceiling):  # type: ignore[no-untyped-def]
    for word in hashes:
        if word >= ceiling:
            continue
        slot = (word >> np.uint64(1)) % np.uint64(_SLOTS)
        while table[slot] != 0 and table[slot] != word:
            slot = (slot + np.uint64(1)) % np.uint64(_SLOTS)
        if table[slot] == 0:
            table[slot] = word
            used += 1
        number[slot] += np.uint32(1)
        if used > _SLOTS // 2:
            used, ceiling = _keep_lowest(table, number, used, ceiling)
    return used, ceiling


@numba.njit(cache=True, nogil=True)
def _keep_lowest(table, number, used, ceiling):  # type: ignore[no-untyped-def]
    """Forget all cells but the lowest; the ceiling becomes the lowest one that is forgotten."""
    if used <= CELLS:
        return used, ceiling
    filled = np.flatnonzero(table)
    words, counts = table[filled], number[filled]
    order = np.argsort(words)
    table[:] = 0
    number[:] = 0
    for place in order[:CELLS]:
        slot = (words[place] >> np.uint64(1)) % np.uint64(_SLOTS)
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) % np.uint64(_SLOTS)
        table[slot] = words[place]
        number[slot] = counts[place]
    return CELLS, words[order[CELLS]]
