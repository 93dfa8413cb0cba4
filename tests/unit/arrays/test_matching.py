"""The number of pairs is the true maximum, as an algorithm on single records finds it."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.arrays.matching_cases import (
    Case,
    Counts,
    counted,
    maximum_by_records,
    seven_columns,
    small_case,
    wide_case,
)

from safeswap.arrays import augmenting, matching

GREEDY_FALLS_SHORT = (
    np.zeros(4, dtype=np.int64),
    np.array([[0, 0], [1, 1], [2, 0], [2, 1]]),
    np.array([2, 1, 1, 2]),
)


@st.composite
def classes(draw: st.DrawFn, *, coordinates: st.SearchStrategy[int], empty: bool = True) -> Case:
    """Classes of a few strata, each with a handful of records, some of them with none."""
    width = draw(coordinates)
    label = st.integers(0, 3)
    named = draw(st.lists(st.tuples(st.integers(0, 2), *[label] * width), max_size=9, unique=True))
    named.sort(key=lambda name: name[0])
    counts = draw(st.lists(st.integers(0 if empty else 1, 5), min_size=len(named), max_size=len(named)))
    names = np.array(named, dtype=np.int64).reshape(-1, width + 1)
    return names[:, 0], names[:, 1:], np.array(counts, dtype=np.int64)


def assert_possible(moves: Counts, case: Case) -> None:
    strata, coordinates, counts = case
    used: Counter[int] = Counter()
    for a, b, number in moves.tolist():
        assert number > 0
        assert strata[a] == strata[b]
        assert (coordinates[a] != coordinates[b]).all()
        used[a] += number
        used[b] += number
    assert all(used[c] <= counts[c] for c in used)


@given(classes(coordinates=st.just(1)))
def test_one_coordinate_reaches_the_maximum(case: Case) -> None:
    found = matching.largest_matching(*case)
    assert_possible(found.moves, case)
    assert found.total == found.moves[:, 2].sum() == maximum_by_records(*case)
    assert found.proved
    assert matching.largest_total(*case) == (found.total, found.most)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=40))
def test_one_attribute_that_must_differ_gives_half_the_records_or_all_but_the_largest_class(counts: list[int]) -> None:
    case = (np.zeros(len(counts), dtype=np.int64), np.arange(len(counts)).reshape(-1, 1), np.array(counts))
    found = matching.largest_matching(*case)
    assert_possible(found.moves, case)
    assert found.total == min(sum(counts) // 2, sum(counts) - max(counts))


@settings(max_examples=200)
@given(classes(coordinates=st.integers(2, 3)))
def test_several_coordinates_reach_the_maximum(case: Case) -> None:
    found = matching.largest_matching(*case)
    assert_possible(found.moves, case)
    assert found.total == found.moves[:, 2].sum() == maximum_by_records(*case)
    assert found.proved
    assert matching.largest_total(*case) == (found.total, found.most)


@given(classes(coordinates=st.integers(2, 3), empty=False), st.integers(2, 1000))
def test_many_copies_of_every_record_allow_at_least_as_many_times_the_pairs(case: Case, times: int) -> None:
    strata, coordinates, counts = case
    many = (strata, coordinates, counts * times)
    found = matching.largest_matching(*many)
    assert_possible(found.moves, many)
    assert found.total >= times * matching.largest_total(*case).found
    assert matching.largest_total(*many) == (found.total, found.total)


def test_augmenting_paths_go_where_the_greedy_pass_does_not() -> None:
    strata, coordinates, counts = GREEDY_FALLS_SHORT
    room, crowd = np.empty((64, 3), dtype=np.int64), np.zeros((2, 3), dtype=np.int64)
    greedy, made = matching._greedy(coordinates, counts, crowd, room, 0, 0)
    assert greedy[:made, 2].sum() == 2
    found = matching.largest_matching(strata, coordinates, counts)
    assert (found.total, found.proved) == (3, True)


@pytest.mark.parametrize("seed", range(40))
def test_from_any_beginning_the_search_ends_at_the_maximum_and_proves_it(seed: int) -> None:
    strata, coordinates, counts = small_case(seed)
    case = (np.zeros_like(strata), coordinates, counts)  # one stratum, in which a class may stand several times
    most = maximum_by_records(*case)
    room = np.empty((64, 3), dtype=np.int64)
    begun, made = matching._first_fit(coordinates, counts, room, 0, 0)
    for moves in (room[:0], begun[: made // 2], begun[:made]):
        found, bound, _ = augmenting.close_gap(coordinates, counts, moves, int(counts.sum()), 10**9)
        assert_possible(found, case)
        assert (found[:, 2].sum(), bound) == (most, most)


@pytest.mark.parametrize("seed", range(4))
def test_nearly_as_many_classes_as_records_reach_the_maximum(seed: int) -> None:
    case = wide_case(seed)
    found = matching.largest_matching(*case)
    assert_possible(found.moves, case)
    assert found.total == found.most == maximum_by_records(*case)


def test_seven_attributes_of_three_levels_allow_half_the_records() -> None:
    labels = seven_columns()
    found = matching.largest_matching(*counted(np.zeros(len(labels), dtype=np.int64), labels))
    assert (found.total, found.most) == (350, 350)


def test_thousands_of_classes_take_little_work() -> None:
    rng = np.random.default_rng(5)
    labels = np.stack([rng.choice(3, size=12_000, p=[0.5, 0.3, 0.2]) for _ in range(8)], axis=1)
    strata, coordinates, counts = counted(np.zeros(len(labels), dtype=np.int64), labels)
    assert len(counts) > 3_000
    moves, made = matching._first_fit(coordinates, counts, np.empty((64, 3), dtype=np.int64), 0, 0)
    bound = matching._upper_bound(coordinates, counts)
    found, most, work = augmenting.close_gap(coordinates, counts, moves[:made], bound, matching._WORK)
    assert_possible(found, (strata, coordinates, counts))
    assert found[:, 2].sum() == most
    assert work < len(counts) ** 2 * 20


def test_what_is_not_proved_is_a_range_around_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_WORK", 0)
    found = matching.largest_matching(*GREEDY_FALLS_SHORT)
    assert (found.total, found.most, found.proved) == (2, 3, False)
    assert matching.largest_total(*GREEDY_FALLS_SHORT) == (2, 3)
    assert_possible(found.moves, GREEDY_FALLS_SHORT)


@pytest.mark.parametrize("work", [1, 50, 500, 5_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_search_cut_short_never_claims_what_is_not_so(seed: int, work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = wide_case(seed)
    most = maximum_by_records(*case)
    monkeypatch.setattr(matching, "_WORK", work)
    monkeypatch.setattr(matching, "_GREEDY_WORK", 0)
    found = matching.largest_matching(*case)
    assert_possible(found.moves, case)
    assert found.moves[:, 2].sum() == found.total <= most <= found.most


def test_other_strata_keep_their_moves_when_one_is_solved_exactly() -> None:
    strata, coordinates, counts = GREEDY_FALLS_SHORT
    case = (
        np.r_[strata, strata + 1, strata + 2],
        np.concatenate([coordinates, coordinates + 5, coordinates]),
        np.r_[counts + 3, counts, counts + 1],
    )
    found = matching.largest_matching(*case)
    assert_possible(found.moves, case)
    assert found.total == maximum_by_records(*case)


def test_no_classes_give_no_pairs() -> None:
    for width in (1, 2):
        nothing = (np.zeros(0, dtype=np.int64), np.zeros((0, width), dtype=np.int64), np.zeros(0, dtype=np.int64))
        assert matching.largest_matching(*nothing).total == 0
        assert matching.largest_total(*nothing) == (0, 0)


def refuse(*_: Any) -> None:
    raise AssertionError("the moves were built though only their number was asked for")


@given(classes(coordinates=st.integers(1, 3)))
def test_the_expected_number_of_pairs_is_the_share_of_all_possible_pairs_that_count(case: Case) -> None:
    strata, coordinates, counts = case
    expected = 0.0
    for stratum in set(strata.tolist()):
        members = [c for c in np.flatnonzero(strata == stratum) for _ in range(counts[c])]
        counted = [(coordinates[a] != coordinates[b]).all() for a, b in combinations(members, 2)]
        expected += len(members) / 2 * float(np.mean(counted)) if counted else 0.0
    found = matching.pairs_per_record(*case) * max(int(counts.sum()), 1)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("crowd", [1, 40_000])
def test_many_classes_need_no_moves_to_know_how_many_pairs_there_are(
    crowd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two continuous items, as when incomes and ages are swapped: nearly every record is a class of its own.
    monkeypatch.setattr(matching, "_match_strata", refuse)
    records = np.arange(50_000)
    coordinates = np.stack([np.maximum(records - crowd, 0), records], axis=1)
    case = (np.zeros(50_000, dtype=np.int64), coordinates, np.ones(50_000, dtype=np.int64))
    assert matching.largest_total(*case).found == (25_000 if crowd == 1 else 50_000 - 40_001)
    assert matching.pairs_per_record(*case) == pytest.approx(0.5 * (1 - ((crowd + 1) / 50_000) ** 2), rel=1e-3)


@given(classes(coordinates=st.integers(2, 3), empty=False))
def test_degrees_never_prove_what_is_not_so(case: Case) -> None:
    strata, coordinates, counts = case
    for stratum in np.unique(strata):
        inside = strata == stratum
        part = (np.zeros(inside.sum(), dtype=np.int64), coordinates[inside], counts[inside])
        size = np.array([counts[inside].sum()])
        total, is_open = matching._total_by_degrees(np.zeros(1, dtype=np.int64), size, part[1], part[2])
        assert is_open[0] or total == maximum_by_records(*part)
