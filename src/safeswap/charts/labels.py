"""Where labels go: as many as fit without covering each other, the important ones first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MOST_LABELS = 150
_NARROW, _WIDE, _LINE = 5.6, 8.2, 9.0  # widths of characters and height of a line of 8-point text, in points

Across = Literal["left", "center", "right"]
Along = Literal["bottom", "center", "top"]

Position = tuple[Across, Along]

# Below and left of the frontier nothing can be, so important labels are best there; the others look away from it.
_BELOW: tuple[Position, ...] = (
    ("right", "top"),
    ("right", "center"),
    ("center", "top"),
    ("left", "top"),
    ("left", "bottom"),
    ("left", "center"),
    ("center", "bottom"),
    ("right", "bottom"),
)
_ABOVE: tuple[Position, ...] = (
    ("left", "bottom"),
    ("left", "center"),
    ("center", "bottom"),
    ("left", "top"),
    ("right", "bottom"),
    ("center", "top"),
    ("right", "center"),
    ("right", "top"),
)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A point in the plane, in points of 1/72 inch, and what it is called."""

    x: float
    y: float
    text: str
    important: bool = False
    ringed: bool = False


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A place for a label: how it is aligned, and how far from its mark."""

    across: Across
    along: Along
    offset: tuple[float, float]
    box: tuple[float, float, float, float]


def placed(marks: Sequence[Mark], *, within: tuple[float, float, float, float]) -> list[Spot | None]:
    """A spot for each mark, or None where none is free. Marks are served in their order.

    A label covers no other label and stays inside; it covers no mark either, unless it is important, cannot help it and
    the mark is not.

    >>> here = [Mark(x=50, y=50, text="AB"), Mark(x=50, y=50, text="CD"), Mark(x=500, y=50, text="out")]
    >>> [spot and (spot.across, spot.along) for spot in placed(here, within=(0, 0, 100, 100))]
    [('left', 'bottom'), ('left', 'top'), None]
    """
    spots: list[Spot | None] = []
    for mark in marks:
        taken = [spot.box for spot in spots if spot is not None]
        spots.append(_free_spot(mark, marks, taken, within) if len(taken) < MOST_LABELS else None)
    return spots


def _free_spot(
    mark: Mark, marks: Sequence[Mark], taken: list[tuple[float, float, float, float]], within: tuple[float, ...]
) -> Spot | None:
    second = None
    for across, along in _BELOW if mark.important else _ABOVE:
        spot = _spot(mark, across, along)
        left, low, right, high = spot.box
        if left < within[0] or low < within[1] or right > within[2] or high > within[3]:
            continue
        if any(a < right and left < c and b < high and low < d for a, b, c, d in taken):
            continue
        covered = [
            m
            for m in marks
            if (m.x, m.y) != (mark.x, mark.y) and left - 2 < m.x < right + 2 and low - 2 < m.y < high + 2
        ]
        if not covered:
            return spot
        if not any(m.important for m in covered):
            second = second or spot
    return second if mark.important else None


def _spot(mark: Mark, across: Across, along: Along) -> Spot:
    gap = (9.0 if mark.ringed else 5.0 if mark.important else 3.5) * (0.8 if "center" not in (across, along) else 1.0)
    width = sum(_WIDE if sign in "MWmw…@%" else _NARROW for sign in mark.text) * (1.12 if mark.important else 1.0)
    dx = {"left": gap, "center": 0.0, "right": -gap}[across]
    dy = {"bottom": gap, "center": 0.0, "top": -gap}[along]
    left = mark.x + dx - {"left": 0.0, "center": width / 2, "right": width}[across]
    low = mark.y + dy - {"bottom": 0.0, "center": _LINE / 2, "top": _LINE}[along]
    return Spot(across=across, along=along, offset=(dx, dy), box=(left, low, left + width, low + _LINE))


def _holds(box: tuple[float, float, float, float], mark: Mark) -> bool:
    left, low, right, high = box
    return left - 2 < mark.x < right + 2 and low - 2 < mark.y < high + 2
