"""Levels that fewer records have than may be shown: they are not named, whatever is told about them."""

from __future__ import annotations

import numpy as np

from safeswap.model.levels import level_texts
from safeswap.model.microdata import Microdata

RARE = "(rare levels)"
MISSING = "(missing)"


def shown_texts(data: Microdata, name: str, tolerance: int) -> list[str]:
    """The levels of an attribute by code, missing last; a common word in place of those that are rare.

    >>> import pyarrow as pa
    >>> from safeswap import read
    >>> shown_texts(read(pa.table({"Town": ["A", "A", "B"]}), kinds={"Town": "nominal"}), "Town", 2)
    ['A', '(rare levels)', '(missing)']
    """
    coded = data.coded(name)
    counts = np.bincount(coded.codes, minlength=coded.cardinality)[: len(coded.levels)]
    texts = level_texts(coded.levels)
    told = [text if count >= tolerance else RARE for text, count in zip(texts, counts, strict=True)]
    return [*told, MISSING]


def rare_texts(data: Microdata, name: str, tolerance: int) -> frozenset[str]:
    """The levels of an attribute that are not to be named."""
    named = zip(level_texts(data.coded(name).levels), shown_texts(data, name, tolerance), strict=False)
    return frozenset(text for text, told in named if told == RARE)
