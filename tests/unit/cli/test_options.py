"""Options follow from the fields of a specification."""

import inspect
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import typer
from pydantic import BaseModel, Field
from typer.main import get_command
from typer.testing import CliRunner

from safeswap.cli import app as program
from safeswap.cli.app import LazyCommand
from safeswap.cli.options import Console, command, names, pairs, request_options, spec_options
from safeswap.cli.release import ReleaseSpec
from safeswap.errors import SpecError
from safeswap.measures.spec import PlotSpec, RiskSpec
from safeswap.model.combination import KeyCombination
from safeswap.model.spec import SwapSpec, Targeting
from safeswap.model.study import StudySpec


class Inner(BaseModel):
    depth: int = 3
    on: tuple[str, ...] = ()


class Outer(BaseModel):
    who: Annotated[tuple[str, ...], Field(description="those concerned")] = ()
    share: Annotated[float | None, Field(gt=0)] = None
    way: Literal["left", "right"] = "left"
    inner: Inner | None = None
    tables: tuple[tuple[str, ...], ...] = ()
    lists: tuple[KeyCombination, ...] = ()
    worth: dict[str, float] = Field(default_factory=dict)


@pytest.fixture
def called():
    """A command with options from Outer, and what it was called with."""
    seen = []

    @command
    @spec_options(Outer, prefixes={"inner": "in"})
    def walk(console: Console, *, parameters: dict, far: bool = False) -> None:
        """Walk."""
        seen.append((parameters, far))

    app = typer.Typer()
    app.command()(walk)

    def call(*arguments):
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return seen[-1]

    return call


def test_what_is_not_stated_is_left_to_the_specification(called):
    assert called() == ({}, False)


def test_groups_of_names_stay_apart(called):
    stated, _ = called(
        "--tables", "A,B", "--tables", '"C, c"', "--lists", "A,B:5", "--lists", '"A:5"', "--lists", "a:b"
    )
    assert stated["tables"] == [("A", "B"), ("C, c",)]
    assert stated["lists"] == [{"keys": ("A", "B"), "tolerance": 5}, ("A:5",), ("a:b",)]


def test_figures_come_by_attribute(called):
    assert called("--worth", "A=2,B=0.5", "--worth", "C=1=3")[0] == {"worth": {"A": 2, "B": 0.5, "C=1": 3}}


@pytest.mark.parametrize("text", ["A", "=2", "A=", "A=1,A=2"])
def test_what_is_no_figure_of_an_attribute_is_refused(text):
    with pytest.raises(SpecError) as caught:
        pairs([text])
    assert caught.value.code == "bad-pair"


def test_what_is_stated_arrives_under_the_names_of_the_fields(called):
    arguments = ["--who", "A,B", "--who", "C", "--share", "0.5", "--way", "right", "--in-depth", "4", "--far"]
    stated = {"who": ("A", "B", "C"), "share": 0.5, "way": "right", "inner": {"depth": 4}}
    assert called(*arguments) == (stated, True)


def test_a_nested_name_list_is_split_too(called):
    assert called("--in-on", "A,B") == ({"inner": {"on": ("A", "B")}}, False)


def test_names_with_commas_are_quoted():
    assert names(['"Age, grouped",Sex', " Race "]) == ("Age, grouped", "Sex", "Race")
    assert names([]) == ()


@pytest.fixture(scope="module")
def swap_options():
    command = program.LazyCommand("swap").load()
    return {parameter.name: parameter for parameter in command.params}


@pytest.mark.parametrize("field", [name for name in SwapSpec.model_fields if name != "targeting"])
def test_every_field_of_the_swap_has_its_option(swap_options, field):
    option = swap_options[field]
    assert option.opts == ["--" + field.replace("_", "-")]
    assert option.help.startswith(SwapSpec.model_fields[field].description)
    assert option.default is None  # not stated: the specification's own default holds


@pytest.mark.parametrize("field", Targeting.model_fields)
def test_every_field_of_targeting_has_its_option(swap_options, field):
    assert swap_options[f"target_{field}"].opts == [f"--target-{field}"]


@pytest.mark.parametrize("field", ["true_swap", "pairing", "mode", "on_shortfall"])
def test_the_help_shows_the_default_that_the_specification_has(swap_options, field):
    assert swap_options[field].help.endswith(f"(default: {SwapSpec.model_fields[field].default})")


def test_the_help_shows_the_choices_that_the_specification_has(swap_options):
    assert "simultaneous|sequential" in get_help("swap")


def get_help(name: str) -> str:
    return "".join(CliRunner().invoke(program.app, [name, "--help"], env={"COLUMNS": "200"}).output.split("\n"))


def test_a_command_says_nothing_of_its_console():
    @command
    def greet(console: Console, name: str) -> None:
        """Greet."""

    assert "console" not in inspect.signature(greet).parameters
    assert get_command(program.app) is not None


FOR_FILES = ("others", "vary", "swaps", "first", "last")
"""Settings of a study that hold specifications: for files and programs."""

SPECS = {"study": StudySpec, "risk": RiskSpec, "release": ReleaseSpec, "confidentiality": PlotSpec}


@pytest.mark.parametrize("name", SPECS)
def test_options_and_help_of_a_command_come_from_its_specification(name: str) -> None:
    shown = {parameter.name: parameter.help for parameter in LazyCommand(name).load().params if parameter.name}
    for field, info in SPECS[name].model_fields.items():
        if name != "study" or field not in FOR_FILES:
            assert shown[field].startswith(info.description)


def test_defaults_are_told_as_they_would_be_typed() -> None:
    shown = {parameter.name: parameter.help for parameter in LazyCommand("study").load().params}
    assert shown["rates"].endswith("(default: 0.01,0.02,0.1)")
    assert "default" not in shown["constraints"]


@dataclass(frozen=True, kw_only=True)
class Request:
    name: Annotated[str, typer.Option("--called")] = "Ann"
    times: Annotated[int, typer.Option()] = 1


def test_options_of_a_dataclass_arrive_as_one_value() -> None:
    seen: list[Request] = []

    @request_options(Request, omit=("times",))
    def run(*, options: Request) -> None:
        seen.append(options)

    app = typer.Typer()
    app.command()(run)
    assert CliRunner().invoke(app, ["--called", "Bea"]).exit_code == 0
    assert CliRunner().invoke(app, ["--times", "2"]).exit_code == 2
    assert seen == [Request(name="Bea", times=1)]
