"""The rooms beside the steps: households, indicators, attacks. Figures are those of the file, counted again here."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Route, expect
from tests.workbench.desk import Desk

from safeswap import datasets
from safeswap.measures.utility.estimates import Line
from safeswap.measures.utility.indicators import parse_indicators
from safeswap.service.routes.jobs import Job

ROOMS = ("households", "indicators", "attacks")
INDICATORS = '[[indicators]]\nstatistic = "share"\nof = "tenure"\nlevel = "1"\nby = ["region"]\nrelative = 0.001\n'


@pytest.fixture(scope="module")
def survey_of_homes(desk: Desk) -> dict[str, str]:
    """The shipped household survey with a scenario, and a masking of it."""
    with desk.client() as client:
        project = desk.new_project(client, "Homes")
        client.wait(client._post(Job, f"/projects/{project}/data-from-sample", {"sample": "household_survey"}))
        path = f"/projects/{project}/settings"
        scenario = {"name": "nosy neighbour", "keys": ["region", "sex", "education"], "tolerance": 3}
        etag = client._send("GET", path).headers["etag"]
        client._send("PATCH", path, json={"scenarios": [scenario]}, headers={"If-Match": etag})
        made = client.wait(client.mask(project, {"method": "swap", "swap": ["tenure"], "rate": 0.2}))
        return {"project": project, "masking": made.result.id}


def test_households_and_areas_are_those_of_the_file(browser: Browser, desk: Desk, survey_of_homes: Any) -> None:
    project, rows = survey_of_homes["project"], datasets.household_survey().table.to_pylist()
    sizes = Counter(Counter(row["household"] for row in rows).values())
    districts = Counter(str(row["district"]) for row in rows)
    with desk.seen(browser) as seen, desk.client() as client:
        page = seen.go(f"/projects/{project}/households")
        expect(page.locator("#homes-line")).to_contain_text(f"{sum(sizes.values()):,} households")
        told = page.locator("#sizes svg").get_attribute("aria-label").split("; ")
        assert [int(each.rpartition(": ")[2]) for each in told[:5]] == [sizes[size] for size in range(1, 6)]
        assert sum(int(each.rpartition(": ")[2]) for each in told) == sum(sizes.values())
        expect(page.locator("#tiles .inner li").first).to_be_visible()
        inner = page.locator("#tiles .inner li").evaluate_all("(all) => all.map((one) => one.innerText.split('\\n'))")
        assert dict(inner) == {name: f"{number:,}" for name, number in districts.items()}

        spec = {"method": "household_swap", "risk_variables": ["sex"], "k": 2, "rate": 0.02, "similar": [["tenure"]]}
        page.locator("#risk-variables").get_by_label("education", exact=True).uncheck()
        page.locator("#similar").get_by_label("tenure", exact=True).check()
        page.get_by_label("k", exact=True).fill("2")
        page.get_by_label("k", exact=True).press("Tab")
        plan = client.plan(project, spec)
        expect(page.locator("#plan")).to_contain_text(plan.sentence)
        shown = page.locator("#levels tbody td:nth-child(2)").all_inner_texts()
        assert shown == [f"{number:,}" for number in plan.details["at_risk"].values()]
        leaving = page.locator("#levels tbody td:nth-child(4)").all_inner_texts()
        found = [float(each.rstrip("%")) / 100 for each in leaving]
        assert found == pytest.approx(list(plan.details["crossing"].values()), abs=0.001)


def test_the_page_of_households_is_there_before_its_figures(browser: Browser, desk: Desk, survey_of_homes: Any) -> None:
    held: list[Route] = []
    with desk.seen(browser) as seen:
        for path in ("households", "plan"):
            seen.page.route(f"**/api/v1/projects/*/{path}", lambda route: held.append(route))  # noqa: PLW0108
        page = seen.go(f"/projects/{survey_of_homes['project']}/households")
        expect(page.get_by_role("heading", name="Households", exact=True)).to_be_visible()
        expect(page.locator("#plan-form")).to_be_visible()
        expect(page.locator("#sizes")).to_have_text("Counting…")
        expect(page.locator("#plan")).to_have_text("Counting…")
        expect(page.locator("#mask")).to_be_disabled()
        for _ in range(3_000):  # asked for in turn, not at once
            if len(held) == 2:
                break
            page.wait_for_timeout(20)
        assert len(held) == 2
        for route in held:
            route.continue_()
        expect(page.locator("#homes-line")).to_contain_text("households")
        expect(page.locator("#levels tbody tr").first).to_be_visible()


def test_indicators_before_are_weighted_shares_and_what_moved_is_flagged(
    browser: Browser, desk: Desk, survey_of_homes: Any
) -> None:
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    survey = datasets.household_survey()
    no_answer = {"None", *survey.schema["tenure"].missing}
    for row in survey.table.to_pylist():
        if str(row["tenure"]) not in no_answer:
            totals[str(row["region"])][0] += row["weight"] * (str(row["tenure"]) == "1")
            totals[str(row["region"])][1] += row["weight"]
    regions = {label: level for level, label in survey.schema["region"].labels.items()}
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{survey_of_homes['project']}/indicators")
        assert "weighted by weight" in page.inner_text("#design")
        assert "stratum (stratum)" in page.inner_text("#design")
        page.get_by_text("As TOML").click()
        page.locator("#text").fill('[[indicators]]\nstatistic = "share"\nof = "tenure"\n')
        expect(page.locator("#lines")).to_be_hidden()  # the form does not pretend to know what was typed
        seen.expected = ("422",)
        page.get_by_role("button", name="Compare before and after").click()
        expect(page.locator("#problem")).to_contain_text("a share needs 'level'")
        page.locator("#text").fill(INDICATORS)
        page.get_by_role("button", name="Compare before and after").click()
        expect(page.locator("#drawn tbody tr")).to_have_count(len(totals))
        cells = page.locator("#drawn tbody tr").evaluate_all(
            "(all) => all.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
        )
    assert all(each[0].startswith("share of tenure = owned outright by region: ") for each in cells)
    for title, before, after, _, note in cells:
        region = regions[title.rpartition(": ")[2]]
        assert float(before) == pytest.approx(totals[region][0] / totals[region][1], rel=1e-3)
        change = abs(float(after) / float(before) - 1)
        if abs(change - 0.001) > 0.00012 / float(before):  # four digits tell the side
            assert note.startswith("beyond tolerance") == (change > 0.001)


def test_levels_are_recoded_by_their_labels(browser: Browser, desk: Desk, survey_of_homes: Any) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{survey_of_homes['project']}/method")
        page.locator("#method").select_option("recode:recode")
        page.locator("#fields [name=attribute]").select_option("marital_status")
        titles = page.locator(".recoding tbody th").all_inner_texts()
        assert {"never married 1", "married 2"} < set(titles)
        page.get_by_label("never married becomes", exact=True).fill("single")
        page.click("#add-step")
        expect(page.locator('[data-step="recode"]')).to_contain_text("never married to single")
        page.click("#undo-step")
        expect(page.locator('[data-step="recode"]')).to_have_count(0)


def test_indicators_are_stated_in_a_form(browser: Browser, desk: Desk, survey_of_homes: Any) -> None:
    project = survey_of_homes["project"]
    with desk.seen(browser) as seen, desk.client() as client:
        seen.expected = ("422",)  # a formula that cannot be read
        page = seen.go(f"/projects/{project}/indicators")
        expect(page.locator("#text")).to_be_hidden()
        page.get_by_role("button", name="Suggest some").click()
        first = page.locator("#lines li").first
        assert [each.input_value() for each in first.locator("select").all()[:2]] == ["share", "relationship"]
        while page.locator("#lines li").count():
            page.get_by_label("Remove indicator 1", exact=True).click()
        expect(page.locator("#compare")).to_be_disabled()
        page.get_by_role("button", name="Add an indicator").click()
        offered = page.get_by_label("Attribute of indicator 1").locator("option").all_text_contents()
        assert "tenure" in offered
        assert not {"age", "income", "weight", "household"} & set(offered)
        page.get_by_label("Attribute of indicator 1").select_option("tenure")
        page.get_by_label("Level of indicator 1").select_option("1")
        page.get_by_label("Domains of indicator 1, 1").select_option("region")
        expect(page.get_by_label("Domains of indicator 1, 1")).to_be_focused()
        page.get_by_label("Tolerable change of indicator 1").fill("0.1")
        for place, statistic in enumerate(("ratio", "total", "quantile", "regression"), start=2):
            page.get_by_role("button", name="Add an indicator").click()
            page.get_by_label(f"Statistic of indicator {place}").select_option(statistic)
        assert "tenure" not in page.get_by_label("Attribute of indicator 2").locator("option").all_text_contents()
        page.get_by_label("Attribute of indicator 2").select_option("expenditure")
        page.get_by_label("Denominator of indicator 2").select_option("income")
        page.get_by_label("Attribute of indicator 3").select_option("")
        page.get_by_label("Domains of indicator 3, 1").select_option("sex")
        page.get_by_label("Domains of indicator 3, 2").select_option("education")
        page.get_by_label("Unit of the tolerance of indicator 3").select_option("errors")
        page.get_by_label("Tolerable change of indicator 3").fill("0.5")
        page.get_by_label("Share below of indicator 4").fill("0.25")
        page.get_by_role("button", name="Compare before and after").click()
        expect(page.locator("#problem")).to_contain_text("Indicator 5 has no formula, such as income ~ age + sex.")
        page.get_by_label("Formula of indicator 5").fill("income ~")
        page.get_by_role("button", name="Compare before and after").click()
        expect(page.locator("#problem")).to_contain_text("Indicator 5")
        expect(page.locator("#problem")).not_to_contain_text("[[")
        page.get_by_label("Formula of indicator 5").fill("income ~ age + sex")
        page.get_by_role("button", name="Compare before and after").click()
        expect(page.locator("#drawn")).to_contain_text("ratio of expenditure per income")
        newest = client._send("GET", f"/projects/{project}/assessments?limit=1").json()["items"][0]
        assert parse_indicators(newest["spec"]["indicators"]).lines == (
            Line(statistic="share", of="tenure", level="1", by=("region",), relative=0.001),
            Line(statistic="ratio", of="expenditure", per="income", relative=0.05),
            Line(statistic="total", by=("sex", "education"), errors=0.5),
            Line(statistic="quantile", of="age", at=0.25, relative=0.05),
            Line(statistic="regression", formula="income ~ age + sex", relative=0.05),
        )
        stated = newest["spec"]["indicators"]
        page = seen.go(f"/projects/{project}/indicators")  # the list of the last comparison
        expect(page.locator("#lines li")).to_have_count(5)
        page.get_by_text("As TOML").click()
        assert parse_indicators(page.locator("#text").input_value()) == parse_indicators(stated)
        page.locator("#file").set_input_files(
            {"name": "i.toml", "mimeType": "text/plain", "buffer": b'least = 50\n[[indicators]]\nstatistic = "total"\n'}
        )
        expect(page.locator("#lines")).to_be_hidden()
        page.get_by_role("button", name="Compare before and after").click()
        expect(page.locator("#lines li")).to_have_count(1)
        assert page.locator("#text").input_value().startswith("least = 50\n\n[[indicators]]")


def test_attacks_are_those_of_the_service(browser: Browser, desk: Desk, survey_of_homes: Any) -> None:
    with desk.seen(browser) as seen, desk.client() as client:
        seen.expected = ("404",)  # without a control file
        page = seen.go(f"/projects/{survey_of_homes['project']}/attacks")
        page.get_by_role("button", name="Run the attacks").click()
        expect(page.locator("#drawn tbody tr").first).to_be_visible()
        run = client._send("GET", f"/projects/{survey_of_homes['project']}/attacks").json()["items"][0]["id"]
        found = {each["attack"]: each for each in client.attacked(survey_of_homes["project"], run).summary["attacks"]}
        cells = page.locator("#drawn tbody tr").evaluate_all(
            "(all) => all.map((row) => [...row.cells].slice(0, 3).map((cell) => cell.innerText))"
        )
        assert {name for name, _, _ in cells} == {name.replace("_", " ") for name in found}
        for name, baseline, success in cells:
            outcome = found[name.replace(" ", "_")]
            assert [baseline, success] == [f"{100 * outcome[part]:.1f}%" for part in ("baseline", "success")]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_room_keeps_anybody_out_or_scrolls_sideways(
    browser: Browser, desk: Desk, survey_of_homes: Any, dark: bool
) -> None:
    sizes: list[int] = []
    with desk.seen(browser, dark=dark, width=390, height=844) as seen:
        seen.expected = ("404",)
        seen.page.on("response", lambda answer: sizes.append(int(answer.headers.get("content-length", 0))))
        for room in ROOMS:
            sizes.clear()
            page = seen.go(f"/projects/{survey_of_homes['project']}/{room}")
            expect(page.locator("main [aria-busy=true]")).to_have_count(0)
            if room == "households":
                expect(page.locator("#levels tbody tr").first).to_be_visible()
            assert sum(sizes) < 1_000_000
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            page.evaluate("document.querySelectorAll('main details').forEach((box) => { box.open = true; })")
            faults = Axe().run(page).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"][:150]) for each in faults] == []


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as the guidelines for accessible content define it."""
    lights = []
    for text in (one, other):
        parts = [int(part) / 255 for part in text.removeprefix("rgb(").removesuffix(")").split(",")]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        lights.append(0.2126 * r + 0.7152 * g + 0.0722 * b)
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_tables_before_and_after_are_drawn(browser: Browser, desk: Desk, survey_of_homes: Any, dark: bool) -> None:
    project, masking = survey_of_homes["project"], survey_of_homes["masking"]
    path = f"/projects/{project}/maskings/{masking}/table"
    with desk.client() as client:
        cells = client._send("GET", path, params={"attributes": ["tenure", "sex"]}).json()["cells"]
    open_cells = [each for each in cells if each["changed"] is not None]
    with desk.seen(browser, dark=dark) as seen:
        page = seen.go(f"/projects/{project}/results/{masking}")
        page.get_by_label("Attribute of the rows").select_option("tenure")
        page.get_by_label("Attribute of the columns").select_option("sex")
        page.get_by_label("How it is shown").select_option("heat")
        expect(page.locator(".heat td[data-residual]")).to_have_count(len(open_cells))
        found = page.locator(".heat td[data-residual]").evaluate_all(
            """(all) => all.map((cell) => {
                const { color, backgroundColor } = getComputedStyle(cell);
                return [cell.dataset.residual, color, backgroundColor];
            })"""
        )
        wanted = [(each["after"] - each["before"]) / each["before"] ** 0.5 for each in open_cells]
        assert sorted(float(value) for value, _, _ in found) == pytest.approx(sorted(wanted))
        assert min(contrast(ink, ground) for _, ink, ground in found) >= 4.5
        page.get_by_label("Attribute of the columns").select_option("")
        expect(page.locator("#before .dumbbells tbody tr").first).to_be_visible()
        assert page.locator("#before .dumbbell circle").count() >= 4


