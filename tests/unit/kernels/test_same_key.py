"""Partners of the same code in another area: as many as there can be, whatever the order of the rows."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays.sampling import draw_sample
from safeswap.methods.edit_1990.same_key import count_matched, find_partners, pair_groups

KEY = bytes(range(32))


def most_matched(sampled: list[int], others: list[int]) -> int:
    """The largest number of sampled records with a partner, by trying everything; records are given by their areas."""

    @cache
    def best(left: tuple[int, ...], outside: tuple[int, ...]) -> int:
        if not left:
            return 0
        area, *rest = left
        found = best(tuple(rest), outside)
        for i, other in enumerate(rest):
            if other != area:
                found = max(found, 2 + best(tuple(rest[:i] + rest[i + 1 :]), outside))
        for i, other in enumerate(outside):
            if other != area:
                found = max(found, 1 + best(tuple(rest), outside[:i] + outside[i + 1 :]))
        return found

    return best(tuple(sampled), tuple(others))


@st.composite
def households(draw):
    number = draw(st.integers(0, 24))
    codes = np.array(draw(st.lists(st.integers(0, 3), min_size=number, max_size=number)), np.uint64)
    areas = np.array(draw(st.lists(st.integers(0, 3), min_size=number, max_size=number)), np.uint8)
    identity = np.array(draw(st.lists(st.integers(0, 10**6), min_size=number, max_size=number, unique=True)), np.int64)
    return codes, areas, identity


@given(households(), st.floats(0, 1))
def test_as_many_are_matched_as_can_be_and_inside_the_sample_first(file, rate):
    codes, areas, identity = file
    drawn = draw_sample(identity, KEY, rate=rate)
    found = find_partners(codes, areas, drawn, identity, KEY)
    sampled = set(drawn.rows.tolist())
    pairs = [*found.inside.tolist(), *found.outside.tolist()]
    used = [row for pair in pairs for row in pair]
    assert len(set(used)) == len(used)
    assert all(codes[a] == codes[b] and areas[a] != areas[b] for a, b in pairs)
    assert all(a in sampled and b in sampled for a, b in found.inside.tolist())
    assert all(a in sampled and b not in sampled for a, b in found.outside.tolist())
    assert sorted([*found.alone.tolist(), *(row for row in used if row in sampled)]) == sorted(sampled)
    for code in set(codes.tolist()):
        members = [row for row in range(len(codes)) if codes[row] == code]
        own = [int(areas[row]) for row in members if row in sampled]
        others = [int(areas[row]) for row in members if row not in sampled]
        inside = sum(codes[a] == code for a, _ in found.inside.tolist())
        outside = sum(codes[a] == code for a, _ in found.outside.tolist())
        crowd = max((own.count(area) for area in own), default=0)
        assert inside == min(len(own) // 2, len(own) - crowd)
        if len(own) <= 7 and len(others) <= 7:
            assert 2 * inside + outside == most_matched(own, others)


@given(households(), st.floats(0.1, 0.9), st.randoms())
def test_neither_row_order_nor_codes_nor_names_of_areas_play_a_part(file, rate, random):
    codes, areas, identity = file
    rows = list(range(len(codes)))
    random.shuffle(rows)
    order = np.array(rows, dtype=np.int64)
    renamed = np.array([7, 5, 900, 1], np.uint64)[codes[order]], np.array([9, 2, 4, 0], np.uint8)[areas[order]]

    def names(codes, areas, identity):
        found = find_partners(codes, areas, draw_sample(identity, KEY, rate=rate), identity, KEY)
        return [identity[part].tolist() for part in (found.inside, found.outside, found.alone)]

    assert names(codes, areas, identity) == names(*renamed, identity[order])


def test_partners_from_outside_are_found_beyond_the_reserve():
    """A rare code has its only partner anywhere in the file."""
    number = 4_000
    codes = np.repeat(np.arange(number // 2, dtype=np.uint64), 2)
    areas = np.tile(np.array([0, 1], np.uint8), number // 2)
    identity = np.arange(number)
    drawn = draw_sample(identity, KEY, rate=0.1)
    found = find_partners(codes, areas, drawn, identity, KEY)
    assert len(found.alone) == 0
    assert set((found.outside[:, 0] ^ 1).tolist()) == set(found.outside[:, 1].tolist())


def test_partners_from_outside_have_the_highest_draws():
    from safeswap.arrays import keyed

    number = 3_000
    identity = np.arange(number)
    draws = keyed.draws(keyed.integer_blocks(identity), KEY)
    codes, areas = np.zeros(number, np.uint64), np.full(number, 5, np.uint8)
    drawn = draw_sample(identity, KEY, rate=0.01)
    areas[drawn.rows] = 6
    found = find_partners(codes, areas, drawn, identity, KEY)
    highest = np.argsort(draws)[::-1][: len(drawn.rows)]
    assert found.outside[:, 0].tolist() == drawn.rows.tolist()
    assert found.outside[:, 1].tolist() == highest.tolist()


def test_a_pair_is_opened_where_only_that_helps():
    # One record is left over, and all others of its code lie in its own area.
    assert count_matched(np.zeros(4, np.uint64), np.array([1, 2, 3, 3], np.uint8), 3) == 3
    assert count_matched(np.zeros(4, np.uint64), np.array([1, 2, 3, 1], np.uint8), 3) == 3
    assert count_matched(np.zeros(4, np.uint64), np.array([1, 1, 2, 1], np.uint8), 3) == 2


@given(st.lists(st.integers(0, 3), max_size=40))
def test_groups_are_paired_up_to_the_maximum(areas):
    codes = np.array(areas, np.uint8)
    partner = pair_groups(np.array([0, len(areas)]), codes)
    crowd = max((areas.count(area) for area in areas), default=0)
    assert np.count_nonzero(partner >= 0) == 2 * min(len(areas) // 2, len(areas) - crowd)
    for i, other in enumerate(partner.tolist()):
        assert other < 0 or (partner[other] == i and codes[i] != codes[other])


@pytest.mark.parametrize("number", [1, 3])
def test_the_number_of_threads_plays_no_part(number, monkeypatch):
    from safeswap.arrays import threads

    rng = np.random.default_rng(3)
    codes, areas = rng.integers(0, 2_000, 6_000).astype(np.uint64), rng.integers(0, 4, 6_000).astype(np.uint8)
    identity = rng.permutation(6_000)
    drawn = draw_sample(identity, KEY, rate=0.05)
    expected = find_partners(codes, areas, drawn, identity, KEY)
    monkeypatch.setattr(threads, "_WORTH_A_THREAD", 50)
    monkeypatch.setattr(threads, "_most_threads", lambda: number)
    found = find_partners(codes, areas, drawn, identity, KEY)
    assert found.outside.tolist() == expected.outside.tolist()
    assert len(found.outside) > 50


def test_counting_does_what_finding_does():
    rng = np.random.default_rng(4)
    counts = defaultdict(int)
    for _ in range(200):
        codes, areas = rng.integers(0, 3, 12).astype(np.uint64), rng.integers(0, 3, 12).astype(np.uint8)
        sampled = int(rng.integers(0, 7))
        expected = sum(
            most_matched(
                [int(a) for a in areas[:sampled][codes[:sampled] == code]],
                [int(a) for a in areas[sampled:][codes[sampled:] == code]],
            )
            for code in range(3)
        )
        counts[sampled - expected] += 1
        assert count_matched(codes, areas, sampled) == expected
    assert len(counts) > 1  # some were left alone, some were not
