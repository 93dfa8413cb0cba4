"""A file is sorted where somebody asks for it; what is told without sorting is what sorting would tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import cells
from safeswap.methods.edit_targeted import classes as walk
from safeswap.methods.edit_targeted import keyed_walk as walks
from safeswap.methods.edit_targeted.classes import SortedClasses, sort_classes
from safeswap.methods.edit_targeted.keyed_walk import (
    CellLabels,
    ClassLabels,
    DrawKeys,
    RowLabels,
    keyed_walk,
    mixed_strata,
)
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema


def file_of(seed: int, records: int, *, kinds: int = 12, places: int = 9, states: int = 3) -> Microdata:
    rng = np.random.default_rng(seed)
    drawn = rng.pareto(1.0, (2, records))
    columns: dict[str, Any] = {
        "id": pa.array(rng.permutation(records)),
        "State": pa.array([f"s{i}" for i in rng.integers(0, states, records)]),
        "Beds": pa.array(np.minimum(drawn[0] * 2, kinds).astype(np.int64)),
        "Baths": pa.array(np.minimum(drawn[1] * 2, kinds).astype(np.int64)),
        "Place": pa.array(rng.integers(0, places, records)),
    }
    identifier = Attribute(name="id", kind="identifier")
    rest = tuple(Attribute(name=name) for name in columns if name != "id")
    return Microdata(pa.table(columns), Schema(attributes=(identifier, *rest)))


files = st.builds(file_of, st.integers(0, 2**32 - 1), st.integers(0, 300))


def in_full(data: Microdata, monkeypatch: pytest.MonkeyPatch) -> SortedClasses:
    with monkeypatch.context() as patch:
        patch.setattr(cells, "is_dense", lambda _cells, _records: False)
        return sort_classes(data, ("Beds", "Baths"), within=("State",))


@given(data=files)
def test_classes_that_are_counted_are_those_of_the_sorted_file(data: Microdata) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = in_full(data, monkeypatch)
    found = sort_classes(data, ("Beds", "Baths"), within=("State",))
    assert "rows" in vars(expected)
    assert "rows" not in vars(found) or not len(data)
    for name in ("starts", "strata", "names", "rows"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


@given(data=files, seed=st.integers(0, 2**32 - 1))
def test_rows_of_some_classes_are_those_at_their_positions(data: Microdata, seed: int) -> None:
    found = sort_classes(data, ("Beds", "Baths"), within=("State",))
    chosen = np.flatnonzero(np.random.default_rng(seed).random(found.strata.size) < 0.4)
    without_sorting = found.rows_of(chosen).tolist()
    assert without_sorting == found.rows[found.positions(chosen)].tolist()
    assert without_sorting == found.rows_of(chosen).tolist()
    owners = np.repeat(chosen, found.sizes[chosen])
    assert found.class_of(np.array(without_sorting, np.int64)).tolist() == owners.tolist()


@given(data=files)
def test_rows_of_a_file_with_ties_stand_in_the_order_of_the_ties(data: Microdata) -> None:
    ties = np.argsort(data.table["id"].to_numpy()).astype(np.uint32)
    found = sort_classes(data, ("Beds",), ties=ties)
    every = np.arange(found.strata.size)
    assert found.rows_of(every).tolist() == found.rows.tolist()
    rank = np.empty(len(data), np.int64)
    rank[ties] = np.arange(len(data))
    for c in every:
        assert (np.diff(rank[found.rows[found.starts[c] : found.starts[c + 1]]]) > 0).all()


def labels_of(data: Microdata, classes: SortedClasses, kind: str) -> RowLabels:
    return ClassLabels(classes) if kind == "classes" else CellLabels(data, ("Place",))


@pytest.mark.parametrize("kind", ["classes", "cells"])
@given(data=files)
def test_labels_of_some_rows_agree_where_those_of_all_do(data: Microdata, kind: str) -> None:
    labels = labels_of(data, sort_classes(data, ("Beds", "Baths")), kind)
    rows = np.arange(len(data))[::-1][: len(data) // 2]
    some, all_of_them = labels.at(rows), labels.all()[rows]
    assert np.array_equal(np.equal.outer(some, some), np.equal.outer(all_of_them, all_of_them))


@given(data=files, places=st.integers(1, 2))
def test_strata_that_are_mixed_are_found_from_few_records(data: Microdata, places: int) -> None:
    data = data if places > 1 else data.with_columns({"Place": pa.chunked_array([np.zeros(len(data), np.int64)])}, {})
    classes = sort_classes(data, ("Beds", "Baths"), within=("State",))
    labels = CellLabels(data, ("Place",))
    below = classes.sizes < 3
    found = mixed_strata(classes, below, labels)
    expected = walk.flag_mixed(classes.starts, classes.strata, classes.rows, labels.all())
    assert (found & below).tolist() == (expected & below).tolist()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("places", [2, 30])
def test_the_walk_over_the_lowest_draws_is_the_walk_of_the_whole_file(
    seed: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = file_of(seed, 6000, kinds=60, places=places)
    labels, keys = CellLabels(data, ("Place",)), DrawKeys.derive(bytes(32), data, replicate=0)
    made, was_sorted = [], []
    for fewest in (0, 10**9):
        monkeypatch.setattr(walks, "_WORTH_SELECTING", fewest)
        monkeypatch.setattr(walks, "_SELECTED", 4)
        classes = sort_classes(data, ("Beds", "Baths"), within=("State",))
        assert classes.sizes.max() > 80
        made.append(keyed_walk(data, classes, classes.sizes < 3, labels, candidates=10, keys=keys))
        was_sorted.append("rows" in vars(classes))
    assert was_sorted == [False, True]
    assert np.concatenate(made[0].pairs).tolist() == np.concatenate(made[1].pairs).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_a_window_that_needs_more_than_the_lowest_draws_gets_the_whole_file(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = file_of(seed, 6000, kinds=60)
    labels, keys = CellLabels(data, ("Place",)), DrawKeys.derive(bytes(32), data, replicate=0)
    made = []
    for selected in (1, 10**6):
        monkeypatch.setattr(walks, "_WORTH_SELECTING", 0)
        monkeypatch.setattr(walks, "_SELECTED", selected)
        classes = sort_classes(data, ("Beds", "Baths"), within=("State",))
        made.append(keyed_walk(data, classes, classes.sizes < 3, labels, candidates=10, keys=keys))
        assert ("rows" in vars(classes)) == (selected == 1)
    assert made[0].pairs[0].tolist() == made[1].pairs[0].tolist()
