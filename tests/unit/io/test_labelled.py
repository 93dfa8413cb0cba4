"""Stata, SPSS and SAS files: values as stored, labels and missing codes in the schema, and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import OutputError
from safeswap.io.labelled_write import write_dta, write_sav
from safeswap.io.read import read
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema


def data_of(table: pa.Table, *attributes: Attribute) -> Microdata:
    known = {a.name: a for a in attributes}
    return Microdata(table, Schema(attributes=tuple(known.get(n, Attribute(name=n)) for n in table.column_names)))


def test_stata_values_stay_and_labels_go_to_the_schema(tmp_path: Path) -> None:
    frame = pd.DataFrame({"sex": pd.array([1, 2, 2], dtype="int32"), "x": [0.5, -0.0, np.nan], "t": ["a", "", "é"]})
    pyreadstat.write_dta(
        frame,
        tmp_path / "a.dta",
        column_labels={"sex": "sex of person"},
        variable_value_labels={"sex": {1: "m", 2: "f"}},
    )
    data = read(tmp_path / "a.dta")
    assert data.table.column("sex").to_pylist() == [1, 2, 2]
    assert data.table.column("t").to_pylist() == ["a", "", "é"]
    assert np.signbit(data.table.column("x")[1].as_py())
    assert data.schema["sex"].labels == {"1": "m", "2": "f"}
    assert data.schema["sex"].label == "sex of person"
    assert data.schema["sex"].kind is Kind.NOMINAL
    assert data.schema.name == "a"


def test_stata_tags_survive_as_text_and_as_tags(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": pd.Series([1.5, "a", np.nan, "b", 7.0], dtype=object)})
    labels = {"x": {"a": "refused", 7: "seven"}}
    pyreadstat.write_dta(frame, tmp_path / "a.dta", missing_user_values={"x": ["a", "b"]}, variable_value_labels=labels)
    data = read(tmp_path / "a.dta")
    assert data.table.column("x").to_pylist() == ["1.5", ".a", None, ".b", "7"]
    assert data.schema["x"].missing == (".a", ".b")
    assert data.schema["x"].labels == {".a": "refused", "7": "seven"}
    write_dta(data, tmp_path / "b.dta")
    again = read(tmp_path / "b.dta")
    assert again.table.equals(data.table)
    assert again.schema["x"] == data.schema["x"]


def test_spss_declares_missing_codes_measures_and_labels(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"i": [1.0, 2, 99, 98], "r": [1.0, np.nan, -3, -7], "s": ["x", "", " lead", "NA"], "o": [3.0, 1, 2, 1]}
    )
    pyreadstat.write_sav(
        frame,
        tmp_path / "a.sav",
        variable_value_labels={"i": {1: "one", 99: "refused"}, "s": {"x": "an x"}},
        missing_ranges={"i": [99], "r": [{"lo": -9, "hi": -1}], "s": ["NA"]},
        variable_measure={"i": "nominal", "r": "scale", "s": "nominal", "o": "ordinal"},
    )
    data = read(tmp_path / "a.sav")
    assert data.table.column("i").to_pylist() == [1.0, 2.0, 99.0, 98.0]
    assert data.schema["i"].missing == ("99",)
    assert data.schema["r"].missing == ("-7", "-3")
    assert data.schema["r"].kind is Kind.NUMERIC
    assert data.schema["s"].missing == ("NA",)
    assert data.schema["s"].labels == {"x": "an x"}
    assert data.schema["o"].levels == ("1", "2", "3")
    assert not any(a.inferred for a in data.schema.attributes)


@pytest.mark.parametrize("suffix", ["sav", "zsav"])
def test_spss_writes_what_it_read(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"i": [1.0, None, 9.0], "t": pa.array(["a", "b", "a"]).dictionary_encode()})
    attributes = (
        Attribute(name="i", label="an item", labels={"1": "one"}, missing=("9",), kind=Kind.ORDINAL, levels=("1",)),
        Attribute(name="t", labels={"a": "an a"}),
    )
    write_sav(data_of(table, *attributes), tmp_path / f"x.{suffix}")
    again = read(tmp_path / f"x.{suffix}")
    assert again.table.to_pydict() == table.to_pydict()
    assert again.schema.attributes == attributes


def test_many_missing_codes_become_a_range_only_if_nothing_else_lies_in_it(tmp_path: Path) -> None:
    table = pa.table({"i": [1.0, 95.0, 96.0, 97.0, 98.0]})
    codes = ("95", "96", "97", "98")
    write_sav(data_of(table, Attribute(name="i", missing=codes)), tmp_path / "a.sav")
    assert read(tmp_path / "a.sav").schema["i"].missing == codes
    with pytest.raises(OutputError) as caught:
        write_sav(data_of(table, Attribute(name="i", missing=("1", "95", "97", "98"))), tmp_path / "b.sav")
    assert caught.value.code == "not-representable"
    assert not (tmp_path / "b.sav").exists()


def test_sas_transport_is_read(tmp_path: Path) -> None:
    pyreadstat.write_xport(pd.DataFrame({"a": [1.0, 2.5], "t": ["x", "y"]}), tmp_path / "a.xpt")
    assert read(tmp_path / "a.xpt").table.to_pydict() == {"a": [1.0, 2.5], "t": ["x", "y"]}


@pytest.mark.parametrize("write", [write_dta, write_sav])
@pytest.mark.parametrize(
    "table",
    [
        pa.table({"id": [2**53 + 1, 1]}),
        pa.table({"id": pa.array([2**64 - 1], pa.uint64())}),
        pa.table({"a name": ["x"]}),
        pa.table({"1st": ["x"]}),
        pa.table({"t": [b"bytes"]}),
    ],
)
def test_what_the_format_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path, write, table) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OutputError) as caught:
        write(table, tmp_path / "x.sav")
    assert caught.value.code == "not-representable"
    assert list(tmp_path.iterdir()) == []


NUMBERS = st.none() | st.floats(allow_nan=False, width=64).filter(lambda x: abs(x) < 1e300)
WHOLE = st.none() | st.integers(-(2**53), 2**53)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10).map(lambda t: t.rstrip(" "))


@given(data=st.data(), rows=st.integers(1, 8), stata=st.booleans())
def test_numbers_and_texts_survive(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: int, stata: bool
) -> None:
    def column(values: st.SearchStrategy[object]) -> list[object]:
        return data.draw(st.lists(values, min_size=rows, max_size=rows))

    table = pa.table(
        {
            "f": pa.array(column(NUMBERS), pa.float64()),
            "i": pa.array(column(WHOLE), pa.int64()),
            "s": pa.array(column(st.integers(-100, 100)), pa.int16()),
            "t": pa.array(column(TEXTS), pa.string()),
        }
    )
    path = tmp_path_factory.mktemp("labelled") / ("x.dta" if stata else "x.sav")
    (write_dta if stata else write_sav)(table, path)
    again = read(path, identifier=None).table
    assert [repr(v) for v in again["f"].to_pylist()] == [repr(v) for v in table["f"].to_pylist()]
    for name in ("i", "s", "t"):
        assert again[name].to_pylist() == table[name].to_pylist()
