"""A growth curve as SVG: seconds against records, both in powers of ten, a line per series."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

WIDTH, HEIGHT = 760, 460
LEFT, TOP, RIGHT, BOTTOM = 70, 30, 230, 60
COLOURS = ("#777777", "#1b6ca8", "#c05a1c", "#2e7d32", "#7b3fa0", "#b8860b", "#00838f", "#ad1457", "#455a64", "#5d4037")


def growth_chart(grown: Mapping[str, Mapping[int, float]]) -> str:
    """The chart; the legend says with which power of the records each series grows over its last step."""
    points = [(math.log10(n), math.log10(s)) for series in grown.values() for n, s in series.items()]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    (low, high), (bottom, top) = _range(xs), _range(ys)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (y - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        "<title>Seconds of processor time against records, both in powers of ten</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/><g font-size="13">',
    ]
    for power in range(low, high + 1):
        x, y = place(power, bottom)
        parts.append(f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{x:.0f}" y2="{TOP}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{y + 20:.0f}" text-anchor="middle">{_power(power)}</text>')
    for power in range(bottom, top + 1):
        x, y = place(low, power)
        parts.append(f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{WIDTH - RIGHT}" y2="{y:.0f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x - 8:.0f}" y="{y + 4:.0f}" text-anchor="end">{10.0**power:g} s</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">records</text>')
    parts.append(f'<text x="{LEFT}" y="18">processor time of the whole run</text>')
    for number, (name, series) in enumerate(grown.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(math.log10(n), math.log10(s)) for n, s in sorted(series.items())]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        dashes = ' stroke-dasharray="5 4"' if number == 0 else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in placed]
        y = TOP + 14 + 24 * number
        parts.append(f'<rect x="{WIDTH - RIGHT + 16}" y="{y - 9}" width="12" height="12" fill="{colour}"/>')
        told = escape(name + _slope(series))
        parts.append(f'<text x="{WIDTH - RIGHT + 34}" y="{y + 2}" font-size="12">{told}</text>')
    return "\n".join([*parts, "</g></svg>"]) + "\n"


def _range(values: list[float]) -> tuple[int, int]:
    low, high = math.floor(min(values)), math.ceil(max(values))
    return low, max(high, low + 1)


def _power(power: int) -> str:
    raised = str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}"


def _slope(series: Mapping[int, float]) -> str:
    sizes = sorted(series)
    if len(sizes) < 2:
        return ""
    small, large = sizes[-2:]
    return f" (power {math.log(series[large] / series[small]) / math.log(large / small):.2f})"
