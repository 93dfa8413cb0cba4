"""Weighted tables against sums over the records, one by one, where cells are few and where they are many."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pyarrow as pa
import pytest

from safeswap import registry
from safeswap.arrays import cells
from safeswap.measures.aligned import sum_weights
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.score import Comparison

_NAMES = ("a", "b", "c")


def two_files(records: int, levels: int, *, other_weight: bool = False) -> Comparison:
    rng = np.random.default_rng(records + levels)
    kinds = {"w": "weight"}
    schema = Schema(attributes=tuple(Attribute(name=n, kind=kinds.get(n, "nominal")) for n in (*_NAMES, "w")))
    columns = {name: rng.integers(0, levels, records) for name in _NAMES} | {"w": rng.uniform(0.5, 9.0, records)}
    moved = np.where(rng.random(records) < 0.2, rng.permutation(columns["b"]), columns["b"])
    masked = {**columns, "b": moved} | ({"w": columns["w"] * 2.0} if other_weight else {})
    tables = [pa.table({n: v.astype(str) if n != "w" else v for n, v in each.items()}) for each in (columns, masked)]
    before, after = (Microdata(table, schema) for table in tables)
    return Comparison(before=before, after=after, attributes=_NAMES)


def sums_by_hand(data: Microdata, names: tuple[str, ...]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for record in data.table.to_pylist():
        cell = tuple(record[name] for name in names)
        found[cell] = found.get(cell, 0.0) + record["w"]
    return found


@pytest.mark.parametrize(("records", "levels"), [(300, 4), (300, 200)])
@pytest.mark.parametrize("other_weight", [False, True])
def test_weighted_joint_measures_are_those_of_sums_by_hand(records: int, levels: int, other_weight: bool) -> None:
    comparison = two_files(records, levels, other_weight=other_weight)
    before, after = (sums_by_hand(data, _NAMES) for data in (comparison.before, comparison.after))
    f_total, g_total = sum(before.values()), sum(after.values())
    shares = [(before.get(cell, 0) / f_total, after.get(cell, 0) / g_total) for cell in {*before, *after}]
    hellinger = sqrt(0.5 * sum((sqrt(f) - sqrt(g)) ** 2 for f, g in shares))
    variation = 0.5 * sum(abs(f - g) for f, g in shares)
    assert registry.measure("hellinger").score(comparison).value == pytest.approx(hellinger, rel=1e-12)
    assert registry.measure("total_variation").score(comparison).value == pytest.approx(variation, rel=1e-12)


@pytest.mark.parametrize("levels", [4, 200])
def test_sums_of_weights_are_those_by_hand_cell_by_cell(levels: int) -> None:
    comparison = two_files(300, levels)
    table = sum_weights(comparison, _NAMES, "w")
    before, after = (sums_by_hand(data, _NAMES) for data in (comparison.before, comparison.after))
    assert len(table.before) == len({*before, *after})
    assert sorted(table.before[table.before > 0]) == pytest.approx(sorted(before.values()), rel=1e-12)
    assert sorted(table.after[table.after > 0]) == pytest.approx(sorted(after.values()), rel=1e-12)


@pytest.mark.parametrize("cells_possible", [7, 70_000])  # in one byte or two, and in four
@pytest.mark.parametrize("compiled", [False, True])
def test_sums_over_all_cells_add_up_in_the_order_of_the_records(
    monkeypatch: pytest.MonkeyPatch, cells_possible: int, compiled: bool
) -> None:
    rng = np.random.default_rng(cells_possible)
    codes = rng.integers(0, cells_possible, 500).astype(np.min_scalar_type(cells_possible))
    masses = rng.uniform(0.1, 9.0, 500)
    expected = [0.0] * cells_possible
    for code, mass in zip(codes.tolist(), masses.tolist(), strict=True):
        expected[code] += mass
    monkeypatch.setattr(cells, "is_worth_compiling", lambda _: compiled)
    assert cells.sum_dense(codes, masses, cells_possible).tolist() == expected
