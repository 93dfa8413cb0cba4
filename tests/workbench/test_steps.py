"""Data, risk, method, tables, release and people: what is done on a screen is what the interface says was done."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request, expect
from tests.workbench.desk import Desk

from safeswap.service.routes.jobs import Job

KEYS = ["Age", "EmpTyp", "Edu", "MS", "Race", "Sex"]
COMBINATIONS = {"keys": KEYS, "tolerance": 3, "missing": "none"}


@pytest.fixture(scope="module")
def project(desk: Desk, survey: Path) -> str:
    return desk.project(survey)


def _asked(desk: Desk, method: str, path: str, body: Any = None) -> Any:
    with desk.client("ana") as client:
        return client._send(method, path, **({} if body is None else {"json": body})).json()


def _unsafe(desk: Desk, project: str) -> str:
    """What the interface says of the combinations that the screen shows at first."""
    asked = {"combinations": COMBINATIONS, "pipeline": True}
    said = _asked(desk, "POST", f"/projects/{project}/risky", asked)["sentence"]
    return f"{said[0].upper()}{said[1:]}."


def _saved(page: Page) -> None:
    page.click("#save")
    expect(page.locator("#job progress")).to_have_count(0)
    expect(page.locator("#unsaved")).to_be_empty()
    expect(page.locator("#save")).to_be_disabled()


def test_kinds_labels_and_the_order_of_levels_are_edited(browser: Browser, desk: Desk, survey: Path) -> None:
    project = desk.project(survey)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        expect(page.locator("#save")).to_be_disabled()
        page.get_by_label("Kind of Edu").select_option("ordinal")
        page.get_by_label("Label of Edu", exact=True).fill("Highest <b>degree</b>")
        page.get_by_label("Levels of Edu").click()
        for _ in range(3):
            page.get_by_label("Move <HS up", exact=True).click()
        expect(page.get_by_label("Move <HS down", exact=True)).to_be_focused()
        page.get_by_label("Label of HS", exact=True).fill("High school")
        page.click("#levels-done")
        expect(page.locator("#unsaved")).to_contain_text("1 attribute changed")
        _saved(page)
        described = _asked(desk, "GET", f"/projects/{project}/description")
        edu = next(each for each in described["attributes"] if each["name"] == "Edu")
        assert (edu["kind"], edu["label"], edu["inferred"]) == ("ordinal", "Highest <b>degree</b>", False)
        shown = [level["level"] for level in edu["levels"]]
        assert shown[0] == "<HS"
        assert next(level["label"] for level in edu["levels"] if level["level"] == "HS") == "High school"
        expect(page.locator("#warnings")).not_to_contain_text("Edu")
        page.click("#confirm")
        expect(page.locator("#confirm")).to_be_hidden()
        assert not any(
            each["inferred"] for each in _asked(desk, "GET", f"/projects/{project}/description")["attributes"]
        )


def test_counts_below_the_tolerance_are_not_shown(browser: Browser, desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "rare.csv"
    lines = ["common"] * 40 + ["frequent"] * 20 + ["once", "twice", "twice"]
    file.write_text("what,sex\n" + "".join(f"{line},{'fm'[i % 2]}\n" for i, line in enumerate(lines)))
    project = desk.project(file)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        chart = page.locator("#attributes tr", has_text="what").locator("svg").text_content() or ""
        assert "2 rare levels" in chart
        assert "<3 each" in chart
        assert "once" not in page.content()
        assert "twice" not in page.content()


def _settled(page: Page) -> None:
    expect(page.locator("#pipeline")).to_have_attribute("aria-busy", "false")


def _steps(desk: Desk, project: str) -> Any:
    return _asked(desk, "GET", f"/projects/{project}/settings")["steps"]


def test_risk_leads_to_the_pipeline_and_tells_what_it_leaves(browser: Browser, desk: Desk, survey: Path) -> None:
    project = desk.project(survey)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/risk")
        sentence = page.locator("#sentence")
        untouched = _unsafe(desk, project)
        expect(sentence).to_contain_text(untouched)
        seen.leave()
        page.click("#keep-scenario")
        seen.ready()
        expect(sentence).to_contain_text("Scenario own")
        page.click("#ask-advice")
        page.locator("#advice button").first.click()
        expect(page.locator("#advice-note")).to_contain_text("Added to the pipeline")
        expect(sentence).to_contain_text("After 1 step of the pipeline")
        assert [step["method"] for step in _steps(desk, project)] == ["recode"]
        # By the keyboard from side to side: each says something, and leads to a step that is filled in.
        page.locator("#tab-combinations").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#tab-groups")).to_be_focused()
        expect(sentence).to_contain_text("same values of 6 keys")
        expect(page.locator("#chart tbody tr").first).to_contain_text("fewer than 3")
        for side, told in (
            ("individual", "expected to be found"),
            ("households", "household"),
            ("suda", "made unique"),
        ):
            page.keyboard.press("ArrowRight")
            expect(page.locator(f"#tab-{side}")).to_have_attribute("aria-selected", "true")
            expect(sentence).to_contain_text(told)
        seen.leave()
        page.get_by_role("link", name="Recode").click()
        seen.ready()
        expect(page.locator("#method")).to_have_value("recode:recode")
        page = seen.go(f"/projects/{project}/risk#attacks")
        expect(sentence).to_contain_text("There is no masking yet")
        page = seen.go(f"/projects/{project}/risk")
        page.reload()
        seen.ready()
        seen.leave()
        page.get_by_role("link", name="Suppress these").click()
        seen.ready()
        expect(page.locator("#of-scenario")).to_be_checked()
        page.click("#add-step")
        expect(page.locator('[data-step="suppress"] [data-scenario="own"]')).to_contain_text("→ 0")
        assert [step["method"] for step in _steps(desk, project)] == ["recode", "suppress"]
        page = seen.go(f"/projects/{project}/risk")
        expect(sentence).to_contain_text("no combination of values is unsafe")
        expect(sentence).to_have_class("good")


def test_levels_are_picked_with_their_counts_and_merged_by_dragging(browser: Browser, desk: Desk, survey: Path) -> None:
    project = desk.project(survey)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/method?method=recode:recode")
        page.locator("#fields [name=attribute]").select_option("Edu")
        rows = page.locator("#fields tbody tr")
        expect(rows.first.locator(".counted")).to_have_text(re.compile(r"\d"))
        _settled(page)
        of = (page.get_by_label(f"{level} becomes", exact=True) for level in ("Bach", "Bach+"))
        bachelor, more = (rows.filter(has=field).locator("th") for field in of)
        more.scroll_into_view_if_needed()
        bachelor.hover()
        bachelor.drag_to(more)
        expect(page.get_by_label("Bach becomes", exact=True)).to_have_value("Bach+")
        page.click("#add-step")
        expect(page.locator('[data-step="recode"]')).to_be_visible()
        _settled(page)
        page.locator("#method").select_option("recode:blank")
        page.locator("#fields [name=attribute]").select_option("Edu")
        page.locator("#fields").get_by_label("<HS", exact=True).check()
        page.click("#add-step")
        expect(page.locator("#pipeline-steps li")).to_have_count(2)
        _settled(page)
        expect(page.locator("#pipeline-steps li").nth(1)).to_contain_text("blanked: Edu")
        first, second = _steps(desk, project)
        assert first["steps"][0]["map"] == {"Bach": "Bach+", "Bach+": "Bach+"}
        assert second["steps"][0]["values"] == ["<HS"]
        page.locator("#pipeline-steps li").nth(1).get_by_role("button", name="Edit").click()
        expect(page.locator("#fields").get_by_label("<HS", exact=True)).to_be_checked()
        page.get_by_label("Switch off recode", exact=True).focus()
        with page.expect_response(lambda answer: answer.request.method == "PATCH"):
            page.keyboard.press("Enter")
        _settled(page)
        for way, off in (("undo", False), ("redo", True), ("undo", False)):
            with page.expect_response(f"**/settings/{way}"):
                page.click(f"#{way}-step")
            _settled(page)
            assert _steps(desk, project)[0].get("off", False) is off


def test_a_form_offers_only_the_kinds_that_it_takes(browser: Browser, desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "kinds.csv"
    rows = [f"{'NS'[i % 2]},{'abcd'[i % 4]},{100 + 7 * i},{'xy'[i % 2]}" for i in range(80)]
    file.write_text("state,county,income,sex\n" + "\n".join(rows) + "\n", encoding="utf-8")
    project = desk.project(file)
    with desk.client() as client:
        kinds = [{"name": name, "kind": "geography"} for name in ("state", "county")]
        place, match = f"/projects/{project}/description", {"If-Match": "*"}
        client.wait(Job.model_validate(client._send("PATCH", place, json={"attributes": kinds}, headers=match).json()))
    with desk.seen(browser) as seen:
        seen.expected = ("422",)
        page = seen.go(f"/projects/{project}/method?method=microaggregation")
        assert _part(page, "Attributes").locator("label").all_inner_texts() == [" income"]
        page.locator("#method").select_option("edit_1990")
        geography = _part(page, "Geography")
        geography.get_by_label("Add to geography").select_option("county")
        geography.get_by_label("Add to geography").select_option("state")
        geography.get_by_role("button", name="Move up state").press("Enter")
        expect(geography.locator("li").first).to_contain_text("state")
        expect(page.locator("#fields [name=within] option")).to_have_text(["none", "state", "county"])
        page.locator("#method").select_option("swap")
        page.get_by_label("sex: Swap", exact=True).check()
        page.fill("#rate", "0")
        expect(page.locator("#plan")).to_have_text("Rate must be above 0.")
        for form, first, told in (
            ("top_bottom_code", "[name=attribute]", "give top or bottom"),
            ("ranges", "[name=attribute]", "give breaks"),
        ):
            with page.expect_response("**/plan"):
                page.locator("#method").select_option(f"recode:{form}")
            expect(page.locator("#other-plan")).to_be_empty()  # nobody has stated anything yet
            page.locator(f"#fields {first}").dispatch_event("change")
            expect(page.locator("#other-plan")).to_contain_text(told, ignore_case=True)
        page.locator("#fields").get_by_label("Breaks").first.fill("200, 400\n500")
        expect(page.locator("#other-plan")).to_have_class("good")
        page.click("#add-step")
        _settled(page)
        assert _steps(desk, project)[0]["steps"][0]["breaks"] == [200, 400, 500]


KEEP = {"otherwise": "keep"}
AWKWARD = [
    {"step": "recode", "attribute": "Race", "map": {"White": "any"}, "otherwise": "blank"},
    {"step": "hierarchy", "attribute": "MS", "parents": {"<=50K": "low", "a = b": ' "x" ', "c, d": "e"}, **KEEP},
    {"step": "blank", "attribute": "Edu", "values": ["Farming, fishing", " Clerk", 'a "b"', "", "c\nd"]},
    {"step": "global_recode", "attribute": "Sex", "spans": [{"to": "m", "low": "A"}], "labels": {"m": "x=y"}, **KEEP},
    {"method": "suppress", "keys": ["Age", "Race"], "up_to": 2, "solver": "greedy", "importance": {"Age": 5.0}},
]


@pytest.fixture(scope="module")
def awkward(desk: Desk, survey: Path) -> str:
    """A project whose steps fit no data."""
    project = desk.project(survey)
    steps = [step if "method" in step else {"method": "recode", "steps": [step]} for step in AWKWARD]
    with desk.client("ana") as client:
        client.change_settings(project, version=client.settings(project).version, steps=steps)
    return project


def test_a_step_that_is_edited_and_not_changed_stays_as_it_is(browser: Browser, desk: Desk, awkward: str) -> None:
    before = _steps(desk, awkward)
    with desk.seen(browser) as seen:
        seen.expected = ("422",)  # what fits no data of the file
        page = seen.go(f"/projects/{awkward}/method")
        for place, step in enumerate(AWKWARD):
            _settled(page)
            page.locator("#pipeline-steps li").nth(place).get_by_role("button", name="Edit").click()
            with page.expect_request(lambda asked: asked.method == "PATCH") as told:
                page.click("#add-step")
            sent = told.value.post_data_json["steps"][place]
            sent = sent["steps"][0] if "step" in step else sent
            assert {key: sent[key] for key in step} == step
            expect(page.locator("#leave-step")).to_be_hidden()
    assert _steps(desk, awkward) == before


@pytest.mark.parametrize(
    ("kind", "field", "typed", "told"),
    [
        ("hierarchy", "Parents", "a = b = c", "Line 1 is not of the form VALUE = NEW VALUE."),
        ("hierarchy", "Parents", "a = b\n\na = c", "Line 3 repeats a value of an earlier line."),
        ("hierarchy", "Parents", '"a = b', "Line 1 is not of the form VALUE = NEW VALUE."),
        ("ranges", "Breaks", "10\n20, x", "Line 2 has something that is not a number."),
        ("truncate", "Characters", "2e", "Not a number."),
    ],
)
def test_what_cannot_be_read_is_said_and_not_sent(  # noqa: PLR0917  (fixtures)
    browser: Browser, desk: Desk, project: str, kind: str, field: str, typed: str, told: str
) -> None:
    with desk.seen(browser) as seen:
        seen.expected = ("422",)  # what can be read need not fit the data
        page = seen.go(f"/projects/{project}/method?method=recode:{kind}")
        box = page.locator("#fields").get_by_label(field).first
        box.press_sequentially(typed) if kind == "truncate" else box.fill(typed)
        page.click("#add-step")
        expect(page.locator("#problem")).to_contain_text(f"Missing or invalid: {field.lower()}.")
        expect(page.locator("#fields .fault", has_text=told)).to_be_visible()
        expect(box).to_have_attribute("aria-invalid", "true")
        box.fill("3")
        assert _steps(desk, project) == []


def test_feasibility_is_told_live_and_in_the_words_of_the_interface(browser: Browser, desk: Desk, project: str) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/method")
        expect(page.locator("#plan")).to_have_text("Give at least one attribute the role Swap.")
        for spec in (
            {"swap": ["Race"], "rate": 0.05},
            {"swap": ["Race"], "fixed": ["Sex"], "rate": 0.05},
            {"swap": ["Race"], "fixed": ["Sex"], "rate": 0.9},
        ):
            for role in ("swap", "fixed"):
                for attribute in spec.get(role, []):  # type: ignore[attr-defined]
                    page.get_by_label(f"{attribute}: {role.title()}", exact=True).check()
            page.fill("#rate", str(spec["rate"]))
            with desk.client() as client:
                plan = client.plan(project, {"method": "swap", **spec})
            expect(page.locator("#plan")).to_have_text(f"{plan.sentence}.")
        assert plan.binds == ("Race",)
        expect(page.locator("#relaxations li").first).to_have_text(plan.relaxations[0].change)


@pytest.mark.parametrize(
    ("method", "stated"),
    [("pram", {"attributes": ["Race"], "keep": 0.7}), ("edit_1990", None)],
)
def test_another_method_has_the_form_of_its_schema(
    browser: Browser, desk: Desk, project: str, method: str, stated: dict[str, Any] | None
) -> None:
    schema = _asked(desk, "GET", f"/methods/{method}")["spec_schema"]
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/method?method={method}")
        shown = page.locator("#fields").inner_text().lower()
        for key in {*schema["properties"]} - {"scenario"}:
            assert key.replace("_", " ") in shown
        if stated is None:
            return
        expect(page.locator("#other-plan")).to_have_text("To be stated: attributes.")
        page.locator("#fields fieldset").first.get_by_label("Race", exact=True).check()
        page.get_by_label("Keep").fill("0.7")
        page.click("#mask")
        expect(page.locator("#job .good")).to_be_visible()
        newest = _asked(desk, "GET", f"/projects/{project}/maskings?limit=1")["items"][0]
        (made,) = newest["spec"]["spec"]["steps"]
        assert {key: made[key] for key in stated} == stated
        page.get_by_role("button", name="Undo this masking").first.click()
        expect(page.locator("#job")).to_contain_text("undone")
        expect(page.locator("#earlier")).to_be_hidden()
        page.click("#undo-step")
        _settled(page)


def _part(page: Page, title: str) -> Any:
    """The part of a form that has this title."""
    return page.locator("#fields fieldset").filter(has=page.locator("> legend", has_text=title)).first


def _planned(page: Page, act: Any, *, stating: str = "method") -> dict[str, Any]:
    """The specification that the screen asks a plan for after somebody did something, once it states a part."""

    def is_meant(asked: Request) -> bool:
        return asked.url.endswith("/plan") and bool(asked.post_data_json["spec"].get(stating))

    with page.expect_request(is_meant) as told:
        act()
    return told.value.post_data_json["spec"]


def test_parts_of_a_specification_are_stated_in_fields_of_their_own(browser: Browser, desk: Desk, project: str) -> None:
    with desk.seen(browser) as seen:
        seen.expected = ("422",)  # no plan can be made of what is not stated yet
        page = seen.go(f"/projects/{project}/method?method=suppress")
        assert "JSON" not in page.locator("#fields").inner_text()
        combinations = _part(page, "Combinations")
        for _ in range(3):
            combinations.get_by_role("button", name="Add").click()
        expect(page.locator("#other-plan")).to_have_text(
            "Missing or invalid: combinations 1: keys, combinations 2: keys, combinations 3: keys."
        )
        first, second = combinations.locator("li").nth(0), combinations.locator("li").nth(1)
        for key in ("Age", "Sex"):
            first.get_by_label(key, exact=True).check()
        first.get_by_label("Tolerance").fill("5")
        second.get_by_label("Race", exact=True).check()
        _part(page, "Importance").get_by_label("Age").fill("2.5")
        spec = _planned(page, combinations.get_by_role("button", name="Remove combinations 3").click)
        assert spec == {
            "method": "suppress",
            "combinations": [{"keys": ["Age", "Sex"], "tolerance": 5}, {"keys": ["Race"]}],
            "importance": {"Age": 2.5},
        }

        page = seen.go(f"/projects/{project}/method")
        page.locator("#swap-part details summary").click()
        page.get_by_label("Race: Swap", exact=True).check()
        page.get_by_label("Targeting").check()
        targeting = page.locator("fieldset").filter(has=page.locator("> legend", has_text="Targeting")).last
        weight = targeting.get_by_role("spinbutton", name="Weight")
        spec = _planned(page, lambda: weight.fill("4"), stating="targeting")
        assert (spec["swap"], spec["targeting"]) == (["Race"], {"weight": 4})


def test_a_recode_is_stated_step_by_step_and_what_cannot_be_read_is_not_sent(
    browser: Browser, desk: Desk, project: str
) -> None:
    with desk.seen(browser) as seen:
        seen.expected = ("422",)  # no plan can be made of what is not stated yet
        page = seen.go(f"/projects/{project}/method?method=recode")
        steps = _part(page, "Steps")
        for kind in ("recode", "blank", "global_recode"):
            page.get_by_label("Steps: kind").select_option(kind)
            steps.get_by_role("button", name="Add to steps").click()
        recode, blank, spans = (steps.locator("> ol > li").nth(place) for place in range(3))
        recode.get_by_label("Attribute").select_option("MS")
        recode.get_by_label("Groups").fill("\nany")
        recode.get_by_label("Otherwise").select_option("keep")
        blank.get_by_label("Attribute").select_option("Edu")
        for level in ("<HS", "HS"):
            blank.get_by_label(level, exact=True).check()
        page.click("#mask")
        expect(page.locator("#problem")).to_contain_text("steps 1: groups, steps 3: spans")
        expect(page.locator("#other-plan")).to_have_class("warning")
        expect(recode.locator(".fault").nth(1)).to_have_text("Line 2 is not of the form NEW VALUE = VALUE, VALUE.")
        recode.get_by_label("Groups").fill("any = Married, Other")
        expect(recode.locator(".fault").nth(1)).to_be_empty()
        spans.get_by_role("button", name="Remove steps 3").click()
        expect(page.get_by_role("button", name="Add to steps")).to_be_focused()
        page.click("#mask")
        expect(page.locator("#job .good")).to_be_visible()
        newest = _asked(desk, "GET", f"/projects/{project}/maskings?limit=1")["items"][0]
        made = newest["spec"]["spec"]["steps"][-1]["steps"]
        assert [step["attribute"] for step in made] == ["MS", "Edu"]
        assert made[0]["groups"] == {"any": ["Married", "Other"]}
        assert sorted(made[1]["values"]) == ["<HS", "HS"]


def test_tables_are_checked_and_made_safe(browser: Browser, desk: Desk, project: str) -> None:
    tables = [["Edu", "Race"], ["EmpTyp", "Edu"]]
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/tables")
        page.fill("#tolerance", "15")
        for table in tables:
            for attribute in table:
                page.locator("#attributes").get_by_label(attribute, exact=True).check()
            page.click("#add-table")
        said = _asked(
            desk,
            "POST",
            f"/projects/{project}/table-checks",
            {"tables": [["Edu", "Race"], ["EmpTyp", "Edu"]], "tolerance": 15},
        )
        expect(page.locator("#check")).to_contain_text(said["sentence"][1:])
        expect(page.locator("#checked tr")).to_have_count(2)
        page.click("#make")
        expect(page.locator("#one")).to_be_visible()
        newest = _asked(desk, "GET", f"/projects/{project}/safe-tables?limit=1")["items"][0]
        made = _asked(desk, "GET", f"/projects/{project}/safe-tables/{newest['id']}")
        assert made["spec"]["tables"] == tables
        totals = page.locator("#totals tr").all_inner_texts()
        for line, table in zip(totals, made["summary"]["tables"], strict=True):
            shown = [int(part.replace(",", "")) for part in line.split("\t")[1:]]
            names = ("small_before", "small_after", "changed_cells", "total_change", "largest_change")
            assert shown == [table[name] for name in names]
            assert table["small_after"] == 0
        changed = sum(cell["changed"] for cells in made["summary"]["cells"] for cell in cells)
        assert changed > 0
        expect(page.locator("#cells .changed")).to_have_count(changed)
        page.locator("#python summary").click()
        expect(page.locator("#python-text")).to_contain_text(
            "workflow.safe_table(data, attributes=tables, tolerance=15"
        )


def test_an_analyst_adds_the_officer_and_a_viewer_only_looks(browser: Browser, office: Desk, survey: Path) -> None:
    project = office.project(survey, who="ana")
    with office.seen(browser, who="ana") as seen:
        seen.expected = ("404",)
        page = seen.go(f"/projects/{project}/data")
        expect(page.locator("#no-officer")).to_be_visible()
        page.fill("#person", "nobody-of-that-name")
        page.keyboard.press("Enter")
        expect(page.locator("#problem")).to_contain_text("There is no such person.")
        for person in ("olga", "vera"):
            page.fill("#person", person)
            page.keyboard.press("Enter")
            expect(page.locator("#members")).to_contain_text(person)
        expect(page.locator("#no-officer")).to_be_hidden()
        page.get_by_label("Remove olga").click()
        expect(page.locator("#members li")).to_have_count(2)
        members = _asked(office, "GET", f"/projects/{project}/members")["items"]
        assert [member["name"] for member in members] == ["ana", "vera"]
    work = {
        "data": ("save", "other-file", "confirm", "add-person", "keeping"),
        "risk": ("keep-scenario", "actions"),
        "method": ("method-form", "run-pipeline", "undo-step"),
        "tables": ("make", "records-instead"),
        "release": ("ask", "decide", "add-person"),
    }
    with office.seen(browser, who="vera") as seen:
        for screen, buttons in work.items():
            page = seen.go(f"/projects/{project}/{screen}")
            for button in buttons:
                expect(page.locator(f"#{button}")).to_be_hidden()
        expect(page.locator("#members button")).to_have_count(0)


def test_a_project_is_packed_and_taken_from_its_archive(
    browser: Browser, desk: Desk, project: str, tmp_path: Path
) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        page.locator("#keeping summary").click()
        page.click("#pack")
        with page.expect_download() as download:
            page.get_by_role("link", name="Save the archive").click()
        archive = tmp_path / "kept.zip"
        download.value.save_as(archive)
        page = seen.go("/")
        page.set_input_files("#archive", archive)
        page.wait_for_url("**/projects/*/data")
        expect(page.locator("#file-line")).to_contain_text("2,000 records")
        page.locator("#keeping summary").click()
        expect(page.locator("#delete")).to_be_disabled()
        page.fill("#delete-name", page.locator("#project-name").inner_text())
        page.click("#delete")
        page.wait_for_url(desk.address + "/")
    with desk.client() as client:
        assert project in {each.id for each in client.projects()}


def test_a_masking_is_made_with_the_keyboard_alone(browser: Browser, desk: Desk, project: str) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/method")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        _tab_to(page, "Sex: Other")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        expect(page.get_by_label("Sex: Swap")).to_be_checked()
        expect(page.locator("#plan")).to_contain_text("feasible")
        _tab_to(page, "Add and mask")
        page.keyboard.press("Enter")
        expect(page.locator("#job .good")).to_be_visible()
    newest = _asked(desk, "GET", f"/projects/{project}/maskings?limit=1")["items"][0]
    assert newest["spec"]["spec"]["steps"][-1]["swap"] == ["Sex"]


def _tab_to(page: Page, wanted: str) -> None:
    """Press Tab until something of that name has the focus; it has to be seen that it has."""
    for _ in range(80):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "() => { const at = document.activeElement;"
            " const shown = at.matches(':focus-visible') && getComputedStyle(at).outlineStyle;"
            " return [at.getAttribute('aria-label') || at.textContent.trim(), shown]; }"
        )
        if name == wanted:
            assert outline == "solid"
            return
    raise AssertionError(f"{wanted} cannot be reached with the keyboard")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nobody_is_kept_out(browser: Browser, desk: Desk, project: str, dark: bool) -> None:
    with desk.client() as client:
        client.wait(client.mask(project, {"method": "swap", "swap": ["Race"], "rate": 0.05}))
    with desk.seen(browser, dark=dark) as seen:
        seen.expected = ("422",)  # no plan can be made of what is not stated yet
        for path in (
            "/",
            "/log-in",
            *(f"/projects/{project}/{name}" for name in ("data", "risk", "method", "tables", "release")),
            *(f"/projects/{project}/method?method={name}" for name in ("suppress", "recode", "recode:recode")),
            *(f"/projects/{project}/risk#{name}" for name in ("groups", "suda", "attacks")),
        ):
            page = seen.go(path)
            page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
            if path.endswith("/method"):
                page.locator("#method").select_option("pram")
            for add in page.locator("#fields").get_by_role("button", name="Add to").all():
                add.click()
            page.wait_for_timeout(300)
            found = Axe().run(page).response["violations"]
            serious = [
                (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")
            ]
            assert serious == [], json.dumps([path, serious], indent=2)
