"""The least that must be blanked, against trying everything on plain values."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.methods import blanking_by_hand as by_hand

from safeswap.methods.suppress import solver
from safeswap.methods.suppress.greedy import greedy
from safeswap.methods.suppress.problem import Problem, blank_everything, gather, is_safe
from safeswap.methods.suppress.solver import Answer, blank_least
from safeswap.methods.suppress.wildcards import blank_least_wildcards, greedy_wildcards

MEANINGS = ("none", "own", "vouching")
Asked = tuple[list[by_hand.Record], list[tuple[tuple[int, ...], int]], list[float], list[int]]


@st.composite
def questions(draw: st.DrawFn, most: int = 12) -> Asked:
    """A tiny file, some lists with tolerances, what blanking costs, and which keys may be blanked."""
    width = draw(st.integers(1, 3))
    values = st.sampled_from([0, 1, 2, None] if draw(st.booleans()) else [0, 1, 2])
    number = draw(st.integers(2, most // width))
    records = [tuple(draw(values) for _ in range(width)) for _ in range(number)]
    keys = [chosen for size in range(1, width + 1) for chosen in combinations(range(width), size)]
    chosen = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=4, unique=True))
    lists = [(names, draw(st.integers(2, 3))) for names in chosen]
    costs = [draw(st.sampled_from([1.0, 1.5, 2.0])) for _ in range(width)]
    allowed = draw(st.lists(st.integers(0, width - 1), min_size=1, max_size=width, unique=True))
    return records, lists, costs, sorted(allowed)


def answer(problem: Problem, *, seconds: float = 20, **terms: Any) -> Answer:
    solve = blank_least_wildcards if problem.meaning == "vouching" else blank_least
    return solve(problem, seconds=seconds, **terms)


@pytest.mark.parametrize("meaning", MEANINGS)
@settings(max_examples=60)
@given(asked=questions())
def test_the_answer_is_the_cheapest_that_trying_everything_finds(meaning: str, asked: Asked) -> None:
    records, lists, costs, allowed = asked
    problem = by_hand.problem(records, lists, meaning, costs, allowed)
    least = by_hand.least(records, lists, meaning, costs, allowed)
    assert is_safe(problem, blank_everything(problem)) == (least is not None)
    assume(least is not None)
    found = answer(problem)
    assert by_hand.safe(by_hand.blanked(records, problem, found.blanking), lists, meaning)
    assert found.cost == pytest.approx(least)
    assert found.bound == pytest.approx(least)


@pytest.mark.parametrize("meaning", MEANINGS)
@settings(max_examples=60)
@given(asked=questions())
def test_the_greedy_answer_is_safe_and_touches_allowed_keys_only(meaning: str, asked: Asked) -> None:
    records, lists, costs, allowed = asked
    problem = by_hand.problem(records, lists, meaning, costs, allowed)
    assume(is_safe(problem, blank_everything(problem)))
    found = greedy_wildcards(problem) if meaning == "vouching" else greedy(problem)
    assert by_hand.safe(by_hand.blanked(records, problem, found), lists, meaning)
    assert not np.bitwise_or.reduce(found.masks, initial=0) & ~problem.allowed


@pytest.mark.parametrize("meaning", MEANINGS)
@settings(max_examples=60)
@given(asked=questions())
def test_an_answer_is_safe_and_its_bound_true_also_where_no_time_is_left(meaning: str, asked: Asked) -> None:
    records, lists, costs, allowed = asked
    least = by_hand.least(records, lists, meaning, costs, allowed)
    assume(least is not None)
    problem = by_hand.problem(records, lists, meaning, costs, allowed)
    found = answer(problem, seconds=0.0)
    assert by_hand.safe(by_hand.blanked(records, problem, found.blanking), lists, meaning)
    assert found.bound <= least + 1e-6 <= found.cost + 2e-6
    assert found.cost <= blank_everything(problem).cost(problem)


@pytest.mark.parametrize("meaning", ["none", "own"])
@settings(max_examples=60)
@given(asked=questions())
def test_no_bound_is_above_the_optimum_where_only_some_classes_take_part(meaning: str, asked: Asked) -> None:
    records, lists, costs, allowed = asked
    least = by_hand.least(records, lists, meaning, costs, allowed)
    assume(least is not None)
    problem = by_hand.problem(records, lists, meaning, costs, allowed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "_SMALL", 0)
        patch.setattr(solver, "_LARGE", 5)
        patch.setattr(solver, "_MOST_IN_GROUPS", 2)
        found = answer(problem)
    assert by_hand.safe(by_hand.blanked(records, problem, found.blanking), lists, meaning)
    assert found.bound <= least + 1e-6 <= found.cost + 2e-6
    if meaning == "none":
        assert found.cost == pytest.approx(least)


SIX_BY_TWO: list[by_hand.Record] = [(0, 0), (0, 0), (1, 1), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize(("meaning", "values"), [("vouching", 1), ("none", 2)])
def test_six_records_of_two_keys_lose_no_more_than_they_must(meaning: str, values: int) -> None:
    problem = by_hand.problem(SIX_BY_TWO, [((0, 1), 2)], meaning)
    found = answer(problem)
    assert found.blanking.values == values == by_hand.least(SIX_BY_TWO, [((0, 1), 2)], meaning, [1, 1], [0, 1])
    assert found.gap == 0


@pytest.mark.parametrize("meaning", MEANINGS)
def test_a_safe_file_loses_nothing(meaning: str) -> None:
    found = answer(by_hand.problem([(0, 1)] * 3, [((0,), 3), ((0, 1), 2)], meaning))
    assert (found.cost, found.bound, found.blanking.values) == (0, 0, 0)


def test_a_dear_key_is_kept() -> None:
    records: list[by_hand.Record] = [(0, 0), (0, 0), (1, 0), (0, 1)]
    found = answer(by_hand.problem(records, [((0, 1), 2)], "none", [10.0, 1.0]))
    assert set(found.blanking.masks.tolist()) == {0b10}


def test_records_of_a_class_cannot_be_blanked_more_often_than_there_are_any() -> None:
    problem = by_hand.problem([(0,), (1,)], [((0,), 2)], "none")
    with pytest.raises(ValueError, match="more records"):
        is_safe(problem, gather(np.array([0, 0]), np.array([1, 1])))
