"""The workbench in Firefox: every page is shown and fits a phone, no script fails, and the main controls work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.firefox import ESCAPE, Firefox, launched
from tests.workbench.desk import Desk

from safeswap.service.routes.jobs import Job

PAGES = ("data", "risk", "method", "map", "records", "release", "households", "indicators", "attacks", "tables", "log")
CHARTS = {"map": ".safeswap-map", "records": ".safeswap-plot"}
FAILS = "document.querySelector('#problem:not([hidden])')?.innerText ?? ''"


@pytest.fixture(scope="module")
def worked(desk: Desk) -> dict[str, str]:
    """The shipped household survey with a scenario, a pipeline, and one result of each kind."""
    with desk.client() as client:
        project = desk.new_project(client, "Homes")
        client.wait(client._post(Job, f"/projects/{project}/data-from-sample", {"sample": "household_survey"}))
        keys, steps = ["region", "sex", "education"], [{"method": "swap", "swap": ["tenure"], "rate": 0.1}]
        client.change_settings(
            project,
            version=client.settings(project).version,
            scenarios=[{"name": "nosy neighbour", "keys": keys, "tolerance": 3}],
            steps=[*steps, {"method": "pram", "attributes": ["education"]}],
        )
        masking = _result(client.wait(client.mask(project, steps[0])))
        study = client.study(project, attributes=["tenure", "education"], replicates=1)
        plot = client._post(Job, f"/projects/{project}/confidentiality", {"masking": masking, "keys": keys})
        for job in (study, plot):
            _result(client.wait(job))
        return {"project": f"/projects/{project}", "result": f"/projects/{project}/results/{masking}"}


def _result(job: Job) -> str:
    assert job.result is not None, job.error
    return job.result.id


@pytest.fixture(scope="module")
def firefox(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    with launched(tmp_path_factory.mktemp("firefox")) as running:
        running.go(f"{desk.address}/log-in")
        secret: dict[str, Any] = {"name": desk.settings.cookie, "value": desk.session("ana"), "httpOnly": True}
        running.send("WebDriver:AddCookie", cookie=secret)
        yield running


def show(firefox: Firefox, address: str) -> None:
    """Open a page and wait until it has shown all it has to show."""
    firefox.go(address)
    chart = CHARTS.get(address.rpartition("/")[2], "")
    firefox.wait("document.documentElement.dataset.ready")
    assert (firefox.value("document.documentElement.dataset.ready"), firefox.value(FAILS)) == ("true", "")
    if chart:
        firefox.wait("document.querySelector(arguments[0])", f"{chart}[data-ready]")


def test_every_page_is_shown_and_fits_a_phone(firefox: Firefox, desk: Desk, worked: dict[str, str]) -> None:
    paths = ["/", "/help/tour", *(f"{worked['project']}/{name}" for name in PAGES), worked["result"]]
    firefox.set_width(390)
    seen: dict[str, tuple[Any, ...]] = {}
    for path in paths:
        show(firefox, desk.address + path)
        heading = firefox.value("[...document.querySelectorAll('h1')].map((each) => each.innerText).join()")
        beyond = firefox.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        seen[path] = (bool(heading), beyond, firefox.errors())
    assert seen == dict.fromkeys(paths, (True, 0, []))


def test_the_main_controls_work(firefox: Firefox, desk: Desk, worked: dict[str, str]) -> None:
    home = desk.address + worked["project"]
    firefox.set_width(1280)

    show(firefox, f"{home}/risk")  # a ticked key shows other figures
    before = firefox.value("document.querySelector('#sentence').innerText")
    firefox.click("#keys input[value=tenure]")
    firefox.wait(
        "document.querySelector('#sentence').innerText !== arguments[0] "
        "&& document.querySelector('#panel').getAttribute('aria-busy') === 'false'",
        before,
    )
    assert "combinations of values" in firefox.value("document.querySelector('#sentence').innerText")

    show(firefox, f"{home}/method")  # a step is moved, and stays where it was moved
    steps = "[...document.querySelectorAll('#pipeline-steps li')].map((each) => each.dataset.step)"
    counted = "document.querySelector('#pipeline').getAttribute('aria-busy') === 'false'"
    firefox.wait(counted)
    assert firefox.value(steps) == ["swap", "pram"]
    firefox.click("[aria-label='Move down swap']")
    firefox.wait(f"({steps}).join() === 'pram,swap' && {counted}")
    show(firefox, f"{home}/method")
    assert firefox.value(steps) == ["pram", "swap"]

    show(firefox, f"{home}/map")  # points are drawn, and a rule chooses one
    assert firefox.value("document.querySelectorAll('.safeswap-map .point').length") > 3
    firefox.click("[name=rule][value=cap_risk]")
    firefox.wait("document.querySelector('#choice').innerText.length > 20")

    show(firefox, f"{home}/data")  # a dialog opens, and Escape closes it
    firefox.click("[aria-label='Levels of region']")
    firefox.wait("document.querySelector('dialog[open]')")
    firefox.press(ESCAPE)
    firefox.wait("!document.querySelector('dialog[open]')")

    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = firefox.value(ground)
    firefox.click("#theme-switch")
    firefox.wait(f"{ground} !== arguments[0]", light)
    assert firefox.errors() == []
