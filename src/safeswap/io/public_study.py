"""What the public may know of a study.

No rate, no number of pairs or draws, nothing of the key, no count of records below the tolerance. Measures that are
functions of the rate are left out, the others rounded. The candidates stand in the order of their figures, since any
other order would tell which of them have the same rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from safeswap.charts.heatmap import candidate_tables, heatmap_html
from safeswap.charts.points import Points, column, mean_and_spread, points_of, specification_numbers
from safeswap.charts.protocol import ChoiceLike, StudyLike
from safeswap.charts.static_map import map_svg
from safeswap.charts.theme import measure_title, shortened
from safeswap.errors import SpecError
from safeswap.io.report_parts import Parts, figures_of

DIGITS = 3
TELL_THE_RATE = frozenset({"share_changed", "total_variation"})
"""The first is the rate itself; the second cannot exceed it and comes close, since few exchanges cancel out."""


def public_values(study: StudyLike, choice: ChoiceLike, parts: Parts) -> dict[str, Any]:
    """The values of the public template."""
    refuse_telltale((parts.title, parts.date, *parts.kept, *parts.limits), study, choice)
    tables = candidate_tables(study, choice.candidate)
    row = study.table.slice(choice.candidate, 1).to_pylist()[0]
    return {
        "title": shortened(parts.title or "How this release was protected", 200),
        "date": parts.date,
        "data": {
            "name": study.facts.get("name") or "",
            "records": _count_text(study.facts["records"], parts.tolerance),
        },
        "attributes": study.facts["attributes"],
        "tried": _tried(study),
        "map": _map(study, choice, parts.tolerance),
        "swapped": ", ".join(row["swap"] or getattr(choice.spec, "swap", ())),
        "method": choice.spec.method,
        "constraint": row["constraint"],
        "rule": choice.objective,
        "figures": _figures(study, choice, parts),
        "heats": [
            heatmap_html(study.table_pairs, [rounded(v) for v in values], caption=measure_title(measure))
            for measure, values in tables.items()
            if values and not tells_the_rate(measure)
        ],
        "kept": parts.kept,
        "limits": parts.limits,
    }


def rounded(value: float) -> float:
    """Three significant digits.

    >>> rounded(0.0123456), rounded(0.0)
    (0.0123, 0.0)
    """
    return float(f"{value:.{DIGITS}g}")


def tells_the_rate(measure: str) -> bool:
    """Whether the rate can be read off a measure.

    >>> tells_the_rate("share_changed"), tells_the_rate("hellinger")
    (True, False)
    """
    return measure.partition(":")[0] in TELL_THE_RATE


def refuse_telltale(sentences: Iterable[str], study: StudyLike, choice: ChoiceLike) -> None:
    """Refuse sentences that name the key, the chosen rate or the number of pairs."""
    pairs = int(study.table.column("pairs")[choice.candidate].as_py())
    rate = study.table.column("rate")[choice.candidate].as_py()
    secret = {str(study.facts["key_id"])}
    if pairs >= 10:  # smaller numbers occur in any text
        secret |= {f"{pairs}", f"{pairs:,}", f"{2 * pairs}", f"{2 * pairs:,}"}
    if rate is not None:
        secret |= {f"{rate:g}", f"{100 * rate:g}%", f"{100 * rate:g} %"}
    words = "|".join(re.escape(text) for text in sorted(secret, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.,])(?:{words})(?![\w]|[.,]\d)")
    for sentence in sentences:
        if pattern.search(sentence):
            raise SpecError(
                "a sentence for the public report names the rate, the number of pairs or the key",
                code="telltale-sentence",
                hint="pass invariants that hold for users of the file, and leave figures out of the title and limits",
            )


def _tried(study: StudyLike) -> dict[str, Any]:
    spec = study.spec
    shown = [measure_title(name) for name in spec.distortion if not tells_the_rate(name)]
    return {
        "choices": "choices" if study.facts.get("search") else "every choice",
        "was": "were" if study.facts.get("search") else "was",
        "most": spec.up_to,
        "attributes": ", ".join(spec.attributes or [a["name"] for a in study.facts["attributes"]]),
        "constraints": "; ".join(c.label for c in spec.constraints if c.label),
        "risk": ", ".join(map(measure_title, spec.risk)),
        "distortion": ", ".join(shown),
    }


def _map(study: StudyLike, choice: ChoiceLike, tolerance: int) -> str:
    distortion = next((name for name in study.spec.distortion if not tells_the_rate(name)), None)
    if distortion is None:
        return ""
    points = public_points(study, choice, distortion=distortion, tolerance=tolerance)
    svg = map_svg(points, text_as_paths=False)
    return svg[svg.index("<svg") :]


def public_points(study: StudyLike, choice: ChoiceLike, *, distortion: str, tolerance: int) -> Points:
    """The map's points without rates and draws, rounded, in the order of their figures."""
    points = points_of(study, distortion=distortion, choice=choice)
    least = _least_share(study, tolerance)
    risk = np.array([rounded(floored(value, floor)) for value, floor in zip(points.risk, least, strict=True)])
    x = np.array([rounded(value) for value in points.distortion])
    order = np.lexsort((np.array(points.labels), risk, x))
    chosen = None if points.chosen is None else int(np.flatnonzero(order == points.chosen)[0])
    return replace(
        points,
        labels=tuple(points.labels[i] for i in order),
        constraints=tuple(points.constraints[i] for i in order),
        rates=None,
        risk=risk[order],
        distortion=x[order],
        chosen=chosen,
        cloud=None,
    )


def floored(value: float, least: float) -> float:
    """A share of records that is not so small that it tells a count below the tolerance; nothing stays nothing."""
    return value if value == 0 else max(value, least)


def _least_share(study: StudyLike, tolerance: int) -> Any:
    """Per specification that was made, the share that as many records as the tolerance are of those that stayed."""
    mean, _ = mean_and_spread(study, study.spec.risk[0])
    made = ~np.isnan(column(study, study.spec.risk[0]))
    pairs = np.zeros(len(study.specs))
    np.maximum.at(pairs, specification_numbers(study)[made], column(study, "pairs")[made])
    stayed = np.maximum(1, study.facts["records"] - 2 * pairs)
    return (tolerance / stayed)[~np.isnan(mean)]


def _figures(study: StudyLike, choice: ChoiceLike, parts: Parts) -> list[dict[str, str]]:
    records = study.facts["records"]
    stayed = records - 2 * int(study.table.column("pairs")[choice.candidate].as_py())
    return [
        {
            "title": measure_title(figure.measure),
            "axis": figure.axis,
            "before": _figure_text(figure.before, figure.axis, parts.tolerance / max(1, records)),
            "after": _figure_text(figure.after, figure.axis, parts.tolerance / max(1, stayed)),
        }
        for figure in figures_of(study, choice, parts)
        if not tells_the_rate(figure.measure)
    ]


def _figure_text(value: float | None, axis: str, least: float) -> str:
    if value is None:
        return "–"
    if axis == "risk" and 0 < value < least:
        return f"below {rounded(least):g}"
    return f"{rounded(value):g}"


def _count_text(number: int, tolerance: int) -> str:
    return f"{number:,}" if number >= tolerance else f"Fewer than {tolerance}"
