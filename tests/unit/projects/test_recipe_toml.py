"""A recipe survives being written and read, takes files from beside it, and says in which step it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from tests.conformance.recode_strategies import recode_inputs
from tests.conformance.strategies import microdata

from safeswap.errors import InputError, OutputError, SpecError
from safeswap.methods.recode.recipe import Recipe
from safeswap.model.spec import SwapSpec
from safeswap.projects.toml import read_recipe, write_recipe


@given(tried=recode_inputs(microdata(most_records=5)))
def test_a_recipe_is_the_same_after_writing_and_reading(tmp_path_factory: pytest.TempPathFactory, tried: tuple) -> None:
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    write_recipe(tried[1].recipe, path)
    assert read_recipe(path) == tried[1].recipe


def test_maskings_are_steps_too(tmp_path: Path) -> None:
    recipe = Recipe.of([{"step": "drop", "attributes": ["Name"]}, SwapSpec(swap=["Race"], rate=0.05)])
    write_recipe(recipe, tmp_path / "r.toml")
    assert read_recipe(tmp_path / "r.toml") == recipe
    with pytest.raises(OutputError):
        write_recipe(recipe, tmp_path / "r.toml")


def test_files_of_argus_are_read_from_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "age.grc").write_text("1: -20\n2: 21-\n")
    (tmp_path / "towns.hrc").write_text("South\n@Delft\n")
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[[steps]]\nstep = "global_recode"\nattribute = "Age"\ngrc = "age.grc"\n'
        '[[steps]]\nstep = "hierarchy"\nattribute = "Town"\nfile = "towns.hrc"\notherwise = "keep"\n'
    )
    age, town = read_recipe(path)
    assert len(age.spans) == 2
    assert town.tree.at("Delft", level=1) == "South"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[steps]]\nstep = "drop"\nattributes = ["a"]\n[[steps]]\nstep = "fly"\n', "step 2: there is no such step"),
        ('[[steps]]\nmethod = "fly"\n', "step 1: there is no method 'fly'"),
        ('[[steps]]\nstep = "ranges"\nattribute = "a"\nbreaks = [2, 1]\n', "step 1: .*ascending"),
        ('steps = "none"\n', "nothing else"),
        ("colour = 1\n", "nothing else"),
        ("format = 'other'\n", "format"),
        ("[[steps\n", "line 1"),
        ('[[steps]]\nstep = "global_recode"\nattribute = "a"\ngrc = "gone.grc"\n', "step 1: there is no file"),
    ],
)
def test_what_is_wrong_is_told_with_its_step(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises((InputError, SpecError), match=said) as refused:
        read_recipe(path)
    assert refused.value.fields["file"] == str(path)