def test_numbers_are_drawn_in_bands_that_hold_enough(browser: Browser, desk: Desk, survey_of_homes: Any) -> None:
    project = survey_of_homes["project"]
    ages = [each for each in datasets.household_survey().table["age"].to_pylist() if each is not None]
    with desk.seen(browser) as seen, desk.client() as client:
        breaks = client._send("GET", f"/projects/{project}/bands", params={"attribute": "age"}).json()["breaks"]
        page = seen.go(f"/projects/{project}/data")
        box = page.locator("#attributes tr", has=page.get_by_label("Kind of age", exact=True)).locator(".histogram-box")
        box.scroll_into_view_if_needed()
        told = box.locator(".histogram").get_attribute("aria-label").split("; ")
    ends = [float("-inf"), *breaks, float("inf")]
    truth = [sum(low <= age < high for age in ages) for low, high in pairwise(ends)]
    assert [int(each.rpartition(": ")[2].replace(",", "")) for each in told] == truth
    assert min(truth) >= 3


def test_bands_of_large_numbers_begin_at_numbers_that_differ(browser: Browser, desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    file.write_text("amount,sex\n" + "".join(f"{10_000_000 + 7 * i},{'fm'[i % 2]}\n" for i in range(3000)))
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{desk.project(file)}/data")
        chart = page.locator("#attributes .histogram")
        expect(chart).to_be_visible()
        ticks = [text.text_content() for text in chart.locator("text.tick").all()]
        boxes = [text.bounding_box() for text in chart.locator("text.tick").all()]
    assert len(set(ticks)) == len(ticks) > 1
    assert all(re.fullmatch(r"10,0\d\d,000", str(tick)) for tick in ticks)
    assert all(one["x"] + one["width"] < other["x"] for one, other in pairwise(boxes))


def test_what_is_true_of_several_figures_is_said_once(browser: Browser, desk: Desk, survey_of_homes: Any) -> None:
    project = survey_of_homes["project"]
    with desk.seen(browser) as seen, desk.client() as client:
        newest = client._send("GET", f"/projects/{project}/maskings?limit=1").json()["items"][0]
        sentences = [score["sentence"] for score in newest["summary"]["scores"]]
        page = seen.go(f"/projects/{project}/results/{newest['id']}")
        shown = page.locator("#scores").inner_text()
        described = client._send("GET", f"/projects/{project}/description").json()["attributes"]
        rows, columns = (page.get_by_label(f"Attribute of the {way}").input_value() for way in ("rows", "columns"))
    words = "Not compared, since numeric: age, income, expenditure."
    assert sum(words in each for each in sentences) > 2
    assert rows == "tenure"  # what was swapped, by the first attribute that was not and is of no design
    open_ones = [each for each in described if each["kind"] in ("nominal", "ordinal", "geography")]
    assert columns == next(e["name"] for e in open_ones if e["name"] != "tenure" and not e.get("design"))
    assert shown.count(words) == 1
    assert "joint table of all" in shown
