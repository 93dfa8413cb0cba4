"""Synthetic enterprises: skewed, 157 of them in division 18, the same on every machine."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from safeswap import datasets
from safeswap.errors import SpecError


def test_division_18_has_157_units_as_in_the_paper():
    divisions = datasets.synthetic_enterprises().table["division"].to_pylist()
    assert divisions.count("18") == 157
    assert len(set(divisions)) == 12


@pytest.mark.parametrize("n", [1, 2, 157, 10_000])
def test_as_many_as_asked_for_each_with_an_identifier_of_its_own(n):
    data = datasets.synthetic_enterprises(n)
    assert len(data) == len(set(data.table["id"].to_pylist())) == n


def test_turnover_and_employees_are_skewed_and_go_together():
    table = datasets.synthetic_enterprises(20_000).table
    turnover, employees = (table[name].to_numpy().astype(float) for name in datasets.ENTERPRISE_KEYS)
    for values in (turnover, employees):
        assert values.min() > 0
        assert values.mean() > 1.7 * np.median(values)
        assert values[values >= np.quantile(values, 0.99)].sum() > 0.15 * values.sum(), "one in a hundred has a sixth"
    assert 0.7 < np.corrcoef(np.log(turnover), np.log(employees))[0, 1] < 0.97
    assert (table["innovation"].to_numpy() == 0).mean() == pytest.approx(0.6, abs=0.02)


def test_a_seed_gives_the_same_enterprises_and_another_one_others():
    digest = hashlib.sha256()
    for name in ("employees", "turnover", "innovation"):
        digest.update(datasets.synthetic_enterprises().table[name].to_numpy().tobytes())
    assert digest.hexdigest() == "81af4fc46de16a0f44669c1ed4918b622e7b92d7f4c6f735a0f7d291189f76bc"
    other = datasets.synthetic_enterprises(3140, 7).table["turnover"].to_pylist()
    assert other != datasets.synthetic_enterprises().table["turnover"].to_pylist()


def test_a_size_that_makes_no_sense_is_refused():
    for n in (0, -3, 10**9):
        with pytest.raises(SpecError):
            datasets.synthetic_enterprises(n)
