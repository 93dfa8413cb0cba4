"""The expectation of 1/F agrees with its definition, at every share and count, to the last digits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import comb, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.measures.risk.individual_risk import expected_inverse


def risk(count: int, population: float) -> float:
    return float(expected_inverse(np.array([count]), np.array([population]))[0])


def with_many_digits(count: int, population: float) -> float:
    """The recurrence from the closed form of one record, in so many digits that its instability does not matter."""
    with localcontext() as context:
        context.prec = 60 + 20 * count
        p = Decimal(count) / Decimal(population)
        found = -p * p.ln() / (1 - p)
        for m in range(1, count):
            found = p / (1 - p) * (1 / Decimal(m) - found)
        return float(found)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 20, 39, 40, 41, 60])
@pytest.mark.parametrize(
    "share", [1e-15, 1e-9, 1e-4, 0.01, 0.2, 0.499, 0.4999999, 0.5, 0.51, 0.9, 0.999, 1 - 1e-6, 1 - 1e-12]
)
def test_the_risk_is_right_for_every_share_and_count(count: int, share: float) -> None:
    population = count / share
    assert risk(count, population) == pytest.approx(with_many_digits(count, population), rel=1e-13)


@given(st.integers(1, 12), st.floats(0.3, 0.95))
def test_the_risk_is_the_mean_of_one_over_f_under_the_negative_binomial(count: int, share: float) -> None:
    population = count / share
    p = count / population
    mean, many = 0.0, range(count, count + 400)
    for number in many:
        mean += comb(number - 1, count - 1) * p**count * (1 - p) ** (number - count) / number
    assert risk(count, population) == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("p", [0.001, 0.05, 0.3])
def test_the_closed_forms_of_the_literature_hold(p: float) -> None:
    q = 1 - p
    assert risk(1, 1 / p) == pytest.approx(p / q * log(1 / p), rel=1e-12)
    assert risk(2, 2 / p) == pytest.approx(p / q**2 * (p * log(p) + q), rel=1e-12)
    assert risk(3, 3 / p) == pytest.approx(p / (2 * q**3) * (q * (3 * q - 2) - 2 * p**2 * log(p)), rel=1e-11)


@given(st.integers(1, 10_000), st.floats(1, 1e12))
def test_the_risk_lies_between_one_over_the_population_and_one_over_the_count(count: int, times: float) -> None:
    found = risk(count, count * times)
    assert 1 / (count * times) * (1 - 1e-12) <= found <= 1 / count * (1 + 1e-12)


@given(st.integers(1, 80), st.floats(1.001, 1e6), st.floats(1.01, 10))
def test_more_people_behind_a_cell_mean_less_risk(count: int, times: float, more: float) -> None:
    assert risk(count, count * times * more) < risk(count, count * times)


def test_a_population_smaller_than_the_sample_counts_as_the_sample() -> None:
    assert [risk(4, population) for population in (4.0, 3.9, 0.0)] == [0.25] * 3
    assert risk(0, 10.0) == 0.0
