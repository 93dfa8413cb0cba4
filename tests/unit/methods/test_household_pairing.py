"""Households at risk are covered by as many pairs as any pairing allows: compared with all pairings, or a matching.

The oracles share no code with the product: dynamic programming over all sets of households, and for larger cells
Edmonds' algorithm written for this file (a textbook form, on an adjacency matrix, with blossoms as sets).
"""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from safeswap.methods.household_swap import members, search, swapping
from safeswap.methods.household_swap.pairing import FREE, Ground, find_key, may_swap
from safeswap.methods.household_swap.swapping import Population, Risk, Rules, Swapped, round_targets, swap_once

TREE = np.array([[a, 10 * a + b, 100 * a + 10 * b + c] for a in range(2) for b in range(2) for c in range(2)])


def population(seed: int, cells: int, size: int, *, paths: np.ndarray = TREE, areas: int | None = None) -> Population:
    """Return cells of ``size`` households each, in random areas; the strict profile halves each cell at random."""
    rng = np.random.default_rng(seed)
    number = cells * size
    loose = rng.permutation(np.repeat(np.arange(cells, dtype=np.uint16), size))
    return Population(
        household=np.arange(number, dtype=np.int32),
        cell=np.zeros(number, dtype=np.uint8),
        cells=1,
        area=rng.integers(0, areas or len(paths), number).astype(np.int32),
        paths=paths,
        profiles=(loose * 2 + rng.integers(0, 2, number).astype(np.uint16), loose),
        draw=rng.integers(0, 2**64, number, dtype=np.uint64),
    )


def random_risk(seed: int, people: Population, *, share: float) -> Risk:
    """Require a share of the households to leave an area of some level."""
    rng = np.random.default_rng(seed + 1)
    depth = people.paths.shape[1]
    number = len(people.area)
    required = np.where(rng.random(number) < share, rng.integers(0, depth, number), depth).astype(np.uint8)
    return Risk(required=required, smallest=rng.integers(1, 9, number).astype(np.int32))


def allowed(people: Population, risk: Risk, members: np.ndarray) -> np.ndarray:
    """Return which members may swap with which, from the definition: paths differ at the level that matters."""
    depth = people.paths.shape[1]
    level = np.minimum(np.minimum.outer(risk.required[members], risk.required[members]), depth - 1).astype(int)
    path = people.paths[people.area[members]]
    differ = path[:, None, :] != path[None, :, :]
    return np.take_along_axis(differ, level[:, :, None], axis=2)[:, :, 0]


def most_covered(adjacent: np.ndarray, risky: np.ndarray) -> np.ndarray:
    """Return for many small graphs at once how many risky vertices the best of all pairings covers."""
    cases, size = risky.shape
    best = np.zeros((1 << size, cases), dtype=np.int64)
    for chosen in range(1, 1 << size):
        first = (chosen & -chosen).bit_length() - 1
        best[chosen] = best[chosen & (chosen - 1)]
        for other in range(first + 1, size):
            if chosen >> other & 1:
                gain = best[chosen & ~(1 << first | 1 << other)] + risky[:, first] + risky[:, other]
                best[chosen] = np.where(adjacent[:, first, other], np.maximum(best[chosen], gain), best[chosen])
    return best[-1]


def largest_matching(adjacent: np.ndarray) -> int:
    """Return the size of a largest matching of a general graph (Edmonds 1965, by contraction)."""
    number = len(adjacent)
    mate = [-1] * number
    neighbours = [np.flatnonzero(row).tolist() for row in adjacent]
    return sum(_augment(root, mate, neighbours) for root in range(number) if mate[root] < 0)


def _augment(root: int, mate: list[int], neighbours: list[list[int]]) -> bool:
    number = len(mate)
    label, parent, outer = list(range(number)), [-1] * number, [False] * number
    outer[root] = True
    waiting = deque([root])

    def path_of(v: int) -> list[int]:
        found = [label[v]]
        while mate[label[v]] >= 0:
            v = parent[mate[label[v]]]
            found.append(label[v])
        return found

    while waiting:
        v = waiting.popleft()
        for w in neighbours[v]:
            if label[v] == label[w] or mate[v] == w:
                continue
            if w == root or (mate[w] >= 0 and parent[mate[w]] >= 0):
                on_path = set(path_of(v))
                top = next(b for b in path_of(w) if b in on_path)
                inside: set[int] = set()
                for start, child in ((v, w), (w, v)):
                    at, below = start, child
                    while label[at] != top:
                        inside |= {label[at], label[mate[at]]}
                        parent[at] = below
                        below = mate[at]
                        at = parent[mate[at]]
                for u in range(number):
                    if label[u] in inside:
                        label[u] = top
                        if not outer[u]:
                            outer[u] = True
                            waiting.append(u)
            elif parent[w] < 0:
                parent[w] = v
                if mate[w] < 0:
                    end = w
                    while end >= 0:
                        before = parent[end]
                        after = mate[before]
                        mate[end], mate[before] = before, end
                        end = after
                    return True
                outer[mate[w]] = True
                waiting.append(mate[w])
    return False


