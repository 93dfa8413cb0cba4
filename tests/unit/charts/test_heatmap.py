"""Heat maps hold the numbers of the study."""

import re

import pytest
from tests.studies import HOSTILE, published_study

from safeswap.charts.map import candidate_tables, heatmap_html, short_number
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


def test_the_other_direction_has_the_other_colour():
    page = heatmap_html([("a", "b"), ("a", "c")], [0.2, -0.2])
    up, down = re.findall(r"rgba\((\d+,\d+,\d+)", page)
    assert up != down
    assert "−.2000" in page
