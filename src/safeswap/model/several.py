"""A number and what it counts, as one says it."""

from __future__ import annotations


def several(number: int, one: str, many: str = "") -> str:
    """A number with the word for one or the words for many; the plural takes an s unless it is given.

    >>> several(1, "pair"), several(2000, "pair"), several(0, "cell is", "cells are")
    ('1 pair', '2,000 pairs', '0 cells are')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
