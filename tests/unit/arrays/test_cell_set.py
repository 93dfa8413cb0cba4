"""Records with one of some combinations."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays.cells import CellSet

LARGE = st.sampled_from([0, 1, 2, -1, 2**62, -(2**62), 2**63 - 1])


@given(
    wanted=st.lists(st.tuples(LARGE, LARGE, LARGE), max_size=9),
    records=st.lists(st.tuples(LARGE, LARGE, LARGE), max_size=60),
)
def test_records_of_wanted_combinations_are_found_and_no_others(wanted, records) -> None:
    columns = list(np.array(records, dtype=np.int64).reshape(-1, 3).T)
    flags = CellSet(("a", "b", "c"), np.array(wanted, dtype=np.int64).reshape(-1, 3)).flags(columns)
    assert flags.tolist() == [record in wanted for record in records]
