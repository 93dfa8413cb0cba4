"""Numbers in and out of columns: exact where nothing changes, rounded like the column where something does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import InputError, SpecError
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import changed_numbers, decimals_of, finite_numbers
from safeswap.model.schema import Attribute, Kind, Schema


def column(values, kind=None, **attribute):
    schema = Schema(attributes=(Attribute(name="x", kind=attribute.pop("role", Kind.NUMERIC), **attribute),))
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return Microdata(pa.table({"x": array}), schema)


def change(data, values, **options):
    return changed_numbers(data, "x", np.asarray(values, dtype=float), finite_numbers(data, "x"), **options)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1), st.integers(0, 6))
def test_decimals_are_those_of_the_text(numbers, places):
    texts = [f"{n / 10**places:.{places}f}" for n in numbers]
    longest = max((len(t.rstrip("0").rpartition(".")[2]) if "." in t else 0) for t in texts)
    assert decimals_of(np.array([float(t) for t in texts])) == longest


def test_values_that_nobody_changes_stay_as_they_are_written():
    data = column(["1.50", "007", "1e3", None, "-0"])
    found = change(data, [1.5, 8.24, 1000.0, np.nan, 0.0])
    assert found.column.to_pylist() == ["1.50", "8.2", "1e3", None, "-0"]
    assert found.replacement.rows.tolist() == [1]
    assert found.replacement.before.to_pylist() == ["007"]


def test_a_column_written_anew_does_not_tell_who_was_left_alone():
    data = column(["1.50", "2.25", "3.00"])
    found = change(data, [1.5, 2.0, 3.0], written=np.ones(3, dtype=bool))
    assert found.column.to_pylist() == ["1.5", "2", "3"]
    assert found.replacement.before.to_pylist() == ["1.50", "2.25", "3.00"]


def test_types_stay_where_the_numbers_fit():
    assert change(column([1, 2], pa.int8()), [1.4, 100.6]).column.type == pa.int8()
    wide = change(column([1, 2], pa.int8()), [1.0, 300.0])
    assert wide.column.to_pylist() == [1, 300]
    assert len(wide.replacement.rows) == 2, "another type needs the whole column to go back"
    assert change(column([1.5, 2.5], pa.float32()), [1.5, 3.04]).column.to_pylist() == [1.5, pytest.approx(3.0)]
    mixed = column(pa.array(["1", "2"]).dictionary_encode())
    assert change(mixed, [1.0, 5.0]).column.to_pylist() == ["1", "5"]


def test_stated_decimals_make_floats_of_whole_numbers():
    found = change(column([1, 2, 3]), [1.26, 2.0, 3.0], decimals=1)
    assert found.column.to_pylist() == [1.3, 2.0, 3.0]
    assert found.replacement.before.to_pylist() == [1, 2, 3]


def test_no_number_becomes_a_code_for_missing():
    data = column(["-1", "4", "5"], missing=("-1",))
    assert np.isnan(finite_numbers(data, "x")[0])
    assert change(data, [np.nan, -1.2, 5.0]).column.to_pylist() == ["-1", "0", "5"]


def test_what_holds_no_numbers_or_no_finite_ones_is_refused():
    with pytest.raises(SpecError) as caught:
        finite_numbers(column(["12", "a secret"]), "x")
    assert caught.value.code == "not-numeric"
    assert "secret" not in str(caught.value.as_dict())
    with pytest.raises(InputError) as caught:
        finite_numbers(column([1.0, float("inf")]), "x")
    assert caught.value.code == "not-finite"
    with pytest.raises(SpecError) as caught:
        finite_numbers(column([1, 2], role=Kind.IDENTIFIER), "x")
    assert caught.value.code == "identifier-role"
