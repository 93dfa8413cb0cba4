"""Somebody releases the same records again and hopes that nobody notices.

Each evasion is tried on files of its own. The attack succeeds if the second release is written without a reason. The
control is honest: another survey of the same population, numbered in the same way, must be written.
"""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.hand_made import KEY
from tests.ledger_cases import Columns, Trial, as_file, trial

from safeswap import workflow
from safeswap.errors import UnsafeRelease
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema

RECORDS, TRIALS = 800, 3


def _renamed(one: Trial) -> Columns:
    return {f"column {place}": one.columns[name] for place, name in enumerate(sorted(one.columns))}


EVASIONS: dict[str, Callable[[Trial], Columns]] = {
    "another audit directory": lambda one: one.columns,
    "one dropped record": lambda one: {name: values[1:] for name, values in one.columns.items()},
    "renamed columns": _renamed,
    "a tenth of other people added": lambda one: one.with_more(one.columns, 0.1),
    "four columns dropped": lambda one: one.without(4),
}


def _without_identifier(data: Microdata) -> Microdata:
    table = data.table.drop_columns(["id"])
    return Microdata(table, Schema(attributes=tuple(Attribute(name=name) for name in table.column_names)))


def release(data: Microdata, folder, name: str) -> None:
    chosen = next(each for each in data.attributes if each != "id" and 1 < len(data.table[each].unique()) < 8)
    masked = workflow.swap(data, swap=[chosen], rate=0.05, key=KEY)
    workflow.release(masked, folder / name, audit=folder / f"{name} audit", key=KEY)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The ledger of an audit directory after the first release of each trial."""

    @cache
    def made(seed: int) -> Path:
        folder = tmp_path_factory.mktemp(f"trial {seed}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SAFESWAP_LEDGER", str(folder / "ledger.db"))
            release(as_file(trial(RECORDS, seed).columns), folder, "first")
        return folder / "ledger.db"

    return made


def _succeeds(folder: Path, ledger: Path, after: Microdata, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Try a release beside a copy of a ledger, which each attempt may change."""
    folder.mkdir()
    for part in ledger.parent.glob(f"{ledger.stem}.*"):
        shutil.copy(part, folder / part.name)
    monkeypatch.setenv("SAFESWAP_LEDGER", str(folder / ledger.name))
    try:
        release(after, folder, "second")
    except UnsafeRelease as refused:
        assert refused.code == "second-release"  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("renumbered", ["new numbers", "no identifier"])
@pytest.mark.parametrize("evasion", EVASIONS)
def test_no_evasion_gets_a_second_release_out(tmp_path, monkeypatch, first, evasion, renumbered):
    done = 0
    for seed in range(TRIALS):
        columns = EVASIONS[evasion](trial(RECORDS, seed))
        after = as_file(columns, first=10**6 + seed, shuffle=np.random.default_rng(seed))
        after = after if renumbered == "new numbers" else _without_identifier(after)
        done += _succeeds(tmp_path / str(seed), first(seed), after, monkeypatch)
    print(f"{evasion}, {renumbered}: {done} of {TRIALS} second releases got out")
    assert done == 0


def test_an_honest_survey_with_the_same_numbers_gets_out(tmp_path, monkeypatch, first):
    done = 0
    for seed in range(TRIALS):
        others = as_file(trial(RECORDS, seed).others(RECORDS))
        done += _succeeds(tmp_path / str(seed), first(seed), others, monkeypatch)
    assert done == TRIALS
