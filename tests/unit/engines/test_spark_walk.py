"""How Spark's workers pair along the keyed order, slice by slice, without Spark: against a walk in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.engines.spark.draws import NumberPairs, Walk
from safeswap.engines.spark.session import receive

MINUS, ZERO = 7, 8


def shuffled(batches: Iterator[pa.RecordBatch], tasks: int, kind: int | None = None) -> Iterator[list[pa.RecordBatch]]:
    """What each task is given: packets by part, those of several parts in one task; of one kind if one is named."""
    table = pa.Table.from_batches(list(batches))
    if kind is not None:
        table = table.filter(pa.compute.equal(table["kind"], kind))
    for task in range(tasks):
        mine = [place for place, part in enumerate(table["part"].to_pylist()) if hash(part) % tasks == task]
        if mine:
            yield table.take(mine).to_batches()


def run(step: Callable[[Any], Iterator[pa.RecordBatch]], given_to: Iterator[list[pa.RecordBatch]]) -> Any:
    return iter([batch for batches in given_to for batch in step(batches)] or [])


def walked(walk: Walk, rows: np.ndarray, wanted: int) -> list[list[int]]:
    """Place and rows of the pairs, as the engine has its tasks make them."""
    pieces = [pa.table(list(some.T), names=[str(j) for j in range(rows.shape[1])]) for some in np.array_split(rows, 3)]
    drawn = [batch for piece in pieces for batch in walk.pack(piece.to_batches())]
    odd: list[pa.RecordBatch] = []
    if walk.bits:
        odd = list(run(walk.find_odd, shuffled(walk.count_strata(iter(drawn)), 2)))
    pairs = list(run(walk.pair, shuffled(iter([*drawn, *odd]), 3)))
    singles = list(run(walk.pair_singles, shuffled(iter(pairs), 2, kind=1))) if walk.bits else []
    every = [batch for tasks in shuffled(iter([*pairs, *singles]), 2, kind=0) for batch in tasks]
    found = receive(every, (walk.words + 2,))
    before = {part: sum(len(found[p][0]) for p in found if p < part) for part in found}
    numbered = run(NumberPairs(walk.words, before, wanted), shuffled(iter(every), 2)) if every else []
    return sorted([list(row.values()) for batch in numbered for row in batch.to_pylist()])


def expected(walk: Walk, rows: list[list[int]], wanted: int) -> list[list[int]]:
    """The same by sorting all records and pairing two at a time."""

    def stratum(row: list[int]) -> list[int]:
        return row[1 + walk.words : 1 + walk.words + walk.strata]

    def draw(row: list[int]) -> list[int]:
        return row[1 : 1 + walk.words]

    def differs(a: list[int], b: list[int], group: tuple[int, ...]) -> bool:
        places = [1 + walk.words + j for j in group]
        return any((ZERO if a[j] == MINUS else a[j]) != (ZERO if b[j] == MINUS else b[j]) for j in places)

    pairs = []
    for _, group in groupby(sorted(rows, key=lambda row: (stratum(row), draw(row))), key=stratum):
        members = list(group)
        for a, b in zip(members[::2], members[1::2], strict=False):
            same = a[1 + walk.words :][: walk.equal] == b[1 + walk.words :][: walk.equal]
            if same and all(differs(a, b, group) for group in walk.unequal):
                pairs.append((draw(b), a[0], b[0]))
    return [[place, a, b] for place, (_, a, b) in enumerate(sorted(pairs)[:wanted], 1)]


@pytest.mark.parametrize("bits", [0, 1, 4])
@pytest.mark.parametrize("repair", [True, False])
@given(data=st.data())
def test_pairs_are_those_of_one_walk_over_all_records(bits: int, repair: bool, data: st.DataObject) -> None:
    words, equal = data.draw(st.integers(2, 3)), data.draw(st.integers(0, 2))
    unequal: tuple[tuple[int, ...], ...] = ((equal,), (equal + 1, equal + 2))
    number, strata = data.draw(st.integers(1, 120)), data.draw(st.integers(1, 4))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    draws = random.integers(-(2**63), 2**63 - 1, (number, words))
    draws[:, 0] >>= np.int64(data.draw(st.sampled_from([0, 58])))  # few first words: many are equal
    codes = np.column_stack([random.integers(0, strata, (number, equal)), random.integers(6, 9, (number, 3))])
    rows = np.column_stack([np.arange(number), draws, codes])
    walk = Walk(
        words=words,
        strata=equal if repair else 0,
        equal=equal,
        unequal=unequal,
        width=rows.shape[1],
        zeros={equal: (MINUS, ZERO), equal + 2: (MINUS, ZERO), equal + 1: (MINUS, ZERO)},
        bits=bits,
        parts=2,
    )
    wanted = data.draw(st.integers(0, number))
    assert walked(walk, rows, wanted) == expected(walk, rows.tolist(), wanted)
