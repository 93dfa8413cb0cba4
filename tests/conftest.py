"""What all tests share: Hypothesis does not look at the clock, so that a slow machine fails no test.

The everyday profile tries enough examples to catch a mistake; before a release, and when hunting one,
``make test PYTEST_ARGS=--hypothesis-profile=thorough`` tries ten times as many. ``make quick`` tries a few, and leaves
out the tests that ``slow.txt`` names.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from tests.chromium import launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}

settings.register_profile("safeswap", max_examples=30, **_SHARED)
settings.register_profile("quick", max_examples=5, **_SHARED)
settings.register_profile("thorough", max_examples=300, **_SHARED)
settings.load_profile("safeswap")


SLOW = Path(__file__).with_name("slow.txt")
"""Tests that need more than 0.1 s of a core, or 0.4 s with all variants: a line for a variant or a whole test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests. Only the name of their file counts, so that a folder can be moved."""
    listed = set(SLOW.read_text(encoding="utf-8").splitlines())
    for item in items:
        variant = f"{item.path.name}::{item.nodeid.partition('::')[2]}"
        if listed & {variant, variant.split("[", 1)[0]}:
            item.add_marker(pytest.mark.slow)


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
