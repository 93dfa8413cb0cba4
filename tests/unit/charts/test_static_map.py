"""The map for a paper: the same bytes every time, and as the documents draw it."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest
from tests.studies import HOSTILE, cps_study, hostile_study, impossible_study, published_study

from safeswap.charts.map import map_figure, map_png, map_svg
from safeswap.charts.points import points_of


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("options", [{}, {"by_rate": True}])
def test_pictures_are_the_same_bytes_every_time(options):
    study = published_study()
    choice = study.choose("linear:a=0.1")
    assert map_svg(study, choice=choice, **options) == map_svg(study, choice=choice, **options)
    assert map_png(study, dpi=60, **options) == map_png(study, dpi=60, **options)


def test_pictures_hold_no_date_and_no_maker():
    study = published_study()
    assert b"Software" not in map_png(study, dpi=60)
    svg = map_svg(study)
    assert "matplotlib.org" not in svg
    assert "<dc:date>" not in svg


def test_the_frontier_of_single_draws_is_that_of_the_study():
    study = published_study()
    points = points_of(study)
    made = np.flatnonzero(~np.isnan(study.scores("n_rule")))
    assert made[points.frontier()].tolist() == study.frontier().tolist()
    for rate in study.spec.rates:
        assert made[points.frontier(rate)].tolist() == study.frontier(rate=rate).tolist()


def test_every_frontier_point_of_the_published_panels_is_labelled():
    study = published_study()
    points = points_of(study)
    svg = texts(map_svg(study, by_rate=True, text_as_paths=False))
    for rate in study.spec.rates:
        assert f"rate {rate:g}" in svg
        assert {points.labels[i] for i in points.frontier(rate)} <= set(svg)


def test_the_original_has_its_own_mark_and_name():
    study = published_study()
    svg = texts(map_svg(study, choice=study.choose("linear:a=0.1"), text_as_paths=False))
    assert svg.count("original") == 2  # in the legend, and beside its mark
    (axes,) = map_figure(study).axes
    marks = [each.get_offsets().tolist() for each in axes.collections]
    assert [[0.0, study.facts["before"]["n_rule"]]] in marks


def test_panels_are_one_per_rate():
    study = published_study()
    assert len(map_figure(study, by_rate=True).axes) == 3
    assert len(map_figure(study).axes) == 1


def test_draws_are_a_cloud_behind_the_means():
    study = cps_study(attributes=("Race", "Sex", "Age"), replicates=5)
    points = points_of(study)
    assert len(points.cloud.risk) == len(study)
    drawn = map_figure(study).axes[0].collections[0]
    assert len(drawn.get_offsets()) == len(study)
    np.testing.assert_allclose(points.risk, study.summary()["risk_mean"].to_numpy(), rtol=1e-12)


def test_axes_are_named_after_the_measures():
    svg = texts(map_svg(published_study(), distortion="total_variation", text_as_paths=False))
    assert "Distortion: total variation distance" in svg
    assert "Risk: n-rule" in svg


def test_names_are_shown_as_they_are_and_not_as_formulas_or_markup():
    study = hostile_study()
    svg = map_svg(study, choice=study.choose(), text_as_paths=False)
    assert "<script" not in svg
    assert any(text.startswith(HOSTILE[0][:10]) for text in texts(svg))
    assert map_png(study, dpi=60).startswith(b"\x89PNG")


def test_an_empty_study_makes_a_picture_that_says_so():
    assert "No candidate could be made" in texts(map_svg(impossible_study(), text_as_paths=False))
