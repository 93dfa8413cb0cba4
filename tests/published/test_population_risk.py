"""Log-linear population risk of samples of CPS-8d, whose population is known, beside independent software."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from safeswap import datasets
from safeswap.measures.risk.population_risk import LoglinearRisk, loglinear_risk
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema

FIGURES = json.loads((Path(__file__).parent / "data" / "loglinear_cps8d.json").read_text())["rows"]
ORDERS = {"main effects": "1", "all two-way": "2", "all three-way": "3"}


def sample(step: int, rest: int) -> Microdata:
    whole = datasets.cps8d()
    rows = np.arange(len(whole))
    return Microdata(whole.table.take(pa.array(rows[rows % step == rest])), whole.schema)


@cache
def fitted(sampled: str, order: str) -> LoglinearRisk:
    step, rest = (10, 3) if "10" in sampled else (20, 7)
    return loglinear_risk(
        sample(step, rest), datasets.cps8d().schema.categorical, population=48_842.0, interactions=order
    )


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: f"{row['n']}, {row['model']}")
def test_estimates_and_their_fit_are_those_of_independent_software(row: dict[str, Any]) -> None:
    found = fitted(row["sample"], ORDERS[row["model"]])
    assert (found.records, found.uniques) == (row["n"], row["sample_uniques"])
    model = found.chosen
    names = {"tau1": "tau1", "tau2": "tau2", "B1": "b1", "B2": "b2", "v1": "v1", "v2": "v2", "z1": "z1", "z2": "z2"}
    for theirs, ours in names.items():
        # The last model has estimates on the boundary, which no number of sweeps reaches: ours stops after 500.
        assert getattr(model, ours) == pytest.approx(row[theirs], rel=1e-4 if model.sweeps == 500 else 1e-6, abs=1e-5)


def test_the_model_that_fits_comes_near_the_truth() -> None:
    names = datasets.cps8d().schema.categorical
    found = loglinear_risk(sample(20, 7), names, population=48_842.0)
    assert found.chosen.order == 2  # main effects under-fit by far, and nothing larger is needed
    assert found.chosen.tau2 == pytest.approx(50.97, rel=0.15)


def test_fractions_by_record_and_weights_give_the_same_as_the_population() -> None:
    data, names = sample(20, 7), datasets.cps8d().schema.categorical
    expected = fitted(FIGURES[-1]["sample"], "1").chosen
    share = len(data) / 48_842
    table = data.table.append_column("pi", pa.array(np.full(len(data), share)))
    table = table.append_column("w", pa.array(np.full(len(data), 1 / share)))
    more = (Attribute(name="pi", kind="numeric"), Attribute(name="w", kind="weight"))
    both = Microdata(table, Schema(name="s", attributes=(*data.schema.attributes, *more)))
    for stated in ({"population": "pi"}, {"weight": "w"}):
        found = loglinear_risk(both, names, interactions="1", **stated).chosen
        assert (found.tau1, found.tau2) == pytest.approx((expected.tau1, expected.tau2))
