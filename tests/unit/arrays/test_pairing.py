"""Walking, dealing and exchanging do what three lines of plain Python would do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import order

Labels = npt.NDArray[np.uint32]


@st.composite
def records_in_order(draw: st.DrawFn) -> tuple[Labels, int, Labels]:
    """Strata (or none), how many there can be, and one to three coordinates."""
    records = draw(st.integers(0, 60))
    strata = draw(st.integers(1, 4))
    width = draw(st.integers(1, 3))
    column = st.lists(st.integers(0, draw(st.integers(0, 3))), min_size=records, max_size=records)
    coordinates = np.array([draw(column) for _ in range(width)], dtype=np.uint32).T.reshape(records, width)
    labels = draw(st.lists(st.integers(0, strata - 1), min_size=records, max_size=records))
    alone = draw(st.booleans())
    stratum = np.zeros(0, dtype=np.uint32) if alone else np.array(labels, dtype=np.uint32)
    return stratum, strata, np.ascontiguousarray(coordinates)


def pairs_by_hand(strata: Labels, coordinates: Labels, wanted: int, *, by_stratum: bool = True) -> list[list[int]]:
    queues: dict[int, list[int]] = {}
    pairs = []
    for record in range(len(coordinates)):
        queue = queues.setdefault(int(strata[record]) if len(strata) and by_stratum else 0, [])
        queue.append(record)
        if len(queue) == 2:
            one, other = queue
            queue.clear()
            together = not len(strata) or strata[one] == strata[other]
            if together and (coordinates[one] != coordinates[other]).all():
                pairs.append([one, other])
    return pairs[:wanted]


@given(records_in_order(), st.integers(0, 40), st.booleans())
def test_walking_pairs_consecutive_records_of_a_stratum_or_of_the_file(
    case: tuple[Labels, int, Labels], wanted: int, by_stratum: bool
) -> None:
    strata, number, coordinates = case
    found, looked_at, formed = order.walk(strata, number, coordinates, wanted, by_stratum)
    assert found.tolist() == pairs_by_hand(strata, coordinates, wanted, by_stratum=by_stratum)
    assert looked_at <= len(coordinates)
    assert len(found) <= formed <= looked_at // 2
    if len(found) < wanted:
        assert looked_at == len(coordinates)


@given(records_in_order(), st.integers(0, 60), st.integers(0, 40))
def test_more_records_at_the_end_never_change_the_first_pairs(
    case: tuple[Labels, int, Labels], cut: int, wanted: int
) -> None:
    strata, number, coordinates = case
    some = order.walk(strata[:cut], number, coordinates[:cut], wanted, True)[0].tolist() if cut else []
    assert order.walk(strata, number, coordinates, wanted, True)[0].tolist()[: len(some)] == some


@given(records_in_order())
def test_walking_stops_at_the_record_that_completes_the_last_pair(case: tuple[Labels, int, Labels]) -> None:
    strata, number, coordinates = case
    everything = order.walk(strata, number, coordinates, 1000, True)[0]
    for wanted in range(1, len(everything) + 1):
        assert order.walk(strata, number, coordinates, wanted, True)[1] == everything[wanted - 1].max() + 1


@st.composite
def moves_between_classes(draw: st.DrawFn) -> tuple[Labels, npt.NDArray[np.int64], int]:
    classes = draw(st.integers(1, 5))
    members = np.array(draw(st.lists(st.integers(0, classes - 1), max_size=50)), dtype=np.uint32)
    left = np.bincount(members, minlength=classes).tolist()
    moves = []
    for _ in range(draw(st.integers(0, 6)) if classes > 1 else 0):
        a, b = draw(st.lists(st.integers(0, classes - 1), min_size=2, max_size=2, unique=True))
        number = draw(st.integers(0, min(left[a], left[b])))
        left[a] -= number
        left[b] -= number
        moves.append((a, b, number))
    return members, np.array(moves, dtype=np.int64).reshape(-1, 3), classes


@given(moves_between_classes())
def test_dealing_takes_the_next_records_of_each_class(case: tuple[Labels, npt.NDArray[np.int64], int]) -> None:
    class_of, moves, classes = case
    queues = {c: np.flatnonzero(class_of == c).tolist() for c in range(classes)}
    expected = [[queues[a].pop(0), queues[b].pop(0)] for a, b, number in moves.tolist() for _ in range(number)]
    assert order.assign_moves(class_of, moves, classes).tolist() == expected


@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32", "uint64", "int8", "int64", "float64", "bool"])
def test_exchanging_twice_changes_nothing_and_once_only_the_pairs(kind: str) -> None:
    rng = np.random.default_rng(5)
    values: Any = (rng.random(40) * 100).astype(kind)
    pairs = rng.permutation(40)[:24].reshape(12, 2)
    changed = values.copy()
    order.exchange(changed, pairs)
    assert changed[pairs[:, 0]].tolist() == values[pairs[:, 1]].tolist()
    assert changed[pairs[:, 1]].tolist() == values[pairs[:, 0]].tolist()
    others = np.setdiff1d(np.arange(40), pairs)
    assert changed[others].tolist() == values[others].tolist()
    order.exchange(changed, pairs)
    assert changed.tolist() == values.tolist()
