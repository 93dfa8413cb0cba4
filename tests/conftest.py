"""What all tests share: Hypothesis does not look at the clock, so that a slow machine fails no test.

The everyday profile tries enough examples to catch a mistake and stays quick; before a release, and when hunting one,
``make test PYTEST_ARGS=--hypothesis-profile=thorough`` tries ten times as many.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from tests.chromium import launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}

settings.register_profile("safeswap", max_examples=30, **_SHARED)
settings.register_profile("thorough", max_examples=300, **_SHARED)
settings.load_profile("safeswap")


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """One browser for all tests of pages: Playwright starts only once in a process."""
    with launched() as running:
        yield running


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests are dealt to several processes: all of Spark to one, and each file with a server to one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByServer(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            if file.startswith("tests/engines/test_spark"):
                return "spark"
            return file if file.startswith(("tests/browser/", "tests/service/", "tests/workbench/")) else nodeid

    return ByServer(config, log)
