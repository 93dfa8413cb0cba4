"""An interrupt at any moment leaves nothing half-written: both the masked file and its record, or neither."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from tests.unit.cli.conftest import survey_text

from safeswap.on_disk.masking import recall


@pytest.fixture
def interrupted(monkeypatch):
    """Interrupts at the n-th moment at which something is forced to disk, which is when files come into being."""
    real = os.fsync

    def at(moment: int) -> None:
        left = [moment]

        def fsync(descriptor):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    return at


def moments_until_done(safeswap, interrupted, arguments):
    """Interrupt at the first moment, the second, …; gives each run until one comes through uninterrupted."""
    for moment in range(1, 60):
        interrupted(moment)
        run = safeswap(*arguments)
        yield run
        if run.code == 0:
            return
    pytest.fail("it never comes to an end")


def test_swap_leaves_both_or_neither(safeswap, place, listing, interrupted):
    before, cut = listing(), 0
    for run in moments_until_done(safeswap, interrupted, place.swap):
        if run.code == 0:
            break
        assert run.code == 130
        cut += 1
        if place.masked.exists():
            recall(place.survey, place.masked, audit=place.audit)  # the record is there, whole, and of this file
            place.masked.unlink()
            shutil.rmtree(place.audit)
        assert listing() == before
    assert cut > 4


def test_release_leaves_both_or_neither(safeswap, place, listing, interrupted):
    assert safeswap(*place.swap).code == 0
    before, cut = listing(), 0
    for run in moments_until_done(safeswap, interrupted, place.release):
        if run.code == 0:
            break
        assert run.code == 130
        cut += 1
        if place.bundle.exists():
            assert safeswap("verify", place.bundle).code == 0
            records = list(place.audit.glob("release-*"))
            assert len(records) == 1
            shutil.rmtree(place.bundle)
            shutil.rmtree(records[0])
        assert listing() == before
    assert cut > 4


def wait_for(condition, process):
    while process.poll() is None and not condition():
        time.sleep(0.005)


@pytest.mark.skipif(os.name == "nt", reason="signals are other things there")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle_of_writing_leaves_nothing(tmp_path, listing, number, code):
    survey = tmp_path / "survey.csv"
    survey.write_text(survey_text(300_000))
    before = listing()
    swap = [sys.executable, "-m", "safeswap", "swap", survey, "--swap", "Race", "--rate", "0.1", "--insecure-seed", "1"]
    swap += ["--output", tmp_path / "masked.csv", "--audit", tmp_path / "audit", "--identifier", "id", "--no-scores"]
    with subprocess.Popen(swap, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: any(tmp_path.glob(".safeswap-*")), process)
        process.send_signal(number)
        said = process.stderr.read()
    if process.returncode == 0:  # it was done before the signal came
        assert (tmp_path / "masked.csv").exists()
    else:
        assert process.returncode == code
        assert listing() == before
    assert "Traceback" not in said


DROPPED = """
import os, signal, time
from safeswap import cli
from safeswap.cli import app

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), {number})
        time.sleep(0)  # here Python calls the handler, and drops what it raises

def run(_):
    Finalised()
    time.sleep(60)
    return 0

app.run = run
cli.main([])
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are other things there")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_a_finaliser_is_not_lost(number, code):
    program = DROPPED.format(number=int(number))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=50)
    assert (ended.returncode, ended.stderr) == (code, "")
