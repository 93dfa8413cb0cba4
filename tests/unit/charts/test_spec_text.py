"""The texts of a specification run as they stand, whatever the attributes are called."""

import shlex
import tomllib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.studies import HOSTILE, small_data
from typer.testing import CliRunner

import safeswap as ss
from safeswap import registry
from safeswap.charts.spec_text import command_text, python_text, toml_text
from safeswap.cli import app as program
from safeswap.cli.options import _group, pairs
from safeswap.methods.suppress.method import SuppressSpec
from safeswap.model.combination import KeyCombination
from safeswap.model.spec import SwapSpec, Targeting

names = st.lists(st.text(min_size=1), min_size=3, max_size=3, unique=True)


def specs(three):
    return SwapSpec(swap=three[:1], fixed=three[1:2], differ=three[2:], rate=0.05, true_swap="all")


@given(names)
def test_python_makes_the_same_specification(three):
    values = {}
    exec(python_text(specs(three)).replace("masked = ", "# "), values)
    assert values["spec"] == specs(three)


@given(names)
def test_toml_makes_the_same_specification(three):
    assert registry.make_spec(tomllib.loads(toml_text(specs(three)))) == specs(three)


def test_nested_parameters_are_told_too():
    spec = SwapSpec(swap=["A"], pairs=4, targeting=Targeting(keys=("B", "C"), weight=3.0))
    assert registry.make_spec(tomllib.loads(toml_text(spec))) == spec
    values = {}
    exec(python_text(spec).replace("masked = ", "# "), values)
    assert registry.make_spec(values["spec"]) == spec
    assert "--target-keys B --target-keys C --target-weight 3.0" in command_text(spec)


@given(names)
def test_groups_and_figures_come_back_from_every_text(three):
    assume(not any(name != name.strip() or "\n" in name or "\r" in name for name in three))
    spec = SuppressSpec(
        combinations=[three[:2], {"keys": three[2:], "tolerance": 5}], levels={three[0]: 1}, importance={three[1]: 2.5}
    )
    assert registry.make_spec(tomllib.loads(toml_text(spec))) == spec
    values = {}
    exec(python_text(spec).replace("masked = ", "# "), values)
    assert registry.make_spec(values["spec"]) == spec
    words = shlex.split(command_text(spec).replace("\\\n", " "))
    given_ = [(word, words[i + 1]) for i, word in enumerate(words[:-1])]
    groups = [_group(tuple[KeyCombination, ...], text) for word, text in given_ if word == "--combinations"]
    assert groups == [tuple(three[:2]), {"keys": tuple(three[2:]), "tolerance": 5}]
    assert pairs([text for word, text in given_ if word == "--importance"]) == {three[1]: "2.5"}


def test_python_masks_the_data_as_the_study_did():
    data, key = ss.datasets.cps8d(), ss.Key.insecure(seed=11)
    values = {"data": data, "key": key}
    spec = SwapSpec(swap=["Race"], rate=0.02)
    exec(python_text(spec, replicate=3), values)
    assert values["masked"].data.table.equals(ss.mask(data, spec, key=key, replicate=3).data.table)


@pytest.mark.parametrize(
    "three", [("Race", "Sex", "Age, grouped"), (HOSTILE[2], 'x"', "it's; rm -rf *"), ("--help", "$HOME", "`ls`")]
)
def test_the_command_asks_for_the_same_specification(three, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import pyarrow.csv

    pyarrow.csv.write_csv(small_data(three).table, "data.csv")
    program_name, *arguments = shlex.split(command_text(specs(three)).replace("\\\n", " "))
    assert program_name == "safeswap"
    asked = {}
    monkeypatch.setattr("safeswap.workflow.mask", lambda data, spec, **_: asked.update(spec=spec) or 1 / 0)
    runner = CliRunner()
    assert runner.invoke(program.app, ["keygen", "secret.key"]).exit_code == 0
    runner.invoke(program.app, arguments)
    assert asked["spec"] == specs(three)
