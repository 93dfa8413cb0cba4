"""What a service does beside its first requests: it ends by itself, and with the service."""

import subprocess
import sys
import threading

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
