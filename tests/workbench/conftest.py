"""Workbenches for tests: one for one person, one for three, and small files to work on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workbench.desk import Desk, desk_in


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
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file: 2,000 records of the Current Population Survey."""
    from safeswap import datasets, workflow

    path = tmp_path_factory.mktemp("survey") / "survey.csv"
    data = datasets.cps8d()
    lines = path.with_suffix(".whole.csv")
    workflow.write(data, lines)
    kept = lines.read_text(encoding="utf-8").splitlines()[:2001]
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return path
