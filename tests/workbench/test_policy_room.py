"""Policy, control file and overrides in the browser: from a release that is refused to one an officer answers for."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect
from tests.workbench.desk import Desk

from safeswap import datasets
from safeswap.files.write import write
from safeswap.reports.facts import Facts, tell_raised

STRICT = 'name = "strict"\n[limits]\ndistinct_numbers = 0.2\n'
INDICATORS = '[[indicators]]\nstatistic = "share"\nof = "tenure"\nlevel = "1"\nby = ["region"]\n'
LINKED = ("household", "stratum", "psu", "district", "municipality", "settlement", "birth_date", "interview_date")
"""Columns that a release of persons leaves out: each tells what another one hides."""


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A survey of persons cut in two: what is masked, and what was held out before."""
    folder = tmp_path_factory.mktemp("halves")
    write(datasets.household_survey(), folder / "all.csv")
    with (folder / "all.csv").open(newline="") as source:
        header, *rows = list(csv.reader(source))
    for name, part in (("survey.csv", rows[:4000]), ("held.csv", rows[4000:])):
        with (folder / name).open("w", newline="") as target:
            csv.writer(target).writerows([header, *part])
    return folder / "survey.csv", folder / "held.csv"


def test_above_a_policy_both_people_say_why(browser: Browser, office: Desk, halves: tuple[Path, Path]) -> None:
    project = office.project(halves[0], members=("olga",), identifier="person_id")
    with office.client("ana") as client:
        masking = client.wait(client.mask(project, {"method": "swap", "swap": ["education"], "rate": 0.05})).result
        assert masking is not None
    with office.seen(browser, who="olga") as seen:
        seen.expected = ("404", "422")  # no control file yet; then a policy that names no attack
        page = seen.go(f"/projects/{project}/attacks")
        page.get_by_text("Change the policy").click()
        policy = page.get_by_label("Policy, as TOML")
        policy.fill(STRICT.replace("distinct", "equal"))
        page.get_by_role("button", name="Keep this policy").click()
        expect(page.get_by_text("there is no attack 'equal_numbers'")).to_be_visible()
        policy.fill(STRICT)
        page.get_by_role("button", name="Keep this policy").click()
        expect(page.get_by_role("heading", name="Policy: strict")).to_be_visible()
    with office.seen(browser, who="ana") as seen:
        seen.expected = ("404",)
        page = seen.go(f"/projects/{project}/attacks")
        expect(page.get_by_text("Change the policy")).to_have_count(0)
        page.locator("#control input").set_input_files(halves[1])
        expect(page.locator("#control")).to_contain_text("held.csv, ")
        page.get_by_role("button", name="Run the attacks").click()
        expect(page.locator("#sentence")).to_contain_text("more than the policy allows")

        page = seen.go(f"/projects/{project}/indicators")
        page.get_by_text("As TOML").click()
        page.locator("#text").fill(INDICATORS)
        page.get_by_role("button", name="Compare before and after").click()
        expect(page.locator("#drawn tbody tr").first).to_be_visible()

        page = seen.go(f"/projects/{project}/release")
        for name in LINKED:
            page.locator("#drop").get_by_label(name, exact=True).check()
        page.locator("#publish-errors").check()
        page.click("#request")
        expect(page.locator("#state")).to_contain_text("distinct_numbers")
        page.locator("#above summary").click()
        page.fill("#ask-override", "Only sworn researchers get it.")
        page.click("#request")
        expect(page.locator("#state")).to_contain_text("waiting for approval")
    with office.seen(browser, who="olga") as seen:

        def tell_a_rise(route: Route) -> None:
            facts = Facts.parse(route.fetch().body())
            risen = [each.model_copy(update={"before": 44, "after": 48}) for each in facts.figures]
            route.fulfill(body=facts.replace(raised=tell_raised(risen)).dump("chair"), content_type="application/json")

        seen.page.route(re.compile(r"/reports/chair\?format=json$"), tell_a_rise)
        page = seen.go(f"/projects/{project}/release")
        expect(page.locator("#remarks")).to_contain_text("The release is riskier than the original")
        expect(page.locator("#policy-line")).to_contain_text("above the policy: distinct numbers")
        expect(page.locator("#remarks")).to_contain_text("standard errors")
        page.fill("#attack-override", "The contract forbids matching.")
        page.check("#looked")
        page.click("#approve")
        expect(page.locator("#state")).to_contain_text("approved")
        expect(page.locator("#attack-override-line")).to_contain_text("The contract forbids matching.")
