#!/usr/bin/env python3
"""Take pictures of the workbench: those of the tutorial, or every page in every width and theme.

    python -m tools.workbench_pictures [--into docs/_static/workbench] [--only cps8d]
    python -m tools.workbench_pictures --every --into FOLDER [--only household_survey]

Server, worker and browser are those of the tests, the data are the shipped ones. Look at them before you keep them.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, expect
from tests.chromium import launched
from tests.workbench.desk import Desk, Seen, desk_in

from safeswap.service.client import Client
from safeswap.service.routes.jobs import Job

TARGET = Path(__file__).parents[1] / "docs" / "_static" / "workbench"
WIDTHS = (1440, 1024, 390)
COLOURS = 255  # a page has few: a picture with a palette is a third as large
PATIENCE = 120_000
HEIGHTS = {"data": 1100, "risk": 1100, "method": 1300, "map": 1500, "result": 1750, "release": 1500, "log": 900}
"""As much of a long page as tells what it is."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A shipped file and what is done with it."""

    name: str
    keys: tuple[str, ...]
    swapped: str
    study: tuple[str, ...]
    indicators: str


SHARE = '[[indicators]]\nstatistic = "share"\nof = "{}"\nlevel = "{}"\nby = ["{}"]\nrelative = 0.05\n'
MEAN = '[[indicators]]\nstatistic = "mean"\nof = "{}"\nby = ["{}"]\nrelative = 0.02\n'

SAMPLES = (
    Sample(
        name="household_survey",
        keys=("region", "sex", "education", "tenure"),
        swapped="tenure",
        study=("tenure", "education", "marital_status"),
        indicators=SHARE.format("tenure", 1, "region") + MEAN.format("income", "tenure"),
    ),
    Sample(
        name="cps8d",
        keys=("Age", "EmpTyp", "Edu", "MS", "Race", "Sex", "AvgHrs"),
        swapped="Race",
        study=("Age", "Edu", "Race", "Sex"),
        indicators=SHARE.format("Sex", "Female", "Race"),
    ),
)
STEPS = ("data", "risk", "method", "map", "records", "release")
ROOMS = ("households", "indicators", "attacks", "tables", "log")


