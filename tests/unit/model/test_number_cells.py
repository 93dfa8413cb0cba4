"""Cells numbered by sorting, compared with a dictionary of tuples."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.hand_made import audit_of

from safeswap.model.columns import number_cells
from safeswap.model.invariant import Evidence
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema

codes = st.one_of(st.integers(-3, 3), st.sampled_from([2**62, -(2**62), 2**40, 2**63 - 1, -(2**63)]))


@given(st.integers(1, 4).flatmap(lambda wide: st.lists(st.tuples(*[codes] * wide), min_size=1, max_size=40)))
def test_a_cell_has_one_number_and_a_number_one_cell(records) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*records, strict=True)]
    numbers = number_cells(columns).tolist()
    assert len(set(numbers)) == len(set(records)) == len(set(zip(numbers, records, strict=True)))
    assert min(numbers) >= 0
    assert max(numbers) <= 8 * len(records)


@given(st.lists(st.tuples(*[st.sampled_from([0.1, 0.2, 1e9, -3.5])] * 2, st.integers(0, 1)), min_size=1, max_size=30))
def test_cells_that_moved_are_those_of_two_counters(records) -> None:
    schema = Schema(attributes=(Attribute(name="amount", kind="numeric"), Attribute(name="half")))
    first, second, half = (list(column) for column in zip(*records, strict=True))
    before, after = (Microdata(pa.table({"amount": amount, "half": half}), schema) for amount in (first, second))
    evidence = Evidence(before, after, audit_of(before))
    for names, cells in (
        (("amount",), (first, second)),
        (("amount", "half"), (list(zip(first, half, strict=True)), list(zip(second, half, strict=True)))),
    ):
        counts = [Counter(side) for side in cells]
        moved = sum(counts[0][cell] != counts[1][cell] for cell in {*cells[0], *cells[1]})
        assert evidence.count_moved_cells(names) == moved
