"""Short integers are coded by looking them up."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.model.microdata import code_column


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@given(data=st.data())
def test_codes_and_levels_give_the_values_back(dtype, data):
    limits = np.iinfo(dtype)
    parts = data.draw(st.lists(st.lists(st.integers(int(limits.min), int(limits.max)), max_size=8), max_size=3))
    column = pa.chunked_array(
        [pa.array(part, type=pa.from_numpy_dtype(dtype)) for part in parts], type=pa.from_numpy_dtype(dtype)
    )
    coded = code_column(column)
    assert [coded.levels[int(code)].as_py() for code in coded.codes] == column.to_pylist()
    assert coded.levels.to_pylist() == sorted(set(column.to_pylist()))
    assert not coded.has_missing
