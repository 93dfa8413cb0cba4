"""Counts and lists in words, and option values that several packages share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun, singular or plural; the plural adds an s unless it is given.

    >>> plural(1, "pair"), plural(2000, "pair"), plural(0, "cell is", "cells are")
    ('1 pair', '2,000 pairs', '0 cells are')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def list_names(names: Iterable[str]) -> str:
    """Return names separated by commas; one that contains a comma itself is quoted, so that it does not read as two.

    >>> list_names(["Straße, Haus", "Ort"])
    "'Straße, Haus', Ort"
    """
    return ", ".join(f"'{name}'" if "," in name else name for name in names)


RiskModel = Literal["franconi-polettini", "inverse"]
"""The estimator of risk from weights: the expectation of 1/F given the sample, or one over the estimated F."""

Scoring = Literal["elliot", "ihsn"]
"""The score that a minimal unique of k of v keys, searched up to size M, adds to its record.

``elliot``: (v − k)(v − k − 1) … (v − M), M at most v − 1. ``ihsn``: (2^(v − k) − 1) k! (v − k)! / v!.
"""

Part = Literal["dimensions", "keys", "combinations", "unsafe", "records"]
"""The question about unsafe combinations."""
