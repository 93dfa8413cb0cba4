"""Advice over HTTP names no level that few records have."""

from __future__ import annotations

import pytest

from safeswap.service.routes.argus import _names_rare_levels
from safeswap.workflow import read
from safeswap.workflow.recode_advice import advice

AGES = ["a"] * 9 + ["b"] * 9 + ["c"] * 9 + ["d"] + ["e"] * 2


@pytest.fixture
def data():
    import pyarrow as pa

    table = pa.table({"Age": AGES, "Sex": ["f", "m"] * 15})
    return read(table, kinds={"Age": "ordinal", "Sex": "nominal"})


@pytest.mark.parametrize(
    ("step", "tells"),
    [
        ({"attribute": "Age", "groups": {"low": ["a", "b"]}}, False),
        ({"attribute": "Age", "groups": {"high": ["c", "d"]}}, True),
        ({"attribute": "Age", "top": "c"}, False),
        ({"attribute": "Age", "top": "d", "bottom": None}, True),
        ({"attribute": "Age", "bottom": "e"}, True),
        ({"attribute": "Age", "equal_count": 2}, False),
        ({"attributes": ["Age"]}, False),
    ],
)
def test_a_step_that_names_a_rare_level_is_known(data, step, tells):
    assert _names_rare_levels(step, data, 3) is tells


def test_what_is_left_of_the_advice_names_no_rare_level(data):
    told = [each.as_dict()["step"] for each in advice(data, {"keys": ["Age", "Sex"]})]
    shown = [step for step in told if not _names_rare_levels(step, data, 3)]
    assert 0 < len(shown) < len(told)
    assert not [step for step in shown if {"d", "e"} & {step.get("top"), step.get("bottom")}]