def main() -> None:
    """Take the pictures that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--into", type=Path, default=TARGET)
    parser.add_argument("--every", action="store_true", help="every page, in three widths and both themes")
    parser.add_argument("--only", choices=[sample.name for sample in SAMPLES])
    asked = parser.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    chosen = [sample for sample in SAMPLES if asked.only in (None, sample.name)]
    with (
        tempfile.TemporaryDirectory() as folder,
        launched() as browser,
        desk_in(Path(folder), single_user=False) as office,
    ):
        for sample in chosen:
            made = worked(office, sample)
            if asked.every:
                take_every(browser, office, made, asked.into / sample.name)
            elif sample.name == "household_survey":
                take_rooms(browser, office, made, asked.into)
            else:
                take_steps(browser, office, made, asked.into)


def worked(office: Desk, sample: Sample) -> dict[str, str]:
    """Do the whole job on a file, from the scenario to a release that waits; the addresses of its pages."""
    with office.client("ana") as ana, office.client("olga") as olga:
        project = ana.make_project({"cps8d": "Current Population Survey"}.get(sample.name, "Household survey")).id
        ana.add_member(project, "olga")
        ana.wait(ana._post(Job, f"/projects/{project}/data-from-sample", {"sample": sample.name}))
        path = f"/projects/{project}/settings"
        settings: dict[str, Any] = {
            "scenarios": [{"name": "nosy neighbour", "keys": sample.keys, "tolerance": 3}],
            "release": {"require": {"nosy neighbour": ["n_rule <= 0.03"]}},
            "steps": [{"method": "swap", "swap": [sample.swapped], "rate": 0.05}],
        }
        etag = ana._send("GET", path).headers["etag"]
        ana._send("PATCH", path, json=settings, headers={"If-Match": etag})
        masking = finish(ana, ana.mask(project, {"method": "swap", "swap": [sample.swapped], "rate": 0.05}))
        varied = {"method": "pram", "attributes": [sample.swapped], "sweep": {"keep": [0.9, 0.95]}}
        jobs = [
            ana.study(project, attributes=list(sample.study), replicates=3, swaps=True, vary=[varied]),
            ana._post(Job, f"/projects/{project}/confidentiality", {"masking": masking, "keys": sample.keys}),
            ana.attack(project, masking, full=False),
            ana.assess(project, masking, indicators=sample.indicators),
        ]
        for job in jobs:
            finish(ana, job)
        for title, decision in (("first try", "rejected"), ("public use file", "")):
            asked = ana.request_release(project, masking, title=title)
            while olga.release(project, asked.id).state == "preparing":
                time.sleep(0.5)
            if decision:
                olga.reject(project, asked.id, reason="name the file as in the catalogue")
    place = f"/projects/{project}"
    return {"result": f"{place}/results/{masking}", **{name: f"{place}/{name}" for name in (*STEPS, *ROOMS)}}


def finish(client: Client, job: Job) -> str:
    """Wait for a job; the id of its result."""
    ended = client.wait(job)
    if ended.result is None:
        raise RuntimeError(f"a job failed: {ended.error}")
    return ended.result.id


def take_every(browser: Browser, office: Desk, pages: dict[str, str], into: Path) -> None:
    """Take every page whole, in every width, light and dark."""
    into.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        for dark in (False, True):
            with office.seen(browser, who="olga", width=width, dark=dark) as seen:
                seen.expected = ("404", "422")  # no control file yet, and no plan of what is not stated
                for name, path in {"projects": "/", "help": "/help/tour", **pages}.items():
                    shown = ready(seen, path)
                    keep(shown.screenshot(full_page=True), into / f"{name}-{width}-{'dark' if dark else 'light'}.png")


def take_rooms(browser: Browser, office: Desk, pages: dict[str, str], into: Path) -> None:
    """Take the pages that need a household survey, and the release that an officer decides on."""
    with office.seen(browser, who="olga") as seen:
        seen.expected = ("404", "422")
        take(seen, pages, ("data", "households", "indicators", "attacks", "release"), into)


def take_steps(browser: Browser, office: Desk, pages: dict[str, str], into: Path) -> None:
    """Take the steps, the tables made safe, the form of a study and two candidates side by side."""
    with office.seen(browser) as seen:
        seen.expected = ("404", "422")
        take(seen, pages, ("risk", "method", "map", "records", "result", "log"), into)
        page = ready(seen, pages["map"])
        page.locator("#new-study > summary").click()
        expect(page.locator("#size")).to_contain_text("candidates")
        keep(page.locator("#new-study").screenshot(), into / "study.png")
        page.locator("#compared > summary").click()
        for letter, place in (("A", 1), ("B", 5)):
            page.get_by_label(f"Candidate {letter}").select_option(index=place)
        expect(page.locator("#sides table")).to_have_count(2)
        keep(page.locator("#compared").screenshot(), into / "compare.png")
        page = ready(seen, pages["tables"])
        page.fill("#tolerance", "500")
        for table in (("Edu", "Race"), ("EmpTyp", "Edu")):
            for attribute in table:
                page.locator("#attributes").get_by_label(attribute, exact=True).check()
            page.click("#add-table")
        page.click("#make")
        expect(page.locator("#one")).to_be_visible(timeout=PATIENCE)
        keep(page.screenshot(full_page=True), into / "tables.png")


def take(seen: Seen, pages: dict[str, str], names: Sequence[str], into: Path) -> None:
    """Take some pages, or as much of them as tells what they are."""
    for name in names:
        page = ready(seen, pages[name])
        whole: int = page.evaluate("document.documentElement.scrollHeight")
        width: int = page.evaluate("innerWidth")
        high = min(HEIGHTS.get(name, whole), whole)
        picture = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": high})
        keep(picture, into / f"{name}.png")


def ready(seen: Seen, path: str) -> Page:
    """Open a page and wait until its charts are drawn."""
    page = seen.go(path)
    for chart in (".safeswap-map", ".safeswap-plot"):
        if page.locator(chart).count():
            page.wait_for_selector(f"{chart}[data-ready]", timeout=PATIENCE)
    page.evaluate(  # what is drawn when it comes into view
        """async () => {
            for (let place = 0; place < document.body.scrollHeight; place += innerHeight / 2) {
                scrollTo(0, place);
                await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
            }
            scrollTo(0, 0);
        }"""
    )
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)
    return page


def keep(picture: bytes, path: Path) -> None:
    """Write a picture with a palette."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
