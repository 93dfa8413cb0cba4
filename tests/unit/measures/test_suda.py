"""Minimal uniques are those that comparing every record with every other finds, whatever a blank means."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays.combinations import Classes, group_records, mask_of
from safeswap.measures.risk import suda2

BLANK = 4


@st.composite
def files(draw: st.DrawFn) -> tuple[Classes, int]:
    """A small file of up to five keys, some blank, and the largest number of keys to look at."""
    keys, records = draw(st.integers(1, 5)), draw(st.integers(0, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = [int(rng.integers(1, BLANK + 1)) for _ in range(keys)]
    columns = [rng.integers(0, level, records).astype(np.uint8) for level in levels]
    share = draw(st.sampled_from([0.0, 0.1, 0.4]))
    for column in columns:
        column[rng.random(records) < share] = BLANK
    return group_records(columns, [BLANK + 1] * keys, [BLANK] * keys), draw(st.integers(1, keys))


def by_hand(found: Classes, most: int, missing: str) -> set[tuple[int, int]]:
    """Each class and set of keys in which no other record is like it, while one is in every smaller set."""
    codes = np.stack(found.columns, axis=1).tolist()

    def like(one: list[int], other: list[int], keys: tuple[int, ...]) -> bool:
        blank = [j for j in keys if BLANK in (one[j], other[j])]
        if missing == "own":
            return all(one[j] == other[j] for j in keys)
        if missing in ("none", "any") and blank:
            return False
        return all(one[j] == other[j] for j in keys if j not in blank)

    def alone(row: int, keys: tuple[int, ...]) -> bool:
        if missing in ("none", "any") and any(codes[row][j] == BLANK for j in keys):
            return False
        others = [i for i in range(len(codes)) if i != row and like(codes[row], codes[i], keys)]
        return found.sizes[row] == 1 and not others

    sets = [keys for size in range(1, most + 1) for keys in combinations(range(len(found.columns)), size)]
    return {
        (row, mask_of(keys))
        for row in range(len(codes))
        for keys in sets
        if alone(row, keys)
        and not any(alone(row, part) for part in chain(*(combinations(keys, n) for n in range(1, len(keys)))))
    }


@given(files(), st.sampled_from(["own", "none", "any", "vouching"]))
def test_minimal_uniques_are_those_of_comparing_all_pairs(case: tuple[Classes, int], missing: str) -> None:
    found, most = case
    unique = suda2.minimal_uniques(found, most=most, missing=missing)
    pairs = list(zip(unique.classes.tolist(), unique.masks.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)), "none is found twice"
    assert set(pairs) == by_hand(found, most, missing)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("missing", ["own", "none"])
def test_more_keys_than_have_bits_of_their_own_make_no_difference(seed: int, missing: str) -> None:
    rng = np.random.default_rng(seed)
    columns = [rng.choice([0, 1, 2, BLANK], 9, p=[0.45, 0.3, 0.15, 0.1]).astype(np.uint8) for _ in range(11)]
    found = group_records(columns, [BLANK + 1] * 11, [BLANK] * 11)
    unique = suda2.minimal_uniques(found, most=3, missing=missing)
    pairs = set(zip(unique.classes.tolist(), unique.masks.tolist(), strict=True))
    assert pairs == by_hand(found, 3, missing)
    assert {1, 2, 3} <= set(unique.sizes.tolist())


@given(files())
def test_the_order_of_the_keys_plays_no_part(case: tuple[Classes, int]) -> None:
    found, most = case
    turned = group_records(
        [c[found.of_record] for c in found.columns[::-1]], found.cardinalities[::-1], found.blanks[::-1]
    )
    rows = turned.of_record[found.first].astype(np.int64)
    keys = len(found.columns)
    here, there = suda2.minimal_uniques(found, most=most), suda2.minimal_uniques(turned, most=most)
    mirrored = [int(f"{mask:0{keys}b}"[::-1], 2) for mask in here.masks.tolist()]
    assert set(zip(rows[here.classes].tolist(), mirrored, strict=True)) == set(
        zip(there.classes.tolist(), there.masks.tolist(), strict=True)
    )


@given(files())
def test_totals_add_up_over_records_and_keys(case: tuple[Classes, int]) -> None:
    found, most = case
    unique, weights = suda2.minimal_uniques(found, most=most), np.arange(6, dtype=np.float64)
    by_class = suda2.totals(unique, len(found), weights)
    assert by_class.sum() == unique.sizes.sum()
    by_key = suda2.key_totals(unique, len(found), weights)
    assert by_key.sum() == (unique.sizes**2).sum(), "a set of k keys adds its weight, here k, to each of them"
    smallest = suda2.smallest_uniques(unique, len(found))
    assert ((smallest > 0) == (by_class > 0)).all()


def test_many_uniques_need_more_room_than_there_is_at_first() -> None:
    rng = np.random.default_rng(1)
    columns = [rng.permutation(6_000).astype(np.uint16) for _ in range(3)]
    unique = suda2.minimal_uniques(group_records(columns, [6_000] * 3, [6_000] * 3), most=3)
    assert len(unique) == 18_000
    assert set(unique.masks.tolist()) == {1, 2, 4}


def test_the_highest_of_62_keys_has_a_bit_of_its_own() -> None:
    columns = [np.array([0, 0, 0], np.uint8)] * 61 + [np.array([0, 1, 1], np.uint8)]
    unique = suda2.minimal_uniques(group_records(columns, [2] * 62, [9] * 62), most=1)
    assert unique.masks.tolist() == [1 << 61]
