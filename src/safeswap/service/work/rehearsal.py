"""Rehearse what the pages ask for when a service starts, so that the first person to open one does not wait.

The methods and measures are imported at once. The kernels run first in a process of low priority: on a machine that
never ran them, compiling them takes long, and Numba keeps them on disk. Then they run in the server, which loads them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from safeswap.service.http import logs

_PAUSE = 0.2  # seconds between two looks at the other process
_PLENTY = 1 << 50


def load_library() -> None:
    """Import every method and measure, as the page of the pipeline does to list them: a second, without a kernel."""
    from safeswap import registry

    registry.measures()
    for method in registry.methods().values():
        method.spec_type.model_json_schema()


def rehearse() -> None:
    """Plan and measure on the shipped survey as the pages do: imports what they need, and compiles it or loads it."""
    from safeswap import datasets
    from safeswap.arrays.compiled import Budget
    from safeswap.model.key import Key
    from safeswap.model.scenario import Scenario
    from safeswap.workflow.masking import mask, plan
    from safeswap.workflow.step_table import assess_steps

    Budget.left = Budget.steps = 0  # small files would be counted without kernels, more slowly
    survey = datasets.household_survey()
    # One attribute, few and many together: numbers of other sizes are other kernels.
    several = ["relationship", "sex", "education", "labour_status"]
    for rare in (["relationship"], ["sex"], ["education"], ["occupation"], several[:2], several[1:3], several):
        risky = {"method": "household_swap", "risk_variables": rare, "k": 3, "rate": 0.02}
        for more in ({}, {"similar": [["tenure"]]}, {"over_rate": "riskiest"}):
            plan(survey, {**risky, **more})
    scenario = Scenario(name="rehearsal", keys=("region", "sex", "education"))
    steps = (
        {"method": "suppress", "keys": list(scenario.keys or ())},
        {"method": "swap", "swap": ["tenure"], "rate": 0.1},
    )
    for step in steps:
        assess_steps(mask(survey, {**step}, key=Key(bytes(32))), scenarios=[scenario])


@contextmanager
def rehearse_beside(server_is_up: Callable[[], bool]) -> Iterator[None]:
    """Rehearse beside the service, as soon as it answers; what is not done at its end is left."""
    stopping = threading.Event()
    thread = threading.Thread(target=_rehearse_twice, args=(stopping, server_is_up), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()


def _rehearse_twice(stopping: threading.Event, server_is_up: Callable[[], bool]) -> None:
    from safeswap.arrays.compiled import Budget

    usual = Budget.left, Budget.steps
    Budget.left = Budget.steps = _PLENTY  # no page waits for a kernel that is being rehearsed
    if _rehearse_alone(stopping, server_is_up):
        rehearse()
    else:
        Budget.left, Budget.steps = usual


def _rehearse_alone(stopping: threading.Event, server_is_up: Callable[[], bool]) -> bool:
    """Rehearse in another process; return whether it ended well."""
    while not server_is_up():
        if stopping.wait(_PAUSE):
            return False
    load_library()
    alone = subprocess.Popen([sys.executable, "-m", __name__], stderr=subprocess.DEVNULL, start_new_session=True)
    while alone.poll() is None:
        if stopping.wait(_PAUSE):
            alone.kill()
            alone.wait()
            return False
    if alone.returncode:
        logs.event("rehearsal-failed", code=alone.returncode)
    return alone.returncode == 0


if __name__ == "__main__":
    with suppress(OSError, AttributeError):
        os.nice(10)
    # Without a cache nothing is gained: it fails, and the server does not compile all this beside its requests.
    warnings.filterwarnings("error", message="compiled code cannot be cached")
    rehearse()
