"""The exported map in a real browser: it opens from a disk, asks nobody anything, and shows the study's numbers."""

import numpy as np
import pytest
from tests.browser.opened import opened
from tests.studies import cps_study, hostile_study, impossible_study, published_study

from safeswap.charts.map import map_html
from safeswap.charts.points import TABLE_MEASURES
from safeswap.charts.scripts import KINDS


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages on the disk, each made once."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}

    def page(name, study, objective="linear:a=0.1"):
        if name not in made:
            choice = None if objective is None else study.choose(objective)
            made[name] = folder / f"{name}.html"
            made[name].write_text(map_html(study, choice=choice), encoding="utf-8")
        return made[name]

    return page


def drag(seen, start, end):
    seen.page.mouse.move(*start)
    seen.page.mouse.down()
    seen.page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2, steps=4)
    seen.page.mouse.move(*end, steps=4)
    seen.page.mouse.up()
    seen.settle()


def points(study):
    """Numbers, distortion and risk of what could be made."""
    y, x = study.axes()
    return [(i, x[i], y[i]) for i in range(len(study)) if y[i] == y[i]]


def lonely(study):
    """The feasible candidate that is furthest from all others on the screen."""
    here = points(study)
    values = np.array([[x, y] for _, x, y in here])
    scaled = (values - values.min(axis=0)) / np.ptp(values, axis=0)
    distance = np.hypot(*(scaled[:, None] - scaled[None]).transpose(2, 0, 1))
    np.fill_diagonal(distance, np.inf)
    return here[int(np.argmax(distance.min(axis=1)))]


def test_plotly_knows_the_kinds_of_chart_that_we_draw_and_no_other(browser, pages):
    with opened(browser, pages("published", published_study())) as seen:
        known = set(seen.page.evaluate("() => Object.keys(Plotly.PlotSchema.get().traces)"))
    assert known == KINDS


@pytest.mark.parametrize("many", [False, True])
def test_the_map_can_be_saved_as_a_picture(browser, pages, many):
    path = pages("many", cps_study(replicates=12)) if many else pages("published", published_study())
    with opened(browser, path) as seen:
        kinds, *pictures = seen.page.evaluate(
            """async () => {
                const plot = document.querySelector('.safeswap-map [data-part="plot"]');
                const saved = (format) => Plotly.toImage(plot, { format, width: 800, height: 600 });
                return [plot._fullData.map((trace) => trace.type), await saved("svg"), await saved("png")];
            }"""
        )
        assert ("scattergl" in kinds) == many
        for picture, kind in zip(pictures, ("svg+xml", "png"), strict=True):
            assert picture.startswith(f"data:image/{kind}")
            assert len(picture) > 20_000
        assert seen.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_opens_without_a_complaint_and_asks_for_nothing_but_itself(browser, pages, dark):
    path = pages("published", published_study())
    with opened(browser, path, dark=dark) as seen:
        seen.part("of-box")
        assert seen.requests == [path.as_uri()]
        assert seen.complaints == []
        ground = seen.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(20, 25, 31)" if dark else "rgb(255, 255, 255)")


def test_no_button_sends_the_chart_anywhere(browser, pages):
    with opened(browser, pages("published", published_study())) as seen:
        titles = seen.page.locator(".modebar-btn").evaluate_all("all => all.map((b) => b.dataset.title || '')")
        assert "Box Select" in titles
        assert not [
            title for title in titles if any(word in title.lower() for word in ("cloud", "plotly", "edit", "send"))
        ]
        config = seen.page.evaluate("() => document.querySelector('.ssm-plot')._context")
        assert config["showSendToCloud"] is False
        assert config["plotlyServerURL"] == ""
        assert config["displaylogo"] is False


def test_the_original_is_marked_and_named_and_not_in_the_table(browser, pages):
    study = published_study()
    with opened(browser, pages("published", study)) as seen:
        marks, names = seen.page.evaluate(
            """() => {
                const traces = document.querySelector('.safeswap-map [data-part="plot"]').data;
                return [traces.filter((t) => t.marker?.symbol === "cross-thin-open").map((t) => [...t.x, ...t.y]),
                    traces.at(-1).text.filter((text) => text.includes("original"))];
            }"""
        )
        (where,) = marks
        np.testing.assert_allclose(where, [0.0, study.facts["before"]["n_rule"]], rtol=1e-6)
        assert names == ["<i>original</i>"]
        assert len(seen.rows()) == len(study.frontier())
        assert "the untouched original" in seen.part("legend").text_content()


def test_the_frontier_in_the_page_is_that_of_the_study(browser, pages):
    study = published_study()
    with opened(browser, pages("published", study)) as seen:
        assert [int(row["spec"]) for row in seen.rows()] == study.frontier().tolist()
        seen.part("distortion").select_option(label="change in entropy, magnitude")
        seen.settle()
        assert [int(row["spec"]) for row in seen.rows()] == study.frontier(distortion="entropy_change").tolist()


