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


def quote_name(name: str) -> str:
    """Return a name for a sentence, in quotes if it contains a comma: it would read as two.

    With these quotes the command line takes it as one, too.
    """
    return f'"{name}"' if "," in name else name


def list_names(names: Iterable[str], *, most: int | None = None) -> str:
    """Return names separated by commas, ``most`` of them and the number of the others.

    >>> list_names(["Straße, Haus", "Ort", "Land"], most=2)
    '"Straße, Haus", Ort and 1 more'
    """
    listed = [quote_name(name) for name in names]
    more = 0 if most is None else len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more:,} more" if more > 0 else "")


def join_names(names: Iterable[str]) -> str:
    """Return names as they are listed in a sentence.

    >>> join_names(["Age", "Sex", "Straße, Haus"])
    'Age, Sex and "Straße, Haus"'
    """
    return join_phrases(map(quote_name, names))


def join_phrases(phrases: Iterable[str]) -> str:
    """Return phrases separated by commas, the last by "and"."""
    *others, last = list(phrases) or [""]
    return f"{', '.join(others)} and {last}" if others else last


RiskModel = Literal["franconi-polettini", "inverse"]
"""The estimator of risk from weights: the expectation of 1/F given the sample, or one over the estimated F."""

Scoring = Literal["elliot", "ihsn"]
"""The score that a minimal unique of k of v keys, searched up to size M, adds to its record.

``elliot``: (v − k)(v − k − 1) … (v − M), M at most v − 1. ``ihsn``: (2^(v − k) − 1) k! (v − k)! / v!.
"""

Part = Literal["dimensions", "keys", "combinations", "unsafe", "records"]
"""The question about unsafe combinations."""
