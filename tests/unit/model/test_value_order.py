"""Columns in the order of their values, whatever the rows' order and the type they are kept in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from safeswap.errors import SpecError
from safeswap.model.columns import missing_codes, rank_column, rank_columns, to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema


def one(values: Any, **attribute: Any) -> Microdata:
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return Microdata(pa.table({"x": column}), Schema(attributes=(Attribute(name="x", **attribute),)))


@pytest.mark.parametrize(
    ("values", "attribute", "expected"),
    [
        (["b", "a", "c"], {}, [1, 0, 2]),
        (["10", "9", "1"], {}, [2, 1, 0]),
        (["10", "9", "x"], {}, [0, 1, 2]),
        (["07", "7", "6"], {}, [1, 2, 0]),
        ([10, 9, None], {}, [1, 0, 2]),
        ([1.5, float("nan"), -0.0, 0.0], {}, [2, 3, 0, 1]),
        ([True, False], {}, [1, 0]),
        (["high", "low", "new"], {"levels": ("low", "high")}, [1, 0, 2]),
        (["a", "?", "b"], {"missing": ("?",)}, [0, 2, 1]),
        (["low", "?", "high"], {"levels": ("?", "low", "high"), "missing": ("?",)}, [0, 2, 1]),
        (pa.array(["b", None, "a"]).dictionary_encode(), {}, [1, 2, 0]),
        ([b"\xff", b"\x00"], {}, [1, 0]),
    ],
)
def test_codes_have_the_order_of_the_values(values: Any, attribute: dict[str, Any], expected: list[int]) -> None:
    codes, ranks = rank_column(one(values, **attribute), "x")
    assert codes.tolist() == expected
    assert ranks == len(set(expected))


def test_the_order_of_the_rows_plays_no_part() -> None:
    rng = np.random.default_rng(1)
    values = np.array([f"v{i}" for i in rng.integers(0, 30, 200)])
    order = rng.permutation(200)
    codes, _ = rank_column(one(values), "x")
    shuffled, _ = rank_column(one(values[order]), "x")
    assert shuffled.tolist() == codes[order].tolist()


def test_no_records_have_no_ranks() -> None:
    columns, numbers_of = rank_columns(one(pa.array([], pa.string())), ("x",))
    assert columns[0].size == numbers_of[0] == 0


def test_missing_codes_are_nulls_and_what_the_schema_says() -> None:
    assert missing_codes(one(["a", "b"]), "x").tolist() == [False, False]
    assert missing_codes(one(["a", None, "9"], missing=("9",)), "x").tolist() == [False, True, True]


def test_numbers_are_read_from_any_type_and_missing_is_not_a_number() -> None:
    numeric = {"kind": Kind.NUMERIC}
    assert to_numbers(one([1, None], **numeric), "x").tolist()[0] == 1.0
    assert np.isnan(to_numbers(one([1, None], **numeric), "x")[1])
    assert np.isnan(to_numbers(one([1.5, 99.0], missing=("99",), **numeric), "x")).tolist() == [False, True]
    text = to_numbers(one(["1.5", "?", None, "2"], missing=("?",), **numeric), "x")
    assert text[[0, 3]].tolist() == [1.5, 2.0]
    assert np.isnan(text[1:3]).all()


def test_what_is_no_number_is_refused_without_being_quoted() -> None:
    with pytest.raises(SpecError) as caught:
        to_numbers(one(["1", "secret"]), "x")
    assert caught.value.code == "not-numeric"
    assert "secret" not in str(caught.value.as_dict())
