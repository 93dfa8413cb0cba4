"""The first step: no file is lost, whenever it is given; levels that are not shown have an order all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.service.test_two_files import two_files
from tests.workbench.desk import Desk, Seen

# A file dropped on the page, as the browser tells of it.
DROP = """(text) => {
    const carried = new DataTransfer();
    carried.items.add(new File([text], "dropped.csv", { type: "text/csv" }));
    document.querySelector("h1").dispatchEvent(
        new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
}"""


@pytest.fixture
def empty(desk: Desk) -> str:
    """A project without a file."""
    with desk.client() as client:
        return client.make_project("nothing yet").id


@contextmanager
def before_its_script(seen: Seen, project: str) -> Iterator[Page]:
    """The page while its script is still on its way; it comes when the block ends."""
    held: list[Route] = []
    seen.page.route("**/js/data.js", lambda route: held.append(route))  # noqa: PLW0108  (what is built in is not taken)
    seen.page.goto(f"{seen.address}/projects/{project}/data", wait_until="commit")
    seen.page.wait_for_selector("h1")
    while not held:
        seen.page.wait_for_timeout(20)
    yield seen.page
    for route in held:
        route.continue_()


def test_a_file_chosen_before_the_page_is_ready_is_taken(
    browser: Browser, desk: Desk, empty: str, survey: Path
) -> None:
    with desk.seen(browser) as seen:
        with before_its_script(seen, empty) as page:
            expect(page.locator("#file")).to_be_disabled()
            page.locator("#file").set_input_files(survey)
        expect(page.locator("#file-line")).to_contain_text("survey.csv: 2,000 records")


def test_a_file_dropped_before_the_page_is_ready_is_taken(
    browser: Browser, desk: Desk, empty: str, survey: Path
) -> None:
    with desk.seen(browser) as seen:
        with before_its_script(seen, empty) as page:
            page.evaluate(DROP, survey.read_text(encoding="utf-8"))
        expect(page.locator("#file-line")).to_contain_text("dropped.csv: 2,000 records")


def test_an_empty_file_and_an_unknown_project_are_told_in_plain_words(browser: Browser, desk: Desk, empty: str) -> None:
    with desk.seen(browser) as seen:
        seen.expected = ("422", "404")
        page = seen.go(f"/projects/{empty}/data")
        page.set_input_files("#file", {"name": "empty.csv", "mimeType": "text/csv", "buffer": b""})
        told = page.locator("#problem :is(strong, span)")
        expect(told).to_have_text(["The file is empty.", "Send a file with a header and records."])
        page.goto(f"{desk.address}/projects/nowhere/risk")
        expect(told).to_have_text(["There is no such project."])


def test_numbers_with_decimal_commas_are_read_as_numbers_where_that_is_stated(
    browser: Browser, desk: Desk, empty: str, tmp_path: Path
) -> None:
    file = tmp_path / "wages.csv"
    file.write_text("job;wage\n" + "".join(f"{'abc'[i % 3]};{900 + i},{i % 10}\n" for i in range(200)), "utf-8")
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{empty}/data")
        page.get_by_text("Reading options").click()
        page.get_by_label("Decimal mark").select_option(",")
        page.set_input_files("#file", file)
        expect(page.locator("#file-line")).to_contain_text("wages.csv: 200 records")
        expect(page.get_by_label("Kind of wage")).to_have_value("numeric")


def test_a_file_dropped_beside_a_file_that_is_there_changes_nothing_unasked(
    browser: Browser, desk: Desk, survey: Path
) -> None:
    project = desk.project(survey)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        page.evaluate(DROP, "a,b\n1,2\n3,4\n")
        expect(page.locator("#problem")).to_contain_text("The file was not accepted. To replace the current file")
        page.click("#other-file")
        page.click("#replace-yes")
        page.evaluate(DROP, "a,b\n1,2\n3,4\n")
        expect(page.locator("#file-line")).to_contain_text("dropped.csv: 2 records")


def test_levels_are_put_in_order_though_rare_ones_are_not_shown(browser: Browser, desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "grades.csv"
    grades = ["good"] * 20 + ["bad"] * 15 + ["fair"] * 10 + ["superb", "awful"]
    numbers = ["1"] * 20 + ["2"] * 15 + ["10"] * 10 + ["0", "3"]
    file.write_text("grade,number\n" + "".join(f"{a},{b}\n" for a, b in zip(grades, numbers, strict=True)))
    project = desk.project(file)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        for attribute, ups in (("grade", ["bad", "fair"]), ("number", ["10"])):
            page.get_by_label(f"Kind of {attribute}").select_option("ordinal")
            page.get_by_label(f"Levels of {attribute}").click()
            expect(page.locator("#levels-note")).to_contain_text("2 levels that few records have are not shown")
            for level in ups:
                page.get_by_label(f"Move {level} up", exact=True).click()
            shown = page.locator("#levels-list li bdi").all_inner_texts()
            assert not {"superb", "awful", "0", "3"} & set(shown)
            page.click("#levels-done")
        page.click("#save")
        expect(page.locator("#save")).to_be_disabled()
        expect(page.locator("#problem")).to_be_hidden()
        for attribute in ("grade", "number"):
            page.get_by_label(f"Levels of {attribute}").click()
            first = page.locator("#levels-list li bdi").all_inner_texts()
            assert first == {"grade": ["bad", "fair", "good"], "number": ["1", "10", "2"]}[attribute]
            page.click("#levels-cancel")


def test_sample_data_are_opened_and_replaced_after_a_question(browser: Browser, desk: Desk, survey: Path) -> None:
    with desk.seen(browser) as seen:
        page = seen.go("/")
        with page.expect_popup() as tour:
            page.get_by_role("link", name="ten-minute tour").click()
        expect(tour.value.get_by_role("heading", level=1)).to_have_text("A tour in ten minutes")
        page.get_by_role("button", name="Household survey").click()
        page.wait_for_url("**/projects/*/data")
        expect(page.locator("#file-line")).to_contain_text("4,939 records")
        expect(page.locator("#confirm")).to_be_hidden()
        page.click("#other-file")
        expect(page.locator("#replace-note")).to_contain_text("Nothing has been made from the present file.")
        page.click("#replace-no")
        expect(page.locator("#upload")).to_be_hidden()
        page.click("#other-file")
        page.click("#replace-yes")
        page.set_input_files("#file", survey)
        expect(page.locator("#file-line")).to_contain_text("2,000 records")


def test_pages_say_what_no_longer_fits_the_file_that_replaced_another(
    browser: Browser, desk: Desk, survey: Path, tmp_path: Path
) -> None:
    project, other = desk.project(survey), tmp_path / "other.csv"
    other.write_text("a,b\n" + "\n".join(f"{i % 3},{'xy'[i % 2]}" for i in range(300)) + "\n", encoding="utf-8")
    with desk.client() as client:
        path = f"/projects/{project}/settings"
        stated = {"scenarios": [{"name": "own", "keys": ["Age", "Race"]}], "scenario": "own"}
        stated["steps"] = [{"method": "swap", "swap": ["Race"], "rate": 0.05}]
        etag = client._send("GET", path).headers["etag"]
        client._send("PATCH", path, json=stated, headers={"If-Match": etag})
        masking = client.wait(client.mask(project, {"method": "swap", "swap": ["Race"], "rate": 0.05})).result
        assert masking is not None
        for job in (
            client.study(project, attributes=["Race"], rates=[0.05]),
            client.plot_confidentiality(project, masking.id, ["Age", "Race"]),
        ):
            client.wait(job)
        asked = client.request_release(project, masking.id, title="survey")
        while client.release(project, asked.id).state == "preparing":
            time.sleep(0.1)
        client.wait(client.send_data(project, other))
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/data")
        expect(page.locator("#main")).to_contain_text("few or none of them by fewer than")
        page = seen.go(f"/projects/{project}/risk")
        expect(page.locator("#panel")).to_contain_text("has no Age, Race, which the scenario own takes as keys. Tick")
        page = seen.go(f"/projects/{project}/records")
        expect(page.locator("#old")).to_contain_text("The data have changed since this plot was made.")
        expect(page.locator("#plots")).to_contain_text("(earlier data)")
        page = seen.go(f"/projects/{project}/map")
        expect(page.locator("#old")).to_contain_text("The data have changed since this study.")
        expect(page.locator("#studies")).to_contain_text("(earlier data)")
        expect(page.locator("#look")).to_be_visible()
        expect(page.get_by_role("button", name="Mask with")).to_have_count(0)
        page = seen.go(f"/projects/{project}/release")
        expect(page.locator("#state")).to_contain_text("it can no longer be approved")
        expect(page.locator("#approve")).to_be_hidden()
        page.fill("#reason", "of an earlier file")
        page.click("#reject")
        expect(page.locator("#state")).to_contain_text("rejected: Of an earlier file.")
        expect(page.locator("#job")).to_contain_text("Nothing has been masked from this file yet.")
        page = seen.go(f"/projects/{project}/method")
        expect(page.locator("#pipeline-steps .fault")).to_contain_text("'Race'. The attributes are: a, b.")
        seen.expected = ("422",)


def test_a_household_file_and_a_person_file_are_joined_and_offered_as_two_again(
    browser: Browser, desk: Desk, empty: str, tmp_path: Path
) -> None:
    homes, people = tmp_path / "homes.csv", tmp_path / "people.csv"
    for path, content in zip((homes, people), two_files(), strict=True):
        path.write_bytes(content)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{empty}/data")
        page.locator("#two-files summary").click()
        page.locator("#household-file").set_input_files(homes)
        expect(page.locator("#send-both")).to_be_disabled()
        page.locator("#person-file").set_input_files(people)
        page.locator("#household-on").fill("home")
        page.locator("#send-both").click()
        records = len(people.read_text(encoding="utf-8").splitlines()) - 1
        expect(page.locator("#file-line")).to_contain_text(f"homes.csv + people.csv: {records} records")
        expect(page.get_by_label("tenure is the household's")).to_be_checked()
        expect(page.get_by_label("age is the household's")).not_to_be_checked()
        with desk.client() as client:
            client.wait(client.mask(empty, {"method": "swap", "swap": ["tenure"], "rate": 0.2}))
        page = seen.go(f"/projects/{empty}/release")
        expect(page.locator("#two-files")).to_be_checked()
