"""Free places of a line: the n-th by brute force, in compiled code and in Python, on any processor."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from safeswap.arrays import free_places
from safeswap.arrays.compiled import plain_python
from safeswap.arrays.free_places import FreePlaces, find_lowest_bit, is_free, take_nth


@njit
def find(word, n):
    return free_places._find_nth_bit(word, n), find_lowest_bit(word)


in_bytes = njit(free_places._nth_bit_in_bytes)


def test_bits_are_those_of_a_list():
    rng = np.random.default_rng(3)
    words = rng.integers(1, 2**64 - 1, 300, dtype=np.uint64, endpoint=True)
    sparse = words & rng.permutation(words) & rng.permutation(words) | np.uint64(1) << rng.integers(0, 64, 300).astype(
        np.uint64
    )
    for word in [*words.tolist(), *sparse.tolist(), 1, 2**63, 2**64 - 1]:
        places = [place for place in range(64) if word >> place & 1]
        for n, place in enumerate(places):
            assert find(np.uint64(word), np.uint64(n)) == (place, places[0])
            assert in_bytes(np.uint64(word), np.uint64(n)) == place
            assert free_places._nth_bit(word, n) == place


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("places", [1, 63, 64, 65, 2_000, 2_048, 2_049, 70_000])
def test_places_are_taken_as_from_a_list(places, is_plain):
    line, left = FreePlaces.all_of(places), list(range(places))
    rng = np.random.default_rng(places)
    with plain_python(is_plain):
        for _ in range(min(places, 300)):
            n = int(rng.integers(len(left)))
            expected = left.pop(n)
            assert is_free(line, expected)
            assert take_nth(line, n) == expected
            assert not is_free(line, expected)
