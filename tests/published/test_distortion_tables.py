"""The figures that Gomatam & Karr (2003) and Moore (1996) print come out of our formulas."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import safeswap
from safeswap.arrays import cells, divergence
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema

DATA = Path(__file__).parent / "data"
BINARY_TABLES = json.loads((DATA / "published_binary_tables.json").read_text())
HALF_A_DIGIT = 0.5e-4 + 1e-12


def five_measures(before: Any, after: Any) -> dict[str, float]:
    before, after = np.array(before), np.array(after)
    rows, columns = np.indices(before.shape).reshape(2, -1)
    f, g = before.ravel(), after.ravel()
    return {
        # Table 3 of the paper prints sqrt(H/2).
        "hellinger_2way": math.sqrt(divergence.hellinger(f, g) / 2),
        "total_variation_2way": divergence.total_variation(f, g),
        "entropy_change_2way": divergence.entropy_change(f, g),
        "adV_2way": divergence.cramers_v(rows, columns, f) - divergence.cramers_v(rows, columns, g),
        "adC_2way": divergence.contingency_c(rows, columns, f) - divergence.contingency_c(rows, columns, g),
    }


@pytest.mark.parametrize("table", BINARY_TABLES, ids=lambda t: f"{t['swapped']}-{t['other']}")
def test_all_five_measures_come_out_as_printed(table: dict[str, Any]) -> None:
    found = five_measures(table["pre"], table["post"])
    assert found.keys() == table["printed"].keys()
    for measure, printed in table["printed"].items():
        assert found[measure] == pytest.approx(printed, abs=HALF_A_DIGIT), measure


def test_there_are_twelve_published_binary_tables() -> None:
    assert len(BINARY_TABLES) == 12


def test_the_index_of_dissimilarity_of_the_worked_example() -> None:
    before, after = np.array([3, 4, 4, 5, 4]), np.array([2, 5, 3, 7, 3])
    assert divergence.total_variation(before, after) == pytest.approx(0.15, abs=1e-15)


@pytest.fixture(scope="module")
def cps8d() -> Microdata:
    table = pq.read_table(Path(safeswap.__file__).parent / "datasets" / "cps8d.parquet")
    return Microdata(table, Schema(attributes=tuple(Attribute(name=name) for name in table.column_names)))


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return dict(json.loads((DATA / "cps8d_facts.json").read_text()))


def test_cells_and_entropy_of_cps8d(cps8d: Microdata, facts: dict[str, Any]) -> None:
    counted = cells.count_cells(*cps8d.coded_columns(cps8d.attributes))
    assert counted.cells == facts["cells"]
    assert counted.counts.size == facts["nonempty_cells"]
    assert np.count_nonzero(counted.counts == 1) == facts["cells_of_1"]
    assert np.count_nonzero(counted.counts == 2) == facts["cells_of_2"]
    assert divergence.entropy(counted.counts) == pytest.approx(facts["entropy_8way_nats"], abs=1e-12)
    assert divergence.entropy(counted.counts) == pytest.approx(5.986757707555, abs=1e-12)


def test_every_association_of_cps8d(cps8d: Microdata, facts: dict[str, Any]) -> None:
    for first, second in combinations(cps8d.attributes, 2):
        columns, cardinalities = cps8d.coded_columns((first, second))
        table = cells.count_cells(columns, cardinalities)
        rows, places = np.divmod(table.codes.astype(np.int64), cardinalities[1])
        v = divergence.cramers_v(rows, places, table.counts)
        c = divergence.contingency_c(rows, places, table.counts)
        assert v == pytest.approx(facts["cramer_v_pre"][first][second], abs=1e-12)
        assert c == pytest.approx(facts["contingency_c_pre"][first][second], abs=1e-12)
