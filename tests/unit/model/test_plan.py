"""What a plan says in words it also gives as numbers."""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import Any

import pytest
from tests.conformance.strategies import CASES

from safeswap import datasets, workflow
from safeswap.methods.value_change import ValuePlan


def numbers_in(value: Any) -> set[float]:
    if isinstance(value, dict | list):
        return set().union(*map(numbers_in, chain(value, value.values()) if isinstance(value, dict) else value))
    if isinstance(value, str):  # such as k = 2, under which a plan says what that would need
        return set(map(float, re.findall(r"\d+", value)))
    return {value} if isinstance(value, int | float) else set()


@pytest.mark.parametrize("method", CASES)
def test_every_number_of_a_plan_is_in_its_plain_form(method: str) -> None:
    data, spec = CASES[method].example()
    plan = workflow.plan(data, spec)
    plain = json.loads(json.dumps(plan.as_dict()))
    if isinstance(plan, ValuePlan):
        assert plain["sentence"] == plan.sentence  # in words only, since they differ by method
        return
    stated = {int(text.replace(",", "")) for text in re.findall(r"(?<![\w.])\d[\d,]*(?![\w.%])", plan.sentence)}
    assert stated
    assert stated <= numbers_in({name: value for name, value in plain.items() if name != "sentence"})


def test_the_plan_of_the_edit_of_1990_gives_the_expected_number_moved() -> None:
    data = datasets.synthetic_census(2_000)
    spec = {"method": "edit_1990", "keys": ["ADULTS"], "geography": ["COUNTY", "TRACT"], "rate": 0.05}
    plan = workflow.plan(data, spec)
    moved = plan.as_dict()["details"]["moved"]
    assert f"about {moved:,} households" in plan.sentence
    assert moved > plan.asked
