"""Records that agree with wanted ones in all but one key are never missed, and hardly any other is found."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeswap.methods.edit_1990.areas import agree_but_one


def by_hand(fixed, keys, wanted, skipped):
    found = []
    for row in np.flatnonzero(~skipped).tolist():
        for other in wanted.tolist():
            same = all(column[row] == column[other] for column in fixed)
            if same and sum(column[row] != column[other] for column in keys) <= 1:
                found.append(row)
                break
    return set(found)


@given(st.integers(1, 7), st.integers(0, 2), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_none_is_missed(number_of_keys, number_of_fixed, records, seed):
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, 4, records).astype(np.uint8) for _ in range(number_of_keys + number_of_fixed)]
    fixed, keys = columns[:number_of_fixed], columns[number_of_fixed:]
    wanted = rng.choice(records, min(records, 3), replace=False)
    skipped = rng.random(records) < 0.3
    found = set(agree_but_one(fixed, keys, wanted, skipped).tolist())
    assert by_hand(fixed, keys, wanted, skipped) <= found
    assert not any(skipped[row] for row in found)


def test_few_are_found_that_do_not_agree():
    rng = np.random.default_rng(1)
    keys = [rng.integers(0, 12, 20_000).astype(kind) for kind in (np.uint8, np.uint16, np.uint32) * 3]
    wanted = np.arange(5)
    skipped = np.zeros(20_000, dtype=np.bool_)
    skipped[wanted] = True
    found = agree_but_one([np.zeros(20_000, np.uint8)], keys, wanted, skipped)
    assert len(found) - len(by_hand([], keys, wanted, skipped)) < 100
