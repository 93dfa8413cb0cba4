"""The stored help says what the commands say, and showing it loads nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from safeswap.cli import app as program
from safeswap.cli import help as texts
from safeswap.cli import show_help

STORED = texts.read_stored()
# `mask --help` lists the methods, so it looks for plug-ins.
HEAVY = (
    "typer",
    "rich",
    "pydantic",
    "numpy",
    "numba",
    "pandas",
    "polars",
    "pyarrow",
    "scipy",
    "cryptography",
    "jinja2",
)


def test_the_stored_help_is_that_of_the_commands() -> None:
    found = texts.collect()
    assert found.keys() == STORED.keys()
    for name in found:
        assert found[name] == STORED[name], f"{name}: write it again with python -m safeswap.cli.help"


def test_help_of_every_command_loads_nothing_heavy() -> None:
    code = (
        "import contextlib, io, json, sys; from safeswap.cli.help import read_stored, show_stored\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    shown = [show_stored([*name.split(), '--help']) for name in read_stored()]\n"
        f"print(json.dumps([all(shown), [m for m in {HEAVY!r} if m in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True, []]


@pytest.mark.parametrize("name", ["", "swap", "mask pram", "datasets write"])
def test_stored_and_live_help_look_alike(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert texts.show_stored([*name.split(), "--help"])
    live = CliRunner().invoke(program.app, [*name.split(), "--help"]).output
    assert capsys.readouterr().out.rstrip() == live.rstrip()


def test_only_a_bare_request_for_help_is_answered_from_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in ([], ["swap"], ["swop", "--help"], ["swap", "--rate", "--help"], ["--help", "swap"]):
        assert not show_help(arguments)
    monkeypatch.setattr("safeswap.registry.has_plug_ins", lambda: True)
    assert not show_help(["mask", "--help"])
    monkeypatch.setattr(texts, "STORED", texts.STORED.with_name("absent.json"))
    assert not show_help(["swap", "--help"])


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for name, found in STORED.items():
        longest = max(len(word) for _, rows in found["sections"] for row in rows for word in row[1].split())
        for line in texts.render(found, width).splitlines():
            assert len(line) <= max(width, 40, longest + 32) or line.lstrip().startswith("-"), (name, line)


def test_help_ends_with_success() -> None:
    done = subprocess.run([sys.executable, "-m", "safeswap", "study", "-h"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: safeswap study [OPTIONS]")
    assert done.stderr == ""
