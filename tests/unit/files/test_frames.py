"""A dataframe comes back in its own type, with everything unchanged that was not masked."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import SpecError
from safeswap.files.frames import from_frame, to_frame
from safeswap.files.read import read
from safeswap.model.audit import Audit, Exchange
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.spec import Plan, SwapSpec


def exchanged(data: Microdata, stages: list[tuple[tuple[str, ...], list[tuple[int, int]]]]) -> Masked:
    """Exchange by hand, so that nothing but the way back is tested."""
    after, exchanges = data, []
    for attributes, pairs in stages:
        exchange = Exchange(attributes=attributes, pairs=np.array(pairs, dtype=np.int64).reshape(-1, 2))
        rows = pa.array(exchange.permutation(len(data)))
        after = after.with_columns({name: after.table.column(name).take(rows) for name in attributes}, {})
        exchanges.append(exchange)
    pairs_made = sum(len(pairs) for _, pairs in stages)
    audit = Audit(
        method="swap", spec={}, records=len(data), asked=pairs_made, feasible=pairs_made, made=pairs_made,
        exchanges=tuple(exchanges), key_id="", releasable=False, algorithm="by hand",
    )  # fmt: skip
    plan = Plan(method="swap", records=len(data), asked=pairs_made, feasible=pairs_made)
    return Masked(original=data, data=after, spec=SwapSpec(swap=stages[0][0], pairs=1), plan=plan, audit=audit)


PANDAS = pd.DataFrame(
    {
        "text": ["a", "", None, "é", "e\u0301"],
        "object": ["to", "be", "set", "below", "."],
        "float": [0.0, -0.0, np.nan, np.inf, 1e-320],
        "int": pd.array([1, None, 3, 2**62 + 1, 5], dtype="Int64"),
        "category": pd.Categorical(["u", "v", None, "u", "v"], categories=["v", "u", "unused"], ordered=True),
        "bool": pd.array([True, None, False, True, False], dtype="boolean"),
        "time": pd.to_datetime(["2020-01-01", None, "2021-01-01", "1970-01-01", "2020-01-01"]).tz_localize("UTC"),
        7: [1, 2, 3, 4, 5],
    },
    index=pd.Index([9, 8, 7, 7, 5], name="id"),
)
PANDAS["object"] = pd.Series(["x", None, np.nan, "y", pd.NA], dtype=object, index=PANDAS.index)


def test_pandas_comes_back_exactly() -> None:
    back = to_frame(read(PANDAS))
    pd.testing.assert_frame_equal(back, PANDAS, check_exact=True)
    assert list(back.columns) == list(PANDAS.columns)
    assert np.signbit(back["float"].iloc[1])
    assert back["object"].iloc[1] is None
    assert back["object"].iloc[4] is pd.NA


def test_a_pandas_index_is_no_column() -> None:
    assert from_frame(PANDAS).column_names == [str(c) for c in PANDAS.columns]
    assert read(PANDAS.set_index("text")).attributes == tuple(str(c) for c in PANDAS.columns if c != "text")


def test_pandas_values_are_exchanged_natively() -> None:
    masked = exchanged(read(PANDAS), [(("object", "float", "category"), [(0, 1), (2, 4)])])
    back = to_frame(masked)
    order = [1, 0, 4, 3, 2]
    for name in ("object", "float", "category"):
        expected = PANDAS[name].iloc[order].set_axis(PANDAS.index)
        pd.testing.assert_series_equal(back[name], expected, check_exact=True)
    assert back["object"].iloc[0] is None
    assert back["object"].iloc[2] is pd.NA
    assert np.signbit(back["float"].iloc[0])
    pd.testing.assert_frame_equal(
        back.drop(columns=["object", "float", "category"]), PANDAS.drop(columns=["object", "float", "category"])
    )


def test_the_callers_own_frame_is_left_alone() -> None:
    before = PANDAS.copy(deep=True)
    to_frame(exchanged(read(PANDAS), [(("text",), [(0, 3)])]))
    pd.testing.assert_frame_equal(PANDAS, before)


POLARS = pl.DataFrame(
    {
        "text": ["a", "", None, "é"],
        "float": [0.0, -0.0, float("nan"), None],
        "big": pl.Series([2**64 - 1, 0, None, 3], dtype=pl.UInt64),
        "category": pl.Series(["u", None, "v", "u"], dtype=pl.Categorical),
        "enum": pl.Series(["lo", "hi", "lo", None], dtype=pl.Enum(["lo", "hi", "unused"])),
        "date": pl.Series([None, "2020-01-01", "2020-01-02", "2020-01-01"]).str.to_date(),
    }
)


def test_polars_comes_back_exactly_and_exchanged_natively() -> None:
    assert to_frame(read(POLARS)).equals(POLARS, null_equal=True)
    back = to_frame(exchanged(read(POLARS), [(("float", "category", "enum"), [(0, 2)])]))
    expected = POLARS.with_columns(pl.col("float", "category", "enum").gather([2, 1, 0, 3]))
    assert back.schema == POLARS.schema
    assert back.equals(expected, null_equal=True)


def test_stages_on_the_same_attribute_follow_each_other() -> None:
    back = to_frame(exchanged(read(POLARS), [(("text",), [(0, 1)]), (("text", "date"), [(1, 2)])]))
    assert back["text"].to_list() == ["", None, "a", "é"]
    assert back["date"].to_list() == POLARS["date"].gather([0, 2, 1, 3]).to_list()


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: t.to_batches()[0]])
def test_arrow_comes_back_as_it_was(wrap: Any) -> None:
    table = pa.table(
        {"a": pa.array(["x", "y", None]).dictionary_encode(), "b": pa.array(["1", "2", "3"], pa.string_view())},
        metadata={"k": "v"},
    )
    frame = wrap(table)
    assert to_frame(read(frame)).equals(frame)
    back = to_frame(exchanged(read(frame), [(("b",), [(0, 2)])]))
    assert type(back) is type(frame)
    assert back.schema.equals(frame.schema)
    assert back.column(1).to_pylist() == ["3", "2", "1"]


def test_narwhals_frames_come_back_wrapped() -> None:
    back = to_frame(exchanged(read(nw.from_native(POLARS)), [(("text",), [(0, 3)])]))
    assert isinstance(back, nw.DataFrame)
    assert back["text"].to_list() == ["é", "", None, "a"]


def test_columns_that_were_rewritten_come_from_the_result() -> None:
    data = read(POLARS)
    after = data.with_columns({"text": pa.chunked_array([["r", "r", None, "r"]])}, {})
    assert to_frame(after)["text"].to_list() == ["r", "r", None, "r"]
    assert to_frame(after).drop("text").equals(POLARS.drop("text"), null_equal=True)


@pytest.mark.parametrize(("like", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("arrow", pa.Table)])
def test_another_type_can_be_asked_for(like: str, kind: type) -> None:
    for source in (PANDAS[["text"]], POLARS[["text"]], pa.table({"text": ["a", None]})):
        assert isinstance(to_frame(read(source), like=like), kind)
    assert isinstance(
        to_frame(read(PANDAS[["text"]]), like=kind({"text": ["b"]}) if kind is not pa.Table else "arrow"), kind
    )


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(SpecError):
        to_frame(read(POLARS), like="spreadsheet")


@given(
    values=st.lists(st.none() | st.text(max_size=3) | st.just(float("nan")), min_size=2, max_size=10),
    data=st.data(),
)
def test_whatever_objects_are_exchanged_they_are_the_same_objects(values: list[Any], data: st.DataObject) -> None:
    frame = pd.DataFrame({"a": pd.Series(values, dtype=object)})
    order = data.draw(st.permutations(range(len(values))))
    pairs = [(order[i], order[i + 1]) for i in range(0, len(values) - 1, 2)]
    back = to_frame(exchanged(read(frame), [(("a",), pairs)]))["a"].tolist()
    source = list(range(len(values)))
    for one, other in pairs:
        source[one], source[other] = other, one
    assert all(back[i] is values[j] for i, j in enumerate(source))
