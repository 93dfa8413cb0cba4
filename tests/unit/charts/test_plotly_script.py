"""Plotly in our pages: the package's own text, with the kinds of chart that we draw, and in ASCII."""

import re

import pytest
from plotly.offline import get_plotlyjs

from safeswap.charts import scripts
from safeswap.charts.scripts import KINDS, TRIED, keep_kinds, remove_unused, to_ascii

END = re.compile(r"\.register\(\[([\w$(),]+)\]\);[\w$.=]+\}\);return [\w$]+\(\);\}\)\(\);")


@pytest.fixture
def fresh():
    scripts.plotly_script.cache_clear()
    yield scripts.plotly_script
    scripts.plotly_script.cache_clear()


def calls(text: str) -> list[str]:
    """What the script has made known at its end."""
    return END.search(text)[1].split(",")


def test_only_the_list_of_kinds_is_another():
    original, ours = get_plotlyjs(), keep_kinds(get_plotlyjs(), KINDS)
    all_calls, our_calls = calls(original), calls(ours)
    assert len(all_calls) > 40
    assert len(our_calls) == 2, "heatmap and scattergl; scatter is in the core"
    assert set(our_calls) < set(all_calls)
    assert ours.replace(f"[{','.join(our_calls)}]", f"[{','.join(all_calls)}]") == original


def test_a_script_of_another_form_stays_as_it_is():
    original = get_plotlyjs()
    for other in (
        "var Plotly=1;",
        original.replace(".register([", ".register(...[", 1),
        original + original,  # two lists: which is meant is not known
        original.replace('moduleType:"', 'moduleSort:"'),  # no kind tells its name
        original.replace('name:"heatmap"', 'name:"warm"'),  # one of ours is not there
    ):
        assert keep_kinds(other, KINDS) == other


def test_a_kind_that_does_not_tell_its_name_is_kept():
    silent = get_plotlyjs().replace('moduleType:"trace",name:"pie"', 'moduleType:x,name:"pie"')
    assert len(calls(keep_kinds(silent, KINDS))) == 3


def test_what_is_cut_is_whole_parts_and_what_is_called_stays():
    original = keep_kinds(get_plotlyjs(), KINDS)
    text = remove_unused(original)
    assert len(text) < 0.4 * len(original)
    at = 0
    for part in re.split(r"(?<=\}\);)(?=var )", text):
        at = original.index(part, at) + len(part)  # every piece is there as it was, in the same order
    assert text[:5000] == original[:5000], "the licence and what all parts use"
    assert text.partition(".register([")[2] == original.partition(".register([")[2], "the licences of what Plotly holds"
    assert remove_unused(text) == text


def test_what_stands_behind_a_part_keeps_it():
    text = ";var a=m((e,o)=>{1});function f(){}var b=m((e,o)=>{2});return b()"
    assert remove_unused(text) == text


def test_the_installed_version_was_tried():
    version = re.search(r"plotly\.js v([\d.]+)", get_plotlyjs())[1]
    assert version in TRIED, "run tests/browser and tests/workbench with it in TRIED; if they pass, it belongs there"


def test_a_version_that_was_not_tried_is_not_cut(fresh, monkeypatch):
    monkeypatch.setattr(scripts, "TRIED", frozenset())
    assert fresh() == to_ascii(keep_kinds(get_plotlyjs(), KINDS))


def test_signs_beyond_ascii_are_escapes_and_nothing_else_is_touched():
    original = get_plotlyjs()
    text = to_ascii(original)
    assert text.isascii()
    beyond = {sign for sign in original if not sign.isascii()}
    assert beyond
    # An escape of such a sign that the package itself has written is one here too.
    for sign in beyond:
        text = text.replace(f"\\u{ord(sign):04x}", sign)
        original = original.replace(f"\\u{ord(sign):04x}", sign)
    assert text == original


def test_it_can_stand_in_a_page(fresh):
    assert "</script" not in fresh()
    assert "<!--" not in fresh()
