"""A small survey on disk, a key, and the program to run on them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from safeswap.cli.app import app

CANARY = "Zanzibar-7f3a"
"""A value that stands in every bad file; it must not turn up in anything that is said."""


class Run:
    """One run of the program: what it said and how it ended."""

    def __init__(self, result) -> None:
        self.code = result.exit_code
        self.stdout = result.stdout
        self.stderr = result.stderr
        self.said = result.output

    @property
    def document(self) -> dict:
        return json.loads(self.stdout)


@pytest.fixture
def safeswap():
    """Runs the program within this process: ``safeswap("describe", path)``."""

    def run(*arguments) -> Run:
        return Run(CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False))

    return run


def survey_text(records: int = 400) -> str:
    """A survey whose columns are of every usual kind, without any randomness."""
    races = ("white", "white", "black", "asian", "several")
    lines = ["id,Race,Sex,Age,Town"]
    for i in range(records):
        lines.append(f"{i + 1:05d},{races[i * 7 % 5]},{'fm'[i // 3 % 2]},{20 + i * 13 % 61},{CANARY}-{i % 9}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def survey(tmp_path) -> Path:
    path = tmp_path / "survey.csv"
    path.write_text(survey_text())
    return path


@pytest.fixture
def key(tmp_path, safeswap) -> Path:
    path = tmp_path / "secret.key"
    assert safeswap("keygen", path).code == 0
    return path


class Place:
    """A directory with a survey and a key in it, and the names of what the commands make there."""

    def __init__(self, folder: Path, survey: Path, key: Path) -> None:
        self.folder, self.survey, self.key = folder, survey, key
        self.masked, self.audit, self.bundle = folder / "masked.csv", folder / "audit", folder / "bundle"

    @property
    def swap(self) -> list:
        """The call that masks the survey; more can be added to it."""
        request = ["swap", self.survey, "--identifier", "id", "--swap", "Race", "--rate", "0.1", "--key", self.key]
        return [*request, "--output", self.masked, "--audit", self.audit]

    @property
    def release(self) -> list:
        """The call that releases the masked survey; more can be added to it."""
        files = ["release", self.survey, self.masked, "--audit", self.audit, "--key", self.key]
        return [*files, "--output", self.bundle]


@pytest.fixture
def place(tmp_path, survey, key) -> Place:
    return Place(tmp_path, survey, key)


@pytest.fixture
def listing(tmp_path):
    """What lies in the directory of the test, with sizes: compared before and after."""

    def found() -> dict[str, int]:
        return {str(path.relative_to(tmp_path)): path.lstat().st_size for path in sorted(tmp_path.rglob("*"))}

    return found
