"""Records stand in the order of their draws, whichever way the order is made and however much of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import compiled, keyed, order
from safeswap.arrays.types import Words

KEY = bytes(range(32))
WORDS = st.integers(0, 2**64 - 1) | st.integers(0, 8) | st.integers(2**64 - 4, 2**64 - 1)


def whole_order(identifiers: npt.NDArray[np.int64], key: bytes = KEY) -> list[int]:
    drawn = keyed.draws(keyed.integer_blocks(identifiers), key).tolist()
    return sorted(range(len(drawn)), key=drawn.__getitem__)


@pytest.fixture(params=["few", "many"])
def either_way_of_sorting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many":  # so many that they are sorted in parts
        monkeypatch.setattr(order, "_PART", 1)
        monkeypatch.setattr(order, "is_worth_compiling", lambda _: True)


@pytest.fixture
def draws_that_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws of three bits instead of 64, so that nearly all of them meet."""
    real = keyed.draw_chunks

    def coarse(*args: Any, **options: Any) -> Iterator[tuple[int, Words]]:
        for start, drawn in real(*args, **options):
            yield start, drawn & np.uint64(0b111 << 61)

    monkeypatch.setattr(keyed, "draw_chunks", coarse)


@pytest.mark.usefixtures("either_way_of_sorting")
@pytest.mark.parametrize("records", [1, 2, 3, 50, 3000])
def test_the_order_is_that_of_the_draws(records: int) -> None:
    identifiers = np.arange(records, dtype=np.int64) * 3 - 20
    assert order.draw_prefix(identifiers, KEY, 1.0).tolist() == whole_order(identifiers)
    assert order.draw_prefix(keyed.integer_blocks(identifiers), KEY, 1.0).tolist() == whole_order(identifiers)


def test_files_of_any_size_are_ordered_alike() -> None:
    identifiers = np.arange(70_000, dtype=np.int64)  # more than one chunk of draws, and enough for parts
    assert order.draw_prefix(identifiers, KEY, 1.0).tolist() == whole_order(identifiers)


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("count", [2, 3])
def test_the_number_of_threads_does_not_change_the_order(
    monkeypatch: pytest.MonkeyPatch, count: int, share: float
) -> None:
    monkeypatch.setattr(compiled, "_most_threads", lambda: count)
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 1 << 10)
    monkeypatch.setattr(order, "_PART", 1 << 10)
    monkeypatch.setattr(order, "is_worth_compiling", lambda _: True)
    identifiers = np.arange(7, 70_007)
    drawn = keyed.draws(keyed.integer_blocks(identifiers), KEY).tolist()
    expected = [row for row in whole_order(identifiers) if drawn[row] <= share * 2**64]
    assert order.draw_prefix(identifiers, KEY, share).tolist() == expected


def test_no_records_have_an_empty_order() -> None:
    assert order.draw_prefix(np.zeros(0, dtype=np.int64), KEY, 1.0).tolist() == []


@given(st.integers(1, 400), st.floats(0, 1), st.binary(min_size=32, max_size=32))
def test_a_prefix_is_the_beginning_of_the_whole_order(records: int, share: float, key: bytes) -> None:
    identifiers = np.arange(records, dtype=np.int64)
    some = order.draw_prefix(identifiers, key, share).tolist()
    assert some == whole_order(identifiers, key)[: len(some)]


def test_a_prefix_has_about_the_share_asked_for() -> None:
    found = len(order.draw_prefix(np.arange(100_000, dtype=np.int64), KEY, 0.1))
    assert abs(found - 10_000) < 5 * np.sqrt(100_000 * 0.1 * 0.9)


@pytest.mark.usefixtures("either_way_of_sorting", "draws_that_collide")
def test_draws_that_meet_are_told_apart_by_the_whole_cipher_text_and_not_by_row() -> None:
    identifiers = np.arange(200, dtype=np.int64)
    ordered = identifiers[order.draw_prefix(identifiers, KEY, 1.0)]
    full = keyed.encrypt(keyed.integer_blocks(identifiers), KEY)
    expected = sorted(range(200), key=lambda i: (full[i, 0] >> np.uint64(61), full[i, 0], full[i, 1]))
    assert ordered.tolist() == expected
    shuffled = np.random.default_rng(1).permutation(identifiers)
    assert shuffled[order.draw_prefix(shuffled, KEY, 1.0)].tolist() == ordered.tolist()


