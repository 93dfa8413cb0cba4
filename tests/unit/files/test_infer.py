"""Kinds are guessed by the rules that are written down."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from safeswap import datasets, workflow
from safeswap.files.infer import infer_schema, order_of_levels, order_of_ranges
from safeswap.files.read import read
from safeswap.files.write import write_csv
from safeswap.model.schema import Kind

N = 200
SEX = ["F", "M"] * (N // 2)


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("id", [f"{i:03d}" for i in range(N)], Kind.IDENTIFIER),
        ("PersonID", list(range(N)), Kind.IDENTIFIER),
        ("person_id", list(range(N)), Kind.IDENTIFIER),
        ("serial", list(range(N)), Kind.IDENTIFIER),
        ("__index_level_0__", list(range(N)), Kind.IDENTIFIER),
        ("id", [0, *range(N - 1)], Kind.NUMERIC),
        ("id", [None, *range(N - 1)], Kind.NUMERIC),
        ("idea", [i * i for i in range(N)], Kind.NUMERIC),
        ("paid", [i * i for i in range(N)], Kind.NUMERIC),
        ("ori_nr", [(37 * i) % N + 5 for i in range(N)], Kind.IDENTIFIER),
        ("case", [f"C-{i:04d}" for i in range(N)], Kind.IDENTIFIER),
        ("case", [0, *range(N - 1)], Kind.NUMERIC),
        ("valid", SEX, Kind.NOMINAL),
        ("hhid", [i // 3 for i in range(N)], Kind.HOUSEHOLD),
        ("household_no", [f"h{i // 3}" for i in range(N)], Kind.HOUSEHOLD),
        ("hh_size", [i % 5 for i in range(N)], Kind.NOMINAL),
        ("weight", [1 + i / 7 for i in range(N)], Kind.WEIGHT),
        ("fnlwgt", [str(1000 + i) for i in range(N)], Kind.WEIGHT),
        ("weight", [i - 5 for i in range(N)], Kind.NUMERIC),
        ("weighted", SEX, Kind.NOMINAL),
        ("Poids_final", [1 + i / 7 for i in range(N)], Kind.WEIGHT),
        ("Département", SEX, Kind.GEOGRAPHY),
        ("Hushåll nr", [i // 4 for i in range(N)], Kind.HOUSEHOLD),
        ("state", ["NJ", "NY"] * (N // 2), Kind.GEOGRAPHY),
        ("county_code", [f"{i % 30:03d}" for i in range(N)], Kind.GEOGRAPHY),
        ("nuts3", [f"DE{i % 9}" for i in range(N)], Kind.GEOGRAPHY),
        ("Age", ["<25", "25-55", ">55", "<25"] * (N // 4), Kind.ORDINAL),
        ("Age", [str(i % 90) for i in range(N)], Kind.NUMERIC),
        ("Age", [i % 90 for i in range(N)], Kind.NUMERIC),
        ("Code", [str(i % 5) for i in range(N)], Kind.NOMINAL),
        ("Code", [i % 5 for i in range(N)], Kind.NOMINAL),
        ("Code", [f"{i % 90:04d}" for i in range(N)], Kind.NOMINAL),
        ("Income", [str(i + 0.5) for i in range(N)], Kind.NUMERIC),
        ("Rate", [0.5, 1.5] * (N // 2), Kind.NUMERIC),
        ("Income", ["NA", "?", *(str(i) for i in range(N - 2))], Kind.NUMERIC),
        ("Income", ["lots", *(str(i) for i in range(N - 1))], Kind.NOMINAL),
        ("Sex", SEX, Kind.NOMINAL),
        ("Flag", [True, False] * (N // 2), Kind.NOMINAL),
        ("Day", pd.date_range("2020-01-01", periods=N).to_pydatetime().tolist(), Kind.DATE),
        ("Moment", pd.date_range("2020-01-01 08:00", periods=N).to_pydatetime().tolist(), Kind.NOMINAL),
        ("Date", [dt.date(1890, 1, 1) + dt.timedelta(i) for i in range(N)], Kind.DATE),
        ("Region", ["2020-02-29", "1899-12-31"] * (N // 2), Kind.DATE),
        ("Day", ["2020-02-29", "2021-02-29"] * (N // 2), Kind.NOMINAL),
        ("Day", ["2020-02-29", "20200229"] * (N // 2), Kind.NOMINAL),
        ("Day", ["2020-02-29 00:00:00"] * N, Kind.NOMINAL),
        ("Day", ["2020-02-29", "NA", ""] * (N // 3), Kind.DATE),
        ("Day", ["NA", ""] * (N // 2), Kind.NOMINAL),
        ("Nothing", [None] * N, Kind.NOMINAL),
        ("Name", [f"name {i * i}" for i in range(N)], Kind.NOMINAL),
    ],
)
def test_a_kind_is_guessed_by_its_rule(name: str, values: list[Any], kind: Kind) -> None:
    attribute = infer_schema(pa.table({name: values}))[name]
    assert attribute.kind is kind
    assert attribute.inferred


def test_only_the_first_identifier_is_one() -> None:
    schema = infer_schema(pa.table({"pid": list(range(N)), "uid": list(range(N))}))
    assert [a.kind for a in schema.attributes] == [Kind.IDENTIFIER, Kind.NUMERIC]


def test_an_identifier_is_checked_in_the_whole_file() -> None:
    values = np.arange(250_000)
    values[15_001] = values[15_000]  # between two of the runs that are sampled
    assert infer_schema(pa.table({"id": values}))["id"].kind is Kind.NUMERIC


def test_the_levels_of_a_guessed_order_are_those_of_the_whole_file() -> None:
    values = np.array(["<25", "25-55"] * 100_000, dtype=object)
    values[15_001] = ">55"
    assert infer_schema(pa.table({"Age": values}))["Age"].levels == ("<25", "25-55", ">55")
    values[15_001] = "no answer"
    assert infer_schema(pa.table({"Age": values}))["Age"].kind is Kind.NOMINAL


def test_ordered_categories_of_dataframes_are_ordinal() -> None:
    ordered = pd.DataFrame({"x": pd.Categorical(["lo", "hi"], categories=["lo", "mid", "hi"], ordered=True)})
    assert read(ordered).schema["x"].levels == ("lo", "mid", "hi")
    assert read(ordered).schema["x"].kind is Kind.ORDINAL
    unordered = pl.DataFrame({"x": pl.Series(["lo", "hi"], dtype=pl.Categorical)})
    assert read(unordered).schema["x"].kind is Kind.NOMINAL


def test_marks_of_missing_values_are_noted_for_numbers() -> None:
    table = pa.table({"Income": ["NA", "?", "", *(str(i) for i in range(N - 3))]})
    assert infer_schema(table)["Income"].missing == ("?", "NA")


def test_cps8d_as_a_file_is_guessed_as_it_is_described_where_ranges_tell(tmp_path: Path) -> None:
    data = datasets.cps8d()
    write_csv(data, tmp_path / "cps8d.csv")
    guess = read(tmp_path / "cps8d.csv").schema
    for name in ("Age", "AvgHrs", "AnnSal"):
        assert (guess[name].kind, guess[name].levels) == (Kind.ORDINAL, data.schema[name].levels)
    for name in ("EmpTyp", "MS", "Race", "Sex"):
        assert guess[name].kind is Kind.NOMINAL


@pytest.mark.parametrize(
    ("levels", "order"),
    [
        (["65+", "0-4", "5-9", "10-14"], ("0-4", "5-9", "10-14", "65+")),
        (["under 5", "5 to 9", "over 9"], ("under 5", "5 to 9", "over 9")),
        (["1,000-1,999", "500-999", "10,000 or more"], ("500-999", "1,000-1,999", "10,000 or more")),
        (["<1M", "10K-100K", "≥1M"], ("10K-100K", "<1M", "≥1M")),
        (["<40", "40", ">40"], ("<40", "40", ">40")),
        (["<40", ""], ()),
        (["2020-01-01", "2020-01-02"], ()),
        ([], ()),
    ],
)
def test_ranges_are_ordered_by_where_they_begin(levels: list[str], order: tuple[str, ...]) -> None:
    assert order_of_ranges(levels) == order
    assert order_of_ranges(reversed(levels)) == order


def test_levels_without_an_order_of_their_own_get_none() -> None:
    assert order_of_levels(["low", "high"]) == ()
    assert order_of_levels(["10", "9", "-1"]) == ("-1", "9", "10")


@pytest.mark.parametrize("value", [0, 1, 7, 1.0, 2.5, "1", "1.0", "12"])
@pytest.mark.parametrize("missing", [None, "NA"])
def test_a_constant_number_is_numeric_and_can_be_a_weight(value, missing):
    values = [value] * 30 + [missing if isinstance(value, str) else None]
    schema = infer_schema(pa.table({"w": values, "weight": values, "Sex": ["f", "m", "f"] * 10 + ["m"]}))
    assert [attribute.kind for attribute in schema.attributes] == [Kind.NUMERIC, Kind.WEIGHT, Kind.NOMINAL]


@pytest.mark.parametrize("value", ["007", "Bern", True])
def test_a_constant_that_is_no_number_is_nominal(value):
    assert infer_schema(pa.table({"c": [value] * 30})).attributes[0].kind is Kind.NOMINAL


def test_a_constant_weight_weighs():
    table = pa.table({"w": [4] * 40, "Sex": ["f", "m"] * 20, "Age": ["old", "young", "old", "old"] * 10})
    assert workflow.risky(table, keys=["Sex", "Age"], tolerance=45, weight="w").unsafe == 3
    assert workflow.risky(table, keys=["Sex", "Age"], tolerance=41, weight="w").unsafe == 3
    assert workflow.risky(table, keys=["Sex", "Age"], tolerance=40, weight="w").unsafe == 0
