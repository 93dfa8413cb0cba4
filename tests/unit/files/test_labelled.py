"""Stata, SPSS and SAS files: values as stored, labels and missing codes in the schema, and back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap import workflow
from safeswap.errors import OutputError, SpecError
from safeswap.files.labelled import write_dta, write_sav
from safeswap.files.read import read
from safeswap.files.write import list_losses
from safeswap.files.write import write as write_file
from safeswap.model.key import Key
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
    assert tuple(a.model_copy(update={"display": ""}) for a in again.schema.attributes) == attributes


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


DAYS = st.none() | st.dates(dt.date(1600, 1, 1), dt.date(2200, 12, 31))
MOMENTS = st.none() | st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2200, 12, 31)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
TIMES = st.none() | st.times().map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))


@given(
    days=st.lists(DAYS, min_size=3, max_size=3),
    moments=st.lists(MOMENTS, min_size=3, max_size=3),
    times=st.lists(TIMES, min_size=3, max_size=3),
    formats=st.sampled_from(("sav", "dta")),
)
def test_dates_and_times_survive(
    tmp_path_factory: pytest.TempPathFactory,
    days: list[dt.date | None],
    moments: list[dt.datetime | None],
    times: list[dt.time | None],
    formats: str,
) -> None:
    table = pa.table(
        {
            "d": pa.array(days, pa.date32()),
            "m": pa.array(moments, pa.timestamp("us")),
            "t": pa.array(times, pa.time64("us")),
        }
    )
    path = tmp_path_factory.mktemp("dates") / f"x.{formats}"
    (write_sav if formats == "sav" else write_dta)(table, path)
    again = read(path)
    assert again.table.equals(table)
    # The writer states "nominal" to SPSS, since nothing else is known of the table; Stata has no such statement.
    at_midnight = (
        formats == "dta" and any(moments) and all(moment is None or moment.time() == dt.time() for moment in moments)
    )
    kinds = [Kind.DATE, Kind.DATE if at_midnight else Kind.NOMINAL, Kind.NOMINAL]
    assert [a.kind for a in again.schema.attributes] == kinds
    values, _ = getattr(pyreadstat, f"read_{formats}")(path)  # as another program sees them
    assert [None if pd.isna(v) else v for v in values["d"]] == days


@pytest.mark.parametrize("suffix", ["sav", "zsav", "dta"])
def test_dates_of_which_all_are_missing_are_dates(tmp_path: Path, suffix: str) -> None:
    kinds = {"d": pa.date32(), "m": pa.timestamp("us"), "t": pa.time64("us")}
    table = pa.table({name: pa.nulls(3, kind) for name, kind in kinds.items()} | {"x": [1.0, 2.0, 2.0]})
    (write_dta if suffix == "dta" else write_sav)(table, tmp_path / f"x.{suffix}")
    again = read(tmp_path / f"x.{suffix}")
    assert again.table.equals(table)
    assert [again.schema[name].kind for name in kinds] == [Kind.DATE, Kind.NOMINAL, Kind.NOMINAL]


def sas_file(path: Path, version: int) -> pd.DataFrame:
    """Dates, moments and times as SAS writes them, in formats that show all or a part of them."""
    frame = pd.DataFrame(
        {
            "born": pd.Series([None, *(dt.date(1930 + i, 1 + i % 12, 1 + i % 28) for i in range(59))], dtype=object),
            "seen": pd.Series([dt.datetime(1959, 12, 31, 23, i, 59) for i in range(59)] + [pd.NaT]),  # noqa: DTZ001
            "at": pd.Series([dt.time(23, i, 1) for i in range(59)] + [None], dtype=object),
            "died": [float("nan")] * 60,
            "month": [float(31 * i - 500) for i in range(60)],
            "year": [None, *(365.0 * i for i in range(59))],
            "race": list("abcabbc") * 8 + list("abca"),
            "pay": [100.5 * (i % 23) for i in range(60)],
        }
    )
    formats = {"born": "YYMMDD10", "died": "DATE9", "month": "MONYY7", "year": "YEAR4", "pay": "DOLLAR9"}
    pyreadstat.write_xport(frame, path, file_format_version=version, variable_format=formats)
    return frame


@pytest.mark.parametrize("version", [5, 8])
def test_sas_dates_are_dates_from_reading_to_release(tmp_path: Path, version: int) -> None:
    frame = sas_file(tmp_path / "a.xpt", version)
    data = read(tmp_path / "a.xpt")
    days = {
        n: [None if pd.isna(v) else dt.date(1960, 1, 1) + dt.timedelta(v) for v in frame[n]] for n in ("month", "year")
    }
    expected = {
        "born": frame["born"].tolist(),
        "seen": [None if pd.isna(v) else v.to_pydatetime() for v in frame["seen"]],
        "at": frame["at"].tolist(),
        "died": [None] * 60,
        **days,
    }
    assert {name: data.table[name].to_pylist() for name in expected} == expected
    assert data.table["died"].type == pa.date32()
    kinds = {name: data.schema[name].kind for name in expected}
    assert kinds == dict.fromkeys(expected, Kind.DATE) | dict.fromkeys(("seen", "at"), Kind.NOMINAL)
    assert data.schema["pay"].kind is Kind.NUMERIC
    key = Key.generate()
    masked = workflow.swap(data, swap=["race"], pairs=6, key=key)
    for data_format in ("sav", "dta", "parquet"):
        places = {"audit": tmp_path / f"audit-{data_format}", "second_release": "in another format"}
        workflow.release(masked, tmp_path / data_format, key=key, data_format=data_format, **places)
        released = read(tmp_path / data_format / f"data.{data_format}").table
        for name, values in expected.items():
            assert sorted(released[name].to_pylist(), key=str) == sorted(values, key=str), (data_format, name)


def dated(path: Path) -> Microdata:
    """A file with everything that used to get lost."""
    frame = pd.DataFrame(
        {
            "born": pd.Series([dt.date(1980 + i, 1 + i % 12, 3) for i in range(40)], dtype=object),
            "edate": [13_000_003_200.0 + 86_400 * i for i in range(40)],
            "span": [float(90_000 * i) for i in range(40)],
            "pay": [1.5 * i for i in range(40)],
            "sex": [1.0, 2.0] * 20,
        }
    )
    pyreadstat.write_sav(
        frame,
        path,
        file_label="Survey of 2026",
        column_labels={"pay": "p" * 256},
        variable_format={"edate": "EDATE10", "span": "DTIME10", "pay": "DOLLAR12.2"},
        missing_ranges={"edate": [13_000_003_200.0]},
        variable_measure=dict.fromkeys(frame.columns, "scale"),
    )
    return read(path, kinds={"sex": "nominal"})


def test_nothing_of_a_labelled_file_gets_lost_on_the_way(tmp_path: Path) -> None:
    data = dated(tmp_path / "a.sav")
    assert data.table["born"].type == pa.date32()
    assert data.schema["edate"].missing == ("1994-09-27",)
    kinds = {a.name: a.kind.value for a in data.schema.attributes}
    assert kinds == {"born": "date", "edate": "date", "span": "nominal", "pay": "numeric", "sex": "nominal"}
    write_sav(data, tmp_path / "b.sav")
    again = read(tmp_path / "b.sav", kinds={"sex": "nominal"})
    assert again.table.equals(data.table)
    assert again.schema == data.schema.replace(name="b")
    assert again.schema.label == "Survey of 2026"
    assert list_losses(data, ".sav") == ()
    assert list_losses(data, ".dta") == (
        "edate: which codes are missing values: Stata supports only .a to .z",
        "span: the display format DTIME10",
        "pay: the display format DOLLAR12.2 becomes %12.2f",
    )
    assert list_losses(data, ".csv") == ("the label of the file", "the display formats of 5 columns")


@pytest.mark.parametrize(
    ("name", "kind"), [("born", "numeric"), ("edate", "numeric"), ("span", None), ("span", "date")]
)
def test_dates_are_not_masked_as_numbers_nor_durations_as_dates(tmp_path: Path, name: str, kind: str | None) -> None:
    data = dated(tmp_path / "a.sav")
    if kind is not None:
        data = read(tmp_path / "a.sav", kinds={name: kind, "sex": "nominal"})
    for spec in (
        {"method": "noise", "attributes": [name]},
        {"method": "microaggregation", "attributes": [name]},
        {"method": "rank_swap", "attributes": [name]},
    ):
        with pytest.raises(SpecError):
            workflow.mask(data, spec, insecure_seed=1)


@pytest.mark.parametrize("data_format", ["sav", "dta", "csv", "parquet"])
def test_dates_are_released_as_dates(tmp_path: Path, data_format: str) -> None:
    key = Key.generate()
    data = dated(tmp_path / "a.sav")
    short = data.schema.replace(data.schema["pay"].model_copy(update={"label": "pay"}))
    masked = workflow.swap(Microdata(data.table, short), swap=["sex"], pairs=4, key=key)
    done = workflow.release(
        masked, tmp_path / "public", audit=tmp_path / "audit", key=key, data_format=data_format, title="Public file"
    )
    found = read(tmp_path / "public" / f"data.{data_format}", kinds={"sex": "nominal"})
    expected = sorted(str(value) for value in data.table["born"].to_pylist())
    assert sorted(str(value) for value in found.table["born"].to_pylist()) == expected
    if data_format != "csv":
        assert found.table["born"].type == pa.date32()
    if data_format == "sav":
        assert (found.schema["edate"].display, found.schema["pay"].display) == ("EDATE10", "DOLLAR12.2")
        assert found.schema.label == "Public file"
    lost = [remark.message for remark in done.remarks if remark.code == "not-kept"]
    assert "the label of the original file is not published" in lost[-1]
    assert (len(lost) > 1) == (data_format != "sav")
    workflow.verify(tmp_path / "public")  # raises where something is wrong


@pytest.mark.parametrize(
    ("write", "longest"),
    [
        (write_sav, {"file": 64, "variable": 256, "value": 120}),
        (write_dta, {"file": 80, "variable": 80, "value": 32_000}),
    ],
)
@pytest.mark.parametrize("where", ["file", "variable", "value"])
def test_labels_are_kept_whole_or_refused(tmp_path: Path, write, longest, where: str) -> None:  # type: ignore[no-untyped-def]
    def labelled(size: int) -> Microdata:
        texts = {place: "x" * size if place == where else "" for place in longest}
        labels = {"1": texts["value"]} if texts["value"] else {}
        attribute = Attribute(name="a", label=texts["variable"], labels=labels)
        return Microdata(pa.table({"a": [1.0]}), Schema(label=texts["file"], attributes=(attribute,)))

    suffix = "sav" if write is write_sav else "dta"
    data = labelled(longest[where])
    write(data, tmp_path / f"a.{suffix}")
    again = read(tmp_path / f"a.{suffix}").schema
    assert (again.label, again["a"].label, again["a"].labels) == (
        data.schema.label,
        data.schema["a"].label,
        data.schema["a"].labels,
    )
    with pytest.raises(OutputError) as caught:
        write(labelled(longest[where] + 1), tmp_path / f"b.{suffix}")
    assert caught.value.code == "label-too-long"
    assert not (tmp_path / f"b.{suffix}").exists()


def test_a_stata_month_stays_a_number_and_is_no_quantity(tmp_path: Path) -> None:
    frame = pd.DataFrame({"month": [float(i) for i in range(600, 650)]})
    pyreadstat.write_dta(frame, tmp_path / "a.dta", variable_format={"month": "%tm"})
    data = read(tmp_path / "a.dta")
    assert data.table["month"].to_pylist() == frame["month"].tolist()
    assert (data.schema["month"].kind, data.schema["month"].display) == (Kind.NOMINAL, "%tm")
    write_dta(data, tmp_path / "b.dta")
    assert read(tmp_path / "b.dta").schema["month"].display == "%tm"


@pytest.mark.parametrize("numbers", [[13_000_003_200.5, 1.0], [1e300, 0.0], [-1e18, 2.0]])
def test_a_number_that_is_no_date_stays_a_number(tmp_path: Path, numbers: list[float]) -> None:
    pyreadstat.write_sav(pd.DataFrame({"d": numbers}), tmp_path / "a.sav", variable_format={"d": "DATE11"})
    data = read(tmp_path / "a.sav")
    assert data.table["d"].to_pylist() == numbers
    assert (data.schema["d"].kind, data.schema["d"].display) == (Kind.NOMINAL, "DATE11")


def test_spss_refuses_texts_that_end_in_spaces(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="2 texts") as caught:
        write_sav(pa.table({"t": ["a ", "b  ", "c"]}), tmp_path / "a.sav")
    assert caught.value.code == "trailing-blanks"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["csv", "dta", "sav"])
def test_nul_characters_are_refused(tmp_path: Path, suffix: str) -> None:
    for column in (pa.array(["a\0b", "c"]), pa.array(["a\0b", "c"]).dictionary_encode()):
        with pytest.raises(OutputError) as caught:
            write_file(pa.table({"t": column}), tmp_path / f"a.{suffix}")
        assert caught.value.code == "not-representable"
    key = Key.generate()
    masked = workflow.swap(pa.table({"t": ["a\0b", "c"] * 9}), swap=["t"], pairs=1, key=key)
    with pytest.raises(OutputError):
        workflow.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=key, data_format=suffix)
    assert list(tmp_path.iterdir()) == []
