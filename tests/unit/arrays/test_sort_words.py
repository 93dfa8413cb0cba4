"""Words sorted by their digits come as a stable comparison sort gives them; work is done once, by all threads."""

from __future__ import annotations

import numpy as np
import pytest

from safeswap.arrays.compiled import run_all
from safeswap.arrays.order import sort_words
from safeswap.arrays.sparse import group


@pytest.mark.parametrize("low", [0, 5, 24, 57, 63])
@pytest.mark.parametrize("number", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("levels", [1, 3, 2**40, 2**64 - 1])
def test_words_are_sorted_by_their_upper_bits(low: int, number: int, levels: int) -> None:
    words = np.random.default_rng(7).integers(0, levels, number, dtype=np.uint64, endpoint=True)
    expected = words[np.argsort(words >> np.uint64(low), kind="stable")]
    assert sort_words(words.copy(), low).tolist() == expected.tolist()


@pytest.mark.parametrize("threads", [None, 1, 2, 3, 9])
def test_every_item_is_worked_on_once(threads: int | None) -> None:
    done: list[int] = []
    run_all(done.append, range(7), threads)
    assert sorted(done) == list(range(7))


def test_the_caller_gets_the_error_of_any_thread() -> None:
    def fail(item: int) -> None:
        if item == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        run_all(fail, range(5))


@pytest.mark.parametrize("distinct", [1, 500, 50_000])
def test_groups_spread_their_values(distinct: int) -> None:
    codes = np.random.default_rng(3).integers(0, distinct, 300_000).astype(np.uint64)
    groups = group(codes)
    assert (groups.spread(groups.codes) == codes).all()
