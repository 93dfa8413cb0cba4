"""Sorting by codes: the order of NumPy's stable sort, for every width and any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import compiled, order


@given(
    dtype=st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]),
    seed=st.integers(0, 2**32 - 1),
    records=st.integers(0, 300),
    bits=st.integers(1, 62),
)
def test_sorts_stably(dtype: type, seed: int, records: int, bits: int) -> None:
    cells = min(1 << bits, int(np.iinfo(dtype).max) + 1)
    codes = np.random.default_rng(seed).integers(0, cells, records, dtype=np.uint64).astype(dtype)
    ordered, rows = order.sort_rows(codes, cells)
    expected = np.argsort(codes, kind="stable")
    assert rows.tolist() == expected.tolist()
    assert ordered.tolist() == codes[expected].tolist()


@given(seed=st.integers(0, 2**32 - 1), records=st.integers(0, 200))
def test_ties_keep_the_order_that_is_given(seed: int, records: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 7, records).astype(np.uint8)
    given_order = rng.permutation(records).astype(np.uint32)
    _, rows = order.sort_rows(codes, 7, given_order)
    assert rows.tolist() == given_order[np.argsort(codes[given_order], kind="stable")].tolist()


def test_codes_are_left_alone_and_one_cell_needs_no_sorting() -> None:
    codes = np.zeros(5, np.uint8)
    ordered, rows = order.sort_rows(codes, 1)
    assert rows.tolist() == list(range(5))
    ordered, _ = order.sort_rows(np.array([3, 1], np.uint16), 4)
    assert ordered.tolist() == [1, 3]


@pytest.mark.parametrize("number", [1, 2, 7])
def test_the_number_of_threads_plays_no_part(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.random.default_rng(1).integers(0, 5000, 3000).astype(np.uint32)
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 10)
    monkeypatch.setattr(compiled, "_most_threads", lambda: number)
    assert order.sort_rows(codes, 5000)[1].tolist() == np.argsort(codes, kind="stable").tolist()


def test_too_many_records_are_refused() -> None:
    class Huge(np.ndarray):
        size = 1 << 31

    with pytest.raises(ValueError, match="do not fit"):
        order.sort_rows(np.zeros(1, np.uint8).view(Huge), 1)
