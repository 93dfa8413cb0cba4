"""From a file to a bundle that was downloaded, as two different people; and names that mean harm."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.workbench.desk import Desk

from safeswap import workflow

HOSTILE = [
    "<script>window.harm=1</script>",
    "<img src=x onerror=window.harm=1>",
    "'><svg onload=window.harm=1>",
    '"onmouseover="window.harm=1',
    "javascript:window.harm=1",
    '=HYPERLINK("http://127.0.0.1:9/","x")',
    "=1+1",
    "+cmd|' /C calc'!A0",
    "@SUM(1;1)",
    "-2+3",
    "{{7*7}}",
    "${7*7}",
    "{% raw %}",
    "</td></tr></table>",
    "</textarea><script>window.harm=1</script>",
    "</title><script>window.harm=1</script>",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "a" * 190,
    "עברית מימין לשמאל",
    "العربية",
    "\u202eevil",
    "O'Brien",
    'say "hi"',
    "back\\slash",
    "slash/slash",
    "..",
    "../../etc/passwd",
    "nul\u2400",
    "emoji 😀",
    "tab\there",
    "percent %s %d",
    "; DROP TABLE users",
    "' OR '1'='1",
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "null",
    "undefined",
    "NaN",
    "true",
    "0",
    " leading space",
    "CON",
    "%00",
    "#hash",
    "?query=1",
    "line\u2028separator",
]


def _sign(page: Page) -> str:
    return page.locator("#sentence").inner_text()


def test_from_a_file_to_a_bundle_as_two_people(browser: Browser, office: Desk, survey: Path, tmp_path: Path) -> None:
    with office.seen(browser, who="ana") as ana:
        page = ana.go("/")
        page.fill("#new-project input[name=name]", "Survey 2026")
        page.click("#new-project button")
        page.wait_for_url("**/projects/*/data")
        ana.ready()
        page.set_input_files("#file", survey)
        expect(page.locator("#file-line")).to_contain_text("2,000 records")
        project = page.url.split("/projects/")[1].split("/")[0]

        page = ana.go(f"/projects/{project}/risk")
        expect(page.locator("#sentence")).to_contain_text("unsafe")
        before = _sign(page)
        page.click("#ask-advice")
        page.locator("#advice button").first.click()
        expect(page.locator("#advice-note")).to_contain_text("Added to the pipeline")
        expect(page.locator("#sentence")).not_to_have_text(before)

        page = ana.go(f"/projects/{project}/method")
        page.click("#undo-step")
        expect(page.locator("#pipeline-steps li")).to_have_count(0)
        page.get_by_label("Race: Swap", exact=True).check()
        expect(page.locator("#plan")).to_contain_text("feasible")
        page.click("#mask")
        expect(page.locator("#job .good")).to_be_visible()
        page.get_by_role("link", name="Release it").first.click()
        page.wait_for_url("**/release?*")
        ana.ready()
        page.click("#request")
        expect(page.locator("#state")).to_contain_text("waiting for approval")
        expect(page.locator("#decide")).to_be_hidden()
        expect(page.locator("#download")).to_be_hidden()
        page.fill("#person", "olga")
        page.keyboard.press("Enter")
        expect(page.locator("#members")).to_contain_text("olga")

    with office.seen(browser, who="olga") as olga:
        page = olga.go(f"/projects/{project}/release")
        expect(page.locator("#checks li.ok").first).to_be_visible()
        expect(page.locator("#checks li.not-ok")).to_have_count(0)
        expect(page.locator("#approve")).to_be_disabled()
        page.check("#looked")
        page.click("#approve")
        expect(page.locator("#state")).to_contain_text("approved")
        with page.expect_download() as download:
            page.click("#download")
        bundle = tmp_path / "bundle.zip"
        download.value.save_as(bundle)
    with zipfile.ZipFile(bundle) as packed:
        packed.extractall(tmp_path / "bundle")
    folder = tmp_path / "bundle"
    whole = folder if (folder / "manifest.json").is_file() else next(folder.iterdir())
    assert workflow.verify(whole).records == 2000


def test_who_looks_sees_what_another_decided_meanwhile(browser: Browser, office: Desk, survey: Path) -> None:
    project = office.project(survey, members=("olga",))
    with office.client("ana") as client:
        masking = client.wait(client.mask(project, {"method": "swap", "swap": ["Race"], "rate": 0.05})).result
        assert masking is not None
        asked = client.request_release(project, masking.id, title="survey")
    with office.seen(browser, who="ana") as seen:
        page = seen.go(f"/projects/{project}/release")
        expect(page.locator("#state")).to_contain_text("waiting for approval")
        expect(page.locator("#releases")).to_contain_text("waiting for approval")
        # Ana is an analyst: what the board gets is not for her.
        expect(page.locator("#reports a")).to_have_count(3)
        for link in page.locator("#reports a").all():
            assert page.request.get(link.evaluate("link => link.href")).status == 200
        with office.client("olga") as client:
            client.reject(project, asked.id, reason="The title says too little.")
        page.get_by_role("button", name="Look").click()
        expect(page.locator("#state")).to_contain_text("rejected: The title says too little")
        expect(page.locator("#releases")).to_contain_text("rejected")
        expect(page.locator("#releases")).to_contain_text("olga")


def test_a_second_release_of_the_same_records_needs_a_reason(browser: Browser, desk: Desk, survey: Path) -> None:
    project = desk.project(survey)
    with desk.client() as client:
        for rate in (0.05, 0.1):
            client.wait(client.mask(project, {"method": "swap", "swap": ["Race"], "rate": rate}))
    with desk.seen(browser) as seen:
        seen.expected = ("409",)
        for number in (0, 1):
            page = seen.go(f"/projects/{project}/release")
            page.locator("#masking").select_option(index=number)
            page.click("#request")
            expect(page.locator("#state")).to_contain_text("waiting for approval")
            page.check("#looked")
            if number == 0:
                page.click("#approve")
                expect(page.locator("#state")).to_contain_text("approved")
        expect(page.locator("#differencing .warning").first).to_be_visible()
        page.click("#approve")
        expect(page.locator("#problem")).to_be_visible()
        page.fill("#override", "The first one had an error in the dictionary.")
        page.click("#approve")
        expect(page.locator("#state")).to_contain_text("approved")


def test_a_release_that_cannot_be_prepared_says_all_that_was_found(
    browser: Browser, desk: Desk, tmp_path: Path
) -> None:
    nested = tmp_path / "nested.csv"
    rows = [f"{i},{i % 3},{i % 9},{i % 27}" for i in range(540)]
    nested.write_text("\n".join(["id,trade,branch,craft", *rows]) + "\n", encoding="utf-8")
    project = desk.project(nested)
    with desk.client() as client:
        client.wait(client.mask(project, {"method": "swap", "swap": ["trade"], "rate": 0.2}))
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/release")
        page.click("#request")
        found = page.locator("#job .failed li")
        expect(found).to_have_count(2)
        expect(found.nth(0)).to_contain_text("branch")
        expect(found.nth(1)).to_contain_text("craft")
        expect(page.locator("#job .failed")).not_to_contain_text("command line")
        page = seen.go(f"/projects/{project}/release")  # and after a reload
        expect(page.locator("#job .failed li")).to_have_count(2)
        expect(page.locator("#state")).to_contain_text("It could not be prepared: ")


@pytest.fixture(scope="module")
def harm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose every column and half of whose levels are named by somebody who means harm."""
    path = tmp_path_factory.mktemp("harm") / "harm.csv"
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(HOSTILE)
    for number in range(300):
        writer.writerow([HOSTILE[(number % 3 + column) % len(HOSTILE)] for column in range(len(HOSTILE))])
    path.write_text(out.getvalue(), encoding="utf-8")
    return path


def test_names_that_mean_harm_do_none(browser: Browser, desk: Desk, harm: Path) -> None:
    project = desk.project(harm, delimiter=",")
    swapped = {"method": "swap", "swap": [HOSTILE[0]], "rate": 0.1}
    with desk.client() as client:
        masking = client.wait(client.mask(project, swapped)).result
        study = client.wait(client.study(project, attributes=HOSTILE[:2], rates=[0.05], up_to=1)).result
        assert masking is not None
        assert study is not None
    with desk.seen(browser) as seen:
        for path in ("data", "risk", "method", "tables", "map", "records", f"results/{masking.id}", "release", "log"):
            page = seen.go(f"/projects/{project}/{path}")
            page.wait_for_timeout(300)
            assert page.evaluate("window.harm") is None, path
        page = seen.go(f"/projects/{project}/data")
        shown = page.locator("#attributes tr td:first-child bdi").all_text_contents()
        assert json.dumps(shown).count("script") >= 2
        assert len(shown) == len(HOSTILE)
        for report in (f"maskings/{masking.id}/report.html", f"studies/{study.id}/report.html"):
            page.goto(f"{desk.address}/api/v1/projects/{project}/{report}")
            assert page.evaluate("window.harm") is None, report
