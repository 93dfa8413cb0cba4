"""Colours can be told apart, on light and on dark ground."""

import pytest

from safeswap.charts.theme import DARK, LIGHT, css_variables, measure_title, shorten


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_can_be_read(theme):
    for ground in (theme.ground, theme.panel):
        for text in (theme.ink, theme.muted, theme.accent, theme.gain):
            assert contrast(text, ground) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("number", range(1, 12))
def test_points_of_every_rate_stand_out_from_the_ground(theme, number):
    colours = theme.rate_colours(number)
    assert len(set(colours)) == number
    assert all(contrast(colour, theme.ground) >= 2.7 for colour in colours)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_white_numbers_can_be_read_on_full_heat(theme):
    assert contrast("#ffffff", theme.loss) >= 3
    assert contrast("#ffffff", theme.gain) >= 3


def test_dark_follows_the_system():
    assert f"@media (prefers-color-scheme: dark) {{ :root {{ --ground: {DARK.ground};" in css_variables()


def test_long_names_are_cut_and_lines_joined():
    assert shorten("a\nb\t c") == "a b c"
    assert len(shorten("x" * 500)) == 80


def test_parameters_of_a_measure_are_in_its_title():
    assert measure_title("n_rule:n=4") == "n-rule (n=4)"
    named = 'indicators:{"lines": [{"statistic": "total"}, {"statistic": "total", "by": ["a"]}], "least": 5}'
    assert measure_title(named) == "largest change in a key indicator (2 indicators, least=5)"
    assert measure_title('hellinger:{"attributes": ["a b", "c+d"]}') == "Hellinger distance (attributes=a b+c+d)"
