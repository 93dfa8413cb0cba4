#!/usr/bin/env python3
"""Take the pictures of the tutorial on the workbench.

    python -m tools.workbench_pictures [--into docs/_static/workbench]

Server, worker and browser are those of the tests, the data are the shipped ones. Look at them before you keep them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect
from tests.chromium import launched
from tests.workbench.desk import Desk, desk_in

from safeswap import datasets
from safeswap.files.write import write
from safeswap.service.client import Client
from safeswap.service.routes.jobs import Job

TARGET = Path(__file__).parents[1] / "docs" / "_static" / "workbench"
ATTRIBUTES = ["Age", "EmpTyp", "Edu", "MS", "Race", "Sex"]
SPEC = {"method": "swap", "swap": ["Race"], "fixed": ["Sex"], "rate": 0.05}
HEIGHTS = {
    "data": 1101,
    "risk": 1150,
    "method": 1161,
    "form": 1400,
    "tables": 1150,
    "map": 1620,
    "records": 1569,
    "result": 1337,
    "log": 900,
}


def main() -> None:
    """Take all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--into", type=Path, default=TARGET)
    into: Path = parser.parse_args().into
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        for place in ("desk", "office"):
            (Path(folder) / place).mkdir()
        survey = Path(folder) / "Current Population Survey.csv"
        write(datasets.cps8d(), survey)
        few = Path(folder) / "survey.csv"
        few.write_text("".join(survey.read_text("utf-8").splitlines(keepends=True)[:2001]), "utf-8")
        with desk_in(Path(folder) / "desk", single_user=True) as desk:
            first_steps(browser, desk, few, into)
            alone(browser, desk, survey, into)
        with desk_in(Path(folder) / "office", single_user=False) as office:
            in_an_office(browser, office, survey, into)


def first_steps(browser: Browser, desk: Desk, survey: Path, into: Path) -> None:
    """A file that is looked at, made safer by hand, and about to be masked."""
    project = desk.project(survey)
    with desk.seen(browser, height=1000) as seen:
        seen.expected = ("422",)  # no plan can be made of what is not stated yet
        taken(seen.go(f"/projects/{project}/data"), into / "data.png", HEIGHTS["data"])

        page = seen.go(f"/projects/{project}/risk")
        page.locator("#step-fields [name=attribute]").select_option("EmpTyp")
        for level in ("Self-Emp", "Other"):
            page.get_by_label(f"{level} becomes", exact=True).fill("other")
        page.click("#add-step")
        expect(page.get_by_label("Edit step 1")).to_be_visible()
        page.locator("#step-kind").select_option("suppress")
        page.click("#add-step")
        expect(page.get_by_label("Edit step 2")).to_be_visible(timeout=60_000)
        taken(page, into / "risk.png", HEIGHTS["risk"])
        for _ in range(2):
            page.click("#undo")
        expect(page.locator("#undo")).to_be_disabled()

        page = seen.go(f"/projects/{project}/method")
        for role in ("Race: Swap", "Edu: Fixed", "Sex: Fixed"):
            page.get_by_label(role, exact=True).check()
        expect(page.locator("#plan")).to_contain_text("pairs")
        taken(page, into / "method.png", HEIGHTS["method"])

        page = seen.go(f"/projects/{project}/method?method=suppress")
        part = page.locator("#fields fieldset").filter(has=page.locator("> legend", has_text="Combinations")).first
        for place, keys in enumerate((("Age", "Edu", "Sex"), ("EmpTyp", "Race"))):
            part.get_by_role("button", name="Add").click()
            for key in keys:
                part.locator("li").nth(place).get_by_label(key, exact=True).check()
        part.locator("li").first.get_by_label("Tolerance").fill("5")
        expect(page.locator("#other-plan")).to_have_class("good")
        taken(page, into / "form.png", HEIGHTS["form"])

        page = seen.go(f"/projects/{project}/tables")
        page.fill("#tolerance", "15")
        for table in (("Edu", "Race"), ("EmpTyp", "Edu")):
            for attribute in table:
                page.locator("#attributes").get_by_label(attribute, exact=True).check()
            page.click("#add-table")
        page.click("#make")
        expect(page.locator("#one")).to_be_visible(timeout=60_000)
        taken(page, into / "tables.png", HEIGHTS["tables"])

        page = seen.go(f"/projects/{project}/map")
        expect(page.locator("#size")).to_contain_text("candidates")
        page.locator("#new-study").screenshot(path=into / "study.png")


def alone(browser: Browser, desk: Desk, survey: Path, into: Path) -> None:
    """What one person sees who works by herself."""
    project = desk.project(survey)
    with desk.client() as client:
        client.wait(client.study(project, attributes=ATTRIBUTES, replicates=4))
        masking = masked(client, project)
        plot = {"masking": masking, "keys": ["Age", "Edu", "MS", "Race", "Sex"]}
        client.wait(client._post(Job, f"/projects/{project}/confidentiality", plot))
    paths = {name: f"/projects/{project}/{name}" for name in ("map", "records", "log")}
    with desk.seen(browser, height=1000) as seen:
        for name, path in {**paths, "result": f"/projects/{project}/results/{masking}"}.items():
            page = seen.go(path)
            page.wait_for_timeout(500)
            taken(page, into / f"{name}.png", HEIGHTS[name])
        page = seen.go(paths["map"])
        for place in (0, 5):
            page.locator(".safeswap-map .ssm-link").nth(place).click()
            seen.part("detail").get_by_role("button", name="Compare").click()
        expect(page.locator("#sides table")).to_have_count(2)
        page.locator("#compared").screenshot(path=into / "compare.png")


def in_an_office(browser: Browser, office: Desk, survey: Path, into: Path) -> None:
    """What the second person sees whom a release needs."""
    project = office.project(survey, members=("olga",))
    with office.client("ana") as client:
        client.request_release(project, masked(client, project), title="survey")
    with office.seen(browser, who="olga") as seen:
        page = seen.go(f"/projects/{project}/release")
        expect(page.locator("#state")).to_contain_text("waiting for approval")
        taken(page, into / "release.png")


def masked(client: Client, project: str) -> str:
    """A masking of the project's data; its id."""
    ended = client.wait(client.mask(project, SPEC))
    if ended.result is None:
        raise RuntimeError("it could not be masked")
    return ended.result.id


def taken(page: Page, path: Path, height: int | None = None) -> None:
    """The whole page, or as much of it as tells what it is."""
    whole: int = page.evaluate("document.documentElement.scrollHeight")
    shown = min(height or whole, whole)
    page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": 1280, "height": shown})


if __name__ == "__main__":
    main()
