"""What the public may know of a study.

No rate, no number of pairs or draws, nothing of the key, no count of records below the tolerance.

Whoever has the released file can swap it again at any rate he likes and compute every figure himself. So a figure that
depends on how much was changed gives the rate, and two rough ones give it more closely than one: where the bands of
many candidates or tables overlap, little is left. Published are therefore figures that everybody can compute from the
released file, and one figure of distortion in a stated band of a factor of ten; nothing else depends on the rate.

With the officer's consent (``publish_figures``) the map, the figures and the tables are published, rounded, and the
report says that the rate can be inferred from them. The candidates then stand in the order of their figures, since any
other order would tell which of them have the same rate. Denominators are public numbers in either case.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from safeswap import registry
from safeswap.charts.heatmap import candidate_tables, heatmap_html
from safeswap.charts.points import Points, points_of
from safeswap.charts.protocol import ChoiceLike, StudyLike
from safeswap.charts.static_map import map_svg
from safeswap.charts.theme import measure_title, shortened
from safeswap.errors import SpecError
from safeswap.io.report_parts import Figure, Parts, figures_of
from safeswap.measures.base import tells_the_rate

DIGITS = 3
BANDS = (0.01, 0.1, 1.0, 10.0, 100.0)
"""The limits of the bands in which distortion is published: the same for all files, so that they tell nothing."""

_PUBLIC_RULES = {
    "smallest risk + ": "smallest weighted sum of risk and distortion",
    "least distortion with risk at most ": "least distortion below a limit on risk",
    "least risk with distortion at most ": "least risk below a limit on distortion",
}


def public_values(study: StudyLike, choice: ChoiceLike, parts: Parts) -> dict[str, Any]:
    """The values of the public template."""
    refuse_telltale((parts.title, parts.date, *parts.kept, *parts.limits), study, choice)
    row = study.table.slice(choice.candidate, 1).to_pylist()[0]
    figures = figures_of(study, choice, parts)
    exact = parts.publish_figures
    shown = [figure for figure in figures if exact or not tells_the_rate(registry.measure(figure.measure))]
    return {
        "title": shortened(parts.title or "How this release was protected", 200),
        "date": parts.date,
        "data": {
            "name": study.facts.get("name") or "",
            "records": _count_text(study.facts["records"], parts.tolerance),
        },
        "attributes": study.facts["attributes"],
        "tried": _tried(study),
        "exact": exact,
        "map": _map(study, choice, parts.tolerance) if exact else "",
        "swapped": ", ".join(row["swap"] or getattr(choice.spec, "swap", ())),
        "method": choice.spec.method,
        "constraint": row["constraint"],
        "rule": choice.objective if exact else public_rule(choice.objective),
        "figures": _figures(study, shown, parts, exact=exact),
        "band": "" if exact else _band_sentence(figures),
        "bands": ", ".join(f"{limit:g}" for limit in BANDS),
        "withheld": ", ".join(measure_title(figure.measure) for figure in figures if figure not in shown),
        "heats": _heats(study, choice) if exact else [],
        "kept": parts.kept,
        "limits": parts.limits,
    }


def band_text(value: float) -> str:
    """The band in which the magnitude of a figure lies.

    >>> band_text(0.0), band_text(-0.024), band_text(0.1), band_text(250.0)
    ('below 0.01', '0.01 to 0.1', '0.1 to 1', '100 or more')
    """
    place = bisect_right(BANDS, abs(value))
    if place == 0:
        return f"below {BANDS[0]:g}"
    return f"{BANDS[place - 1]:g} to {BANDS[place]:g}" if place < len(BANDS) else f"{BANDS[-1]:g} or more"


def public_rule(objective: str) -> str:
    """The rule of the choice without its numbers: with them, the least rate that satisfies it can be worked out.

    >>> public_rule("least distortion with risk at most 0.01")
    'least distortion below a limit on risk'
    """
    found = (text for start, text in _PUBLIC_RULES.items() if objective.startswith(start))
    return next(found, "a rule of the agency's own")


def _band_sentence(figures: Sequence[Figure]) -> str:
    first = next((figure for figure in figures if figure.axis == "distortion"), None)
    return "" if first is None else f"{measure_title(first.measure)}: {band_text(first.after)}"


def _heats(study: StudyLike, choice: ChoiceLike) -> list[str]:
    return [
        heatmap_html(study.table_pairs, [rounded(v) for v in values], caption=measure_title(measure))
        for measure, values in candidate_tables(study, choice.candidate).items()
        if values
    ]


def rounded(value: float) -> float:
    """Three significant digits.

    >>> rounded(0.0123456), rounded(0.0)
    (0.0123, 0.0)
    """
    return float(f"{value:.{DIGITS}g}")


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
    return {
        "choices": "choices" if study.facts.get("search") else "every choice",
        "was": "were" if study.facts.get("search") else "was",
        "most": spec.up_to,
        "attributes": ", ".join(spec.attributes or [a["name"] for a in study.facts["attributes"]]),
        "constraints": "; ".join(c.label for c in spec.constraints if c.label),
        "risk": ", ".join(map(measure_title, spec.risk)),
        "distortion": ", ".join(map(measure_title, spec.distortion)),
    }


def _map(study: StudyLike, choice: ChoiceLike, tolerance: int) -> str:
    points = public_points(study, choice, distortion=study.spec.distortion[0], tolerance=tolerance)
    svg = map_svg(points, text_as_paths=False)
    return svg[svg.index("<svg") :]


def public_points(study: StudyLike, choice: ChoiceLike, *, distortion: str, tolerance: int) -> Points:
    """The map's points without rates and draws, rounded, in the order of their figures."""
    points = points_of(study, distortion=distortion, choice=choice)
    least = tolerance / max(1, study.facts["records"])
    risk = np.array([rounded(floored(value, least)) for value in points.risk])
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


def _figures(study: StudyLike, figures: Sequence[Figure], parts: Parts, *, exact: bool) -> list[dict[str, str]]:
    """The figures after; before only with consent, since both together tell how much was changed in between."""
    least = parts.tolerance / max(1, study.facts["records"])
    return [
        {
            "title": measure_title(figure.measure),
            "axis": figure.axis,
            "before": _figure_text(figure.before if exact else None, figure.axis, least),
            "after": _figure_text(figure.after, figure.axis, least),
        }
        for figure in figures
    ]


def _figure_text(value: float | None, axis: str, least: float) -> str:
    if value is None:
        return "–"
    if axis == "risk" and 0 < value < least:
        return f"below {rounded(least):g}"
    return f"{rounded(value):g}"


def _count_text(number: int, tolerance: int) -> str:
    return f"{number:,}" if number >= tolerance else f"Fewer than {tolerance}"
