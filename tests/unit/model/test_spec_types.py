"""A specification takes no truth value for a number, no text for either, and no number for a truth value."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError
from tests.conformance.strategies import CASES

import safeswap as ss
from safeswap import datasets, registry
from safeswap.errors import SpecError
from safeswap.measures.base import ParametricMeasure
from safeswap.methods.recode.steps import ByHierarchy, Ranges, Round
from safeswap.model.combination import Combinations, KeyCombination
from safeswap.model.schema import Attribute
from safeswap.model.spec import Strict, SwapSpec, Targeting, refuse_other_type
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
    assert "must be a number" in str(refused.value)


def test_a_weight_of_targeting_is_bounded() -> None:
    with pytest.raises(SpecError, match=r"targeting\.weight"):
        SwapSpec(swap=["Race"], rate=0.1, targeting={"weight": 1e9})


def test_what_lies_inside_is_looked_at_too() -> None:
    with pytest.raises(SpecError):
        SwapSpec(swap=["Race"], rate=0.1, targeting={"n": True})
    with pytest.raises(ValueError, match="must be a number"):
        Targeting(weight=True)
    with pytest.raises(SpecError, match="must be a number"):
        StudySpec(rates=(True,))
    with pytest.raises(ValueError, match="must be a number"):
        refuse_other_type({"a": [1, True]}, {"a": (1, 1)})


@pytest.mark.parametrize("spec", [{"swap": ["Race"], "rate": 1}, {"swap": ["Race"], "pairs": 3.0}])
def test_a_whole_number_may_come_as_either_kind_of_number(spec: dict[str, Any]) -> None:
    assert SwapSpec(**spec) == SwapSpec(**spec)


COERCING = {
    "safeswap.service.settings": "values of environment variables are text",
    "safeswap.service.http.problems": "an answer, which the service makes",
    "safeswap.service.http.wire": "an answer, which the service makes",
    "safeswap.service.routes.logs": "an answer, which the service makes",
}
"""Modules whose pydantic models may convert what they are given, and why."""


def test_every_model_of_the_package_is_strict() -> None:
    for found in pkgutil.walk_packages(ss.__path__, "safeswap."):
        if "migrations" not in found.name and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    models = {model for model in descendants(BaseModel) if model.__module__.startswith("safeswap.")}
    assert {"Step", "Span", "KeyCombination", "Attribute", "SwapSpec"} <= {model.__name__ for model in models}
    models = {m for m in models if m.__pydantic_generic_metadata__["origin"] is None}  # Page, but not Page[Job]
    loose = {model for model in models if not issubclass(model, Strict)}
    assert {model.__module__ for model in loose} == set(COERCING)
    for model in models - loose:
        assert model.model_config["frozen"], model
        assert model.model_config["extra"] == "forbid", model
    text = {model for model in models - loose if model.takes_text}
    assert text == {model for model in models if issubclass(model, ParametricMeasure)}


def descendants(model: type) -> set[type]:
    return {model}.union(*map(descendants, model.__subclasses__()))


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (ByHierarchy, {"attribute": "x", "parents": {"a": "b"}, "level": True}),
        (Ranges, {"attribute": "x", "breaks": [1, "2"]}),
        (Round, {"attribute": "x", "base": "5"}),
        (KeyCombination, {"keys": ["x"], "tolerance": True}),
        (Combinations, {"keys": ["x"], "up_to": True}),
        (Combinations, {"keys": ["x"], "up_to": 1, "exactly": 1}),
        (Attribute, {"name": "x", "geography_level": "1"}),
        (Attribute, {"name": "x", "inferred": 1}),
    ],
)
def test_no_model_takes_another_type(model: Any, values: dict[str, Any]) -> None:
    with pytest.raises((SpecError, ValidationError)):
        model(**values)


def test_measures_read_their_parameters_from_text_but_not_from_truth_values() -> None:
    assert registry.measure("n_rule:n=5") == registry.measure("n_rule", n=5)
    with pytest.raises(SpecError, match="must be a number"):
        registry.measure("suda2", sampling_fraction=True)


@pytest.mark.parametrize("wrong", ["a", -1, True, 1.5, None])
def test_a_replicate_is_a_number_from_0_on(wrong: Any) -> None:
    with pytest.raises(SpecError, match="replicate") as refused:
        ss.mask(datasets.cps8d(), SwapSpec(swap=["Race"], pairs=1), insecure_seed=1, replicate=wrong)
    assert refused.value.code == ("bad-replicate" if wrong == -1 else "bad-argument")
