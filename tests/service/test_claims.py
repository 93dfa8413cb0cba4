"""Eight processes claim thousands of jobs and are killed at random: none is claimed twice, none is lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.claiming import check_none_twice_none_lost, claim_all_at_once, start
from tests.service.installed import database_of, settings_in

MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what is killed here are processes, not the power supply."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(dir=MEMORY))
    yield folder
    shutil.rmtree(folder)


def test_of_2000_claims_by_8_processes_that_are_killed_none_is_double_and_none_is_lost(memory_path):
    settings = settings_in(memory_path)
    database_of(settings)
    running = start(settings, memory_path, jobs=2000, kills=25)
    found = check_none_twice_none_lost(running, number=2000)
    assert found["killed"] == 25
    assert len(found["claimed"]) >= 2000


def test_looking_first_and_taking_afterwards_does_not_pass_the_same_test(memory_path):
    settings = settings_in(memory_path)
    database_of(settings)
    running = start(settings, memory_path, jobs=300, queue="naive", patience=3)
    with pytest.raises(AssertionError, match="handed out twice"):
        check_none_twice_none_lost(running, number=300)


def test_claims_at_the_same_moment_leave_a_worker_for_the_others(memory_path):
    assert claim_all_at_once(settings_in(memory_path, workers=3), times=20) == [2] * 20
