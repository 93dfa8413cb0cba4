"""The program as a whole: which commands there are, and what becomes of an error."""

import errno
import json
import os
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from safeswap import errors
from safeswap.cli import app as program
from safeswap.cli import options

CANARY = "canary-7f3a"
runner = CliRunner()


@pytest.fixture
def failing(monkeypatch):
    """The program with `keygen` doing as it is told instead."""

    def install(error: BaseException):
        @options.command
        def keygen(console: options.Console) -> None:
            """Fail."""
            raise error

        monkeypatch.setattr(import_module("safeswap.cli.data"), "keygen", keygen)

    return install


@pytest.mark.parametrize("name", program.COMMANDS)
def test_the_list_of_commands_says_what_each_command_says_of_itself(name):
    found = program.find_command(name)
    text = found.info.help if isinstance(found, typer.Typer) else found.__doc__
    assert text.splitlines()[0] == program.COMMANDS[name]


@pytest.mark.parametrize("name", program.COMMANDS)
def test_every_command_has_help(name):
    result = runner.invoke(program.app, [name, "--help"])
    assert result.exit_code == 0
    assert program.COMMANDS[name].split(";")[0].split(",")[0] in " ".join(result.output.split())


def test_python_dash_m_is_the_same_program():
    done = subprocess.run([sys.executable, "-m", "safeswap", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("safeswap ")


@pytest.mark.parametrize("kind", errors.ERROR_CLASSES)
def test_each_class_of_error_has_its_exit_code(failing, kind):
    failing(kind("the file is no good", code="some-code", hint="take another"))
    result = runner.invoke(program.app, ["keygen"])
    assert result.exit_code == kind.exit_code
    assert result.stderr == "error: the file is no good\nhint: take another\n"
    assert result.stdout == ""


def test_exit_codes_tell_the_classes_apart():
    codes = [kind.exit_code for kind in errors.ERROR_CLASSES]
    assert len({0, 1, 2, 130, 143, *codes}) == 5 + len(codes)


def test_an_error_under_json_is_one_document_on_stdout(failing):
    failing(errors.InputError("no", code="some-code", hint="yes", file="x.csv", line=3))
    result = runner.invoke(program.app, ["keygen", "--json"])
    document = json.loads(result.stdout)
    assert result.exit_code == document["exit_code"] == 3
    assert (document["error"], document["code"], document["fields"]) == (
        "InputError",
        "some-code",
        {"file": "x.csv", "line": 3},
    )
    assert result.stderr == ""


def test_an_unforeseen_exception_tells_its_kind_and_place_but_not_its_words(failing):
    failing(ValueError(f"could not parse {CANARY}"))
    for arguments in (["keygen"], ["keygen", "--json"], ["keygen", "--debug"]):
        result = runner.invoke(program.app, arguments)
        assert result.exit_code == 70
        assert CANARY not in result.output
        assert "ValueError" in result.output
        assert "Traceback" not in result.output


def test_debug_shows_where_an_error_arose(failing):
    failing(ValueError(CANARY))
    assert "test_app.py" in runner.invoke(program.app, ["keygen", "--debug"]).stderr
    assert "raised at" not in runner.invoke(program.app, ["keygen"]).stderr


def test_debug_shows_the_causes_too(failing):
    error = errors.InputError("no", code="some-code")
    error.__cause__ = KeyError(CANARY)
    failing(error)
    stderr = runner.invoke(program.app, ["keygen", "--debug"]).stderr
    assert "KeyError" in stderr
    assert CANARY not in stderr


def test_lack_of_memory_is_not_called_a_bug(failing):
    failing(MemoryError(CANARY))
    result = runner.invoke(program.app, ["keygen"])
    assert result.exit_code == errors.EngineError.exit_code
    assert "memory" in result.stderr


def test_a_full_disk_is_not_called_a_bug(failing):
    failing(OSError(errno.ENOSPC, CANARY))
    result = runner.invoke(program.app, ["keygen"])
    assert result.exit_code == errors.OutputError.exit_code
    assert CANARY not in result.output


def test_an_interrupt_has_its_own_exit_code_and_one_line(failing):
    failing(KeyboardInterrupt())
    result = runner.invoke(program.app, ["keygen"])
    assert result.exit_code == 130
    assert result.stderr.count("\n") == 1
    assert json.loads(runner.invoke(program.app, ["keygen", "--json"]).stdout)["error"] == "Interrupted"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["keygne"], "keygen"),
        (["keygen", "--frce"], "--frce"),
        (["keygen"], "FILE"),
        (["assess", "a", "b", "--ways", "many"], "--ways"),
    ],
)
def test_a_wrong_call_is_told_in_two_lines(arguments, told):
    result = runner.invoke(program.app, arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 2
    document = json.loads(runner.invoke(program.app, [*arguments, "--json"]).stdout)
    assert document["error"] == "UsageError"


def test_no_argument_at_all_shows_the_help():
    result = runner.invoke(program.app, [])
    assert result.exit_code == 2
    assert "describe" in result.output


@pytest.mark.skipif(os.name == "nt", reason="pipes end differently there")
def test_a_reader_who_stops_reading_is_no_error():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "safeswap", "datasets"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == ""
