"""The words that options take, where functions of several rooms take the same."""

from __future__ import annotations

from typing import Literal

# A number and what it counts, as one says it.


def several(number: int, one: str, many: str = "") -> str:
    """Return a number with the word for one or the words for many; the plural takes an s unless it is given.

    >>> several(1, "pair"), several(2000, "pair"), several(0, "cell is", "cells are")
    ('1 pair', '2,000 pairs', '0 cells are')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


RiskModel = Literal["franconi-polettini", "inverse"]
"""How weights become a risk: the expectation of 1/F given the sample, or one over the estimated F."""

Scoring = Literal["elliot", "ihsn"]
"""What a minimal unique of k of v keys, looked for up to size M, adds to the score of its record.

``elliot``: (v − k)(v − k − 1) … (v − M), M at most v − 1. ``ihsn``: (2^(v − k) − 1) k! (v − k)! / v!.
"""

Part = Literal["dimensions", "keys", "combinations", "unsafe", "records"]
"""What is asked of the unsafe combinations."""
