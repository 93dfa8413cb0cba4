"""A question that takes long can be cancelled on every page; the page is then as it was, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect
from tests.workbench.desk import Desk

SWAP = {"method": "swap", "swap": ["Race"], "rate": 0.05}


@pytest.fixture(scope="module")
def project(desk: Desk, survey: Path) -> str:
    """A project with a scenario, two steps and a masking."""
    made = desk.project(survey)
    with desk.client() as client:
        version = client.settings(made).version
        scenario = {"name": "own", "keys": ["Age", "Edu", "Sex"]}
        client.change_settings(made, version=version, scenarios=[scenario], steps=[SWAP, {**SWAP, "swap": ["Sex"]}])
    return made


@contextmanager
def unanswered(page: Page, path: str) -> Iterator[None]:
    """Let a question of the page wait without an end, until it is cancelled."""
    held: list[Route] = []
    page.route(path, lambda route: held.append(route))  # noqa: PLW0108  (Playwright marks it)
    yield
    page.unroute(path)
    assert held


def cancel(page: Page) -> None:
    expect(page.locator("#asking")).to_be_visible()
    page.locator("#asking").get_by_role("button", name="Cancel").click()
    expect(page.locator("#asking")).to_have_count(0)


def test_the_risk_page_goes_back_to_the_keys_whose_figures_it_shows(browser: Browser, desk: Desk, project: str) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/risk")
        key, before = page.locator("#keys").get_by_label("MS", exact=True), page.inner_text("#panel")
        with unanswered(page, "**/risky"):
            key.check()
            expect(page.locator("#asking")).to_contain_text("Still working")
            assert Axe().run(page).response["violations"] == []
            cancel(page)
        expect(page.locator("#problem")).to_contain_text("Cancelled. Nothing was changed.")
        expect(key).not_to_be_checked()
        assert page.inner_text("#panel") == before
        with unanswered(page, "**/risk-views/suda"):
            page.get_by_role("tab", name="SUDA").click()
            cancel(page)
        expect(page.get_by_role("tab", name="Combinations")).to_have_attribute("aria-selected", "true")
        assert page.inner_text("#panel") == before
        key.check()  # asked again, it is answered
        expect(page.locator("#sentence")).not_to_have_text(before.split("\n")[1])
        expect(page.locator("#panel")).to_have_attribute("aria-busy", "false")
        expect(page.locator("#problem")).to_be_hidden()


def test_a_first_question_that_is_cancelled_can_be_asked_again(browser: Browser, desk: Desk, project: str) -> None:
    with desk.seen(browser) as seen:
        with unanswered(seen.page, "**/risky"):
            seen.page.goto(f"{desk.address}/projects/{project}/risk")
            cancel(seen.page)
        page = seen.ready()
        expect(page.locator("#sentence")).to_have_text("Cancelled: nothing was counted.")
        page.get_by_role("button", name="Count again").click()
        expect(page.locator("#sentence")).to_contain_text("Scenario own")


def test_the_pipeline_keeps_its_steps_and_shows_no_figures_of_other_ones(
    browser: Browser, desk: Desk, project: str
) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/method")
        first, effects = page.locator("#pipeline-steps li").first, page.locator("#pipeline-steps .effect")
        expect(page.locator("#pipeline")).to_have_attribute("aria-busy", "false")
        was = str(first.get_attribute("data-step"))
        with unanswered(page, "**/step-table"):
            page.get_by_label(f"Move down {was}", exact=True).click()
            cancel(page)
        expect(page.locator("#pipeline-note")).to_contain_text("the steps are kept")
        expect(effects).to_have_text(["Not counted", "Not counted"])
        expect(first).not_to_have_attribute("data-step", was)
        page.get_by_role("button", name="Count again").click()
        expect(effects.first).to_contain_text("unsafe")
        expect(page.locator("#count-steps")).to_be_hidden()


def test_a_question_of_a_dialog_is_cancelled_in_the_dialog(browser: Browser, desk: Desk, project: str) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        page.click("#scenario-edit")
        dialog = page.locator("#scenario-dialog")
        with unanswered(page, "**/suggested-keys*"):
            dialog.get_by_role("button", name="Most identifying first").click()
            cancel(page)
        expect(dialog.locator("[role=status]").last).to_contain_text("Cancelled.")
        expect(dialog.get_by_role("button", name="Most identifying first")).to_be_focused()
        dialog.get_by_role("button", name="Most identifying first").click()
        expect(dialog.locator("li").first).to_contain_text("SUDA score")
