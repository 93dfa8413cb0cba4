"""Combinations: those that a statement means, and those that are refused."""

from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import SpecError
from safeswap.model.combination import Combinations, as_combinations, check_combinations
from safeswap.model.schema import Attribute, Kind, Schema

SCHEMA = Schema(
    attributes=(
        Attribute(name="id", kind=Kind.IDENTIFIER),
        *(Attribute(name=name) for name in "ABCD"),
        Attribute(name="Income", kind=Kind.NUMERIC),
        Attribute(name="w", kind=Kind.WEIGHT),
    )
)


def keys(asked):
    return [names for names, _ in asked.stated()]


def test_all_combinations_of_up_to_so_many_keys():
    expected = [each for size in (1, 2, 3) for each in combinations("ABCD", size)]
    assert keys(Combinations(keys=list("ABCD"), up_to=3)) == expected
    assert keys(Combinations(keys=list("ABCD"), up_to=2, exactly=True)) == list(combinations("ABCD", 2))
    assert keys(Combinations(keys=list("ABCD"), up_to=4, exactly=True)) == [tuple("ABCD")]


def test_keys_alone_mean_every_combination_of_up_to_all_of_them():
    assert keys(Combinations(keys=list("ABCD"))) == keys(Combinations(keys=list("ABCD"), up_to=4))
    assert Combinations(keys=list("ABCD")).protected == "every combination of up to all 4 keys"


@pytest.mark.parametrize("number", [1, 2, 8, 14, 15, 20, 33, 62])
def test_above_the_limit_the_largest_size_that_fits_is_taken_and_said(number):
    asked = Combinations(keys=[f"k{i}" for i in range(number)])
    most = max(len(each) for each in keys(asked))
    assert len(keys(asked)) == sum(comb(number, size) for size in range(1, most + 1)) <= 20_000
    assert most == number or sum(comb(number, size) for size in range(1, most + 2)) > 20_000
    assert (f"up to {most} of {number} keys, the most that 20,000 combinations allow" in asked.protected) == (
        most < number
    )


def test_identification_levels_multiply_as_argus_has_them():
    found = keys(Combinations(levels={"A": 1, "B": 2, "C": 2, "D": 3}))
    # one of level 1, one of level at most 2, one of level at most 3, all different
    assert {frozenset(each) for each in found} == {
        frozenset(chosen)
        for chosen in (("A", second, third) for second in "BC" for third in "BCD")
        if len(set(chosen)) == 3
    }


@given(
    levels=st.dictionaries(st.sampled_from("ABCDE"), st.integers(1, 5), min_size=1, max_size=5),
)
def test_no_attribute_with_an_identification_level_is_left_out_in_silence(levels):
    ranked = sorted(levels.values())
    if any(level > place for place, level in enumerate(ranked, 1)):
        with pytest.raises(SpecError, match="identification level"):
            Combinations(levels=levels)
    else:
        assert set().union(*keys(Combinations(levels=levels))) == set(levels)


def test_a_gap_in_the_identification_levels_names_who_would_be_left_out():
    with pytest.raises(SpecError, match="'q' would be in no combination"):
        Combinations(levels={"p": 1, "q": 3})


def test_a_threshold_is_one_below_the_tolerance():
    assert (
        Combinations(combinations=[("A",)], threshold=2).stated()
        == Combinations(combinations=[("A",)], tolerance=3).stated()
    )


def test_the_stricter_word_holds_for_a_combination_said_twice():
    asked = Combinations(combinations=[{"keys": ("A", "B"), "tolerance": 5}, ("B", "A")], tolerance=2)
    assert [(set(names), tolerance) for names, tolerance in asked.stated()] == [({"A", "B"}, 5)]


def test_a_list_may_have_tolerances_of_its_own():
    asked = Combinations(combinations=[("A",), {"keys": ("A", "B"), "tolerance": 10}], tolerance=2)
    assert [tolerance for _, tolerance in asked.stated()] == [2, 10]


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"keys": ["A", "A"]},
        {"keys": ["A"], "up_to": 2},
        {"keys": ["A"], "exactly": True},
        {"combinations": [("A", "A")]},
        {"combinations": [()]},
        {"keys": ["A"], "tolerance": 0},
        {"keys": ["A"], "tolerance": float("nan")},
        {"keys": ["A"], "tolerance": 3, "threshold": 2},
        {"keys": ["A"], "threshold": 2, "weight": "w"},
        {"levels": {"A": 2}},
        {"levels": {"A": 0}},
        {"levels": {"A": 1, "B": 3}},
        {"levels": {"A": 1, "B": 1, "C": 4}},
        {"levels": {"A": 1, "B": 2, "C": 3, "D": 5}},
        {"keys": ["A"], "missing": "all"},
    ],
)
def test_what_makes_no_sense_is_refused(stated):
    with pytest.raises(SpecError):
        Combinations(**stated)


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ({"keys": ["Z"]}, "unknown-attribute"),
        ({"keys": ["Income", "A"]}, "key-not-categorical"),
        ({"combinations": [("A", "id")]}, "key-not-categorical"),
        ({"keys": ["A"], "weight": "B"}, "not-a-weight"),
        ({"keys": ["A"], "tolerance": 11}, "tolerance-above-records"),
        ({"combinations": [("A",), {"keys": ("B",), "tolerance": 12}]}, "tolerance-above-records"),
    ],
)
def test_what_does_not_fit_the_file_is_refused_by_name(stated, code):
    with pytest.raises(SpecError) as caught:
        check_combinations(Combinations(**stated), SCHEMA, records=10)
    assert caught.value.code == code
    assert caught.value.hint


def test_too_many_combinations_are_refused_before_they_are_made():
    with pytest.raises(SpecError) as caught:
        Combinations(keys=[f"k{i}" for i in range(60)], up_to=8).stated()
    assert caught.value.code == "too-many-combinations"


@pytest.mark.parametrize("stated", [3, None, "A", ["A", "B"], {"key": ["A"]}])
def test_what_is_no_list_of_combinations_is_refused(stated):
    with pytest.raises(SpecError) as caught:
        as_combinations(stated)
    assert caught.value.code == "bad-spec"


def test_plain_values_are_taken():
    assert as_combinations([("A", "B")]).stated() == as_combinations({"combinations": [["A", "B"]]}).stated()