def test_ticking_rates_shows_the_frontier_of_those(browser, pages):
    study = published_study()
    with opened(browser, pages("published", study)) as seen:
        ticks = seen.part("rates").locator("input")
        ticks.nth(0).uncheck()
        ticks.nth(1).uncheck()
        seen.settle()
        assert [int(row["spec"]) for row in seen.rows()] == study.frontier(rate=study.spec.rates[2]).tolist()
        ticks.nth(2).uncheck()
        seen.settle()
        assert "Nothing to show" in seen.part("empty").inner_text()
        assert seen.rows() == []


def test_a_box_lists_what_is_in_it_with_the_numbers_of_the_study(browser, pages):
    study = published_study()
    inside = [i for i, x, y in points(study) if 0.0606 < x < 0.1189 and 0.01234 < y < 0.01336]
    with opened(browser, pages("published", study)) as seen:
        seen.part("select").click()
        drag(seen, seen.place(0.0606, 0.01336), seen.place(0.1189, 0.01234))
        rows = seen.rows()
        assert len(rows) > 5
        assert sorted(int(row["spec"]) for row in rows) == inside
        assert f"{len(rows)} selected candidates" in seen.part("table-title").inner_text()
        table = study.table.to_pylist()
        for row in rows:
            expected = table[int(row["spec"])]
            assert row["Swapped"] == expected["label"]
            assert float(row["Rate"]) == expected["rate"]
            assert int(row["Pairs"]) == expected["pairs"]
            for title, measure in (("n-rule", "n_rule"), ("Hellinger distance", "hellinger")):
                assert float(row[title]) == pytest.approx(expected[measure], rel=1e-8)
        seen.part("reset").click()
        seen.settle()
        assert [int(row["spec"]) for row in seen.rows()] == study.frontier().tolist()


def test_the_table_can_be_sorted_from_the_keyboard(browser, pages):
    with opened(browser, pages("published", published_study())) as seen:
        header = seen.part("table").locator("thead button", has_text="n-rule")
        header.focus()
        seen.page.keyboard.press("Enter")
        values = [float(row["n-rule"]) for row in seen.rows()]
        assert values == sorted(values)


def test_a_click_shows_the_tables_and_the_specification(browser, pages):
    study = published_study()
    number, x, y = lonely(study)
    with opened(browser, pages("published", study)) as seen:
        seen.page.mouse.move(*seen.place(x, y))
        seen.part("tip").wait_for(state="visible")
        seen.page.mouse.click(*seen.place(x, y))
        seen.settle()
        check_detail(seen, study, number)


def test_the_keyboard_reaches_the_same_details(browser, pages):
    study = published_study()
    number = int(study.frontier()[-1])
    with opened(browser, pages("published", study)) as seen:
        seen.page.locator(f'tr[data-spec="{number}"] button').focus()
        seen.page.keyboard.press("Enter")
        seen.settle()
        check_detail(seen, study, number)


def check_detail(seen, study, number):
    row = study.table.slice(number, 1).to_pylist()[0]
    assert seen.part("detail").locator("h3").inner_text() == f"{row['label']} · rate {row['rate']:g}"
    values = {}
    exec(seen.part("spec-text").inner_text().replace("masked = ", "# "), values)
    assert values["spec"] == study.specs[number]
    for i, measure in enumerate(TABLE_MEASURES):
        seen.part("heat-measure").select_option(str(i))
        seen.settle()
        shown = seen.page.locator(".ssm-heat td[data-value]").evaluate_all(
            "cells => cells.map((td) => [td.dataset.a, td.dataset.b, Number(td.dataset.value)])"
        )
        expected = {
            (line["a"], line["b"]): line[measure] for line in study.distortion_table(number, measure).to_pylist()
        }
        assert len(shown) == 28
        for a, b, value in shown:
            assert value == pytest.approx(expected[a, b], rel=1e-4, abs=1e-12)


def test_labels_do_not_cover_each_other(browser, pages):
    with opened(browser, pages("published", published_study()), width=1600) as seen:
        boxes = seen.page.locator(".ssm-plot .textpoint text").evaluate_all(
            "all => all.map((t) => { const b = t.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"
        )
        assert len(boxes) > 30
        # The browser's boxes hold the leading above and below the letters, hence the allowance.
        for i, (left, top, right, bottom) in enumerate(boxes):
            for a, b, c, d in boxes[:i]:
                assert right <= a + 1 or c <= left + 1 or bottom <= b + 4 or d <= top + 4


