"""Counts of swapped households: by table, by hash and by hand, and the intruder's chance from its definition."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from safeswap.arrays import cells
from safeswap.methods.household_swap import households, method, swapping
from safeswap.methods.household_swap.households import Households
from safeswap.methods.household_swap.method import undoing_chance
from safeswap.methods.household_swap.pairing import FIXED, FREE
from safeswap.methods.household_swap.swapping import Population, Risk, Rules, Swapped, count_in_areas, swap_once

PATHS = np.array([[a, 10 * a + b, 100 * a + 10 * b + c] for a in range(2) for b in range(3) for c in range(2)])


def people(seed: int, number: int = 400) -> Population:
    rng = np.random.default_rng(seed)
    household = np.repeat(np.arange(number, dtype=np.int32), rng.integers(1, 4, number))
    loose = rng.integers(0, 5, number).astype(np.uint16)
    return Population(
        household=household,
        cell=np.minimum(rng.geometric(0.3, len(household)) - 1, 7).astype(np.uint8),
        cells=8,
        area=rng.integers(0, len(PATHS), number).astype(np.int32),
        paths=PATHS,
        profiles=(loose * 2 + rng.integers(0, 2, number).astype(np.uint16), loose),
        draw=rng.integers(0, 2**64, number, dtype=np.uint64),
        movable=rng.random(number) < 0.9,
        outside_area=rng.integers(0, len(PATHS), 30).astype(np.int32),
        outside_cell=rng.integers(0, 8, 30).astype(np.uint8),
    )


def swapped(population: Population) -> tuple[Households, Swapped]:
    risk = Risk.of(population, 5)
    done = swap_once(population, Rules(rate_per_million=100_000, crowd=3, spread=1), risk)
    facts = {"immovable": 0, "communal": 0, "outside": 30}
    return Households(population=population, risk=risk, numbers=population.household, **facts), done


def rarity_by_hand(population: Population, area: np.ndarray, k: int) -> list[tuple[int, int]]:
    """Return the topmost level with fewer than k, and the count at the bottom, person by person."""
    own = [(tuple(PATHS[area[h]]), int(c)) for h, c in zip(population.household, population.cell, strict=True)]
    outside = zip(population.outside_area, population.outside_cell, strict=True)
    everyone = own + [(tuple(PATHS[a]), int(c)) for a, c in outside]
    counts = [Counter((path[level], cell) for path, cell in everyone) for level in range(3)]
    numbers = [[counts[level][path[level], cell] for level in range(3)] for path, cell in own]
    return [(next((n for n, count in enumerate(each) if count < k), 3), each[-1]) for each in numbers]


@pytest.mark.parametrize("by", ["table", "hash"])
@pytest.mark.parametrize("run", [1 << 17, 100])
def test_rarity_is_that_of_the_definition(by: str, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapping, "_RUN", run)
    if by == "hash":
        monkeypatch.setattr(Population, "_fits_table", False)
    population = people(1)
    _, done = swapped(population)
    area = np.where(done.partner >= 0, population.area[done.partner], population.area)
    for where, ranks in ((population.area, None), (area, done.move(population.ranks))):
        found = [
            pair
            for _, top, count in population.rarity(5, ranks)
            for pair in zip(top.tolist(), count.tolist(), strict=True)
        ]
        assert found == rarity_by_hand(population, where, 5)


def test_the_misplaced_share_is_the_same_by_table_and_by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    population = people(2)
    _, done = swapped(population)
    by_table = population.misplaced(done.move(population.ranks))
    monkeypatch.setattr(Population, "_fits_table", False)
    assert population.misplaced(done.move(population.ranks)) == by_table
    assert by_table[-1] > 0


@pytest.mark.parametrize("is_sorted", [False, True])
def test_the_chance_of_undoing_is_that_of_the_definition(is_sorted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_sorted:  # keys are sorted if there are many, otherwise counted
        monkeypatch.setattr(method, "_KEYS_PER_HOUSEHOLD", 0)
    found, done = swapped(people(3))
    population, cell = found.population, found.population.profiles[-1]
    now = np.where(done.partner >= 0, population.area[done.partner], population.area)
    risky = [h for h in range(len(cell)) if done.required[h] < 3 and done.partner[h] >= 0]
    assert len(risky) > 20

    def share(h: int, candidates: list[int], scope: int | None) -> float:
        inside = [c for c in candidates if cell[c] == cell[h]]
        inside = [c for c in inside if scope is None or PATHS[now[c]][scope] == PATHS[now[h]][scope]]
        elsewhere = [c for c in inside if now[c] != now[h]]
        return sum(now[c] == population.area[h] for c in inside) / max(len(elsewhere), 1)

    intruder = []
    for h in risky:
        scopes = [level for level in (2, 1, 0) if PATHS[now[h]][level] == PATHS[population.area[h]][level]]
        intruder.append(share(h, risky, scopes[0] if scopes else None))
    everyone = [h for h in range(len(cell)) if done.partner[h] != FIXED]
    chance = undoing_chance(population, done, done.move(population.ranks))
    assert chance["intruder"] == pytest.approx(np.mean(intruder))
    assert chance["baseline"] == pytest.approx(np.mean([share(h, everyone, None) for h in risky]))
    assert chance["households"] == len(risky)


def test_households_are_counted_by_area_and_partner() -> None:
    rng = np.random.default_rng(4)
    area, partner = rng.integers(0, 6, 200).astype(np.int32), rng.integers(-2, 2, 200).astype(np.int32)
    for least in (FIXED, FREE, 0):
        by_hand = np.bincount(area[partner >= least], minlength=7)
        assert count_in_areas(area, partner, least, 7).tolist() == by_hand.tolist()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("number", [2, 5, 5_000])
def test_equal_draws_are_found(number: int, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(households, "is_worth_compiling", lambda _: compiled)
    draws = np.random.default_rng(5).permutation(np.arange(number, dtype=np.uint64) * np.uint64(2**64 // number))
    assert not households._are_some_equal(draws)
    draws[-1] = draws[number // 2 - 1]
    assert households._are_some_equal(draws)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("size", [6, 1_000_000])
def test_the_net_change_is_what_the_counts_differ_by(
    compiled: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "is_worth_compiling", lambda _: compiled)
    rng = np.random.default_rng(6)
    columns = [[rng.integers(0, size, 5_000).astype(np.uint32), rng.integers(0, 3, 5_000)] for _ in range(2)]
    sides = [Counter(zip(*(column.tolist() for column in side), strict=True)) for side in columns]
    by_hand = sum((sides[0] - sides[1]).values())
    before, after = ([side[0], side[1].astype(np.uint8)] for side in columns)
    assert cells.count_net_change(before, after, [size, 3]) == by_hand
