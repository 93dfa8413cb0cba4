"""Workbenches for tests: one for one person, one for three, and small files to work on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workbench.desk import Desk, desk_in

from safeswap import datasets
from safeswap.files.write import write


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A workbench for one person."""
    with desk_in(tmp_path_factory.mktemp("desk"), single_user=True) as here:
        yield here


@pytest.fixture(scope="session")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A workbench for three people: ana (analyst), olga (officer), vera (viewer)."""
    with desk_in(tmp_path_factory.mktemp("office"), single_user=False) as here:
        yield here


@pytest.fixture(scope="session")
def whole_survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 48,842 records of the Current Population Survey in eight attributes."""
    path = tmp_path_factory.mktemp("whole") / "survey.csv"
    write(datasets.cps8d(), path)
    return path


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory, whole_survey: Path) -> Path:
    """A small file: its first 2,000 records."""
    path = tmp_path_factory.mktemp("survey") / "survey.csv"
    lines = whole_survey.read_text(encoding="utf-8").splitlines()[:2001]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
