"""The walk over classes, against the same told on lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeswap.methods.edit_targeted import classes as walk


@given(st.lists(st.integers(0, 5), max_size=40).map(sorted))
def test_classes_begin_where_the_code_changes(codes: list[int]) -> None:
    starts = walk.class_starts(np.array(codes, np.uint8))
    assert starts.tolist() == [i for i in range(len(codes)) if i == 0 or codes[i] != codes[i - 1]] + [len(codes)]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_a_failing_class_exchanges_once_at_one_of_its_edges(classes: list[tuple[int, bool]]) -> None:
    classes = sorted(classes, key=lambda c: c[0])
    strata, failing = np.array([s for s, _ in classes], np.int64), np.array([f for _, f in classes], np.bool_)
    forward, backward, alone = walk.edges(strata, failing)
    exchanged = [(c - 1, c) for c in (*forward.tolist(), *backward.tolist())]
    assert all(strata[a] == strata[b] for a, b in exchanged)
    touched = {c for pair in exchanged for c in pair}
    untouched = [c for c in range(len(classes)) if failing[c] and c not in touched]
    assert len(untouched) == alone
    assert all(np.count_nonzero(strata == strata[c]) == 1 for c in untouched)
    # Forward exchanges never share a class, so no record can be in two of them.
    inner = [c for pair in ((c - 1, c) for c in forward.tolist()) for c in pair]
    assert len(inner) == len(set(inner))
    assert all(failing[c - 1] for c in forward)
    assert all(failing[c] for c in backward)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=30),
    st.integers(0, 2**32 - 1),
)
def test_mixed_is_when_a_true_exchange_exists(records: list[tuple[int, int, int]], seed: int) -> None:
    records = sorted(records)
    rows = np.random.default_rng(seed).permutation(len(records)).astype(np.uint32)
    labels = np.empty(len(records), np.uint64)
    labels[rows] = [label for _, _, label in records]
    classes = list(dict.fromkeys((s, c) for s, c, _ in records))
    starts = np.array([*(next(i for i, r in enumerate(records) if r[:2] == c) for c in classes), len(records)])
    found = walk.flag_mixed(starts, np.array([s for s, _ in classes]), rows, labels)
    for (stratum, code), flag in zip(classes, found.tolist(), strict=True):
        mine = {r[2] for r in records if r[:2] == (stratum, code)}
        others = {r[2] for r in records if r[0] == stratum and r[1] != code}
        assert flag == any(a != b for a in mine for b in others)
