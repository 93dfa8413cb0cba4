"""The reports in a real browser."""

import pytest
from tests.browser.opened import opened
from tests.studies import cps_study, hostile_study

from safeswap.reports.study import write_study_report


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
