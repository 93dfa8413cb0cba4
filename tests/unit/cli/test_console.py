"""What is said, to whom, and that nothing from outside can steer the terminal."""

import json

import numpy as np
import pytest

from safeswap.cli.console import Console, escape, table, to_json_value
from safeswap.errors import InputError, UnsafeRelease
from safeswap.releases.scan_data import refusal, refuse_if_any


def test_json_leaves_stdout_to_the_document(capsys):
    console = Console(json=True)
    console.say("for people")
    console.warn("careful")
    console.result({"value": 1})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"value": 1}
    assert captured.err == ""


def test_people_get_no_document(capsys):
    console = Console()
    console.say("for people")
    console.result({"value": 1})
    assert capsys.readouterr().out == "for people\n"


def test_quiet_says_errors_only(capsys):
    console = Console(quiet=True)
    console.say("for people")
    console.warn("careful")
    console.fail(InputError("no", code="x"))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: no\n")


def test_a_long_line_is_not_broken_where_no_terminal_reads_it(capsys):
    Console().say("word " * 200)
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize(
    "name", ["\x1b[31mred", "a\rb", "a\nb", "\u202egnp.exe", "[bold]x[/bold]", ":smile:", "\udc80"]
)
def test_names_from_outside_are_shown_as_they_are_and_do_nothing(capsys, name):
    Console().say(table(["attribute"], [[name]]))
    Console().fail(InputError(f"no column {name}", code="x", hint=f"not {name}"))
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert escape(name) in text
        assert not set("\x1b\r\u202e\udc80") & set(text)


def test_visible_leaves_letters_of_all_scripts_alone():
    assert escape("Älter – 年齢 – возраст") == "Älter – 年齢 – возраст"


def test_figures_of_numpy_and_what_is_not_a_number_fit_into_json():
    document = to_json_value(
        {"a": np.float64(0.5), "b": np.int64(3), "c": float("inf"), "d": (np.bool_(True), None), 1: "x"}
    )
    assert json.loads(json.dumps(document)) == {"a": 0.5, "b": 3, "c": None, "d": [True, None], "1": "x"}


@pytest.mark.parametrize(
    "code",
    ["index-column", "household-split", "household-size", "geography-split", "read-off", "unconfirmed-identifier"],
)
def test_a_hint_to_leave_columns_out_names_the_option(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsafeRelease) as caught:
        refuse_if_any([refusal(code, "something was found", column="town")])
    assert "--" not in caught.value.hint
    Console().fail(caught.value)
    assert capsys.readouterr().err.count("(--drop)") == 1
