"""The pictures of the confidentiality plot: the same bytes every time, and nothing in public that names anybody."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from safeswap import datasets, workflow
from safeswap.charts import confidentiality
from safeswap.charts.confidentiality import default_second, plot_figure, plot_html, plot_png, plot_svg, view_limits
from safeswap.charts.scripts import as_json
from safeswap.measures.plot.values import Policy

KEYS = ("turnover", "employees")


@cache
def plot():
    data = datasets.synthetic_enterprises()
    masked = workflow.mask(data, {"method": "rank_swap", "attributes": KEYS, "window": 0.08}, insecure_seed=1)
    return workflow.confidentiality(masked, keys=KEYS, only={"division": "18"})


@cache
def frequencies():
    data = datasets.cps8d()
    return workflow.confidentiality(data, data, keys=["Age", "Edu", "Race"], k=20)


def payload(found=None, **options):
    found = found or plot()
    return confidentiality.plot_payload(found, **{"second": default_second(found.policy), "title": "x", **options})


def test_pictures_are_the_same_bytes_every_time():
    assert plot_svg(plot()) == plot_svg(plot())
    assert plot_png(plot(), dpi=40) == plot_png(plot(), dpi=40)


def test_marks_lines_and_zone_are_in_the_picture():
    axes = plot_figure(plot()).axes[0]
    sizes = {len(c.get_offsets()) for c in axes.collections if len(c.get_offsets()) > 0}
    assert {int(plot().links.sum()), int(plot().within.sum()), 1} <= sizes
    lines = [line.get_xydata() for line in axes.lines]
    assert [line[0].tolist() for line in lines] == [[0, 0.15], [0, 0.15]]
    assert [line[-1].tolist() for line in lines] == [[15, 0], [15, 0]]
    assert "105 records" in "".join(text.get_text() for text in axes.get_legend().get_texts())


def test_frequencies_have_a_vertical_line():
    axes = plot_figure(frequencies()).axes[0]
    assert [line.get_xdata() for line in axes.lines] == [[20, 20]]
    assert axes.get_xlabel().startswith("Frequency")


def test_a_second_policy_can_be_stated():
    axes = plot_figure(plot(), second=Policy(r=0.3, k=30)).axes[0]
    assert axes.lines[1].get_xydata()[0].tolist() == [0, 0.3]


@pytest.mark.parametrize("picture", [plot_svg, plot_html])
def test_the_public_version_names_nobody_and_hides_small_bins(picture):
    text = picture(plot(), version="public", **({"text_as_paths": False} if picture is plot_svg else {}))
    assert "<script" not in text
    assert not [label for label in plot().labels.to_pylist() if label in text]
    mesh = next(
        c
        for c in plot_figure(plot(), version="public").axes[0].collections
        if hasattr(c, "get_array") and c.get_array() is not None and c.get_array().size > 20
    )
    counts = np.ma.filled(np.ma.masked_invalid(mesh.get_array()), 0)
    assert counts[counts > 0].min() >= 3
    assert len(plot_figure(plot(), version="public").axes[0].collections) < 4, "no squares, no crosses"


def test_the_payload_has_every_record_once_and_no_value_of_a_key():
    told = payload()
    assert len(told["points"]["x"]) == 157
    assert told["bins"] is None
    assert sum(mark >= 2 for mark in told["points"]["mark"]) == int(plot().links.sum())
    assert sum(mark in (1, 3) for mark in told["points"]["mark"]) == int(plot().within.sum())
    text = as_json(told)
    assert json.loads(text)["points"]["label"] == plot().labels.to_pylist()
    turnover = {f"{value}" for value in datasets.synthetic_enterprises().table["turnover"].to_pylist()}
    numbers = set(text.replace("[", ",").replace("]", ",").replace('"', "").split(","))
    assert not turnover & numbers


def test_bins_count_every_record_within_the_limits(monkeypatch):
    monkeypatch.setattr(confidentiality, "MOST_POINTS", 50)
    told = payload()
    limits = view_limits(plot())
    for view in ("all", "near"):
        inside = (plot().across < limits[view][0]) & (plot().perturbation < limits[view][1])
        assert sum(told["bins"][view]["count"]) == int(inside.sum())
    shown = set(told["points"]["label"])
    assert set(plot().unsafe_records()["record"].to_pylist()) <= shown, "unsafe ones are drawn one by one"


def test_where_records_are_too_many_the_count_is_estimated_and_says_so(monkeypatch):
    monkeypatch.setattr(confidentiality, "MOST_COUNTED", 40)
    told = payload()["counted"]
    assert told["exact"] is False
    assert len(told["x"]) == 40
    assert told["each"] * 40 == pytest.approx(157, rel=0.2)


def test_an_infinite_perturbation_is_said_and_not_drawn():
    from dataclasses import replace

    moved = plot().perturbation.copy()
    moved[3] = np.inf
    told = payload(replace(plot(), perturbation=moved))
    assert told["beyond"] == 1
    assert len(told["points"]["x"]) == 156
    assert "Infinity" not in as_json(told)


def test_hostile_names_cannot_leave_the_data_of_the_page():
    page = plot_html(plot(), title="</script><img src=x onerror=alert(1)>")
    assert "<img src=x" not in page
