"""The near-optimal sort order, against the procedure told on plain lists."""

from __future__ import annotations

from statistics import stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dwellings import column, dwellings, microdata

from safeswap.errors import SpecError
from safeswap.methods.edit_targeted.near_optimal import near_optimal_order
from safeswap.model.microdata import Microdata

NAMES = ("a", "b", "c", "d")


def largest(data: Microdata, keys: tuple[str, ...], by: str) -> float:
    classes: dict[Any, list[float]] = {}
    for row in data.table.to_pylist():
        if row[by] is not None:
            classes.setdefault(tuple(row[k] for k in keys), []).append(row[by])
    return max((stdev(values) for values in classes.values() if len(values) > 1), default=float("nan"))


@given(st.integers(2, 60), st.integers(0, 2**32 - 1))
def test_every_figure_is_the_largest_deviation_within_a_class(records: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {name: rng.integers(0, 3, records).tolist() for name in NAMES}
    columns["INCOME"] = [None if x < 0.1 else float(x) for x in np.round(rng.lognormal(0, 1, records), 3)]
    data = microdata(columns)
    found = near_optimal_order(data, NAMES, "INCOME")
    for step in found.steps:
        expected = largest(data, step.keys, "INCOME")
        assert step.deviation == pytest.approx(expected, rel=1e-9, nan_ok=True)
    chosen = [step for step in found.steps if step.chosen]
    assert found.keys[::-1][:-1] == tuple(step.keys[-1] for step in chosen)
    for step in chosen:
        rivals = [s.deviation for s in found.steps if s.number == step.number and not np.isnan(s.deviation)]
        assert not rivals or step.deviation <= min(rivals) * (1 + 1e-9)
    assert [len([s for s in found.steps if s.number == n]) for n in (1, 2, 3)] == [4, 3, 2]


def test_the_order_of_the_rows_decides_nothing_even_between_equals() -> None:
    data = dwellings(500)
    twins = {**{n: column(data, n) for n in ("BEDS", "BATHS", "INCOME")}, "ROOMS": column(data, "BEDS")}
    rows = np.random.default_rng(3).permutation(500)
    shuffled = {name: [values[i] for i in rows] for name, values in twins.items()}
    keys = ("ROOMS", "BEDS", "BATHS")
    assert near_optimal_order(microdata(twins), keys, "INCOME").keys == (
        near_optimal_order(microdata(shuffled), keys, "INCOME").keys
    )


def test_keys_without_any_class_of_two_come_first_in_the_order() -> None:
    data = microdata({"unique": [1, 2, 3, 4], "pair": [1, 1, 2, 2], "INCOME": [1.0, 5.0, 2.0, 9.0]})
    found = near_optimal_order(data, ("unique", "pair"), "INCOME")
    assert found.keys == ("unique", "pair")
    assert found.table().to_pydict()["deviation"][0] is None


def test_several_items_are_weighed_alike() -> None:
    data = microdata(
        {"a": [1, 1, 2, 2], "b": [1, 2, 1, 2], "INCOME": [0.0, 1000.0, 0.0, 1000.0], "TAXES": [0.0, 0.1, 5.0, 5.2]}
    )
    assert near_optimal_order(data, ("a", "b"), "INCOME").keys == ("a", "b")
    assert near_optimal_order(data, ("a", "b"), "TAXES").keys == ("b", "a")
    both = near_optimal_order(data, ("a", "b"), ("INCOME", "TAXES"))
    assert both.by == ("INCOME", "TAXES")
    assert all(0 <= step.deviation < 3 for step in both.steps)


def test_more_possible_classes_than_records_make_no_difference() -> None:
    rng = np.random.default_rng(5)
    columns: dict[str, Any] = {name: rng.integers(0, 5000, 300).tolist() for name in NAMES}
    data = microdata({**columns, "INCOME": rng.random(300).tolist()})
    for step in near_optimal_order(data, NAMES, "INCOME").steps:
        assert step.deviation == pytest.approx(largest(data, step.keys, "INCOME"), rel=1e-9, nan_ok=True)


def test_the_table_explains_the_order() -> None:
    table = near_optimal_order(dwellings(300), ("BEDS", "BATHS", "YR_BLT"), "INCOME").table()
    assert table.column_names == ["step", "keys", "deviation", "chosen"]
    assert table["step"].to_pylist() == [1, 1, 1, 2, 2]
    assert sum(table["chosen"].to_pylist()) == 2


def test_one_key_needs_no_figure() -> None:
    assert near_optimal_order(dwellings(10), ("BEDS",), "INCOME").keys == ("BEDS",)


@pytest.mark.parametrize(
    ("source", "keys", "by", "code"),
    [
        (dwellings(5), (), "INCOME", "bad-spec"),
        (dwellings(5), ("BEDS", "BEDS"), "INCOME", "bad-spec"),
        (dwellings(5), ("BEDS", "BATHS"), (), "bad-spec"),
        (dwellings(5), ("BEDS", "BATHS"), "PRICE", "unknown-attribute"),
        ({"a": 1.0, "b": 2.0}, ("a", "b", "c"), (), "missing-figure"),
    ],
)
def test_what_cannot_be_ordered_is_refused(source: Any, keys: tuple[str, ...], by: Any, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        near_optimal_order(source, keys, by)
    assert caught.value.code == code


def test_a_table_may_name_single_keys_as_text() -> None:
    assert near_optimal_order({"a": 1.0, "b": 2.0}, ("a", "b")).keys == ("b", "a")
