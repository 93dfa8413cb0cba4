"""The same code means the same value on both sides, however each file was coded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.measures.samples import compare, microdata

from safeswap.errors import SpecError
from safeswap.measures.aligned import align, joint_counts, require_same_records
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.score import Comparison

columns = st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=12)


def decoded(codes: Any, levels: pa.Array) -> list[Any]:
    values = [*levels.to_pylist(), None]
    return [values[code] for code in codes.tolist()]


@given(columns.flatmap(lambda first: st.tuples(st.just(first), st.permutations(first))))
def test_both_sides_decode_to_their_values(pair: tuple[list[str | None], list[str | None]]) -> None:
    before, after = pair
    column = align(compare({"x": before}, {"x": after}), "x")
    assert decoded(column.before, column.levels) == before
    assert decoded(column.after, column.levels) == after
    assert column.changed == (before != after)
    assert column.cardinality == len(set(before))


@given(columns, columns)
def test_levels_that_occur_on_one_side_only_are_kept_apart(before: list[Any], after: list[Any]) -> None:
    comparison = Comparison(before=microdata({"x": before}), after=microdata({"x": after}), attributes=("x",))
    column = align(comparison, "x")
    assert decoded(column.before, column.levels) == before
    assert decoded(column.after, column.levels) == after
    joint = joint_counts(comparison, ("x",), keep=True)
    assert int(joint.before.sum()) == len(before)
    assert {(b, a) for b, a in zip(joint.before.tolist(), joint.after.tolist(), strict=True)} == {
        (before.count(value), after.count(value)) for value in {*before, *after}
    }
    assert joint_counts(comparison, ("x",), keep=False) is joint


def test_a_file_read_again_in_another_type_is_the_same_file() -> None:
    schema = Schema(attributes=(Attribute(name="x"),))
    numbers = Microdata(pa.table({"x": pa.array([3, 1, None, 3])}), schema)
    for same in (
        pa.array(["3", "1", None, "3"]),
        pa.array([3.0, 1.0, None, 3.0]),
        pa.array([3, 1, None, 3], pa.int8()),
    ):
        after = Microdata(pa.table({"x": same}), schema)
        assert not align(Comparison(before=numbers, after=after, attributes=("x",)), "x").changed


def test_files_of_different_length_are_refused_record_by_record() -> None:
    comparison = Comparison(before=microdata({"x": ["a"]}), after=microdata({"x": ["a", "b"]}), attributes=("x",))
    with pytest.raises(SpecError) as caught:
        require_same_records(comparison)
    assert caught.value.code == "different-length"
