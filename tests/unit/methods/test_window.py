"""Windows around failing classes: large enough, near enough, and each record used once."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeswap.methods.edit_targeted import window

CANDIDATES = 10


def pair(
    sizes: list[int], labels: list[int], seed: int, *, wanting: list[bool] | None = None, is_whole: bool = True
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    records = sum(sizes)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    state = {
        "starts": starts,
        "rows": np.arange(records, dtype=np.uint32),
        "labels": np.array(labels, np.uint64),
        "draws": rng.integers(0, 2**63, records).astype(np.uint64),
    }
    flags = np.array(wanting if wanting is not None else [size < 3 for size in sizes], np.bool_)
    pairs, used, treated = window.pair_in_windows(
        starts,
        np.zeros(len(sizes), np.int64),
        flags,
        rng.integers(0, 2**63, len(sizes)).astype(np.uint64),
        window.Positions(state["rows"], state["labels"], state["draws"]),
        CANDIDATES,
        is_whole=is_whole,
    )
    assert used.sum() == 2 * len(pairs)
    return pairs, treated, state


def class_of(state: dict[str, Any], positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.searchsorted(state["starts"], positions, side="right") - 1
    return found


files = st.tuples(st.lists(st.integers(1, 90), min_size=1, max_size=40), st.integers(1, 60), st.integers(0, 2**32 - 1))


@given(files)
def test_pairs_are_true_exchanges_between_classes_and_disjoint(tried: tuple[list[int], int, int]) -> None:
    sizes, kinds, seed = tried
    labels = np.random.default_rng(seed).integers(0, kinds, sum(sizes)).tolist()
    pairs, treated, state = pair(sizes, labels, seed)
    classes = class_of(state, pairs)
    assert (state["labels"][pairs[:, 0]] != state["labels"][pairs[:, 1]]).all()
    assert (classes[:, 0] != classes[:, 1]).all()
    assert len(set(pairs.ravel().tolist())) == pairs.size
    assert set(np.flatnonzero(treated).tolist()) == set(classes.ravel().tolist())
    assert all(sizes[c] < 3 for c in classes[:, 0])


@given(files)
def test_rearranging_keeps_each_record_together_and_in_its_class(tried: tuple[list[int], int, int]) -> None:
    sizes, kinds, seed = tried
    labels = np.random.default_rng(seed).integers(0, kinds, sum(sizes)).tolist()
    _, _, state = pair(sizes, labels, seed)
    rows = state["rows"].astype(np.int64)
    assert sorted(rows.tolist()) == list(range(len(labels)))
    assert (class_of(state, rows) == class_of(state, np.arange(len(rows)))).all()
    assert state["labels"].tolist() == [labels[row] for row in rows]


def partners(sizes: list[int], labels: list[int], c: int, draws: int = 400) -> set[int]:
    """Which rows come to be exchanged with the only record of class c, over many draws."""
    wanting = [i == c for i in range(len(sizes))]
    found = set()
    for seed in range(draws):
        pairs, _, state = pair(sizes, labels, seed, wanting=wanting)
        found.add(int(state["rows"][pairs[0, 1]]))
    return found


def test_a_unique_among_uniques_has_the_ten_or_so_nearest_as_partners() -> None:
    sizes, middle = [1] * 41, 20
    found = partners(sizes, list(range(41)), middle)
    # Eleven records are needed for ten to remain whichever one leaves out.
    assert found == set(range(middle - 5, middle + 7)) - {middle}


def test_a_large_neighbour_offers_any_of_its_records_but_ten_at_a_time() -> None:
    sizes = [500, 1, 500]
    found = partners(sizes, list(range(1001)), 1, draws=600)
    assert len(found) > 350
    assert any(row < 500 for row in found)
    assert any(row > 500 for row in found)


def test_leaving_out_any_one_label_leaves_ten() -> None:
    """Near records of one and the same label do not make a window: the partner could be told among them."""
    labels = [7] * 20 + [0] + [8] * 4 + [7] * 10 + [9] * 20
    found = partners([1] * len(labels), labels, 20)
    window_labels = {labels[row] for row in found}
    assert window_labels == {7, 8, 9}


def test_where_labels_are_all_alike_no_window_is_made() -> None:
    pairs, treated, _ = pair([1] * 300, [5] * 300, 1)
    assert len(pairs) == 0
    assert not treated.any()


def test_a_small_file_is_window_enough_and_a_part_of_a_file_is_not() -> None:
    assert len(pair([1, 1, 1], [1, 2, 3], 1)[0]) == 1
    assert len(pair([1, 1, 1], [1, 2, 3], 1, is_whole=False)[0]) == 0


def test_a_class_used_up_beyond_what_was_arranged_is_arranged_anew() -> None:
    sizes = [*[1] * 150, 200, *[1] * 150]
    labels = [0] * 150 + list(range(1, 201)) + [0] * 150
    pairs, _, state = pair(sizes, labels, 3)
    served = state["starts"][150], state["starts"][151]
    inside = (pairs[:, 1] >= served[0]) & (pairs[:, 1] < served[1])
    assert inside.all()
    assert len(pairs) > 64
    draws = state["draws"][served[0] : served[1]]
    assert (np.diff(draws.astype(np.float64)) > 0).all()
