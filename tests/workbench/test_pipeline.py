"""The scenario strip and the pipeline panel: what is set in the browser is what Python does with the same key."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, Route, expect
from tests.workbench.desk import Desk, Seen

import safeswap as ss
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.vault import open_vault
from safeswap.service.routes.jobs import Job
from safeswap.service.work.tasks import read_data
from safeswap.workflow.step_table import assess_steps


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 records with a number among the columns."""
    path = tmp_path_factory.mktemp("small") / "small.csv"
    rows = [f"{'NESW'[i % 4]},{'fm'[i * 7 % 2]},{16 + (i * i * 13) % 70},{'abc'[i * i % 3]}" for i in range(600)]
    path.write_text("region,sex,years,job\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def shown(page: Page) -> list[str]:
    return [str(each.get_attribute("data-step")) for each in page.locator("#pipeline-steps li").all()]


def settled(page: Page) -> None:
    expect(page.locator("#pipeline")).to_have_attribute("aria-busy", "false")


def make_scenario(page: Page) -> None:
    page.click("#scenario-new")
    dialog = page.locator("#scenario-dialog")
    dialog.get_by_role("button", name="Select all").click()
    dialog.get_by_label("Search the attributes").fill("jo")
    dialog.get_by_role("button", name="None").click()
    dialog.get_by_label("Search the attributes").fill("")
    dialog.get_by_label("Band years").click()
    expect(dialog.locator("[role=status]")).to_contain_text("bands years at")
    with page.expect_navigation():
        dialog.get_by_role("button", name="Save").click()


def serious(page: Page) -> list[Any]:
    found = Axe().run(page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]


def test_a_scenario_and_a_pipeline_of_the_browser_are_those_of_python(browser: Browser, desk: Desk, file: Path) -> None:
    project = desk.project(file)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        seen.leave()
        make_scenario(page)
        seen.ready()
        for screen in ("risk", "release"):  # kept, on every page
            page = seen.go(f"/projects/{project}/{screen}")
            expect(page.locator("#scenario-strip")).to_contain_text("region, sex, years")
        page = seen.go(f"/projects/{project}/risk")
        expect(page.locator("#sentence")).to_contain_text("Scenario prosecutor")
        page = seen.go(f"/projects/{project}/method")
        assert shown(page) == ["recode"]
        page.locator("#method").select_option("suppress")
        expect(page.locator("#of-scenario")).to_be_checked()
        page.click("#add-step")
        expect(page.locator('[data-step="suppress"]')).to_be_visible()
        settled(page)
        page.locator("#method").select_option("swap")
        page.get_by_label("job: Swap").check()
        page.get_by_label("years: Fixed").check()  # a banded number is a category
        expect(page.locator("#plan")).to_contain_text("feasible")
        page.click("#add-step")
        expect(page.locator('[data-step="swap"]')).to_be_visible()
        settled(page)
        page.get_by_label("Move up swap").focus()  # by the keyboard
        page.keyboard.press("Enter")
        expect(page.locator("#pipeline-steps li").nth(1)).to_have_attribute("data-step", "swap")
        settled(page)
        expect(page.get_by_label("Move up swap")).to_be_focused()
        page.get_by_label("Switch off suppress").click()
        settled(page)
        page.click("#undo-step")
        settled(page)
        expect(page.get_by_label("Switch off suppress")).to_be_visible()
        assert shown(page) == ["recode", "swap", "suppress"]
        told = page.locator('[data-step="suppress"] [data-scenario="prosecutor"]').inner_text()
        assert told.endswith("→ 0")
        for dark in ("light", "dark"):
            page.emulate_media(color_scheme=dark)  # type: ignore[arg-type]
            assert serious(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.getElementById('pipeline').scrollWidth <= innerWidth")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_text("Save or read the project").click()
        with page.expect_download() as download:
            page.click("#save-toml")
        text = Path(download.value.path()).read_text(encoding="utf-8")
        page.click("#run-pipeline")
        expect(page.locator("#job .good")).to_be_visible()
        seen.leave()
        page.get_by_role("link", name="The result").first.click()
        seen.ready()
        expect(page.locator('#scores [data-scenario="prosecutor"]').first).to_be_visible()
        scores = {
            str(each.get_attribute("data-measure")): float(str(each.get_attribute("data-value")))
            for each in page.locator("#scores .value").all()
        }
    stated = ss.Project.parse(text)
    assert stated.pipeline.names == ("recode", "swap", "suppress")
    key = open_vault(desk.settings).project_key(project)
    data = read_data(Store(desk.settings), project, 1)
    masked = ss.mask(data, stated.pipeline, key=key)
    figures = {each.measure: each.value for each in ss.assess(masked, scenario=stated.scenarios[0])}
    assert scores == figures
    with desk.client() as client:
        newest = client._send("GET", f"/projects/{project}/maskings?limit=1").json()["items"][0]
        table = client.step_table(project)
    again = ss.mask(data, newest["spec"]["spec"], key=key)
    assert again.data.table.equals(masked.data.table)  # the same bytes
    exact = assess_steps(masked, scenarios=stated.scenarios)
    assert [row["blanked"] for row in table.steps] == [row.blanked for row in exact.rows]


def test_a_step_that_no_longer_fits_says_so_in_the_page(browser: Browser, desk: Desk, file: Path) -> None:
    project = desk.project(file)
    with desk.client() as client:
        steps = [
            {"step": "drop", "attributes": ["job"]},
            {"method": "swap", "swap": ["nowhere"], "rate": 0.1},
            {"method": "pram", "attributes": ["sex"]},
        ]
        version = client.settings(project).version
        client.change_settings(
            project, version=version, steps=steps, scenarios=[{"name": "own", "keys": ["job", "sex"]}]
        )
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/method")
        settled(page)
        expect(page.locator('[data-step="swap"] [role=alert]')).to_contain_text("nowhere")
        expect(page.locator('[data-step="pram"]')).to_contain_text("Waits")
        expect(page.locator("#run-pipeline")).to_be_disabled()
        page.get_by_label("Remove swap").click()
        settled(page)
        expect(page.locator('[data-step="pram"]')).to_contain_text("unsafe")
        expect(page.locator("#run-pipeline")).to_be_enabled()
        page.locator("#read-toml").set_input_files(
            {"name": "p.toml", "mimeType": "text/plain", "buffer": b'[[scenario]]\nkeys = ["nobody"]\n'}
        )
        expect(page.locator("#problem")).to_contain_text("nobody")
        seen.expected = ("422",)


class Clicks:
    """A hand that counts."""

    def __init__(self, page: Page) -> None:
        self.page, self.made = page, 0

    def __call__(self, what: Locator) -> None:
        what.click()
        self.made += 1

    def link(self, name: str) -> None:
        self(self.page.get_by_role("link", name=name).first)

    def button(self, name: str) -> None:
        self(self.page.get_by_role("button", name=name, exact=True).first)

    def recode_and_suppress(self, seen: Seen) -> None:
        """From the data to a masking: what the advice proposes, then suppression."""
        seen.leave()
        self.link("Next: risk")
        seen.ready()
        seen.leave()
        self(self.page.locator("#keep-scenario"))
        seen.ready()
        self.button("Ask for advice")
        self.button("Add to the pipeline")
        expect(self.page.locator("#advice-note")).to_contain_text("Added")
        seen.leave()
        self.link("Suppress these")
        self.page.wait_for_url("**/method?*")
        seen.ready()
        self.button("Add and mask")
        expect(self.page.locator("#job .good")).to_contain_text("blanked")
        expect(self.page.locator("#job .good")).not_to_contain_text("unsafe")
        expect(self.page.locator("#maskings tr").first).to_contain_text("recode")

    def request(self) -> None:
        """Request the release of a masking."""
        self.link("Release it")
        self(self.page.locator("#request"))

    def release(self) -> Path:
        """From a request to the downloaded bundle."""
        self(self.page.locator("#looked"))
        self(self.page.locator("#approve"))
        with self.page.expect_download() as download:
            self(self.page.locator("#download"))
        return download.value.path()


def test_few_clicks_lead_from_the_data_to_the_bundle(
    browser: Browser, desk: Desk, whole_survey: Path, tmp_path: Path
) -> None:
    # Two releases of the same records would need a reason.
    lines = whole_survey.read_text(encoding="utf-8").splitlines()
    files = [tmp_path / f"{name}.csv" for name in ("swapped", "recoded")]
    for number, file in enumerate(files):
        first = 5000 + 2000 * number
        file.write_text("\n".join([lines[0], *lines[first : first + 2000]]) + "\n", encoding="utf-8")
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{desk.project(files[0])}/data")
        swap = Clicks(page)
        seen.leave()
        swap.link("Pipeline")
        seen.ready()
        swap(page.get_by_label("Race: Swap", exact=True))
        swap.button("Add and mask")
        swap.request()
        swap.release()
        assert swap.made <= 9
        page = seen.go(f"/projects/{desk.project(files[1])}/data")
        recode = Clicks(page)
        recode.recode_and_suppress(seen)
        recode.request()
        recode.release()
        assert recode.made <= 15


def test_columns_that_reveal_a_change_are_left_out_by_one_click(browser: Browser, desk: Desk) -> None:
    nested = ["stratum", "psu", "district", "municipality", "settlement"]
    with desk.client() as client:
        project = desk.new_project(client, "Homes")
        client.wait(client._post(Job, f"/projects/{project}/data-from-sample", {"sample": "household_survey"}))
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        recode = Clicks(page)
        recode.recode_and_suppress(seen)
        recode.request()
        offers = page.locator(".leave-out")
        expect(offers).to_have_text(
            [f"Leave out {', '.join(nested)} and request again", "Leave out region and request again"]
        )
        assert "reveals it" in page.inner_text("#job")
        recode(offers.first)
        expect(offers).to_have_count(0)
        expect(page.locator("#policy-line")).to_contain_text("The best of those without a limit: distinct numbers")
        folded = page.locator("#step-checks")
        expect(folded.locator("summary")).to_contain_text("of the single steps, all passed")
        assert page.locator("#checks li.ok").count() == page.locator("#checks li").count() > 0
        told = folded.locator("li bdi").all_text_contents()
        assert {text.split(": ")[0] for text in told} == {"recode", "suppress"}
        with ZipFile(recode.release()) as bundle:
            data = next(name for name in bundle.namelist() if name.endswith("data.csv"))
            columns = bundle.read(data).decode().splitlines()[0].split(",")
        assert "region" in columns
        assert not set(nested) & set(columns)
        assert recode.made <= 15


def test_only_what_a_stranger_may_know_is_proposed_as_keys(browser: Browser, desk: Desk) -> None:
    with desk.client() as client:
        project = desk.new_project(client, "Homes to look at")
        client.wait(client._post(Job, f"/projects/{project}/data-from-sample", {"sample": "household_survey"}))
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/risk")
        ticked = [box.get_attribute("value") for box in page.locator("#keys input:checked").all()]
        assert ticked == ["region", "relationship", "sex", "marital_status", "education", "labour_status"]


def test_without_a_scenario_none_is_named_and_one_can_be_set_up(browser: Browser, desk: Desk, file: Path) -> None:
    project = desk.project(file)
    refused = {"view": "individual", "problem": "State the keys.", "bars": [], "sensitive": [], "steps": 0}
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/risk")
        with page.expect_response("**/risk-views/groups"):
            page.get_by_role("tab").nth(1).click()
        expect(page.locator("#sentence")).to_contain_text("same values of")
        expect(page.locator("#sentence")).not_to_contain_text("Scenario")
        page.route("**/risk-views/individual", lambda route: route.fulfill(json=refused))
        page.get_by_role("tab").nth(2).click()
        expect(page.get_by_role("button", name="Edit the scenario")).to_have_count(0)
        page.get_by_role("button", name="Set up a scenario").click()
        expect(page.locator("#scenario-dialog")).to_contain_text("New scenario")


def test_the_keyboard_goes_on_from_a_masking(browser: Browser, desk: Desk, file: Path) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{desk.project(file)}/method")
        settled(page)
        page.get_by_label("region: Swap", exact=True).check()
        page.get_by_role("button", name="Add to the pipeline").click()
        expect(page.locator("#run-pipeline")).to_be_enabled()
        page.locator("#run-pipeline").press("Enter")
        expect(page.locator("#job .good")).to_contain_text("Masked")
        expect(page.locator("#job")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="The result").first).to_be_focused()


@pytest.mark.parametrize(("after", "is_raised"), [(48, False), (120, True)])
def test_what_the_noise_may_be_does_not_count_as_a_raise(
    browser: Browser, desk: Desk, file: Path, after: int, is_raised: bool
) -> None:
    project = desk.project(file)
    with desk.client() as client:
        version = client.settings(project).version
        step = {"method": "swap", "swap": ["job"], "rate": 0.1}
        scenarios = [{"name": "own", "keys": ["job", "sex"], "tolerance": 3}]
        client.change_settings(project, version=version, steps=[step], scenarios=scenarios)
        table = client.step_table(project).model_dump(mode="json")
    table["spreads"]["own"] = 33
    table["steps"][0]["figures"][0] |= {"before": 41, "after": after}
    with desk.seen(browser) as seen:
        seen.page.route("**/step-table", lambda route: route.fulfill(json=table))
        page = seen.go(f"/projects/{project}/method")
        told = page.locator('[data-scenario="own"]')
        raises = " (raises the risk again)" if is_raised else ""
        expect(told).to_have_text(f"own: unsafe 41 ± 33 → {after} ± 33{raises}")


def test_while_a_plan_is_counted_the_one_before_is_not_shown(browser: Browser, desk: Desk, file: Path) -> None:
    project = desk.project(file)
    held: list[Route] = []
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/method")
        settled(page)
        page.get_by_label("region: Swap", exact=True).check()
        expect(page.locator("#plan")).to_contain_text("feasible")
        page.route("**/plan", lambda route: held.append(route))  # noqa: PLW0108  (Playwright marks it)
        page.fill("#rate", "0.2")
        expect(page.locator("#plan")).to_have_text("…")
        held[-1].continue_()
        page.unroute("**/plan")
        expect(page.locator("#plan")).to_contain_text("feasible")


def test_a_suppression_under_a_scenario_asks_of_its_keys_alone(browser: Browser, desk: Desk, file: Path) -> None:
    project = desk.project(file)
    with desk.client() as client:
        path = f"/projects/{project}/settings"
        found = client._send("GET", path)
        scenario = {"name": "own", "keys": ["region", "sex"], "tolerance": 3}
        client._send(
            "PATCH",
            path,
            json={"scenarios": [scenario], "scenario": "own"},
            headers={"If-Match": found.headers["etag"]},
        )
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/method?method=suppress")
        offered = page.locator("#fields fieldset", has=page.locator("legend", has_text="Keep")).locator("input")
        assert offered.evaluate_all("boxes => boxes.map((box) => box.value)") == ["region", "sex"]
        page.uncheck("#of-scenario")
        expect(offered).to_have_count(4)


def test_hints_speak_the_words_of_the_form(browser: Browser, desk: Desk, file: Path) -> None:
    refused = {"code": "no-place", "detail": "the missing_geography", "hint": 'set missing_keys="own", or on_unmatched'}
    with desk.seen(browser) as seen:
        seen.expected = ("422", "404")
        page = seen.go(f"/projects/{desk.project(file)}/method")
        settled(page)
        page.route("**/plan", lambda route: route.fulfill(status=422, json=refused))
        page.locator("#method").select_option("edit_1990")
        page.get_by_label("Add to geography").select_option("region")
        page.locator("#fields input[required]").fill("0.1")
        page.locator("#fields fieldset", has=page.locator("legend", has_text="Keys")).get_by_label("sex").check()
        told = "The missing_geography. Set “Missing keys”: own, or “On unmatched”."
        expect(page.locator("#other-plan")).to_have_text(told)
        refused["hint"] = "PUT /projects/{project_id}/data, and wait for its job"
        page.locator("#fields input[required]").fill("0.2")
        expect(page.locator("#other-plan")).to_have_text("The missing_geography.")
