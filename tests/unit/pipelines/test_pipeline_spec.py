"""A pipeline as a value: steps named once, every change another pipeline, plain values and TOML and back."""

from __future__ import annotations

import pytest

import safeswap as ss
from safeswap import registry
from safeswap.errors import InputError, SpecError
from safeswap.methods.recode.recipe import Recipe
from safeswap.projects.toml import read_pipeline, write_pipeline, write_recipe

SWAP = {"method": "swap", "swap": ["Race"], "rate": 0.02}
PRAM = {"method": "pram", "attributes": ["MS"], "keep": 0.9}
DROP = {"step": "drop", "attributes": ["Name"]}


def test_steps_are_named_after_their_method_and_a_number_if_that_is_taken():
    pipeline = ss.Pipeline([SWAP, PRAM, SWAP, DROP, {**SWAP, "name": "the last"}])
    assert pipeline.names == ("swap", "pram", "swap-2", "recode", "the last")
    assert pipeline["recode"].spec.dropped == ("Name",)


def test_names_stay_when_other_steps_come_and_go():
    pipeline = ss.Pipeline([SWAP, PRAM, SWAP])
    assert pipeline.remove("swap").names == ("pram", "swap-2")
    assert (pipeline.remove(0) + SWAP).names == ("pram", "swap-2", "swap")
    assert pipeline.move("swap-2", 0).names == ("swap-2", "swap", "pram")
    assert pipeline.move(0, -1).names == ("pram", "swap-2", "swap")
    assert pipeline.insert("pram", DROP).names == ("swap", "recode", "pram", "swap-2")
    assert pipeline.edit("pram", keep=0.5)["pram"].spec.keep == 0.5
    assert pipeline.put("pram", DROP).names == ("swap", "recode", "swap-2")
    assert pipeline.undo() == pipeline[:2]
    assert pipeline.common(pipeline.edit("swap-2", rate=0.5)) == 2
    assert len(ss.Pipeline()) == len(ss.Pipeline().undo()) == 0


def test_plain_values_make_the_same_pipeline_again():
    pipeline = ss.Pipeline([SWAP, {**PRAM, "name": "post-randomise"}, DROP])
    assert registry.make_spec(pipeline.as_dict()) == pipeline
    assert ss.Pipeline(pipeline) == ss.Pipeline(steps=pipeline.as_dict()["steps"]) == pipeline


def test_a_recipe_is_a_pipeline_of_recodes(tmp_path):
    recipe = Recipe.of([DROP, {"step": "truncate", "attribute": "NACE"}])
    write_recipe(recipe, tmp_path / "recipe.toml")
    found = read_pipeline(tmp_path / "recipe.toml")
    assert found == ss.Pipeline(recipe)
    assert [step.spec.steps for step in found] == [(step,) for step in recipe]


def test_a_pipeline_survives_its_file(tmp_path):
    pipeline = ss.Pipeline([SWAP, {**PRAM, "name": "the second, “quoted”"}, DROP])
    write_pipeline(pipeline, tmp_path / "steps.toml")
    assert read_pipeline(tmp_path / "steps.toml") == pipeline


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([SWAP, {"method": "swop"}], "step 2 (swop): there is no method 'swop'"),
        ([{**SWAP, "rate": 2}], "step 1 (swap): the swap specification is not valid"),
        ([SWAP, 3], "step 2 is not a specification"),
        ([ss.Pipeline([SWAP])], "step 1 is itself a pipeline"),
        ([{**SWAP, "name": "a"}, {**PRAM, "name": "a"}], "two steps are called 'a'"),
        ([{**SWAP, "name": ""}, {**SWAP, "name": "x\ny"}], "name"),
        ("swap", "steps"),
        (7, "steps"),
    ],
)
def test_what_is_no_pipeline_is_refused_with_its_step(steps, said):
    with pytest.raises(SpecError) as caught:
        ss.Pipeline(steps)
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("which", [3, -4, "pram-2", ""])
def test_a_step_that_does_not_exist_is_named(which):
    pipeline = ss.Pipeline([SWAP, PRAM, DROP])
    for change in (pipeline.remove, pipeline.find, lambda step: pipeline.edit(step, rate=0.1)):
        with pytest.raises(SpecError) as caught:
            change(which)
        assert caught.value.code == "no-such-step"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stepz = 1", "holds [[steps]] and nothing else"),
        ('format = "other"', "the format is not"),
        ("[[steps]]\nmethod = 3", "step 1"),
        ('[[steps]]\nmethod = "swap"', "step 1 (swap)"),
        ("[[steps", "ends unexpectedly"),
    ],
)
def test_a_file_that_is_no_pipeline_is_refused(tmp_path, text, said):
    (tmp_path / "steps.toml").write_text(text)
    with pytest.raises((InputError, SpecError)) as caught:
        read_pipeline(tmp_path / "steps.toml")
    assert said in caught.value.message
    assert "steps.toml" in caught.value.message