def test_draws_are_a_cloud_of_webgl_points_behind_their_means(browser, pages):
    study = cps_study(replicates=20)
    with opened(browser, pages("drawn", study)) as seen:
        traces = seen.page.evaluate(
            "() => document.querySelector('.ssm-plot').data.map((t) => [t.type, t.x.length, t.mode])"
        )
        assert ["scattergl", len(study), "markers"] in traces
        assert seen.complaints == []
        summary = study.summary()
        rows = seen.rows()
        for row in rows:
            expected = summary.slice(int(row["spec"]), 1).to_pylist()[0]
            assert float(row["n-rule"]) == pytest.approx(expected["risk_mean"], rel=1e-8)
            assert row["How often"] == f"{round(100 * expected['on_frontier'] + 1e-9)}%"
        seen.part("of").select_option("draws")
        seen.settle()
        assert [int(row["candidate"]) for row in seen.rows()] == study.frontier().tolist()


def test_a_single_draw_opens_with_its_own_tables_and_replicate(browser, pages):
    study = cps_study(replicates=20)
    number = int(study.frontier()[0])
    with opened(browser, pages("drawn", study)) as seen:
        seen.part("of").select_option("draws")
        seen.settle()
        seen.page.locator(f'tr[data-candidate="{number}"] button').click()
        seen.settle()
        replicate = study.table.column("replicate")[number].as_py()
        assert f"replicate={replicate}" in seen.part("spec-text").inner_text()
        shown = seen.page.locator(".ssm-heat td[data-value]").evaluate_all(
            "cells => cells.map((td) => Number(td.dataset.value))"
        )
        expected = study.distortion_table(number, "hellinger")["hellinger"].to_pylist()
        assert sorted(shown) == pytest.approx(sorted(expected), rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("replicates", [1, 4])
def test_hostile_names_do_nothing(browser, pages, replicates):
    study = hostile_study(replicates)
    with opened(browser, pages(f"hostile{replicates}", study)) as seen:
        for button in seen.part("table").locator("tbody button").all()[:5]:
            button.click()
            seen.settle()
        for kind in seen.page.get_by_role("tab").all():
            kind.click()
        x, y = study.summary()["distortion_mean"][0].as_py(), study.summary()["risk_mean"][0].as_py()
        seen.page.mouse.move(*seen.place(x, y))
        seen.settle()
        assert seen.page.evaluate("() => window.harmed") is None
        assert seen.page.locator("img[src=x]").count() == 0
        assert len(seen.requests) == 1
        assert seen.complaints == []
        assert seen.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth"), (
            "long names are cut"
        )


def test_a_study_without_a_feasible_candidate_says_so(browser, pages):
    with opened(browser, pages("impossible", impossible_study(), objective=None)) as seen:
        assert "No candidate could be made" in seen.part("empty").inner_text()
        seen.part("rejected").locator("summary").click()
        assert "the same value in every record" in seen.part("rejected").inner_text()
        assert "null" not in seen.page.locator("body").inner_text()
        assert seen.complaints == []


def test_a_notebook_that_inserts_the_study_shows_the_map(browser, tmp_path):
    study = cps_study(attributes=("Race", "Sex", "Age"), replicates=5)
    notebook = tmp_path / "notebook.html"
    notebook.write_text(
        "<!DOCTYPE html><meta charset='utf-8'><body><template id=t>" + study._repr_html_() + "</template></body>"
    )
    with opened(browser, notebook) as seen:
        # As notebooks do it: the output is text that becomes the inside of an element.
        seen.page.evaluate(
            "() => { const cell = document.createElement('div');"
            " cell.innerHTML = document.getElementById('t').innerHTML; document.body.append(cell); }"
        )
        frame = seen.page.frame_locator("iframe")
        frame.locator(".safeswap-map[data-ready]").wait_for()
        assert frame.locator("table[data-part=table] tbody tr").count() > 0
        assert [url for url in seen.requests if not url.startswith(("file:", "about:", "data:", "blob:"))] == []


def test_an_axis_starts_at_0_or_shows_that_it_is_cut(browser, pages):
    study = published_study()  # every candidate, and the original, have nearly the same risk
    script = """() => {
        const { xaxis, yaxis, shapes } = document.querySelector('.ssm-plot')._fullLayout;
        return [xaxis.range[0], yaxis.range[0], shapes.filter((each) => each.type === "path").length];
    }"""
    with opened(browser, pages("published", study)) as seen:
        left, low, breaks = seen.page.evaluate(script)
        risks = [*study.axes()[0], study.facts["before"]["n_rule"]]
        assert left <= 0
        assert (low > 0) == (breaks == 1) == (min(risks) > 0.4 * max(risks))
        assert ("the axis of risk is cut" in seen.part("legend").inner_text()) == (low > 0)
        seen.part("zero").check()
        seen.settle()
        left, low, breaks = seen.page.evaluate(script)
        assert left <= 0
        assert low <= 0
        assert breaks == 0
        assert "is cut" not in seen.part("legend").inner_text()
