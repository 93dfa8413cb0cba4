"""Rules of choice: parsed, checked, and what they cost."""

import numpy as np
import pytest

from safeswap.errors import SpecError
from safeswap.studies.choice import CapDistortion, CapRisk, Linear, as_objective

RISK, DISTORTION = np.array([0.1, 0.2, 0.3]), np.array([0.9, 0.5, 0.1])


def test_linear_costs_risk_plus_slope_times_distortion():
    assert as_objective("linear:a=2").cost(RISK, DISTORTION) == pytest.approx([1.9, 1.2, 0.5])
    assert as_objective("linear:2") == Linear(2.0)


def test_caps_allow_what_is_at_the_cap_and_nothing_above():
    assert as_objective("cap_risk:0.2").cost(RISK, DISTORTION).tolist() == [0.9, 0.5, np.inf]
    assert as_objective("cap_distortion:0.5").cost(RISK, DISTORTION).tolist() == [np.inf, 0.2, 0.3]
    assert as_objective("cap_risk:most=0.2") == CapRisk(0.2)
    assert as_objective("cap_distortion:0.5") == CapDistortion(0.5)


def test_a_function_is_asked_point_by_point_and_no_value_means_not_allowed():
    def product(risk, distortion):
        return risk * distortion if risk < 0.25 else float("nan")

    rule = as_objective(product)
    assert rule.cost(RISK, DISTORTION) == pytest.approx([0.09, 0.1, np.inf])
    assert "product" in rule.sentence


@pytest.mark.parametrize("make", [Linear, CapRisk, CapDistortion])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_rules_made_by_hand_are_checked_too(make, value):
    with pytest.raises(SpecError):
        make(value)


def test_a_function_that_fails_is_an_error_of_the_request():
    with pytest.raises(SpecError, match="ZeroDivisionError"):
        as_objective(lambda r, _: r / 0).cost(RISK, DISTORTION)
    with pytest.raises(SpecError):
        as_objective(lambda *_: "cheap").cost(RISK, DISTORTION)


def test_what_is_neither_text_nor_function_is_refused():
    with pytest.raises(SpecError):
        as_objective(3)  # type: ignore[arg-type]
