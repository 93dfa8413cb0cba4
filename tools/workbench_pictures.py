#!/usr/bin/env python3
"""Take those pictures of the tutorial on the workbench that show something done: from the map to the release.

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

from safeswap import datasets, workflow
from safeswap.service.client import Client
from safeswap.service.schemas.jobs import Job

TARGET = Path(__file__).parents[1] / "docs" / "_static" / "workbench"
ATTRIBUTES = ["Age", "EmpTyp", "Edu", "MS", "Race", "Sex"]
SPEC = {"method": "swap", "swap": ["Race"], "fixed": ["Sex"], "rate": 0.05}
HEIGHTS = {"map": 1620, "records": 1569, "result": 1337, "log": 900}


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
        workflow.write(datasets.cps8d(), survey)
        with desk_in(Path(folder) / "desk", single_user=True) as desk:
            alone(browser, desk, survey, into)
        with desk_in(Path(folder) / "office", single_user=False) as office:
            in_an_office(browser, office, survey, into)


def alone(browser: Browser, desk: Desk, survey: Path, into: Path) -> None:
    """What one person sees who works by herself."""
    project = desk.project(survey)
    with desk.client() as client:
        client.wait(client.study(project, attributes=ATTRIBUTES, replicates=4))
        masking = masked(client, project)
        plot = {"masking": masking, "keys": ["Age", "Edu", "MS", "Race", "Sex"]}
        client.wait(client._made(Job, f"/projects/{project}/confidentiality", plot))
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
