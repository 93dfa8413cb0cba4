"""One type scale and one spacing scale, in the pages and in the charts."""

import re

import pytest

from safeswap.workbench.assets import assets

TYPE = {".75rem", ".875rem", "1rem", "1.25rem", "1.625rem"}
SPACE = {".125", ".25", ".375", ".5", ".75", "1", "1.25", "1.5", "2", "3"}


@pytest.mark.parametrize("sheet", ["workbench", "map", "confidentiality"])
def test_sizes_are_those_of_the_scales(sheet):
    text = assets()[f"css/{sheet}.css"].decode()
    assert set(re.findall(r"font-size: ([^;}]+)", text)) <= TYPE
    spaces = re.findall(r"(?:padding|margin|gap)[a-z-]*: ([^;}]+)", text)
    used = {number for value in spaces for number in re.findall(r"(?<![\d.])(\d*\.?\d+)rem", value)}
    assert used <= SPACE
