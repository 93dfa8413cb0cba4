"""One door for what is built in and for what plug-ins bring."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap import registry
from safeswap.errors import EngineError, SpecError
from safeswap.measures.base import ParametricMeasure, default_situations, largest_small
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.spec import SwapSpec

names = st.lists(st.text(min_size=1, max_size=6), max_size=3, unique=True).map(tuple)


class Constant(ParametricMeasure):
    """A measure as a plug-in would bring it."""

    name: ClassVar[str] = "constant"
    title: ClassVar[str] = "a constant"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = ()
    value: float = 0.5

    def score(self, comparison: Comparison) -> Score:
        return self._score(self.value, "always the same", comparison.attributes, None)


def install(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    monkeypatch.setattr(registry, "_find_installed", lambda group: [e for e in entries if e.group == group])


def test_every_measure_says_what_it_is_and_where_it_comes_from() -> None:
    for name, measure in registry.measures().items():
        assert measure.name == measure.text == name
        assert measure.title
        assert measure.sources
        assert isinstance(measure.axis, Axis)
        assert measure.needs <= {"touched"}


@given(st.integers(2, 100), names)
def test_a_measure_is_the_same_after_writing_it_as_text(n: int, keys: tuple[str, ...]) -> None:
    measure = registry.measure("n_rule", n=n, keys=keys)
    assert registry.measure(measure.text) == measure


def test_parameters_stand_in_the_text() -> None:
    measure = registry.measure(" n_rule:n=5, keys=Age+Sex ")
    assert measure.parameters == {"n": 5, "keys": ["Age", "Sex"]}
    assert registry.measure('n_rule:{"n": 5, "keys": ["A+B"]}').parameters["keys"] == ["A+B"]
    assert registry.measure(measure) is measure


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("n_rule:n", "bad-spec"),
        ("n_rule:n=5,n=6", "bad-spec"),
        ("n_rule:n=1", "bad-spec"),
        ("n_rule:m=5", "bad-spec"),
        ("n_rule:n=five", "bad-spec"),
        ("n_rule:", "bad-spec"),
        ("n_rule:{", "bad-spec"),
        ("n_rule:[5]", "bad-spec"),
        ("n_rule:keys=Age+Age", "bad-spec"),
        ("helinger", "unknown-measure"),
        ("", "unknown-measure"),
    ],
)
def test_a_measure_that_makes_no_sense_is_refused(text: str, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        registry.measure(text)
    assert caught.value.code == code
    assert caught.value.hint


def test_close_names_are_proposed() -> None:
    with pytest.raises(SpecError) as caught:
        registry.measure("Helinger")
    assert "hellinger" in caught.value.hint
    with pytest.raises(SpecError) as caught:
        registry.method("swop")
    assert caught.value.code == "unknown-method"
    assert "swap" in caught.value.hint


def test_a_spec_is_made_from_its_plain_values_and_back() -> None:
    spec = SwapSpec(swap=("Race",), fixed=("Sex",), rate=0.1)
    assert registry.make_spec(spec.as_dict()) == spec
    bad: dict[str, Any]
    for bad, code in (
        ({"swap": ["Race"]}, "bad-spec"),
        ({"method": "swop"}, "unknown-method"),
        ({"method": 3}, "bad-spec"),
    ):
        with pytest.raises(SpecError) as caught:
            registry.make_spec(bad)
        assert caught.value.code == code


def test_a_plug_in_enters_by_the_same_door(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, EntryPoint("constant", f"{__name__}:Constant", registry.MEASURES))
    monkeypatch.setitem(__import__("sys").modules, __name__, __import__("types").SimpleNamespace(Constant=Constant))
    assert "constant" in registry.measures()
    assert registry.measure("constant:value=0.25").parameters == {"value": 0.25}


def test_no_plug_in_takes_the_place_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, EntryPoint("swap", "elsewhere:Swap", registry.METHODS))
    with pytest.raises(EngineError) as caught:
        registry.method("swap")
    assert caught.value.code == "name-taken-twice"


@pytest.mark.parametrize("value", ["no_such_module:Thing", "math:no_such_name", "math:pi"])
def test_a_broken_plug_in_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    install(monkeypatch, EntryPoint("broken", value, registry.MEASURES))
    with pytest.raises(EngineError) as caught:
        registry.measure("broken")
    assert caught.value.code == "plug-in-broken"


def test_the_table_of_defaults_says_what_the_measures_declare() -> None:
    declared = {
        name: registry.Usual(found.axis.value, default_situations(found), largest_small([found]) is not None)
        for name, found in registry.measures().items()
        if default_situations(found)
    }
    assert {name: registry._find_usual(name) for name in declared} == declared
    assert {name for name in registry.measure_names() if registry._find_usual(name).situations} == set(declared)
