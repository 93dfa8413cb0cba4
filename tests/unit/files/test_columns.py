"""Any Arrow table becomes one of plain columns with the same values, or is refused."""

from __future__ import annotations

from math import isnan

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import InputError
from safeswap.files import columns
from safeswap.files.columns import distinct_count, drop_unused_levels, normalise_table


class Tagged(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.string(), "safeswap.test.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Tagged:
        return cls()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["a", None, "b"], pa.string_view()), pa.string()),
        (pa.array([b"a", None], pa.binary_view()), pa.binary()),
        (pa.nulls(2), pa.string()),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["x", "y"]), pa.string()),
        (pa.ExtensionArray.from_storage(Tagged(), pa.array(["a", None])), pa.string()),
        (pa.array(["a", "b"], pa.large_string()), pa.large_string()),
        (pa.array([1, None], pa.uint8()), pa.uint8()),
    ],
)
def test_unusual_types_become_plain_ones_with_the_same_values(column: pa.Array, kind: pa.DataType) -> None:
    found = normalise_table(pa.table({"x": column}))["x"]
    assert found.type == kind
    assert found.to_pylist() == column.to_pylist()


def test_dictionaries_of_views_become_plain_too() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", "b"], pa.string_view()))
    found = normalise_table(pa.table({"x": column}))["x"]
    assert found.type == pa.dictionary(pa.int8(), pa.string())
    assert found.to_pylist() == ["a", "b", "a"]


def test_notes_in_the_margin_go() -> None:
    field = pa.field("x", pa.string(), metadata={"made by": "CANARY"})
    found = normalise_table(pa.table([["a"]], schema=pa.schema([field], metadata={"pandas": "CANARY"})))
    assert "CANARY" not in found.schema.to_string(show_schema_metadata=True, show_field_metadata=True)


def test_codes_outside_their_dictionary_are_refused_before_they_are_used() -> None:
    bad = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), pa.array(["a"]), safe=False)
    with pytest.raises(InputError) as caught:
        normalise_table(pa.table({"x": bad}), file="x.parquet")
    assert caught.value.code == "corrupt-file"


@given(
    chunks=st.lists(st.lists(st.none() | st.sampled_from("abc"), max_size=5), min_size=1, max_size=4),
    extra=st.lists(st.sampled_from("xyz"), max_size=3, unique=True),
)
def test_only_unused_levels_go(chunks: list[list[str | None]], extra: list[str]) -> None:
    levels = [*extra, "a", "b", "c"]
    column = pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(
                pa.array([None if v is None else levels.index(v) for v in c], pa.int8()), levels
            )
            for c in chunks
        ]
    )
    found = drop_unused_levels(pa.table({"x": column}))["x"]
    values = [value for chunk in chunks for value in chunk]
    assert found.to_pylist() == values
    for chunk in found.chunks:
        assert set(chunk.dictionary.to_pylist()) == {v for v in values if v is not None}
    assert distinct_count(column) == len({v for v in values if v is not None})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], pa.float64()),
        ([None, None], pa.int8()),
        ([3, 1, None, 3, -7], pa.int64()),
        ([0, 2**64 - 1, 0], pa.uint64()),
        ([1.5, 1.5, None, 2.0], pa.float64()),
        ([float("nan"), 1.0, float("nan"), float("nan")], pa.float64()),
        ([float("nan")], pa.float64()),
    ],
)
def test_numbers_are_counted_alike_in_large_and_in_small_files(
    monkeypatch: pytest.MonkeyPatch, values: list[float | None], kind: pa.DataType
) -> None:
    known = [value for value in values if value is not None]
    expected = len({value for value in known if not isnan(value)}) + any(isnan(value) for value in known)
    column = pa.chunked_array([pa.array(values[:2], kind), pa.array(values[2:], kind)])
    assert distinct_count(column) == expected
    monkeypatch.setattr(columns, "_MANY_RECORDS", 0)
    assert distinct_count(column) == expected