def most_covered_by_matching(adjacent: np.ndarray, risky: np.ndarray) -> int:
    """Return the largest number of risky vertices covered, as a largest matching of another graph.

    Two copies of the graph, with each donor joined to its copy: a matching of size n - d covers all but d of the
    vertices of both copies, and donors can always be matched to their copies. So d / 2 risky vertices stay uncovered.
    """
    number = len(risky)
    double = np.zeros((2 * number, 2 * number), dtype=bool)
    double[:number, :number] = double[number:, number:] = adjacent
    donors = np.flatnonzero(~risky)
    double[donors, donors + number] = double[donors + number, donors] = True
    uncovered = 2 * number - 2 * largest_matching(double)
    return int(risky.sum()) - uncovered // 2


def members_by_cell(people: Population, size: int) -> np.ndarray:
    return np.argsort(people.profiles[-1], kind="stable").reshape(-1, size)


def check_pairs(people: Population, risk: Risk, done: Swapped) -> None:
    """Pairs are mutual, of one cell, and in different areas at the level that matters."""
    heads = np.flatnonzero(done.partner >= 0)
    mates = done.partner[heads]
    assert (done.partner[mates] == heads).all()
    assert (people.profiles[-1][heads] == people.profiles[-1][mates]).all()
    depth = people.paths.shape[1]
    level = np.minimum(np.minimum(risk.required[heads], risk.required[mates]), depth - 1)
    path = people.paths[people.area]
    assert (path[heads, level] != path[mates, level]).all()


@pytest.mark.parametrize(("size", "share"), [(2, 0.7), (3, 0.5), (4, 0.8), (5, 0.4), (6, 0.7), (7, 0.3), (7, 0.9)])
@pytest.mark.parametrize("near", [False, True])
def test_of_tiny_cells_as_many_are_covered_as_the_best_pairing_covers(size: int, share: float, near: bool) -> None:
    """Twenty-eight thousand cells in all; areas are few, so that many cells lack donors."""
    people = population(size * 10 + near, 2_000, size, areas=5)
    risk = random_risk(size, people, share=share)
    done = swap_once(people, Rules(near=near, crowd=size % 3, spread=size % 2), risk)
    check_pairs(people, risk, done)
    groups = members_by_cell(people, size)
    adjacent = np.array([allowed(people, risk, group) for group in groups])
    risky = risk.required[groups] < people.paths.shape[1]
    covered = (risky & (done.partner[groups] >= 0)).sum(axis=1)
    assert done.proved
    assert covered.tolist() == most_covered(adjacent, risky).tolist()


@pytest.mark.parametrize("seed", range(10))
def test_of_middle_sized_cells_as_many_are_covered_as_a_largest_matching(seed: int) -> None:
    """Two hundred cells of up to 45 households in which most are at risk and one area holds most of them."""
    size = 9 + 4 * seed
    people = population(seed, 20, size)
    crowded = np.random.default_rng(seed).random(len(people.area)) < 0.5
    people.area[crowded] = 0
    risk = random_risk(seed, people, share=0.75)
    done = swap_once(people, Rules(), risk)
    check_pairs(people, risk, done)
    for group in members_by_cell(people, size):
        risky = risk.required[group] < people.paths.shape[1]
        covered = int((risky & (done.partner[group] >= 0)).sum())
        assert covered == most_covered_by_matching(allowed(people, risk, group), risky)


def test_leaving_out_twins_finds_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SMALL_CELL", 4)
    people = population(77, 60, 24, areas=6)
    risk = random_risk(77, people, share=0.8)
    done = swap_once(people, Rules(), risk)
    for group in members_by_cell(people, 24):
        risky = risk.required[group] < people.paths.shape[1]
        covered = int((risky & (done.partner[group] >= 0)).sum())
        assert covered == most_covered_by_matching(allowed(people, risk, group), risky)


