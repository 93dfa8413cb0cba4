"""Plotly in our pages: the package's own text, with fewer kinds of chart made known and in ASCII."""

import re

from plotly.offline import get_plotlyjs

from safeswap.charts.plotly_script import KINDS, in_ascii, plotly_script, with_kinds


def calls(text: str) -> list[str]:
    """What the script has made known at its end."""
    return re.search(r"\.register\(\[([\w$(),]+)\]\);[\w$.=]+\}\);return [\w$]+\(\);\}\)\(\);", text)[1].split(",")


def test_only_the_list_of_kinds_is_another():
    original, ours = get_plotlyjs(), with_kinds(get_plotlyjs(), KINDS)
    all_calls, our_calls = calls(original), calls(ours)
    assert len(all_calls) > 40
    assert len(our_calls) < 10
    assert set(our_calls) < set(all_calls)
    assert ours.replace(",".join(our_calls), ",".join(all_calls)) == original


def test_a_script_of_another_form_stays_as_it_is():
    original = get_plotlyjs()
    for other in (
        "var Plotly=1;",
        original.replace(".register([", ".register(...[", 1),
        original + original,  # two lists: which is meant is not known
    ):
        assert with_kinds(other, KINDS) == other


def test_a_kind_that_does_not_tell_its_name_is_kept():
    original = get_plotlyjs()
    assert calls(with_kinds(original.replace('moduleType:"', 'moduleSort:"'), KINDS)) == calls(original)


def test_signs_beyond_ascii_are_escapes_and_nothing_else_is_touched():
    original = get_plotlyjs()
    text = in_ascii(original)
    assert text.isascii()
    beyond = {sign for sign in original if not sign.isascii()}
    assert beyond
    # An escape of such a sign that the package itself has written is one here too.
    for sign in beyond:
        text = text.replace(f"\\u{ord(sign):04x}", sign)
        original = original.replace(f"\\u{ord(sign):04x}", sign)
    assert text == original


def test_the_script_of_the_pages_is_both():
    assert plotly_script() == in_ascii(with_kinds(get_plotlyjs(), KINDS))
    assert "</script" not in plotly_script()
