"""Every screen of ours: what it shows, that it complains of nothing, and that everybody can use it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect
from tests.workbench.desk import Desk

from safeswap.service.routes.jobs import Job

KEYS = ["Age", "Edu", "MS", "Race", "Sex"]
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def worked(desk: Desk, survey: Path) -> dict[str, str]:
    """A project in which something was done: a study, a masking, a plot of its records."""
    project = desk.project(survey)
    with desk.client() as client:
        jobs = [
            client.study(project, attributes=["Age", "Edu", "Race"], replicates=2),
            client.mask(project, {"method": "swap", "swap": ["Race"], "rate": 0.05}),
        ]
        study, masking = (client.wait(job).result.id for job in jobs)
        body = {"masking": masking, "keys": KEYS}
        plot = client.wait(client._post(Job, f"/projects/{project}/confidentiality", body)).result.id
    return {"project": project, "study": study, "masking": masking, "plot": plot}


def screens(worked: dict[str, str]) -> list[str]:
    project = f"/projects/{worked['project']}"
    steps = [f"{project}/{name}" for name in ("data", "map", "records", "log")]
    return ["/", "/log-in", "/help/data", *steps, f"{project}/results/{worked['masking']}"]


def settle(page: Page) -> None:
    for chart in (".safeswap-map", ".safeswap-plot"):
        if page.locator(chart).count():
            page.wait_for_selector(f"{chart}[data-ready]")


def test_a_file_is_described(browser: Browser, desk: Desk, worked: dict[str, str]) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{worked['project']}/data")
        assert "2,000 records" in page.inner_text("#file-line")
        assert page.locator("#attributes tr").count() == 8


def test_a_viewer_cannot_change_a_description(browser: Browser, office: Desk, survey: Path) -> None:
    project = office.project(survey, who="ana", members=("vera",))
    with office.seen(browser, who="vera") as seen:
        page = seen.go(f"/projects/{project}/data")
        assert page.locator("#save").is_hidden()
        assert page.locator("#attributes select").first.is_disabled()
        page = seen.go(f"/projects/{project}/map")
        assert page.locator("#new-study").is_hidden()
        expect(page.locator("#none")).to_contain_text("An analyst must run one")


def test_somebody_logs_in_and_out(browser: Browser, office: Desk) -> None:
    with office.seen(browser, who="") as seen:
        seen.expected = ("401",)
        page = seen.page
        page.goto(office.address + "/")
        page.wait_for_url("**/log-in?next=*")
        seen.ready()
        page.get_by_label("Name").fill("ana")
        page.get_by_label("Password").fill("not this one")
        page.keyboard.press("Enter")
        expect(page.locator("#problem")).to_be_visible()
        page.get_by_label("Password").fill("three blind mice run")
        page.keyboard.press("Enter")
        page.wait_for_url(office.address + "/")
        expect(page.locator("#who")).to_have_text("ana (analyst)")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/log-in")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_screen_keeps_anybody_out(browser: Browser, desk: Desk, worked: dict[str, str], dark: bool) -> None:
    found: dict[str, Any] = {}
    with desk.seen(browser, dark=dark) as seen:
        for path in screens(worked):
            page = seen.go(path)
            settle(page)
            page.evaluate("document.querySelectorAll('main details').forEach((box) => { box.open = true; })")
            page.wait_for_timeout(200)
            faults = Axe().run(page).response["violations"]
            told = [
                (f["id"], f["nodes"][0]["target"], f["nodes"][0]["html"][:150])
                for f in faults
                if f["impact"] in SERIOUS
            ]
            if told:
                found[path.rsplit("/", 1)[-1]] = told
    assert found == {}


def test_no_screen_scrolls_sideways_on_a_phone(browser: Browser, desk: Desk, worked: dict[str, str]) -> None:
    steps = [f"/projects/{worked['project']}/{name}" for name in ("risk", "method", "release", "tables")]
    with desk.seen(browser, width=390, height=844) as seen:
        widths = {}
        for path in (*screens(worked), *steps):
            page = seen.go(path)
            settle(page)
            if "/projects/" in path:
                page.wait_for_selector("html[data-marked]")
            widths[path.rsplit("/", 1)[-1]] = page.evaluate("document.documentElement.scrollWidth")
    assert {name: width for name, width in widths.items() if width > 390} == {}


def test_a_first_load_is_small_and_no_chart_can_be_sent_away(
    browser: Browser, desk: Desk, worked: dict[str, str]
) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{worked['project']}/map")
        settle(page)
        sizes = page.evaluate(
            """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
                .map((entry) => entry.transferSize)"""
        )
        assert sum(sizes) < 2_000_000
        page.reload()
        seen.ready()
        settle(page)
        kept = page.evaluate("""() => performance.getEntriesByType("resource")
            .filter((entry) => entry.name.includes("/assets/")).map((entry) => entry.transferSize)""")
        assert sum(kept) == 0
        seen.part("plot").hover()
        assert page.locator(".modebar-btn").count() > 0
        for words in ("cloud", "Chart Studio", "Edit in"):
            assert page.locator(f'.modebar-btn[data-title*="{words}" i]').count() == 0


@pytest.mark.parametrize("screen", ["map", "records"])
def test_what_a_chart_needs_is_on_its_way_before_its_script_and_asked_for_once(
    browser: Browser, desk: Desk, worked: dict[str, str], screen: str
) -> None:
    with desk.seen(browser) as seen:
        seen.requests.clear()
        page = seen.go(f"/projects/{worked['project']}/{screen}")
        settle(page)
        early = page.evaluate("[...document.querySelectorAll('link[rel=preload]')].map((link) => link.href)")
        asked = [url for url in seen.requests if "/api/v1/" in url]
        assert f"{desk.address}/api/v1/session" in early
        assert asked[: len(early)] == early
        assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(("screen", "stated"), [("map", "study"), ("records", "plot")])
def test_a_chart_that_is_not_there_gives_way_to_the_newest(
    browser: Browser, desk: Desk, worked: dict[str, str], screen: str, stated: str
) -> None:
    with desk.seen(browser) as seen:
        seen.expected = ("404",)
        page = seen.go(f"/projects/{worked['project']}/{screen}?{stated}=of-yesterday")
        settle(page)
        newest = page.locator("#earlier a").first.get_attribute("href")
        assert newest == f"?{stated}={worked[stated]}"
        assert page.locator("#problem").is_hidden()


def test_the_chosen_colours_are_kept_for_the_next_screen(browser: Browser, desk: Desk, worked: dict[str, str]) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{worked['project']}/data")
        light = page.evaluate(ground)
        page.get_by_role("button", name="Dark").click()
        dark = page.evaluate(ground)
        page = seen.go(f"/projects/{worked['project']}/log")
        assert page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"
        assert page.evaluate(ground) == dark != light


def test_what_is_chosen_while_plotly_is_on_its_way_is_what_is_drawn(
    browser: Browser, desk: Desk, worked: dict[str, str]
) -> None:
    held: list[Route] = []
    with desk.seen(browser) as seen:
        page = seen.page
        page.route("**/js/plotly.js", lambda route: held.append(route))  # noqa: PLW0108  (Playwright marks it)
        page.goto(f"{desk.address}/projects/{worked['project']}/map", wait_until="commit")
        expect(page.locator(".safeswap-map table[data-part=table] tbody tr").first).to_be_visible()
        page.get_by_role("button", name="Dark").click()
        seen.part("select").click()
        held[0].continue_()
        page.unroute("**/js/plotly.js")
        seen.ready()
        page.wait_for_function("() => document.querySelector('[data-part=plot]')._fullLayout?.dragmode === 'select'")
        drawn, ink = page.evaluate(
            """() => [document.querySelector('[data-part=plot]')._fullLayout.font.color,
                      getComputedStyle(document.documentElement).getPropertyValue("--ink").trim()]"""
        )
        assert drawn == ink


@pytest.mark.parametrize("screen", ["map", "records"])
def test_a_chart_is_drawn_once(browser: Browser, desk: Desk, worked: dict[str, str], screen: str) -> None:
    watch = """(() => {
        window.drawings = [];
        Object.defineProperty(window, "Plotly", { configurable: true, set(plotly) {
            const counted = (verb) => (...given) => { window.drawings.push(verb); return plotly[verb](...given); };
            const verbs = ["newPlot", "react", "restyle", "relayout", "redraw"].map((verb) => [verb, counted(verb)]);
            Object.defineProperty(window, "Plotly", { value: { ...plotly, ...Object.fromEntries(verbs) } });
        } });
    })()"""
    with desk.seen(browser) as seen:
        seen.page.add_init_script(watch)
        page = seen.go(f"/projects/{worked['project']}/{screen}")
        settle(page)
        assert page.evaluate("window.drawings") == ["react"]
        labels = page.locator(".js-plotly-plot .textpoint").count()
        assert (labels > 0) == (screen == "map")


def test_the_program_that_draws_runs_again_only_when_it_is_new(
    browser: Browser, desk: Desk, worked: dict[str, str]
) -> None:
    with desk.seen(browser) as seen:
        # The frame is there for two seconds: on a busy machine a test that looks now and then could miss it.
        seen.page.add_init_script("""
            window.frames_hidden = [];
            new MutationObserver((changes) => changes.flatMap((change) => [...change.addedNodes])
                .filter((node) => node.tagName === "IFRAME").forEach((frame) => frames_hidden.push(frame.hidden)))
                .observe(document, { childList: true, subtree: true });
        """)
        page = seen.go(f"/projects/{worked['project']}/map")
        settle(page)
        page.wait_for_function("frames_hidden.length > 0")
        expect(page.locator("iframe")).to_have_count(0)
        assert page.evaluate("frames_hidden") == [True]
        page.reload()
        seen.ready()
        settle(page)
        page.wait_for_timeout(300)
        assert page.evaluate("frames_hidden") == []


def test_the_records_of_a_masking_are_plotted_and_the_policy_dragged(
    browser: Browser, desk: Desk, worked: dict[str, str]
) -> None:
    with desk.client() as client, desk.seen(browser) as seen:
        path = f"/projects/{worked['project']}/confidentiality/{worked['plot']}"
        summary = client._send("GET", path).json()["summary"]
        page = seen.go(f"/projects/{worked['project']}/records?plot={worked['plot']}")
        settle(page)
        assert page.inner_text("#sentence") == summary["sentence"]
        number = int(seen.part("unsafe").get_attribute("data-value") or -1)
        assert number == round(summary["unsafe_share"] * summary["records"])
        seen.part("handle-k").focus()
        for _ in range(20):
            page.keyboard.press("ArrowRight")
        assert int(seen.part("unsafe").get_attribute("data-value") or -1) > number
        page.locator("#new-plot summary").click()
        page.locator("#keys label", has_text="EmpTyp").locator("input").uncheck()
        page.get_by_role("button", name="Plot the records").click()
        page.wait_for_url(lambda url: "?plot=" in url and worked["plot"] not in url)
        seen.ready()
        settle(page)
        assert "AvgHrs" in page.inner_text("#plot-title")
        assert "EmpTyp" not in page.inner_text("#plot-title")


def test_the_step_bar_ticks_what_was_made_of_the_present_data(
    browser: Browser, desk: Desk, survey: Path, worked: dict[str, str]
) -> None:
    with desk.seen(browser, width=390, height=844) as seen:
        page = seen.go(f"/projects/{worked['project']}/log")
        page.wait_for_selector("html[data-marked]")
        ticked = page.locator(".steps a.done").evaluate_all("links => links.map((link) => link.dataset.step)")
        assert ticked == ["data", "method", "map", "records"]  # no scenario is in use, nothing was released
        expect(page.get_by_role("link", name="✓ Map (done)")).to_be_visible()
        heights = page.locator(".steps [data-step]").evaluate_all("links => links.map((link) => link.offsetTop)")
        assert len(set(heights)) == 1
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page = seen.go(f"/projects/{desk.project(survey)}/log")
        page.wait_for_selector("html[data-marked]")
        expect(page.locator(".steps a.done")).to_have_count(1)


def test_the_step_bar_ticks_a_release_however_many_were_refused_since(
    browser: Browser, desk: Desk, whole_survey: Path, tmp_path: Path
) -> None:
    file, lines = tmp_path / "own.csv", whole_survey.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([lines[0], *lines[30_000:31_000]]) + "\n", encoding="utf-8")
    project = desk.project(file)
    with desk.client() as client:
        masking = client.wait(client.mask(project, {"method": "swap", "swap": ["Race"], "rate": 0.2})).result
        assert masking is not None
        for is_approved in (True, False):
            release = client.request_release(project, masking.id, title="own")
            while (release := client.release(project, release.id)).state == "preparing":
                time.sleep(0.1)
            if is_approved:
                client.approve(project, release.id, manifest_hash=release.manifest_hash)
            else:
                client.reject(project, release.id, reason="once is enough")
        listed = client._send("GET", f"/projects/{project}/releases?state=approved&state=failed").json()["items"]
        assert [each["state"] for each in listed] == ["approved"]
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/log")
        page.wait_for_selector("html[data-marked]")
        ticked = page.locator(".steps a.done").evaluate_all("links => links.map((link) => link.dataset.step)")
        assert ticked == ["data", "method", "release"]
        # One answer, however many releases the project has.
        asked = [url.partition("/releases")[2] for url in seen.requests if "/releases" in url]
        assert asked == ["?state=approved&limit=1"]


def test_the_log_takes_a_note_and_can_be_saved(browser: Browser, desk: Desk, worked: dict[str, str]) -> None:
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{worked['project']}/log")
        page.get_by_label("A note").fill("Race at 5% <b>looks</b> right")
        page.get_by_role("button", name="Add the note").click()
        expect(page.locator("#lines tr").first).to_contain_text("Race at 5% <b>looks</b> right")
        with page.expect_download() as saved:
            page.get_by_role("link", name="Save the log as text").click()
        text = Path(saved.value.path()).read_text(encoding="utf-8")
    assert "job.study" in text
    assert "Race at 5% <b>looks</b> right" in text


def test_every_screen_shows_its_python(browser: Browser, desk: Desk, worked: dict[str, str]) -> None:
    with desk.seen(browser) as seen:
        for path in screens(worked)[3:]:
            if path.endswith("/log"):
                continue
            page = seen.go(path)
            page.locator("#python > summary").click()
            expect(page.locator("#python-text")).to_contain_text("import safeswap as ss")
            compile(page.inner_text("#python-text"), path, "exec")
