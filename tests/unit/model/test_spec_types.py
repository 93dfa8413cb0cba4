"""A specification takes no truth value for a number, no text for either, and no number for a truth value."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from tests.conformance.strategies import CASES

import safeswap as ss
from safeswap import datasets
from safeswap.errors import SpecError
from safeswap.model.spec import SwapSpec, Targeting, refuse_other_type
from safeswap.model.study import StudySpec


def kinds_in(annotation: Any) -> set[Any]:
    """All plain types that an annotation is made of."""
    parts = get_args(annotation)
    return {annotation}.union(*map(kinds_in, parts)) if parts else {annotation}


def fields_of(kinds: set[type]) -> list[tuple[str, str]]:
    found = []
    for method, case in CASES.items():
        fields = type(case.example()[1]).model_fields
        found += [(method, name) for name, field in fields.items() if kinds_in(field.annotation) & kinds]
    return found


def takes_any(method: str, name: str) -> set[type]:
    return kinds_in(type(CASES[method].example()[1]).model_fields[name].annotation)


@pytest.mark.parametrize(("method", "name"), fields_of({int, float}))
@pytest.mark.parametrize("wrong", [True, False, "3"])
def test_numbers_are_neither_truth_values_nor_text(method: str, name: str, wrong: object) -> None:
    if type(wrong) in takes_any(method, name):
        pytest.skip("the parameter may be of that type")
    with pytest.raises(SpecError):
        CASES[method].example()[1].replace(**{name: wrong})


@pytest.mark.parametrize(("method", "name"), fields_of({bool}))
@pytest.mark.parametrize("wrong", [1, 0, 1.0, "true", "no"])
def test_truth_values_are_not_numbers_or_text(method: str, name: str, wrong: object) -> None:
    if type(wrong) in takes_any(method, name):
        pytest.skip("the parameter may be of that type")
    with pytest.raises(SpecError):
        CASES[method].example()[1].replace(**{name: wrong})


def test_every_method_has_numbers_to_look_at() -> None:
    assert {"swap", "edit_1990", "edit_targeted"} <= {method for method, _ in fields_of({int, float})}


@pytest.mark.parametrize("wrong", [{"pairs": True}, {"rate": True}, {"rate": "0.1"}, {"pairs": "3"}])
def test_a_swap_of_true_pairs_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        SwapSpec(swap=["Race"], **wrong)
    assert refused.value.code == "bad-spec"
    assert "a number is needed" in str(refused.value)


def test_what_lies_inside_is_looked_at_too() -> None:
    with pytest.raises(SpecError):
        SwapSpec(swap=["Race"], rate=0.1, targeting={"n": True})
    with pytest.raises(ValueError, match="a number is needed"):
        Targeting(weight=True)
    with pytest.raises(SpecError, match="a number is needed"):
        StudySpec(rates=(True,))
    with pytest.raises(ValueError, match="a number is needed"):
        refuse_other_type({"a": [1, True]}, {"a": (1, 1)})


@pytest.mark.parametrize("spec", [{"swap": ["Race"], "rate": 1}, {"swap": ["Race"], "pairs": 3.0}])
def test_a_whole_number_may_come_as_either_kind_of_number(spec: dict[str, Any]) -> None:
    assert SwapSpec(**spec) == SwapSpec(**spec)


@pytest.mark.parametrize("wrong", ["a", -1, True, 1.5, None])
def test_a_replicate_is_a_number_from_0_on(wrong: Any) -> None:
    with pytest.raises(SpecError, match="replicate") as refused:
        ss.mask(datasets.cps8d(), SwapSpec(swap=["Race"], pairs=1), insecure_seed=1, replicate=wrong)
    assert refused.value.code == ("bad-replicate" if wrong == -1 else "bad-argument")
