"""The result page of an edit: every number on it is the one that the interface gives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from pyarrow import parquet
from tests.workbench.desk import Desk

from safeswap import datasets
from safeswap.model.microdata import Microdata

HOUSEHOLDS = 3000
EDIT_1990 = {
    "method": "edit_1990",
    "keys": ["ADULTS", "TENURE"],
    "geography": ["STATE", "COUNTY", "PLACE", "TRACT", "BLOCK"],
    "across": "PLACE",
    "rate": 0.2,
}
EDIT_TARGETED = {"method": "edit_targeted", "keys": ["REGION", "YR_BLT", "BEDROOMS", "BATHS"], "exchange": "continuous"}


@pytest.fixture(scope="module")
def census(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A project with a census of which only the geography, two keys and a third attribute are left."""
    whole = datasets.synthetic_census(HOUSEHOLDS)
    names = [*EDIT_1990["geography"], *EDIT_1990["keys"], "OCCUPATION"]
    return project_of(desk, tmp_path_factory.mktemp("census") / "census.parquet", whole, names)


@pytest.fixture(scope="module")
def housing(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> str:
    whole = datasets.synthetic_housing_survey()
    return project_of(desk, tmp_path_factory.mktemp("housing") / "housing.parquet", whole, list(whole.schema.names))


def project_of(desk: Desk, path: Path, whole: Microdata, names: list[str]) -> str:
    """A project with some attributes of the data, of the kinds that they have there."""
    parquet.write_table(whole.table.select(names), path)
    project = desk.project(path)
    with desk.client() as client:
        tag = client._send("GET", f"/projects/{project}/description").headers["etag"]
        stated = {"attributes": [{"name": name, "kind": whole.schema[name].kind.value} for name in names]}
        job = client._send("PATCH", f"/projects/{project}/description", json=stated, headers={"If-Match": tag}).json()
        client.wait(client.job(job["id"]))
    return project


def told(desk: Desk, path: str, **params: Any) -> Any:
    with desk.client() as client:
        return client._send("GET", path, params=params).json()


def number(text: str) -> float:
    return float(text.replace(",", ""))


def agrees(page: Page, desk: Desk, project: str, masking: str) -> dict[str, Any]:
    """The page of a masking against the answers of the interface; what the interface says of it."""
    found = told(desk, f"/projects/{project}/maskings/{masking}")
    summary = found["summary"]
    assert page.locator("#plan").inner_text() == f"{summary['done']}."
    shown = [number(text) for text in page.locator("#totals td").all_inner_texts()]
    planned = ("asked", "feasible") if summary["asked"] else ()  # several steps have no common plan
    assert shown == [summary[name] for name in ("records", *planned, "made", "compensating")]
    titles = page.locator("#totals th").all_inner_texts()
    made = "Records changed" if summary["unit"] == "records" else f"Made, {summary['unit']}"
    assert titles[1:-1] == [f"{title}, {summary['unit']}" for title in ("Requested", "Feasible")[: len(planned)]] + [
        made
    ]
    scores, notes = page.locator(".score"), page.locator("#scores > .note").all_inner_texts()
    expect(scores).to_have_count(len(summary["scores"]))
    for i, score in enumerate(summary["scores"]):
        value = scores.nth(i).locator(".value")
        assert float(value.get_attribute("data-value") or "nan") == score["value"]
        assert value.inner_text() == "0" or number(value.inner_text()) == pytest.approx(score["value"], rel=1e-3)
        shown = scores.nth(i).locator("p").first.inner_text()
        assert score["sentence"].startswith(shown)
        # What is true of several figures is said once, below them.
        assert {each for each in notes if each in score["sentence"]} == {score["sentence"][len(shown) + 1 :]} - {""}
    assert json.loads(page.locator("#spec").text_content() or "") == found["spec"]["spec"]
    return found


def same_table(page: Page, desk: Desk, address: str, *, rows: str, columns: str) -> int:
    """Chosen on the page, a table has the cells of the interface; how many of them were changed."""
    table = told(desk, f"{address}/table", attributes=[rows, columns])
    page.get_by_label("Attribute of the rows").select_option(rows)
    page.get_by_label("Attribute of the columns").select_option(columns)
    drawn = page.locator("#before table")
    expect(drawn).to_have_attribute("aria-label", f"{rows} by {columns}, before and after")
    cells = drawn.evaluate(
        """(table) => [...table.querySelectorAll("tbody td")].map((td) => [td.parentNode.cells[0].textContent,
            table.tHead.rows[0].cells[td.cellIndex].textContent, td.textContent])"""
    )
    few = "·"  # below the tolerance, or one from which such a count could be derived
    counts = {
        tuple(cell["levels"]): [few if n is None else f"{n:,}" for n in (cell["before"], cell["after"])]
        for cell in table["cells"]
    }
    changed = {tuple(cell["levels"]) for cell in table["cells"] if cell["changed"]}
    hidden = {tuple(cell["levels"]) for cell in table["cells"] if cell["changed"] is None}
    for row, column, text in cells:
        before, after = counts.get((row, column), ["0", "0"])
        shown = f"{before} → {after}" if (row, column) in changed else before
        assert text == (few if (row, column) in hidden else shown)
    assert len(counts) <= len(cells)
    return len(changed)


def test_the_edit_of_1990_is_made_on_its_form_and_its_result_is_shown(
    browser: Browser, desk: Desk, census: str
) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{census}/method?method=edit_1990")
        group = page.locator("#fields fieldset").filter(has=page.locator("legend", has_text="Keys"))
        for attribute in EDIT_1990["keys"]:  # type: ignore[attr-defined]
            group.get_by_label(attribute, exact=True).check()
        for attribute in EDIT_1990["geography"]:  # type: ignore[attr-defined]
            page.get_by_label("Add to geography").select_option(attribute)
        page.get_by_role("combobox", name=re.compile("^Across")).select_option("PLACE")
        page.get_by_role("spinbutton", name=re.compile("^Rate")).fill("0.2")
        page.click("#mask")
        page.locator("#job").get_by_role("link", name="The result").click()
        page.wait_for_url("**/results/*")
        seen.ready()
        found = agrees(page, desk, census, page.url.rpartition("/")[2])
        (made,) = found["spec"]["spec"]["steps"]
        assert made | EDIT_1990 == made
        assert found["summary"]["made"] > 0
        address = f"/projects/{census}/maskings/{found['id']}"
        assert same_table(page, desk, address, rows="TENURE", columns="ADULTS") == 0, "the keys are exchanged together"
        assert same_table(page, desk, address, rows="OCCUPATION", columns="COUNTY") > 0


def test_the_targeted_edit_has_the_result_page_that_the_interface_tells(
    browser: Browser, desk: Desk, housing: str
) -> None:
    with desk.client() as client:
        masking = client.wait(client.mask(housing, EDIT_TARGETED)).result
    assert masking is not None
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{housing}/results/{masking.id}")
        found = agrees(page, desk, housing, masking.id)
        assert found["summary"]["made"] > 0
        links = page.locator("#reports a")
        told = {link.get_attribute("href").rpartition("/")[2] for link in links.all()}
        assert told == {"public", "members", "chair", "analyst", "five-safes"}
        for link in links.all():
            assert page.request.get(link.evaluate("link => link.href")).status == 200
        address = f"/projects/{housing}/maskings/{masking.id}"
        assert same_table(page, desk, address, rows="REGION", columns="BEDROOMS") == 0, "amounts alone change hands"
