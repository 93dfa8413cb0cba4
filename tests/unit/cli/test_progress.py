"""Progress is shown to people who wait, and to nobody else."""

import io
import sys
import time

import pytest

from safeswap.cli.console import Console, Steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Puts a terminal in the place of stderr; called in the test itself, since pytest sets stderr between phases."""

    def open_terminal() -> Terminal:
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        return screen

    return open_terminal


def wait_for(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not come")


def test_long_work_names_the_step_under_way(terminal):
    screen = terminal()
    steps = Steps(total=2, shown=True, patience=0.0)
    steps.at("reading")
    wait_for(lambda: "reading" in screen.getvalue())
    steps.at("masking")
    wait_for(lambda: "masking" in screen.getvalue())
    steps.close()


def test_short_work_shows_nothing(terminal):
    screen = terminal()
    steps = Steps(total=1, shown=True, patience=60.0)
    steps.at("reading")
    steps.close()
    assert screen.getvalue() == ""


def test_no_terminal_no_progress(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Console().steps(1) as steps:
        assert steps._timer is None


def test_quiet_shows_no_progress(terminal):
    terminal()
    with Console(quiet=True).steps(1) as steps:
        assert steps._timer is None


def test_what_fails_takes_its_progress_away(terminal):
    terminal()
    with pytest.raises(ValueError), Console().steps(1) as steps:
        steps._timer.cancel()
        steps._show()
        assert steps._progress.live.is_started
        raise ValueError
    assert not steps._progress.live.is_started
