"""Where ranges of numbers begin, and what they are called.

Breaks that come from the data are round numbers between two values, not values: a label must not tell that somebody
earns exactly so much.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.kernels.types import Floats

_CLOSE = 1e-6


def equal_width(values: Floats, number: int) -> tuple[float, ...]:
    """Breaks that cut the values into so many ranges of the same width, rounded to two figures of the width.

    >>> equal_width(np.array([0.0, 37.3, 99.1]), 4)
    (25.0, 50.0, 74.0)
    """
    low, high = float(values.min()), float(values.max())
    width = (high - low) / number
    if width <= 0 or not isfinite(width):
        return ()
    digits = 1 - floor(log10(width))
    rounded = (round(low + i * width, digits) + 0.0 for i in range(1, number))
    return tuple(dict.fromkeys(each for each in rounded if low < each <= high))


def equal_count(values: Floats, counts: npt.NDArray[Any], number: int, *, closed: str = "left") -> tuple[float, ...]:
    """Breaks that cut the records into so many ranges of about the same size; equal values stay together.

    A range may be off by a fiftieth of its size where that makes for a rounder break.

    >>> equal_count(np.array([1.0, 2.0, 3.0, 4.0]), np.array([5, 1, 1, 3]), 3)
    (2.0, 4.0)
    >>> equal_count(np.arange(997.0, 2000.0), np.ones(1003), 4)
    (1250.0, 1500.0, 1750.0)
    """
    order = np.argsort(values, kind="stable")
    values, below = values[order], np.cumsum(counts[order])
    breaks: dict[float, None] = {}
    for i in range(1, number):
        # The cut after value `at` leaves below[at] records on its left; the nearest to an i-th part is taken.
        wanted, slack = below[-1] * i / number, below[-1] / number / 50
        at = int(np.argmin(np.abs(below - wanted)))
        first, last = np.searchsorted(below, [wanted - slack, wanted + slack])
        if at + 1 < len(values):
            first, last = min(int(first), at), max(min(int(last), len(values) - 1), at + 1)
            low, high = float(values[first]), float(values[last])
            breaks[between(low, high) if closed == "left" else 0.0 - between(-high, -low)] = None
    return tuple(sorted(breaks))


def between(low: float, high: float) -> float:
    """The number above ``low`` and at most ``high`` that is written with the fewest figures.

    >>> between(17.0, 18.0), between(1234.5, 1987.1), between(-0.37, 0.2), between(0.12, 0.13)
    (18.0, 1900.0, 0.0, 0.13)
    """
    if low < 0 <= high:
        return 0.0
    size = floor(log10(max(abs(low), abs(high))))
    for power in range(size, size - 17, -1):
        unit = 10.0**power
        found = round(floor(round(high / unit, 9)) * unit, max(0, -power))
        if low < found <= high:
            return found + 0.0
    return high


def places(values: Floats, breaks: Sequence[float], *, closed: str = "left") -> npt.NDArray[np.int64]:
    """The number of the range in which each value lies: a break begins a range, or with ``closed="right"`` ends one.

    >>> places(np.array([19, 20, 65]), (20, 65)).tolist(), places(np.array([20]), (20, 65), closed="right").tolist()
    ([0, 1, 2], [0])
    """
    return np.searchsorted(np.asarray(breaks, np.float64), values, side="right" if closed == "left" else "left")


def labels(breaks: Sequence[float], *, whole: bool, closed: str = "left") -> tuple[str, ...]:
    """What the ranges are called: by their first and last value where all numbers are whole, else as intervals.

    >>> labels((20, 65), whole=True), labels((0.5,), whole=False)
    (('<20', '20-64', '>=65'), ('<0.5', '>=0.5'))
    >>> labels((-5, 0, 1), whole=True), labels((20, 65), whole=False, closed="right")
    (('<-5', '-5 to -1', '0', '>=1'), ('<=20', '(20, 65]', '>65'))
    """
    whole = whole and all(float(each).is_integer() for each in breaks)
    first, last = ("<", ">=") if closed == "left" else ("<=", ">")
    inner = []
    for low, high in pairwise(breaks):
        if whole:
            inner.append(_whole(*((low, high - 1) if closed == "left" else (low + 1, high))))
        else:
            inner.append(f"[{text(low)}, {text(high)})" if closed == "left" else f"({text(low)}, {text(high)}]")
    return (f"{first}{text(breaks[0])}", *inner, f"{last}{text(breaks[-1])}") if breaks else ("all",)


def text(number: float) -> str:
    """A number without a decimal point where it is whole.

    >>> text(65.0), text(0.5)
    ('65', '0.5')
    """
    return repr(float(number)).removesuffix(".0")


def rounded(value: float, base: float, how: str) -> float:
    """The multiple of ``base`` that is nearest (halves away from zero), next below or next above.

    >>> rounded(12.5, 5, "nearest"), rounded(-12.5, 5, "nearest"), rounded(0.35, 0.1, "down"), rounded(7, 5, "up")
    (15.0, -15.0, 0.3, 10.0)
    """
    parts = round(value / base, 9)
    if not isfinite(parts):  # so many multiples of so small a base that the value is one of them
        return value
    if how == "nearest":
        number = floor(abs(parts) + 0.5) * (1 if parts >= 0 else -1)
    else:
        number = floor(parts) if how == "down" else ceil(parts)
    return round(number * base, 9) + 0.0


def all_rounded(values: Floats, base: float, how: str) -> Floats:
    """What :func:`rounded` makes of each value, at once.

    >>> all_rounded(np.array([12.5, -12.5, 0.3]), 5, "nearest").tolist()
    [15.0, -15.0, 0.0]
    """
    with np.errstate(over="ignore"):
        parts = values / base
    edges = parts - 0.5 if how == "nearest" else parts
    near = np.copysign(np.floor(np.abs(parts) + 0.5), parts)
    multiples = near if how == "nearest" else np.floor(parts) if how == "down" else np.ceil(parts)
    distinct, place = np.unique(multiples, return_inverse=True)
    found: Floats = np.array([round(each * base, 9) + 0.0 for each in distinct.tolist()])[place]
    # Where a value may lie on an edge but for what floating point made of it, it is looked at on its own.
    with np.errstate(invalid="ignore"):
        close = np.flatnonzero(~(np.abs(edges - np.rint(edges)) > _CLOSE))
    found[close] = [rounded(value, base, how) for value in values[close].tolist()]
    return found


def _whole(low: float, high: float) -> str:
    if low == high:
        return text(low)
    return f"{text(low)}-{text(high)}" if low >= 0 else f"{text(low)} to {text(high)}"
