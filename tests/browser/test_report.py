"""The reports in a real browser, on the screen and on paper."""

import re

import pytest
from tests.browser.opened import opened
from tests.studies import cps_study, hostile_study

import safeswap as ss
from safeswap.reports.facts import AUDIENCES
from safeswap.reports.study import write_study_report

PAPER = 673  # pixels between the margins of A4

BEYOND = """() => [...document.querySelectorAll("body *")].filter((each) => {
    const box = each.getBoundingClientRect();
    const wide = document.documentElement.clientWidth + 1;
    return box.width && (box.right > wide || each.scrollWidth > each.clientWidth + 2)
        && getComputedStyle(each).display !== "inline" && !each.closest("svg");
}).map((each) => each.tagName + " " + each.textContent.slice(0, 40))"""


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    """The reports of a swap with a study, whose file has a long name and values without a space."""
    folder = tmp_path_factory.mktemp("readers")
    data = ss.datasets.cps8d()
    long = "occupation_of_the_reference_person_of_the_household_in_the_first_wave"
    table = data.table.rename_columns([long if name == "EmpTyp" else name for name in data.attributes])
    masked = ss.swap(ss.read(table), swap=["Race", long], rate=0.05, insecure_seed=1)
    found = ss.study(table, attributes=["Race", "Sex"], rates=[0.01, 0.05], insecure_seed=1)
    scenario = {"name": "prosecutor", "keys": ["Age", "Race", "Sex", long], "up_to": 2}
    told = ss.report(masked, scenarios=[scenario], study=found, title="Current population survey", date="2026-11-16")
    told.write(folder)
    return folder


@pytest.mark.parametrize("audience", AUDIENCES)
def test_a_report_prints_whole_on_paper_light_and_without_asking_for_anything(browser, readers, audience):
    path = readers / f"{audience}.html"
    with opened(browser, path, dark=True, width=PAPER) as seen:
        assert seen.requests == [path.as_uri()]
        assert seen.complaints == []
        assert seen.page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        seen.page.emulate_media(media="print")
        assert seen.page.evaluate(BEYOND) == []
        pages = re.findall(rb"/Type\s*/Page\b", seen.page.pdf(prefer_css_page_size=True))
        assert 2 <= len(pages) <= 14
        # No line of a table and no picture is cut by the end of a page.
        cut = "() => [...document.querySelectorAll('tr, figure')].map((each) => getComputedStyle(each).breakInside)"
        assert set(seen.page.evaluate(cut)) == {"avoid"}


@pytest.mark.parametrize("version", ["internal", "public"])
def test_the_report_of_a_study_begins_with_the_map(browser, tmp_path, version):
    study = cps_study(attributes=("Race", "Sex", "Age"), replicates=5)
    path = write_study_report(study, study.choose(), tmp_path / "r.html", version=version, publish_figures=True)
    with opened(browser, path) as seen:
        assert seen.page.locator("h2").first.text_content() == "The map"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    ("version", "consent", "shown"),
    [("internal", False, (5, 3)), ("public", False, (0, 0)), ("public", True, (5, 0))],
)
def test_reports_open_from_a_disk_and_ask_for_nothing(browser, tmp_path, version, consent, shown, dark):  # noqa: PLR0917
    study = cps_study(attributes=("Race", "Sex", "Age"), replicates=5)
    path = write_study_report(study, study.choose(), tmp_path / "report.html", version=version, publish_figures=consent)
    with opened(browser, path, dark=dark) as seen:
        assert seen.requests == [path.as_uri()]
        assert seen.complaints == []
        assert (seen.page.locator("table.heat").count(), seen.page.locator("script").count()) == shown
        # Without the officer's consent the public report has no map: it would tell the rate.
        assert (seen.page.locator(".safeswap-map svg, figure svg").count() > 0) == (version == "internal" or consent)


@pytest.mark.parametrize("version", ["internal", "public"])
def test_hostile_names_do_nothing_in_a_report(browser, tmp_path, version):
    study = hostile_study()
    path = write_study_report(study, study.choose(), tmp_path / "report.html", version=version)
    with opened(browser, path) as seen:
        assert seen.page.evaluate("() => window.harmed") is None
        assert seen.page.locator("img").count() == 0
        assert seen.complaints == []
        assert len(seen.requests) == 1
