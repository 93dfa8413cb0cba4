"""The order of categories that are ranges of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)"
_THOUSANDS = re.compile(r",(?=\d{3}(?:\D|$))", re.ASCII)
_UNIT = r"(?:[kKmM%]|\s?(?:years?|hours?))?"
_RANGE = re.compile(
    rf"(?P<bound><=|>=|<|>|≤|≥|under|over|below|above|less than|more than|at least|up to)?\s*"
    rf"(?P<low>{_NUMBER})(?P<unit>{_UNIT})(?:\s*(?:-|–|to)\s*(?P<high>{_NUMBER}){_UNIT})?"
    rf"\s*(?P<open>\+|and over|or more|or less|and under)?",
    re.IGNORECASE | re.ASCII,
)
_BELOW = {"<", "<=", "≤", "under", "below", "less than", "up to", "or less", "and under"}
_ABOVE = {">", ">=", "≥", "over", "above", "more than", "at least", "+", "and over", "or more"}
_FACTOR = {"k": 1e3, "m": 1e6}


def order_of_ranges(levels: Iterable[str]) -> tuple[str, ...]:
    """The levels from low to high, if each is a number, a range or a bound and they are not all plain numbers.

    >>> order_of_ranges([">55", "25-55", "<25"]), order_of_ranges(["50K+", "<50K"])
    (('<25', '25-55', '>55'), ('<50K', '50K+'))
    >>> order_of_ranges(["1", "2", "3"]), order_of_ranges(["<25", "unknown"])
    ((), ())
    """
    found: list[tuple[tuple[float, int, float], str]] = []
    plain = True
    for level in levels:
        match = _RANGE.fullmatch(level.strip())
        if match is None:
            return ()
        side = _side(match)
        plain = plain and side == 0 and match["high"] is None
        low = _number(match["low"], match["unit"])
        high = _number(match["high"], match["unit"]) if match["high"] else low
        found.append(((low, side, high), level))
    return () if plain else tuple(level for _, level in sorted(found))


def order_of_levels(levels: Iterable[str]) -> tuple[str, ...]:
    """The order that the levels have by themselves: of ranges, of numbers; none, if they are neither.

    >>> order_of_levels(["10", "9"]), order_of_levels(["low", "high"])
    (('9', '10'), ())
    """
    texts = list(levels)
    if ranges := order_of_ranges(texts):
        return ranges
    try:
        return tuple(sorted(texts, key=lambda text: (float(text), text)))
    except ValueError:
        return ()


def _side(match: re.Match[str]) -> int:
    words = {(match["bound"] or "").lower(), (match["open"] or "").lower()}
    return -1 if words & _BELOW else int(bool(words & _ABOVE))


def _number(digits: str, unit: str) -> float:
    return float(_THOUSANDS.sub("", digits).replace(",", ".")) * _FACTOR.get(unit.strip().lower(), 1.0)
