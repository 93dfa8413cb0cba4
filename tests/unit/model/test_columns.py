"""Columns are compared by their values, whatever the types in which these come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from safeswap.model.columns import aligned_columns, as_codes


@pytest.mark.parametrize("first", [pa.int32(), pa.uint32(), pa.int64(), pa.string()])
@pytest.mark.parametrize("second", [pa.int32(), pa.uint32(), pa.int64(), pa.string()])
def test_codes_of_columns_are_equal_where_type_and_value_are(first: pa.DataType, second: pa.DataType) -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 4, (2, 60)) * 1_431_655_765 % 2**31
    one, other = (
        pa.chunked_array([pa.array(side.tolist())]).cast(k) for side, k in zip(values, (first, second), strict=True)
    )
    before, after = as_codes(*aligned_columns(one, other))
    same = first == second
    assert (before == after).tolist() == [same and a == b for a, b in zip(*values.tolist(), strict=True)]
    assert [before[i] == before[0] for i in range(60)] == [a == values[0, 0] for a in values[0]]


def test_negative_numbers_of_another_type_are_other_values() -> None:
    one, other = pa.chunked_array([pa.array([-1, 0], pa.int32())]), pa.chunked_array([pa.array([0, -1], pa.int64())])
    before, after = as_codes(*aligned_columns(one, other))
    assert not set(before.tolist()) & set(after.tolist())
