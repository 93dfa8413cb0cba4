"""What a service does beside its first requests: it ends by itself, and with the service."""

import subprocess
import sys
import threading

import pytest

from safeswap.arrays.compiled import Budget
from safeswap.service.work import rehearsal


def test_a_rehearsal_in_a_process_of_its_own_ends_well() -> None:
    done = subprocess.run([sys.executable, "-m", rehearsal.__name__], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_service_that_ends_at_once_is_not_kept_waiting() -> None:
    before = set(threading.enumerate())
    with rehearsal.rehearse_beside(lambda: True):
        started = set(threading.enumerate()) - before
    for thread in started:
        thread.join()


class Ended:
    """A rehearsal beside the service that has ended, badly or well."""

    def __init__(self, code: int) -> None:
        self.returncode = code

    def poll(self) -> int:
        return self.returncode


@pytest.mark.parametrize(("code", "left"), [(0, 0), (1, 5)])
def test_pages_count_without_kernels_until_these_are_rehearsed(
    monkeypatch: pytest.MonkeyPatch, code: int, left: int
) -> None:
    monkeypatch.setattr(Budget, "left", 5)
    monkeypatch.setattr(Budget, "steps", 5)
    meanwhile: list[tuple[int, int]] = []

    def start(*_: object, **__: object) -> Ended:
        meanwhile.append((Budget.left, Budget.steps))
        return Ended(code)

    def load() -> None:
        Budget.left = Budget.steps = 0

    monkeypatch.setattr(rehearsal.subprocess, "Popen", start)
    monkeypatch.setattr(rehearsal, "rehearse", load)
    before = set(threading.enumerate())
    with rehearsal.rehearse_beside(lambda: True):
        for thread in set(threading.enumerate()) - before:
            thread.join()
    assert min(meanwhile[0]) > 1 << 40
    assert (Budget.left, Budget.steps) == (left, left)
