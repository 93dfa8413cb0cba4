"""Every screen of ours: what it shows, that it complains of nothing, and that everybody can use it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser
from tests.workbench.desk import Desk


def test_a_file_is_described(browser: Browser, desk: Desk, survey: Path) -> None:
    project = desk.project(survey)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        assert "2,000 records" in page.inner_text("#file-line")


def test_a_viewer_cannot_change_a_description(browser: Browser, office: Desk, survey: Path) -> None:
    project = office.project(survey, who="ana", members=("vera",))
    with office.seen(browser, who="vera") as seen:
        page = seen.go(f"/projects/{project}/data")
        assert page.locator("#save").is_hidden()
        assert page.locator("#attributes select").first.is_disabled()