def test_a_cell_too_large_to_search_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LARGEST_CELL", 2)
    people = population(5, 40, 5, areas=2)
    assert not swap_once(people, Rules(), random_risk(5, people, share=0.9)).proved


def test_both_oracles_agree() -> None:
    rng = np.random.default_rng(1)
    adjacent = np.triu(rng.random((200, 7, 7)) < 0.3, 1)
    adjacent |= adjacent.transpose(0, 2, 1)
    risky = rng.random((200, 7)) < 0.6
    found = [most_covered_by_matching(a, r) for a, r in zip(adjacent, risky, strict=True)]
    assert found == most_covered(adjacent, risky).tolist()


@pytest.mark.parametrize("rate", [0, 1, 50_000, 123_457, 999_999, 1_000_000])
def test_targets_are_the_floor_or_the_ceiling_in_every_range_of_areas(rate: int) -> None:
    households = np.random.default_rng(rate).integers(0, 40, 200)
    for shift in (0, 400_000, 999_999):
        targets = round_targets(households, rate, shift)
        for length in (1, 3, 200):
            sums, exact = (np.add.reduceat(v, np.arange(0, 200, length)) for v in (targets, households * rate))
            assert (sums >= exact // 1_000_000).all()
            assert (sums <= -(-exact // 1_000_000)).all()


def test_the_rate_is_met_in_every_area_if_nobody_is_at_risk() -> None:
    people = population(8, 1, 4_000)
    people = Population(**{**vars(people), "profiles": (np.zeros(4_000, dtype=np.uint16),)})
    nobody = Risk(required=np.full(4_000, 3, dtype=np.uint8), smallest=np.ones(4_000, dtype=np.int32))
    done = swap_once(people, Rules(rate_per_million=100_000, shift=0), nobody)
    swapped = np.bincount(people.ranks[done.partner >= 0], minlength=8)
    targets = round_targets(np.bincount(people.ranks, minlength=8), 100_000, 0)
    assert done.target == targets.sum()
    assert int(np.abs(swapped - targets).sum()) == done.short == done.target % 2


def test_may_swap_is_the_definition() -> None:
    people = population(9, 1, 60)
    risk = random_risk(9, people, share=0.6)
    areas = people.areas
    ground = Ground(
        required=risk.required,
        area=people.ranks,
        levels=areas.levels,
        draw=people.draw,
        smallest=risk.smallest,
        partner=np.full(60, FREE, dtype=np.int32),
    )
    everyone = np.arange(60)
    found = [[may_swap(ground, i, j) for j in everyone] for i in everyone]
    assert (np.array(found) == allowed(people, risk, everyone)).all()


def test_partners_are_the_same_whether_keys_are_counted_or_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    people = population(11, 40, 6)
    risk = random_risk(11, people, share=0.3)
    rules = Rules(rate_per_million=400_000, crowd=3, spread=1)
    counted = swap_once(people, rules, risk)
    monkeypatch.setattr(swapping, "_FEW_KEYS", 0)  # 40 cells of 8 areas are more than 240 households
    assert (swap_once(people, rules, risk).partner == counted.partner).all()
    assert np.count_nonzero(counted.partner >= 0) > 100


@pytest.mark.parametrize("few", [0, 1 << 20])
def test_each_key_is_found_where_its_households_begin(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapping, "_FEW_KEYS", few)
    people = population(13, 20, 3)
    profile = swapping._Board(people).sort(0)
    assert bool(len(profile.starts)) == bool(few)
    keys = people.profiles[0].astype(int) * 8 + people.ranks
    assert profile.order.tolist() == np.argsort(keys, kind="stable").tolist()
    for key in range(int(people.profiles[0].max() + 1) * 8 + 1):
        assert find_key(profile, key) == np.count_nonzero(keys < key)


def test_members_are_sorted_by_both_words_whatever_their_number() -> None:
    rng = np.random.default_rng(12)
    words = rng.integers(0, [40, 2**63], (2_000, 2)).astype(np.uint64)  # many first words are equal
    for begin, end in ((0, 0), (5, 6), (5, 7), (10, 15), (20, 62), (100, 2_000)):
        places = rng.permutation(2_000).astype(np.int32)
        meant = sorted(places[begin:end].tolist(), key=lambda i: tuple(words[i].tolist()))
        others = [*places[:begin], *places[end:]]
        members._sort_by_words(places, begin, end, words)
        assert places[begin:end].tolist() == meant
        assert [*places[:begin], *places[end:]] == others
