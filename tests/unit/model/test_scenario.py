"""Scenarios: the keys as they are in the file that is released, and what cannot be used."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import SpecError
from safeswap.measures.risk.risky import risky
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, as_scenario, propose_bands, resolve_files
from safeswap.model.schema import Attribute, Kind, Schema


def schema(**kinds):
    return Schema(attributes=tuple(Attribute(name=name, kind=kind) for name, kind in kinds.items()))


BEFORE = schema(age="numeric", sex="nominal", income="numeric", town="nominal", w="weight")


ONE = Microdata(pa.table({"age": [1]}), schema(age="numeric"))


def test_a_banded_number_is_a_key_like_any_other():
    after = BEFORE.replace(Attribute(name="age", kind=Kind.ORDINAL))
    found = Scenario(name="prosecutor", keys=["age", "sex", "income"]).resolve(BEFORE, after)
    assert (found.keys, found.gone, found.numeric) == (("age", "sex", "income"), (), ("income",))


def test_dropped_keys_are_told():
    after = schema(age="numeric", sex="nominal")
    found = Scenario(keys=["age", "income", "town"]).resolve(BEFORE, after)
    assert (found.keys, found.gone) == (("age",), ("income", "town"))
    assert found.note == "Without income, town, which are not released."
    none = Scenario(keys=["income"]).resolve(BEFORE, after)
    assert none.keys == ()
    assert none.note.endswith("no key is left to find anybody by.")


@pytest.mark.parametrize(
    "values", [{"keys": ["age", "job"]}, {"keys": ["age"], "sensitive": ["job"]}, {"keys": ["age"], "weight": "job"}]
)
def test_an_unknown_name_names_the_scenario(values):
    with pytest.raises(SpecError) as caught:
        Scenario(name="journalist", **values).resolve(BEFORE, BEFORE)
    assert caught.value.code == "unknown-attribute"
    assert "'journalist'" in caught.value.message
    assert caught.value.fields["attribute"] == "job"


def test_an_emptied_column_is_gone():
    names = schema(a="nominal", b="nominal", c="nominal")
    before = Microdata(pa.table({"a": ["x", "y"], "b": ["x", "y"], "c": pa.nulls(2, pa.string())}), names)
    after = Microdata(pa.table({"a": ["x", "y"], "b": pa.nulls(2, pa.string()), "c": pa.nulls(2, pa.string())}), names)
    found = resolve_files(Scenario(keys=["a", "b", "c"]), before, after)
    assert (found.keys, found.gone) == (("a", "c"), ("b",))  # c says nothing in either file: it did not go


def test_households_cannot_be_looked_for_where_nobody_says_who_lives_together():
    asked = Scenario(keys=["age"], unit="household")
    for use in (lambda: asked.resolve(BEFORE, BEFORE), lambda: risky(ONE, asked)):
        with pytest.raises(SpecError) as caught:
            use()
        assert caught.value.code == "no-household"
        assert caught.value.hint


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"keys": []},
        {"keys": ["a", "a"]},
        {"keys": ["a"], "sensitive": ["a"]},
        {"keys": ["a"], "sensitive": ["b", "b"]},
        {"keys": ["a"], "name": ""},
        {"keys": ["a"], "name": "a\nb"},
        {"keys": ["a"], "unit": "village"},
        {"keys": ["a"], "population": 0.5},
        {"keys": ["a"], "population": True},
        {"keys": ["a"], "tolerance": 0},
        {"keys": ["a"], "tolerance": 3, "threshold": 2},
        {"keys": "a"},
        {"keys": ["a"], "colour": "red"},
    ],
)
def test_what_makes_no_sense_is_refused(values):
    with pytest.raises(SpecError) as caught:
        Scenario(**values)
    assert caught.value.code == "bad-spec"
    assert caught.value.message.startswith("the scenario is not valid")


def test_what_is_no_scenario_is_refused():
    with pytest.raises(SpecError, match="must be a Scenario"):
        as_scenario("prosecutor")


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, min_size=1, max_size=5)


@given(
    name=st.sampled_from(["prosecutor", "journalist", "nosy neighbour", "own", "neighbour 2"]),
    keys=NAMES,
    tolerance=st.floats(1, 20),
    missing=st.sampled_from(["none", "own", "any", "vouching"]),
    population=st.one_of(st.none(), st.floats(1, 1e9), st.just("fraction")),
)
def test_plain_values_give_the_same_scenario(**values):
    made = Scenario(**values)
    assert Scenario(**made.as_dict()) == made
    assert as_scenario(made.as_dict()) == made


@given(keys=NAMES, gone=NAMES, up_to=st.integers(1, 5), exactly=st.booleans())
def test_without_some_keys_their_combinations_shrink(keys, gone, up_to, exactly):
    asked = Scenario(name="prosecutor", keys=keys, up_to=min(up_to, len(keys)), exactly=exactly, missing="any")
    left = asked.without(gone)
    expected = {frozenset(names) - set(gone) for names, _ in asked.stated()} - {frozenset()}
    assert {frozenset(names) for names, _ in left.stated()} == expected if left else not expected
    assert left is None or (left.name, left.missing) == ("prosecutor", "any")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(2, 10))
def test_bands_are_few_ascend_and_part_the_values(values, number):
    values = np.array(values)
    breaks = propose_bands(values, number)
    assert list(breaks) == sorted(set(breaks))
    assert len(breaks) < number
    assert all(values.min() < each <= values.max() for each in breaks)


def test_bands_of_ages_and_incomes_are_round():
    rng = np.random.default_rng(1)
    assert all(each % 5 == 0 for each in propose_bands(rng.integers(0, 95, 5_000).astype(float)))
    incomes = propose_bands(np.round(np.exp(rng.normal(10, 1, 5_000))))
    assert len(incomes) == 6
    assert all(each % 1_000 == 0 for each in incomes)


def test_the_population_gives_the_sampling_fraction():
    data = Microdata(pa.table({"a": ["x"] * 4, "f": [0.5, 0.5, 0.25, 0.25]}), schema(a="nominal", f="numeric"))
    assert Scenario(keys=["a"], population=400).sampling_fraction(data) == 0.01
    assert Scenario(keys=["a"], population="f").sampling_fraction(data) == 4 / 12
    assert Scenario(keys=["a"]).sampling_fraction(data) is None
    with pytest.raises(SpecError) as caught:
        Scenario(keys=["f"], population="a").sampling_fraction(data)
    assert caught.value.code == "bad-sampling-fraction"
