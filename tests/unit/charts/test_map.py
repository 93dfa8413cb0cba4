"""The map as a page: whole, quiet, and proof against names."""

import gzip
import html
import re
from base64 import b64decode

import pytest
from tests.studies import HOSTILE, cps_study, hostile_study, impossible_study, published_study

from safeswap.charts.map import map_fragment, map_html
from safeswap.charts.scripts import plotly_script


def own(page: str) -> str:
    """The page without Plotly."""
    assert page.count(plotly_script()) == 1, "Plotly is in the page once"
    return page.replace(plotly_script(), "")


def test_the_page_fetches_nothing():
    page = own(map_html(published_study()))
    assert not re.search(r"""(src|href|action)\s*=|url\(|@import|https?:|fetch\(|XMLHttpRequest|WebSocket""", page)
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy


def test_nothing_can_be_sent_to_a_cloud():
    page = own(map_html(published_study()))
    for setting in ("showSendToCloud: false", 'plotlyServerURL: ""', "displaylogo: false", '"sendDataToCloud"'):
        assert setting in page


def test_our_scripts_put_text_in_as_text():
    page = own(map_html(published_study()))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", page)


@pytest.mark.parametrize("replicates", [1, 4])
def test_no_name_enters_the_page_as_markup(replicates):
    study = hostile_study(replicates)
    page = own(map_html(study, choice=study.choose()))
    for name in (*HOSTILE[:2], study.facts["name"]):
        assert name not in page
        assert html.escape(name) in page or name.replace("<", "\\u003c").replace(">", "\\u003e") in page


def test_ten_thousand_candidates_stay_small():
    study = cps_study(replicates=93)
    assert len(study) > 10_000
    assert len(own(map_html(study, choice=study.choose())).encode()) < 2_000_000


def test_the_same_study_gives_the_same_page():
    study = published_study()
    assert map_html(study) == map_html(study)


def test_the_first_axes_can_be_stated():
    study = published_study()
    assert '"axes":[0,2]' in map_html(study, distortion="total_variation")
    assert '"axes":[0,1]' in map_fragment(study)


def test_an_empty_study_makes_a_page():
    assert "could not be made" in own(map_html(impossible_study()))


def test_an_insecure_seed_is_told():
    assert "Not for release" in own(map_html(published_study()))


def test_a_notebook_gets_the_whole_page_in_a_frame_that_its_server_lets_through():
    study = cps_study(attributes=("Race", "Sex", "Age"), replicates=5)
    element = study._repr_html_()
    assert len(element.encode()) < 3_000_000
    assert element.count("<iframe") == 1
    assert "<script" not in element, "notebooks run no script that is inserted as text"
    frame = html.unescape(re.search(r'srcdoc="([^"]*)"', element)[1])
    packed = re.search(r'<script type="text/plain">([^<]*)</script>', frame)[1]
    assert gzip.decompress(b64decode(packed)).decode() == map_html(study)


def test_a_hostile_name_does_not_break_out_of_the_notebook_frame():
    element = hostile_study()._repr_html_()
    assert re.fullmatch(r'<p>[^<>]*</p><iframe [^<>]*srcdoc="[^"<>]*"></iframe>', element)
