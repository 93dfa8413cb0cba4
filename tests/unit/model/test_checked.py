"""Keywords declared in a ``TypedDict`` behave as if each stood in the signature."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, TypedDict, Unpack

import pytest

import safeswap as ss
from safeswap.errors import SpecError
from safeswap.model.checked import Default, check_types, list_keywords, select_stated
from safeswap.workflow import assess_file, confidentiality, mask_file, safe_records, safe_table


class Common(TypedDict, total=False):
    title: Annotated[str, Default("none")]


class Options(Common, total=False):
    times: Annotated[int, Default(2)]


class Open(Common, total=False):
    rate: Any


@check_types
def make(text: str, *, end: str = ".", **options: Unpack[Options]) -> tuple[Any, ...]:
    return text, end, options["title"], options["times"]


@check_types
def hand_on(**options: Unpack[Open]) -> dict[str, Any]:
    return dict(options)


def test_defaults_are_filled_in_and_values_given_are_kept():
    assert make("a") == ("a", ".", "none", 2)
    assert make(text="a", end="!", title="b", times=3) == ("a", "!", "b", 3)


def test_the_signature_shows_each_keyword_with_type_and_default():
    shown = inspect.signature(make).parameters
    assert [*shown] == ["text", "end", "title", "times"]
    assert shown["times"].default == 2
    assert shown["times"].annotation is int
    assert shown["title"].kind is inspect.Parameter.KEYWORD_ONLY


def test_a_wrong_type_is_refused_by_name():
    with pytest.raises(SpecError, match="make: 'times' takes a whole number, not str"):
        make("a", times="3")


def test_an_unknown_keyword_is_refused_with_the_nearest_name():
    with pytest.raises(TypeError, match=r"make\(\) got an unexpected keyword argument 'titel'. Did you mean 'title'"):
        make("a", titel="b")


def test_without_default_a_keyword_arrives_only_if_given_and_others_are_left_to_the_specification():
    assert hand_on() == {"title": "none"}
    assert hand_on(rate=1, other=2) == {"title": "none", "rate": 1, "other": 2}


def test_stated_leaves_out_defaults_and_keywords_of_other_groups():
    assert list_keywords(Options)["times"].default == 2
    assert select_stated({"title": "none", "times": 3}, Options) == {"times": 3}
    assert select_stated({"title": "b", "times": 3}, Common) == {"title": "b"}


@pytest.mark.parametrize(
    ("verb", "keyword", "default"),
    [
        (ss.read, "delimiter", None),
        (ss.assess, "match", "auto"),
        (ss.release, "data_format", "csv"),
        (ss.study, "budget", None),
        (ss.attack, "tolerance", 3),
        (ss.report, "identifiers", "new"),
        (ss.record_swap, "k_anonymity", 3),
        (assess_file, "engine", "memory"),
        (mask_file, "memory_limit", "1GB"),
        (safe_table, "time_limit", 30.0),
        (safe_records, "replicate", 0),
        (confidentiality, "linkage", "auto"),
    ],
)
def test_public_verbs_show_their_keywords(verb, keyword, default):
    shown = inspect.signature(verb).parameters
    assert shown[keyword].default == default
    assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in shown.values())


def test_a_study_and_a_plot_have_an_error_of_their_own_for_an_unknown_keyword():
    data = ss.datasets.cps8d()
    with pytest.raises(SpecError, match="nonsense"):
        ss.study(data, nonsense=1, insecure_seed=1)
    with pytest.raises(SpecError, match="no meaning for linkage by frequency"):
        confidentiality(data, data, ["Race"], nonsense=1)
