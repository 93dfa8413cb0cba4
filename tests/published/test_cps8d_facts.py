"""The facts of CPS-8d come out: counts, cells, risk before any swap, entropy, and the association of every pair.

Computed here with NumPy from the records alone, so that they hold whatever the measures of the package do.
"""

from __future__ import annotations

import hashlib
import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safeswap import datasets
from safeswap.files.write import write_csv

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "cps8d_facts.json").read_text())
DATA = datasets.cps8d()
NAMES = DATA.attributes


def cell_counts(names: tuple[str, ...]) -> np.ndarray[Any, Any]:
    codes, cardinalities = DATA.coded_columns(names)
    packed = np.ravel_multi_index([c.astype(np.int64) for c in codes], tuple(cardinalities))
    return np.bincount(packed, minlength=math.prod(cardinalities)).reshape(cardinalities)


def test_the_number_of_records() -> None:
    assert len(DATA) == FACTS["n"]


@pytest.mark.parametrize("name", NAMES)
def test_the_count_of_every_level(name: str) -> None:
    found = {row["values"]: row["counts"] for row in DATA.table.column(name).value_counts().to_pylist()}
    assert found == FACTS["counts"][name]


def test_the_records_and_their_order_are_those_of_the_reference(tmp_path: Path) -> None:
    write_csv(DATA, tmp_path / "cps8d.csv")
    assert hashlib.sha256((tmp_path / "cps8d.csv").read_bytes()).hexdigest() == FACTS["sha256_csv"]


def test_the_cells_and_the_small_ones_among_them() -> None:
    counts = cell_counts(NAMES)
    assert counts.size == FACTS["cells"]
    assert (counts > 0).sum() == FACTS["nonempty_cells"]
    assert (counts == 1).sum() == FACTS["cells_of_1"]
    assert (counts == 2).sum() == FACTS["cells_of_2"]
    assert counts[counts < 3].sum() / len(DATA) == pytest.approx(FACTS["risk_unswapped"], abs=1e-15)


def test_the_entropy_of_the_full_table() -> None:
    share = cell_counts(NAMES)
    share = share[share > 0] / len(DATA)
    assert -(share * np.log(share)).sum() == pytest.approx(FACTS["entropy_8way_nats"], abs=1e-11)


@pytest.mark.parametrize(("row", "column"), list(combinations(NAMES, 2)))
def test_the_association_of_two_attributes(row: str, column: str) -> None:
    counts = cell_counts((row, column)).astype(np.float64)
    expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / counts.sum()
    chi2 = ((counts - expected) ** 2 / expected).sum()
    cramer = math.sqrt(chi2 / (counts.sum() * (min(counts.shape) - 1)))
    contingency = math.sqrt(chi2 / (chi2 + counts.sum()))
    assert cramer == pytest.approx(FACTS["cramer_v_pre"][row][column], abs=1e-12)
    assert contingency == pytest.approx(FACTS["contingency_c_pre"][row][column], abs=1e-12)
