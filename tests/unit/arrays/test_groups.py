"""Groups and classes against NumPy's sort, with few and many codes, in one run and in two."""

from __future__ import annotations

import numpy as np
import pytest

from safeswap.arrays import compiled, sparse
from safeswap.arrays.combinations import group_records


@pytest.mark.parametrize("levels", [1, 300, 40_000, 1 << 40])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_groups_hold_the_records_of_one_code(levels: int, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_most_threads", lambda: 2)
    codes = np.random.default_rng(levels).integers(0, min(levels, np.iinfo(dtype).max), 300_000).astype(dtype)
    values, first, inverse, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    groups = sparse.group(codes)
    np.testing.assert_array_equal(groups.spread(groups.codes), codes)
    np.testing.assert_array_equal(codes[groups.first], groups.codes)
    found, place = sparse.merge(groups.codes)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(sparse.add_up(place, groups.sizes, len(values)), counts)
    firsts = np.full(len(values), len(codes))
    np.minimum.at(firsts, place, groups.first)
    np.testing.assert_array_equal(firsts, first)
    np.testing.assert_array_equal(sparse.rank_codes(codes)[0], inverse)
    np.testing.assert_array_equal(sparse.count_occurrences(codes), counts[inverse])
    for found_counts, side in zip(sparse.count_joint(codes, codes[:1000])[1:], (codes, codes[:1000]), strict=True):
        np.testing.assert_array_equal(found_counts, np.bincount(np.searchsorted(values, side), minlength=len(values)))


@pytest.mark.parametrize("levels", [4, 500])
def test_classes_by_ranks_are_those_of_the_ranked_columns(levels: int) -> None:
    rng = np.random.default_rng(levels)
    columns = [rng.integers(0, levels, 300_000).astype(np.uint16) for _ in range(2)]
    # Two codes share the last rank, as missing values do.
    tables = [np.append(rng.permutation(levels - 1), levels - 2).astype(np.uint16) for _ in columns]
    weights = rng.integers(1, 9, 300_000).astype(np.float64)
    found = group_records(columns, [levels - 1] * 2, [levels - 2] * 2, weights, tables)
    ranked = np.stack([table[column] for table, column in zip(tables, columns, strict=True)], axis=1)
    rows, first, inverse = np.unique(ranked, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(np.stack(found.columns, axis=1), rows)
    np.testing.assert_array_equal(found.of_record, inverse.ravel())
    np.testing.assert_array_equal(found.first, first)
    np.testing.assert_array_equal(found.sizes, np.bincount(inverse.ravel(), weights))
    plain = group_records(columns, [levels - 1] * 2, [levels - 2] * 2, None, tables)
    np.testing.assert_array_equal(plain.sizes, np.bincount(inverse.ravel()))


@pytest.mark.parametrize("levels", [1, 300, 40_000, 1 << 60])
def test_every_repeated_code_is_flagged_and_few_others(levels: int) -> None:
    codes = np.random.default_rng(levels).integers(0, levels, 20_000).astype(np.uint64)
    _, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    flags, is_repeated = sparse.flag_repeated(codes), counts[place] > 1
    assert flags[is_repeated].all()
    assert np.count_nonzero(flags & ~is_repeated) < 20_000 / 10


@pytest.mark.parametrize("more", [5_000, 3 << 15])
@pytest.mark.parametrize("are_frequent", [True, False])
def test_one_table_holds_more_codes_only_where_each_has_many_records(
    are_frequent: bool, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_most_threads", lambda: 1)
    rng = np.random.default_rng(5)
    distinct = sparse._CACHED + more
    often = rng.integers(0, 100, sparse._AGAIN * distinct if are_frequent else 0)
    codes = np.concatenate([often, rng.permutation(distinct), rng.integers(0, distinct, 1_000)]).astype(np.uint32)
    few, many = sparse._group_few(codes), sparse._group_many(codes)
    names, sizes = np.unique(codes, return_counts=True)
    assert (few is not None) == are_frequent
    for found in (few, many):
        if found is not None:
            values, ranks = sparse.merge(found.codes)
            assert values.tolist() == names.tolist()
            assert sparse.add_up(ranks, found.sizes, values.size).tolist() == sizes.tolist()
            assert found.spread(found.codes).astype(np.uint32).tolist() == codes.tolist()


@pytest.mark.parametrize("bits", [1, 7, 20, 33, 50, 52, 60, 64])  # sorted with positions up to some 50, else by a table
@pytest.mark.parametrize("share", [0.0, 0.9])  # of one code, whose partition is large
def test_partitions_number_codes_of_any_width(bits: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("is_worth_compiling", "_group_few"):
        monkeypatch.setattr(sparse, name, lambda _, answer=name == "is_worth_compiling": answer or None)
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 1 << 10)
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 2**bits - 1, 40_000, dtype=np.uint64, endpoint=True)
    codes[rng.random(len(codes)) < share] = codes[0]
    values, first, places, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    for threads in (1, 3):
        monkeypatch.setattr(compiled, "_most_threads", lambda threads=threads: threads)
        for found in sparse.count_distinct(codes), sparse.count_joint(codes[:0], codes)[::2]:
            np.testing.assert_array_equal(found[0], values)
            np.testing.assert_array_equal(found[1], counts)
        np.testing.assert_array_equal(sparse.count_occurrences(codes), counts[places])
        np.testing.assert_array_equal(sparse.rank_codes(codes)[0], places)
        groups = sparse.group(codes)
        np.testing.assert_array_equal(groups.codes[groups.of_record], codes)
        np.testing.assert_array_equal(groups.first[np.argsort(groups.codes)], first)
