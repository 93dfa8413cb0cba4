"""Partners of the same code in another area: as many as there can be, whatever the order of the rows."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import compiled, keyed
from safeswap.arrays.cells import CellSet
from safeswap.engines.base import DRAW
from safeswap.engines.memory import MemoryRecords
from safeswap.methods.edit_1990 import method
from safeswap.methods.edit_1990.areas import (
    RESERVED_FROM,
    Sampling,
    _number,
    count_matched,
    draw_limit,
    find_partners,
)
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEY = bytes(range(32))
SCHEMA = Schema(
    attributes=(
        Attribute(name="id", kind=Kind.IDENTIFIER),
        Attribute(name="code"),
        Attribute(name="all", kind=Kind.GEOGRAPHY),
        Attribute(name="area", kind=Kind.GEOGRAPHY),
    )
)


class Found(NamedTuple):
    sampled: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    alone: np.ndarray


def draws_of(identity):
    return keyed.draws(keyed.integer_blocks(identity), KEY)


def found_partners(codes, areas, identity, rate):
    """Partners as the method finds them, as rows of the file, each part in the order of the draws."""
    columns = [identity, codes, np.zeros(len(codes), np.uint8), areas]
    data = Microdata(pa.table([pa.array(column) for column in columns], names=SCHEMA.names), SCHEMA)
    spec = Edit1990Spec(keys=["code"], geography=["all", "area"], rate=rate)
    nothing = CellSet((), np.zeros((0, 1), np.int64))
    table = method._find_partners(MemoryRecords(data, Key(KEY)), spec, nothing, KEY)
    order = np.argsort(np.argsort(draws_of(identity)))
    pairs, (inside,) = table.pairs("first", "mate", ("outside", DRAW)), table.totals("inside")
    sampled, alone = (rows[np.argsort(order[rows])] for rows in (table.rows("sampled"), table.rows("alone")))
    return Found(sampled, pairs[:inside], pairs[inside:], alone)


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
    found = found_partners(codes, areas, identity, rate)
    sampled = set(np.flatnonzero(draws_of(identity) < draw_limit(rate)).tolist())
    assert set(found.sampled.tolist()) == sampled
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
        return [identity[part].tolist() for part in found_partners(codes, areas, identity, rate)]

    assert names(codes, areas, identity) == names(*renamed, identity[order])


def test_partners_from_outside_are_found_beyond_the_reserve():
    """A rare code has its only partner anywhere in the file."""
    number = 4_000
    codes = np.repeat(np.arange(number // 2, dtype=np.uint64), 2)
    areas = np.tile(np.array([0, 1], np.uint8), number // 2)
    identity = np.arange(number)
    found = found_partners(codes, areas, identity, 0.1)
    assert len(found.alone) == 0
    assert set((found.outside[:, 0] ^ 1).tolist()) == set(found.outside[:, 1].tolist())


def test_partners_from_outside_have_the_highest_draws():
    number = 3_000
    identity = np.arange(number)
    draws = draws_of(identity)
    codes, areas = np.zeros(number, np.uint64), np.full(number, 5, np.uint8)
    areas[draws < draw_limit(0.01)] = 6
    found = found_partners(codes, areas, identity, 0.01)
    highest = np.argsort(draws)[::-1][: len(found.sampled)]
    assert found.outside[:, 0].tolist() == found.sampled.tolist()
    assert found.outside[:, 1].tolist() == highest.tolist()


def test_a_pair_is_opened_where_only_that_helps():
    # One record is left over, and all others of its code lie in its own area.
    assert count_matched(np.zeros(4, np.uint64), np.array([1, 2, 3, 3], np.uint8), 3) == 3
    assert count_matched(np.zeros(4, np.uint64), np.array([1, 2, 3, 1], np.uint8), 3) == 3
    assert count_matched(np.zeros(4, np.uint64), np.array([1, 1, 2, 1], np.uint8), 3) == 2


@given(st.lists(st.integers(0, 3), max_size=40))
def test_groups_are_paired_up_to_the_maximum(areas):
    codes = np.array(areas, np.int64)
    partner, _, _ = find_partners(np.array([0, len(areas)]), np.zeros(len(areas), np.uint8), codes)
    crowd = max((areas.count(area) for area in areas), default=0)
    assert np.count_nonzero(partner >= 0) == 2 * min(len(areas) // 2, len(areas) - crowd)
    for i, other in enumerate(partner.tolist()):
        assert other < 0 or (partner[other] == i and codes[i] != codes[other])


@pytest.mark.parametrize("number", [1, 3])
def test_the_number_of_threads_plays_no_part(number, monkeypatch):

    rng = np.random.default_rng(3)
    codes, areas = rng.integers(0, 2_000, 6_000).astype(np.uint64), rng.integers(0, 4, 6_000).astype(np.uint8)
    identity = rng.permutation(6_000)
    expected = found_partners(codes, areas, identity, 0.05)
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 50)
    monkeypatch.setattr(compiled, "_most_threads", lambda: number)
    found = found_partners(codes, areas, identity, 0.05)
    assert found.outside.tolist() == expected.outside.tolist()
    assert len(found.outside) > 50


def test_a_record_is_sampled_by_its_own_draw_at_the_rate_of_its_block():
    draws = draws_of(np.arange(200_000))
    blocks = np.arange(200_000) % 4
    small = CellSet(("block",), np.array([[1], [3]]))
    sampling = Sampling(draw_limit(0.01), draw_limit(0.2), small)
    found = sampling(draws, {"block": blocks})
    shares = np.bincount(blocks[found["kind"] == 0], minlength=4) / 50_000
    assert np.abs(shares[[0, 2]] - 0.01).max() < 5 * np.sqrt(0.01 * 0.99 / 50_000)
    assert np.abs(shares[[1, 3]] - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 50_000)
    assert (found["keep"].astype(bool) == ((found["kind"] == 0) | (draws >= RESERVED_FROM))).all()
    part = sampling(draws[1000:3000], {"block": blocks[1000:3000]})
    assert all((part[name] == found[name][1000:3000]).all() for name in found)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_larger_rate_takes_all_that_a_smaller_one_takes(one, other):
    assert draw_limit(min(one, other)) <= draw_limit(max(one, other))


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


@pytest.mark.parametrize("scale", [1, 2**40])
def test_areas_of_one_number_are_those_that_agree_in_every_code(scale):
    rng = np.random.default_rng(3)
    columns = [rng.integers(-4, 5, 300) * scale for _ in range(3)]
    numbers = _number(columns)
    labels = list(zip(*(column.tolist() for column in columns), strict=True))
    assert len(set(zip(labels, numbers.tolist(), strict=True))) == len(set(labels)) == len(set(numbers.tolist()))
