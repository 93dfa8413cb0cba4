"""The map: its numbers are the service's, its choice follows the sliders, and a study outlives page and server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from tests.workbench.desk import Desk, Seen

from safeswap.files.keyfile import generate_key
from safeswap.model.text import plural

ATTRIBUTES = ["Age", "Edu", "Race", "Sex"]


@pytest.fixture(scope="module")
def project(desk: Desk, survey: Path) -> str:
    return desk.project(survey)


@pytest.fixture(scope="module")
def study(desk: Desk, project: str) -> str:
    """Every choice of one or two of four attributes at three rates, drawn once: a point is a candidate."""
    with desk.client() as client:
        job = client.wait(
            client.study(project, attributes=ATTRIBUTES, rates=[0.01, 0.05, 0.1], objective="linear:a=0.2")
        )
        return job.result.id


def open_map(seen: Seen, project: str, study: str) -> None:
    seen.go(f"/projects/{project}/map?study={study}")
    seen.page.wait_for_selector(".safeswap-map[data-ready]")
    seen.part("plot").scroll_into_view_if_needed()


def place(seen: Seen, x: float, y: float) -> tuple[float, float]:
    """Where on the screen a point of the map is."""
    return tuple(
        seen.page.evaluate(
            """([x, y]) => {
                const plot = document.querySelector('.safeswap-map [data-part="plot"]');
                const { xaxis, yaxis } = plot._fullLayout, frame = plot.getBoundingClientRect();
                return [frame.left + xaxis._offset + xaxis.l2p(x), frame.top + yaxis._offset + yaxis.l2p(y)];
            }""",
            [x, y],
        )
    )


def gap(points: list[tuple[float, float, int]], first: int, last: int) -> float:
    """The middle of the widest gap between some of the points: a box that ends there has no point on its border."""
    pairs = zip(points[first:last], points[first + 1 : last + 1], strict=True)
    return max((b[0] - a[0], (a[0] + b[0]) / 2) for a, b in pairs)[1]


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.9g}")


def test_a_box_lists_what_the_interface_gives(browser: Browser, desk: Desk, project: str, study: str) -> None:
    with desk.client() as client:
        candidates = list(client.candidates(project, study))
    points = sorted((c.scores["hellinger"], c.scores["n_rule"], c.number) for c in candidates)
    left, right = gap(points, 2, 9), gap(points, 18, 25)
    inside = {number: (risk, across) for across, risk, number in points if left < across < right}
    with desk.seen(browser) as seen:
        open_map(seen, project, study)
        seen.part("select").click()
        lowest, highest = min(risk for _, risk, _ in points), max(risk for _, risk, _ in points)
        room = (highest - lowest) / 20
        start, end = place(seen, left, highest + room), place(seen, right, lowest - room)
        seen.page.mouse.move(*start)
        seen.page.mouse.down()
        seen.page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        seen.page.mouse.move(*end)
        seen.page.mouse.up()
        expect(seen.part("table-title")).to_contain_text(f"{len(inside)} selected candidates")
        rows: list[dict[str, Any]] = seen.page.evaluate(
            """() => {
                const table = document.querySelector('.safeswap-map table[data-part="table"]');
                const titles = [...table.querySelectorAll("thead th")].map((th) => th.textContent);
                const values = (tr) => [...tr.cells].map((td, i) => [titles[i], td.dataset.value]);
                return [...table.querySelectorAll("tbody tr")].map((tr) =>
                    Object.fromEntries([...values(tr), ["spec", Number(tr.dataset.spec)]]));
            }"""
        )
    assert {row["spec"] for row in rows} == set(inside)
    for row in rows:
        risk, across = inside[row["spec"]]
        assert float(row["n-rule"]) == rounded(risk)
        assert float(row["Hellinger distance"]) == rounded(across)


def test_the_drill_down_gives_what_the_interface_gives(browser: Browser, desk: Desk, project: str, study: str) -> None:
    with desk.client() as client:
        number = next(c.number for c in client.candidates(project, study) if c.label == "Edu+Race" and c.rate == 0.1)
        found = client.candidate(project, study, number)
        path = f"/projects/{project}/studies/{study}/candidates/{number}/table"
        table = client._send("GET", path, params={"attributes": ["Edu", "Sex"]}).json()
    with desk.seen(browser) as seen:
        open_map(seen, project, study)
        for rate in ("0.01", "0.05"):
            seen.page.locator(f'.safeswap-map [data-part="rates"] label:has-text("{rate}") input').uncheck()
        seen.page.wait_for_timeout(300)
        across, up = place(seen, found.scores["hellinger"], found.scores["n_rule"])
        seen.page.mouse.move(across - 2, up)
        seen.page.mouse.move(across, up)
        seen.page.mouse.click(across, up)
        panel = seen.part("detail")
        expect(panel.locator("h3").first).to_have_text("Edu+Race · rate 0.1")
        for each in found.tables:
            a, b = each.attributes
            shown = panel.locator(f'td[data-a="{a}"][data-b="{b}"]').get_attribute("data-value")
            assert float(shown or "nan") == float(f"{each.values['hellinger']:.5g}")
        assert found.python.splitlines()[2] in panel.locator("pre").inner_text()
        panel.get_by_text("Before and after").click()
        panel.get_by_label("Attribute of the rows").select_option("Edu")
        panel.get_by_label("Attribute of the columns").select_option("Sex")
        expect(panel.locator(".before-after table")).to_have_attribute("aria-label", "Edu by Sex, before and after")
        cells = panel.locator(".before-after tbody td").all_inner_texts()
    told = {f"{c['before']:,}" + (f" → {c['after']:,}" if c["changed"] else "") for c in table["cells"]}
    assert {text.replace("\u00a0", " ") for text in cells} == told
    assert any("→" in text for text in cells)


def test_the_choice_follows_the_sliders(browser: Browser, desk: Desk, project: str, study: str) -> None:
    with desk.client() as client, desk.seen(browser) as seen:
        open_map(seen, project, study)
        expect(seen.page.locator("#choice")).to_have_text(client.choose(project, study, "linear:a=0.2").sentence)
        seen.page.locator("#linear").evaluate(
            "(box) => { box.value = -2; box.dispatchEvent(new Event('input', { bubbles: true })); }"
        )
        other = client.choose(project, study, "linear:a=0.01")
        expect(seen.page.locator("#choice")).to_have_text(other.sentence)
        ringed = seen.page.evaluate(
            """() => document.querySelector('.safeswap-map [data-part="plot"]').data
                .filter((trace) => trace.marker?.symbol === "circle-open")
                .map((trace) => [trace.x[0], trace.y[0]])[0]"""
        )
        assert ringed == [rounded(other.distortion), rounded(other.risk)]
        seen.page.locator('[name="rule"][value="cap_risk"]').check()
        seen.page.locator("#cap_risk").focus()
        seen.page.keyboard.press("Home")
        expect(seen.page.locator("#choice")).to_contain_text("least distortion with risk at most")


def test_two_candidates_side_by_side_and_one_of_them_masked(
    browser: Browser, desk: Desk, project: str, study: str
) -> None:
    with desk.client() as client, desk.seen(browser) as seen:
        open_map(seen, project, study)
        names = seen.page.locator(".safeswap-map .ssm-link")
        for place_in_table in (0, 1):
            names.nth(place_in_table).click()
            seen.part("detail").get_by_role("button", name="Compare").click()
        expect(seen.page.locator("#sides table").first).to_contain_text("B − A")
        expect(seen.page.locator("#sides table")).to_have_count(2)
        seen.part("detail").get_by_role("button", name="Mask with this").click()
        seen.part("detail").get_by_role("link", name="The result").click()
        seen.page.wait_for_url("**/results/*")
        seen.ready()
        result = client.masking(project, seen.page.url.rsplit("/", 1)[1])
        shown = seen.page.locator(".score .value").evaluate_all("(all) => all.map((one) => Number(one.dataset.value))")
        assert shown == [score["value"] for score in result.summary["scores"]]
        expect(seen.page.locator("#before table")).to_be_visible()
        with seen.page.context.expect_page() as opened:
            seen.page.get_by_role("link", name="The report").click()
        report = opened.value
        report.wait_for_url("**/report.html")
        expect(report.locator("h1").first).to_be_visible()


def test_a_map_of_many_candidates_is_drawn(browser: Browser, desk: Desk, project: str) -> None:
    rates = [number / 100 for number in range(1, 13)]
    with desk.client() as client:
        study = client.wait(client.study(project, up_to=3, rates=rates, distortion=["hellinger"])).result.id
    with desk.seen(browser) as seen:
        open_map(seen, project, study)
        assert seen.page.evaluate(
            """() => document.querySelector('.safeswap-map [data-part="plot"]').data
                .some((trace) => trace.type === "scattergl" && trace.x.length > 1000)"""
        )
        assert "WebGL" not in seen.part("plot").inner_text()
        assert seen.page.locator(".gl-canvas").count() > 0


def test_a_study_is_described_and_run_with_the_keyboard_alone(browser: Browser, desk: Desk, survey: Path) -> None:
    project = desk.project(survey)
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/map")
        expect(page.locator("#size")).to_contain_text("324 candidates")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")  # the summary of the form, then its first attribute
        page.keyboard.press("Tab")
        for _ in range(6):
            page.keyboard.press("Space")
            page.keyboard.press("Tab")
        expect(page.locator("#size")).to_contain_text("27 candidates")
        for _ in range(60):
            if page.evaluate("document.activeElement.id") == "run":
                break
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(".safeswap-map[data-ready]")
        page.locator("#choosing-title").scroll_into_view_if_needed()
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.classList.contains('ssm-link')"):
                break
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.dataset.part") == "detail"


def test_a_study_outlives_the_page_and_the_server(browser: Browser, desk: Desk, whole_survey: Path) -> None:
    project = desk.project(whole_survey)
    with desk.client() as client:
        job = client.study(project, replicates=800, distortion=["hellinger"])
    with desk.seen(browser) as seen:
        seen.expected = ("net::ERR", "Failed to load resource")
        page = seen.go(f"/projects/{project}/map")
        expect(page.locator(".job")).to_contain_text("of 86,400 candidates")
        page.reload()
        seen.ready()
        expect(page.locator(".job")).to_contain_text("of 86,400 candidates")
        desk.stop()
        try:
            expect(page.locator(".job")).to_contain_text("does not answer")
        finally:
            desk.start()
        with desk.client() as client:
            before = client.job(job.id)
            assert before.state in {"queued", "running"}, "the study ended too soon to try a restart"
        page.wait_for_selector(".safeswap-map[data-ready]")
        assert "study=" in page.url
    with desk.client() as client:
        ended = client.job(job.id)
    assert ended.state == "succeeded"


def test_the_script_of_the_map_runs(  # noqa: PLR0917  (fixtures)
    browser: Browser,
    desk: Desk,
    survey: Path,
    project: str,
    study: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with desk.seen(browser) as seen:
        open_map(seen, project, study)
        seen.page.locator("#python summary").click()
        expect(seen.page.locator("#python-text")).to_contain_text("ss.study(")
        script = seen.page.locator("#python-text").inner_text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / survey.name).write_bytes(survey.read_bytes())
    generate_key("secret.key")
    names: dict[str, Any] = {}
    exec(script, names)
    assert len(names["study"]) == 30
    assert (tmp_path / "study" / "report.html").is_file()


def test_requirements_are_shaded_and_every_method_has_its_mark(browser: Browser, desk: Desk, survey: Path) -> None:
    project = desk.project(survey)
    scenario = {"name": "prosecutor", "keys": ATTRIBUTES, "tolerance": 3}
    varied = {"method": "pram", "attributes": ["Edu"], "sweep": {"keep": [0.8, 0.9]}}
    with desk.client() as client:
        etag = client._send("GET", f"/projects/{project}/settings").headers["etag"]
        client._send(
            "PATCH", f"/projects/{project}/settings", json={"scenarios": [scenario]}, headers={"If-Match": etag}
        )
        study = client.wait(
            client.study(project, attributes=["Edu", "Race"], rates=[0.05], replicates=2, swaps=True, vary=[varied])
        ).result.id
        candidates = list(client.candidates(project, study))
    means: dict[int, tuple[float, float]] = {}
    for each in candidates:
        drawn = [c for c in candidates if c.specification == each.specification]
        risk, across = (sum(c.scores[m] for c in drawn) / 2 for m in ("n_rule", "hellinger"))
        means[each.specification] = float(f"{risk:.9g}"), float(f"{across:.9g}")  # equal means may differ in a last bit
    beaten = [
        one
        for one, (risk, across) in means.items()
        if any(r <= risk and d <= across and (r, d) != (risk, across) for r, d in means.values())
    ]
    limit = round(sorted(risk for risk, _ in means.values())[2] * 1.0001, 6)
    accepted = sum(risk <= limit for risk, _ in means.values())
    with desk.seen(browser) as seen:
        open_map(seen, project, study)
        page = seen.page
        best = plural(len(means) - len(beaten), "specification")
        expect(page.locator("#study-line")).to_contain_text(f"{best} on the frontier")
        expect(seen.part("table-title")).to_contain_text(f"{best}, at the means")
        assert len(page.query_selector_all('[data-part="table"] tbody tr')) == len(means) - len(beaten)
        assert seen.part("marks").inner_text().split() == ["Method", "●", "swap", "▲", "pram"]
        page.get_by_label("Accepted: n-rule at most").fill(str(limit))
        page.get_by_role("button", name="Keep as requirement").click()
        expect(seen.part("legend")).to_contain_text(f"{accepted} of {len(means)} points")
        page.reload()
        seen.ready()
        expect(seen.part("legend")).to_contain_text(f"{accepted} of {len(means)} points")
        shaded = page.evaluate(
            """() => document.querySelector('.safeswap-map [data-part="plot"]')._fullLayout.shapes
                .filter((each) => each.type === "rect").map((each) => [each.yref, each.y1, each.xref])"""
        )
        assert shaded == [["y", limit, "paper"]]
        page.locator("#compared summary").first.click()
        for letter, place in (("A", 1), ("B", 4)):
            page.get_by_label(f"Candidate {letter}").select_option(index=place)
        expect(page.locator("#sides thead").first).to_contain_text("B: pram keep=0.8, replicate 0")
