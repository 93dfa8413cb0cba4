"""The promise that a table is safe is checked on the columns themselves; replaced values go where they should."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.methods.safe.spec import SafeCells
from safeswap.model.audit import Audit
from safeswap.model.columns import replace_values
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema


def finding(columns, names, tolerance=3):
    data = Microdata(pa.table(columns), Schema(attributes=tuple(Attribute(name=name) for name in columns)))
    nothing = dict.fromkeys(("asked", "feasible", "made"), 0)
    audit = Audit(
        method="safe", spec={}, records=len(data), exchanges=(), key_id="", releasable=True, algorithm="", **nothing
    )
    return SafeCells(names, tolerance).check(data, data, audit)


def test_a_small_cell_breaks_the_promise_and_is_counted_not_shown():
    broken = finding({"A": ["hidden"] * 2 + ["b"] * 5, "B": ["x"] * 7}, ("A", "B"))
    assert not broken.ok
    assert "1 cell by A, B has" in broken.problem
    assert "hidden" not in broken.problem
    assert finding({"A": ["a"] * 3 + ["b"] * 5}, ("A",)).ok


def test_values_that_look_alike_are_told_apart():
    assert not finding({"A": [0.0, 0.0, -0.0, 0.0]}, ("A",)).ok
    assert finding({"A": [float("nan")] * 3}, ("A",)).ok
    assert not finding({"A": [None, None, "a", "a", "a"]}, ("A",)).ok


def test_a_dictionary_that_names_a_level_twice_fools_nobody():
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1], pa.int8()), pa.array(["a", "a"]))
    assert finding({"A": twice}, ("A",), tolerance=4).ok


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.large_string()])
@given(data=st.data())
def test_values_are_replaced_in_their_rows_and_nowhere_else(kind, data):
    values = data.draw(st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=12))
    cut = data.draw(st.integers(0, len(values)))
    column = pa.chunked_array(
        [pa.array(part, pa.string()).cast(kind) for part in (["a", "b"], values[:cut], values[cut:])]
    )
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) + 1), unique=True)), dtype=np.int64)
    new = data.draw(st.lists(st.sampled_from(["a", "b", None]), min_size=len(rows), max_size=len(rows)))
    expected = column.to_pylist()
    for row, value in zip(rows, new, strict=True):
        expected[row] = value
    found = replace_values(column, rows, pa.array(new, pa.string()))
    assert found.to_pylist() == expected
    assert found.type == column.type
