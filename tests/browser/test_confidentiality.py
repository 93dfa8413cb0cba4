"""The confidentiality plot in a real browser: the policy can be dragged, and its counts are those of Python."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from tests.browser.opened import opened

from safeswap import datasets, workflow
from safeswap.charts.confidentiality import plot_html
from safeswap.measures.plot.values import ConfidentialityPlot, Policy
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEYS = ("turnover", "employees")


@cache
def division() -> ConfidentialityPlot:
    data = datasets.synthetic_enterprises()
    masked = workflow.mask(data, {"method": "rank_swap", "attributes": KEYS, "window": 0.08}, insecure_seed=1)
    return workflow.confidentiality(masked, keys=KEYS, only={"division": "18"})


@cache
def many() -> ConfidentialityPlot:
    data = datasets.synthetic_enterprises(30_000)
    masked = workflow.mask(data, {"method": "rank_swap", "attributes": KEYS, "window": 0.02}, insecure_seed=1)
    return workflow.confidentiality(masked, keys=KEYS)


@cache
def hostile() -> ConfidentialityPlot:
    """Identifiers that would like to be markup."""
    rng = np.random.default_rng(4)
    names = [f"<img src=x onerror=window.harmed={i}>\u202e&amp;</script>" for i in range(60)]
    table = pa.table({"<b>id</b>": names, "x": rng.lognormal(3, 1, 60), "y": rng.lognormal(3, 1, 60)})
    kinds = {"<b>id</b>": Kind.IDENTIFIER, "x": Kind.NUMERIC, "y": Kind.NUMERIC}
    schema = Schema(attributes=tuple(Attribute(name=name, kind=kind) for name, kind in kinds.items()))
    data = Microdata(table, schema)
    masked = workflow.mask(data, {"method": "noise", "attributes": ["x", "y"], "size": 0.05}, insecure_seed=1)
    return workflow.confidentiality(masked, keys=["x", "y"], scale="linear")


@pytest.fixture
def page(tmp_path):
    def written(plot, **options):
        path = tmp_path / "plot.html"
        path.write_text(plot_html(plot, **options), encoding="utf-8")
        return path

    return written


class Plot:
    """The parts of an opened page."""

    def __init__(self, seen):
        self.seen = seen
        seen.page.wait_for_selector(".safeswap-plot[data-ready]")
        seen.settle()

    def part(self, name):
        return self.seen.page.locator(f'.safeswap-plot [data-part="{name}"]')

    def unsafe(self):
        return int(self.part("unsafe").get_attribute("data-value"))

    def slide(self, name, value):
        self.part(name).evaluate(
            "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", value
        )
        self.seen.settle()

    def place(self, x, y):
        return self.seen.page.evaluate(
            """([x, y]) => {
                const plot = document.querySelector('.safeswap-plot [data-part="plot"]');
                const { xaxis, yaxis } = plot._fullLayout, frame = plot.getBoundingClientRect();
                return [frame.left + xaxis._offset + xaxis.l2p(x), frame.top + yaxis._offset + yaxis.l2p(y)];
            }""",
            [float(x), float(y)],
        )

    def drag(self, handle, x, y):
        box = self.part(handle).bounding_box()
        mouse = self.seen.page.mouse
        mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        mouse.down()
        mouse.move(*self.place(x, y), steps=6)
        mouse.up()
        self.seen.settle()


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_opens_without_a_complaint_and_asks_for_nothing_but_itself(browser, page, dark):
    path = page(division())
    with opened(browser, path, dark=dark) as seen:
        plot = Plot(seen)
        assert plot.unsafe() == int(division().unsafe.sum())
        assert seen.requests == [path.as_uri()]
        assert seen.complaints == []
        config = seen.page.evaluate("() => document.querySelector('.scp-plot')._context")
        assert config["showSendToCloud"] is False
        assert config["plotlyServerURL"] == ""


def test_squares_crosses_and_the_largest_unit_are_those_of_the_plot(browser, page):
    with opened(browser, page(division())) as seen:
        Plot(seen)
        drawn = seen.page.evaluate(
            """() => Object.fromEntries(document.querySelector('.scp-plot').data
                .filter((t) => t.marker && t.marker.symbol).map((t) => [t.marker.symbol, t.x.length]))"""
        )
        assert drawn == {
            "square-open": int(division().links.sum()),
            "x-thin": int(division().within.sum()),
            "square": 1,
        }


def test_records_at_one_place_are_one_dot_whose_area_tells_their_number(browser, page):
    masked = workflow.mask(
        datasets.household_survey(), {"method": "swap", "swap": ["tenure"], "rate": 0.1}, insecure_seed=1
    )
    plot = workflow.confidentiality(masked, keys=["sex", "tenure"])
    places = Counter(zip(plot.across.tolist(), plot.perturbation.tolist(), strict=True))
    with opened(browser, page(plot)) as seen:
        Plot(seen)
        drawn = seen.page.evaluate(
            """() => { const dots = document.querySelector('.scp-plot').data.find((t) => Array.isArray(t.marker?.size));
                return dots.x.map((x, i) => [x, dots.y[i], dots.text[i], dots.marker.size[i]]); }"""
        )
    assert {(x, round(y, 6)): text for x, y, text, _ in drawn} == {
        (x, round(y, 6)): f"{count:,} record" + "s" * (count != 1) for (x, y), count in places.items()
    }
    assert len({round(size**2 / places.most_common()[i][1], 3) for i, (*_, size) in enumerate(drawn) if size > 6}) == 1


def test_sliders_change_the_count_as_the_policy_would(browser, page):
    with opened(browser, page(division())) as seen:
        plot = Plot(seen)
        for change in ({"r": 0.08}, {"k": 7.0}, {"curvature": 1.0}, {"curvature": -1.5}):
            for name, value in change.items():
                plot.slide(name, value)
            now = {name: float(plot.part(name).input_value()) for name in ("r", "k", "curvature")}
            assert plot.unsafe() == division().count_unsafe(Policy(**now))
        plot.part("reset").click()
        seen.settle()
        assert plot.unsafe() == int(division().unsafe.sum())


def test_handles_can_be_dragged_and_moved_by_keys(browser, page):
    with opened(browser, page(division())) as seen:
        plot = Plot(seen)
        plot.drag("handle-r", 0, 0.06)
        plot.drag("handle-k", 8, 0)
        now = {name: float(plot.part(name).input_value()) for name in ("r", "k")}
        assert now["r"] == pytest.approx(0.06, rel=0.05)
        assert now["k"] == pytest.approx(8, rel=0.05)
        assert plot.unsafe() == division().count_unsafe(Policy(**now))
        plot.part("handle-k").focus()
        for _ in range(5):
            seen.page.keyboard.press("ArrowRight")
        seen.settle()
        assert float(plot.part("k").input_value()) > now["k"]


def test_a_click_names_the_neighbours_and_no_value(browser, page):
    found = division()
    # A record with neighbours that stands apart from others on the screen.
    places = np.column_stack([found.across / found.across.max(), found.perturbation / found.perturbation.max()])
    apart = np.array([np.sort(np.hypot(*(places - one).T))[1] for one in places])
    row = int(np.argmax(np.where(found.across >= 3, apart, 0)))
    with opened(browser, page(found)) as seen:
        plot = Plot(seen)
        seen.page.mouse.click(*plot.place(found.across[row], found.perturbation[row]))
        seen.settle()
        assert found.labels[row].as_py() in plot.part("detail").locator("h3").inner_text()
        shown = plot.part("detail").locator("li").all_inner_texts()
        assert [name.removesuffix(" ✓") for name in shown] == found.neighbours(row)["record"].to_pylist()[:25]
        turnover = datasets.synthetic_enterprises().table["turnover"].to_pylist()
        content = seen.page.content()
        assert not [value for value in turnover if f">{value}<" in content or f":{value}," in content]


def test_the_table_lists_the_unsafe_ones_and_opens_them(browser, page):
    with opened(browser, page(division())) as seen:
        plot = Plot(seen)
        listed = plot.part("table").locator("tbody button").all_inner_texts()
        assert sorted(listed) == sorted(division().unsafe_records()["record"].to_pylist())
        plot.part("table").locator("tbody button").first.click()
        seen.settle()
        assert listed[0] in plot.part("detail").locator("h3").inner_text()


def test_many_records_are_bins_and_the_count_stays_exact(browser, page):
    path = page(many())
    assert path.stat().st_size < 6_500_000
    with opened(browser, path) as seen:
        plot = Plot(seen)
        types = seen.page.evaluate("() => document.querySelector('.scp-plot').data.map((t) => t.type)")
        assert types[0] == "heatmap"
        assert plot.unsafe() == int(many().unsafe.sum())
        plot.slide("k", 40)
        assert plot.unsafe() == many().count_unsafe(Policy(k=float(plot.part("k").input_value())))
        plot.part("all").click()
        seen.settle()
        assert seen.complaints == []


def test_hostile_identifiers_do_nothing(browser, page):
    with opened(browser, page(hostile(), title="<script>window.harmed=1</script>")) as seen:
        plot = Plot(seen)
        for button in plot.part("table").locator("tbody button").all()[:5]:
            button.click()
            seen.settle()
        assert seen.page.evaluate("() => window.harmed") is None
        assert seen.page.locator("img[src=x]").count() == 0
        assert len(seen.requests) == 1
        assert seen.complaints == []


def test_the_public_page_runs_no_script_and_names_nobody(browser, page):
    path = page(division(), version="public")
    content = path.read_text()
    assert "<script" not in content
    assert not [label for label in division().labels.to_pylist() if label in content]
    with opened(browser, path) as seen:
        assert seen.requests == [path.as_uri()] or all(url.startswith(("file:", "data:")) for url in seen.requests)
        assert seen.complaints == []
        assert seen.page.locator("img").evaluate("(picture) => picture.naturalWidth") > 300
