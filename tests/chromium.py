"""A real browser, which the tests need and do not skip without."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE = 300_000  # milliseconds
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def launched() -> "Iterator[Browser]":
    from playwright.sync_api import expect, sync_playwright

    # Five seconds, which is what Playwright waits for what a test expects to see, are few on a machine that others use.
    expect.set_options(timeout=PATIENCE)
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.fail(f"no browser found ({', '.join(NAMES)}); `make test` installs one", pytrace=False)
    with sync_playwright() as playwright:
        # Playwright gives each browser a new user data directory and removes it afterwards.
        running = playwright.chromium.launch(executable_path=program, headless=True, args=list(FLAGS))
        yield running
        running.close()
