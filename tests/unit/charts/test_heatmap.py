"""Heat maps hold the numbers of the study."""

import re
from xml.etree import ElementTree as ET

import pytest
from tests.studies import HOSTILE, published_study

from safeswap.charts.heatmap import candidate_tables, heatmap_html, heatmap_png, heatmap_svg, short_number
from safeswap.charts.points import TABLE_MEASURES


@pytest.mark.parametrize("measure", TABLE_MEASURES)
def test_tables_of_a_candidate_are_those_of_the_study(measure):
    study = published_study()
    assert candidate_tables(study, 40)[measure] == study.distortion_table(40, measure)[measure].to_pylist()


def test_every_table_has_its_cell():
    study = published_study()
    values = candidate_tables(study, 40)["adV"]
    cells = re.findall(r"<td style=[^>]*>([^<]*)</td>", heatmap_html(study.table_pairs, values))
    assert sorted(cells) == sorted(short_number(value) for value in values)
    assert len(cells) == 28


def test_names_are_escaped():
    pairs = [(HOSTILE[0], HOSTILE[1])]
    page = heatmap_html(pairs, [0.5], caption=HOSTILE[0])
    assert "<script" not in page
    assert "<img" not in page


def test_figures_for_a_paper_hold_the_numbers_and_are_the_same_every_time():
    study = published_study()
    svg = heatmap_svg(study, 40, measure="adC", text_as_paths=False)
    assert svg == heatmap_svg(study, 40, measure="adC", text_as_paths=False)
    texts = ["".join(node.itertext()) for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    for value in candidate_tables(study, 40)["adC"]:
        assert short_number(value) in texts
    assert heatmap_png(study, 40, dpi=50) == heatmap_png(study, 40, dpi=50)


def test_the_other_direction_has_the_other_colour():
    page = heatmap_html([("a", "b"), ("a", "c")], [0.2, -0.2])
    up, down = re.findall(r"rgba\((\d+,\d+,\d+)", page)
    assert up != down
    assert "−.2000" in page