@pytest.mark.usefixtures("either_way_of_sorting", "draws_that_collide")
def test_a_shorter_prefix_of_draws_that_meet_is_still_the_beginning() -> None:
    identifiers = np.arange(200, dtype=np.int64)
    whole = order.draw_prefix(identifiers, KEY, 1.0).tolist()
    for share in (0.05, 0.3, 0.9):
        some = order.draw_prefix(identifiers, KEY, share).tolist()
        assert some == whole[: len(some)]


@given(st.lists(WORDS, min_size=1, max_size=200))
def test_sorting_by_uniform_values_notices_equal_ones(values: list[int]) -> None:
    drawn = np.array(values, dtype=np.uint64)
    rows = np.arange(len(values), dtype=np.int64) + 1000
    ordered, met = order.sort_uniform(rows, drawn)
    assert drawn[ordered - 1000].tolist() == np.sort(drawn).tolist()
    assert sorted(ordered.tolist()) == rows.tolist()
    assert met == (len(set(values)) < len(values))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["uniform", "meeting", "crowded", "low"])
def test_many_values_are_sorted_part_by_part(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safeswap.arrays.compiled._most_threads", lambda: threads)
    values = np.random.default_rng(5).integers(0, 2**64, 300_000, dtype=np.uint64)
    if kind == "meeting":
        values[-1] = values[0]
    elif kind == "crowded":  # nearly all in one part
        values[5:] >>= np.uint64(20)
    elif kind == "low":  # values of few bits, so many are equal
        values >>= np.uint64(54)
    rows = np.arange(len(values), dtype=np.int64)[::-1].copy()
    ordered, met = order.sort_uniform(rows, values)
    assert (values[len(values) - 1 - ordered] == np.sort(values)).all()
    assert (np.sort(ordered) == np.arange(len(values))).all()
    assert met == (kind in ("meeting", "low"))


def test_equal_weights_change_nothing() -> None:
    identifiers = np.arange(1000, dtype=np.int64)
    assert order.draw_weighted(identifiers, KEY, np.full(1000, 7.5)).tolist() == whole_order(identifiers)


def test_the_weighted_order_is_of_all_records_and_follows_the_identifiers() -> None:
    identifiers = np.arange(500, dtype=np.int64)
    weights = np.where(identifiers % 7 == 0, 20.0, 1.0)
    ordered = order.draw_weighted(identifiers, KEY, weights)
    assert sorted(ordered.tolist()) == identifiers.tolist()
    rows = np.random.default_rng(3).permutation(500)
    assert identifiers[rows][order.draw_weighted(identifiers[rows], KEY, weights[rows])].tolist() == ordered.tolist()


@pytest.mark.usefixtures("draws_that_collide")
def test_weighted_draws_that_meet_do_not_follow_the_rows() -> None:
    identifiers = np.arange(300, dtype=np.int64)
    weights = np.where(identifiers % 5 == 0, 2.0, 1.0)
    ordered = order.draw_weighted(identifiers, KEY, weights).tolist()
    rows = np.random.default_rng(4).permutation(300)
    assert identifiers[rows][order.draw_weighted(identifiers[rows], KEY, weights[rows])].tolist() == ordered


def test_a_record_comes_first_in_proportion_to_its_weight() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    keys = [keyed.derive(bytes(32), "first", i) for i in range(2000)]
    first = np.bincount([order.draw_weighted(np.arange(3), key, weights)[0] for key in keys], minlength=3)
    expected = 2000 * weights / weights.sum()
    assert (np.abs(first - expected) < 4 * np.sqrt(expected)).all()


def test_after_the_first_the_next_is_drawn_in_proportion_among_the_rest() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    keys = [keyed.derive(bytes(32), "second", i) for i in range(3000)]
    orders = np.array([order.draw_weighted(np.arange(3), key, weights) for key in keys])
    after_heaviest = orders[orders[:, 0] == 2][:, 1]
    share = (after_heaviest == 1).mean()  # two thirds, if record 2 is out of the race
    assert abs(share - 2 / 3) < 4 * np.sqrt(2 / 9 / len(after_heaviest))
