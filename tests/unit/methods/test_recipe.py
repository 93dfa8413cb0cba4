"""Recipes are values: longer, shorter, edited in the middle, and the same again when replayed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.recode_strategies import recode_inputs
from tests.conformance.strategies import microdata

from safeswap import datasets
from safeswap.errors import SpecError
from safeswap.methods.recode.hierarchy import Hierarchy
from safeswap.methods.recode.recipe import History, Recipe
from safeswap.model.spec import SwapSpec

STEPS = st.sampled_from(
    [
        {"step": "truncate", "attribute": "NACE"},
        {"step": "drop", "attributes": ["Name"]},
        {"step": "ranges", "attribute": "Age", "equal_count": 4},
        {"step": "recode", "attribute": "Sex", "map": {"m": "f"}, "otherwise": "keep"},
    ]
)
RECIPES = st.lists(STEPS, max_size=4).map(Recipe.of)


@given(recipe=RECIPES, step=STEPS)
def test_undo_after_a_step_is_the_recipe_before(recipe: Recipe, step: dict) -> None:
    assert (recipe + step).undo() == recipe


@given(recipe=RECIPES.filter(len), step=STEPS, data=st.data())
def test_editing_in_the_middle_leaves_the_other_steps_alone(recipe: Recipe, step: dict, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(recipe) - 1))
    assert recipe.insert(at, step).remove(at) == recipe
    assert recipe.replace(at, step).replace(at, recipe[at]) == recipe
    assert recipe.remove(at).insert(at, recipe[at]) == recipe
    assert recipe.replace(at, step).common(recipe) >= at
    assert recipe[:at] + recipe[at:] == recipe


@given(recipe=RECIPES)
def test_plain_values_give_the_same_recipe_again(recipe: Recipe) -> None:
    assert Recipe.of(recipe.as_dicts()) == recipe
    assert all(recipe.sentences)


@given(first=RECIPES, others=st.lists(RECIPES, max_size=4))
def test_redo_after_undo_is_where_we_were(first: Recipe, others: list[Recipe]) -> None:
    history = History(first)
    for recipe in others:
        history = history.do(recipe)
    back = history
    while back.can_undo:
        back = back.undo()
    assert back.present == first
    while back.can_redo:
        back = back.redo()
    assert back == history


def test_a_new_step_after_an_undo_forgets_what_was_undone() -> None:
    history = History().do(Recipe.of({"step": "drop", "attributes": ["a"]}))
    other = history.undo().do(Recipe.of({"step": "drop", "attributes": ["b"]}))
    assert not other.can_redo
    assert other.redo() is other


@given(tried=recode_inputs(microdata(most_records=15)))
def test_a_pinned_recipe_gives_the_same_file(tried: tuple) -> None:
    data, spec = tried
    once = spec.recipe.apply(data)
    again = spec.recipe.pinned(data).apply(data)
    assert once.table.to_pydict().__repr__() == again.table.to_pydict().__repr__()
    assert once.schema == again.schema


def test_places_that_do_not_exist_are_refused() -> None:
    recipe = Recipe.of({"step": "drop", "attributes": ["a"]})
    for wrong in (lambda: recipe.remove(1), lambda: recipe[5], lambda: recipe.insert(3, recipe[0])):
        with pytest.raises(SpecError, match="1 step,"):
            wrong()


def test_a_masking_among_the_steps_needs_more_than_recoding() -> None:
    recipe = Recipe.of([SwapSpec(swap=["Race"], rate=0.1)])
    assert not recipe.is_recoding
    with pytest.raises(SpecError, match="step 1 masks by 'swap'"):
        recipe.apply(datasets.cps8d())


def test_a_step_that_fails_says_which_it_was() -> None:
    recipe = Recipe.of([{"step": "drop", "attributes": ["Sex"]}, {"step": "truncate", "attribute": "Sex"}])
    with pytest.raises(SpecError, match=r"step 2: there is no attribute 'Sex'") as refused:
        recipe.apply(datasets.cps8d())
    assert refused.value.fields["position"] == 2


def test_branches_of_a_hierarchy_may_differ_in_depth() -> None:
    tree = Hierarchy.from_parents({"a1": "a", "a": "top", "b": "top"})
    assert [tree.at(code, level=1) for code in ("a1", "b")] == ["a", "b"]
    assert [tree.at(code, level=2) for code in ("a1", "b")] == ["top", "top"]


def test_a_hierarchy_is_refused_where_it_is_none() -> None:
    for rows, said in (
        ([("a", "x"), ("a", "y")], "a different parent"),
        ([("a", "x"), ("b",)], "line 2"),
        ([("a",)], "two levels"),
    ):
        with pytest.raises(SpecError, match=said):
            Hierarchy.from_rows(rows)
    with pytest.raises(SpecError, match="empty"):
        Hierarchy.from_parents({})
