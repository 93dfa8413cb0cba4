"""The report of a study, internal or public: one self-contained HTML file.

The internal version has everything that supports the choice, with the interactive map.

The public version runs no script and has no rate, no number of pairs or draws, nothing about the key, and no count of
records below the tolerance. Anyone who has the released file can swap it again at any rate and compute every score. So
a score that depends on how much was changed reveals the rate, and two rough ones reveal it more closely than one: where
the bands of many candidates or tables overlap, little is left. Therefore only scores that anyone can compute from the
released file are published, and one score of distortion in a fixed band of a factor of ten; nothing else depends on the
rate.

With the officer's consent (``publish_figures``) the map, the scores and the tables are published, rounded, and the
report says that the rate can be inferred from them. Candidates are then in the order of their scores, since any other
order would reveal which of them have the same rate. Denominators are public numbers in either case.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Literal

import numpy as np

from safeswap import registry
from safeswap.charts.map import POLICY, candidate_tables, heatmap_html, map_fragment, map_svg, study_sentence
from safeswap.charts.points import Chosen, Points, StudyLike, points_of
from safeswap.charts.spec_text import python_text
from safeswap.charts.theme import css_variables, measure_title, number_text, shorten
from safeswap.errors import SpecError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.measures.base import tells_the_rate
from safeswap.model.score import Assessment
from safeswap.model.text import list_names, plural
from safeswap.reports import load_template


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a report besides the study and the choice.

    ``before`` and ``after`` are assessments of the original and of the chosen release; by default the study's own
    scores are shown. ``kept`` are the sentences of the method's invariants, ``limits`` further sentences for the last
    section. ``tolerance`` is the smallest count of records that the public version shows. ``publish_figures`` is the
    officer's consent that the public version has the map and the scores, from which the rate can be inferred.
    """

    title: str = ""
    before: Assessment | None = None
    after: Assessment | None = None
    kept: Sequence[str] = ()
    limits: Sequence[str] = ()
    tolerance: int = 3
    publish_figures: bool = False
    date: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measure before and after; before is None if unknown."""

    measure: str
    axis: str
    before: float | None
    after: float
    sentence: str = ""


def figures_of(study: StudyLike, choice: Chosen, parts: Parts) -> list[Figure]:
    """Return one figure per measure: from the assessments if there are any, else from the study."""
    known = {**study.facts.get("before", {}), **{score.measure: score.value for score in parts.before or ()}}

    def start(measure: str, axis: str) -> float | None:
        # The original has no distortion.
        return known.get(measure, 0.0 if axis == "distortion" else None)

    if parts.after is not None:
        return [
            Figure(
                measure=score.measure,
                axis=score.axis.value,
                before=start(score.measure, score.axis.value),
                after=score.value,
                sentence=score.sentence,
            )
            for score in parts.after
        ]
    row = study.table.slice(choice.candidate, 1).to_pylist()[0]
    axes = [("risk", name) for name in study.spec.risk] + [("distortion", name) for name in study.spec.distortion]
    return [Figure(measure=name, axis=axis, before=start(name, axis), after=row[name]) for axis, name in axes]


_READINGS = {"any": "any of its swap attributes differs", "all": "all of its swap attributes differ"}


def internal_values(study: StudyLike, choice: Chosen, parts: Parts) -> dict[str, Any]:
    """Return the values of the internal template."""
    facts = study.facts
    name = facts.get("name") or "a file without a name"
    tables = candidate_tables(study, choice.candidate)
    return {
        "title": shorten(parts.title or f"Risk-utility study: {name}", 200),
        "date": parts.date,
        "data": {"name": name} | {key: f"{facts[key]:,}" for key in ("records", "cells", "possible_cells")},
        "attributes": facts["attributes"],
        "choice": choice,
        "tried": tell_question(study),
        "question": _question(study),
        "map": map_fragment(study, choice=choice),
        "replicates": study.spec.replicates,
        "specifications": f"{len(study.specs):,}",
        "certainty": None if choice.certainty is None else f"{100 * choice.certainty:.0f}%",
        "spec": python_text(choice.spec, replicate=choice.replicate),
        "rivals": [_rival(rival) for rival in choice.rivals.to_pylist()],
        "figures": [_figure(figure) for figure in figures_of(study, choice, parts)],
        "heats": [
            heatmap_html(study.table_pairs, values, caption=measure_title(measure))
            for measure, values in tables.items()
            if values
        ],
        "kept": parts.kept,
        "risk_measures": ", ".join(map(measure_title, study.spec.risk)),
        "limits": parts.limits,
        "key_id": facts["key_id"],
    }


def tell_question(study: StudyLike) -> list[str]:
    """Return the question of a study in sentences, for use inside: what was tried, by which measures."""
    spec = study.spec
    names = spec.attributes or [a["name"] for a in study.facts["attributes"]]
    risk, distortion = (", ".join(map(measure_title, measures)) for measures in (spec.risk, spec.distortion))
    others = [f"In addition, {plural(len(spec.others), 'specification')} given in full."] if spec.others else []
    search = study.facts.get("search")
    if search is not None:
        others.append(f"Candidates were chosen by a search ({search['method']}), not by trying everything.")
    choices = "every choice of" if search is None else f"out of {search['possible']:,} possible ones, choices of"
    return [
        study_sentence(study),
        f"Swapped: {choices} up to {spec.up_to} of {list_names(names)}.",
        f"Rates (shares of records that take part): {', '.join(f'{rate:g}' for rate in spec.rates)}.",
        f"Constraints: {'; '.join(c.label or 'none' for c in spec.constraints)}.",
        f"A pair counts if {_READINGS[spec.true_swap]}; pairing is {spec.pairing}.",
        f"Risk: {risk}. Distortion: {distortion}.",
        *([f"Risk is measured under the scenario {spec.scenario.sentence}."] if spec.scenario else []),
        *others,
    ]


def _question(study: StudyLike) -> str:
    import tomli_w

    values = study.spec.model_dump(mode="json", exclude_none=True)
    return tomli_w.dumps({name: value for name, value in values.items() if value != []}).strip()


def _rival(rival: dict[str, Any]) -> dict[str, str]:
    often = rival["on_frontier"]
    return {
        "label": rival["label"],
        "constraint": rival["constraint"],
        "rate": "–" if rival["rate"] is None else f"{rival['rate']:g}",
        "risk": number_text(rival["risk_mean"]),
        "distortion": number_text(rival["distortion_mean"]),
        "often": "–" if often is None else f"{100 * often:.0f}%",
        "behind": number_text(rival["cost_above_chosen"]),
    }


def _figure(figure: Figure) -> dict[str, str]:
    return {
        "title": measure_title(figure.measure),
        "axis": figure.axis,
        "before": number_text(figure.before),
        "after": number_text(figure.after),
        "sentence": figure.sentence,
    }


DIGITS = 3
BANDS = (0.01, 0.1, 1.0, 10.0, 100.0)
"""The limits of the bands in which distortion is published: the same for all files, so that they reveal nothing."""

_PUBLIC_RULES = {
    "smallest risk + ": "smallest weighted sum of risk and distortion",
    "least distortion with risk at most ": "least distortion below a limit on risk",
    "least risk with distortion at most ": "least risk below a limit on distortion",
}


def public_values(study: StudyLike, choice: Chosen, parts: Parts) -> dict[str, Any]:
    """Return the values of the public template."""
    refuse_telltale((parts.title, parts.date, *parts.kept, *parts.limits), study, choice)
    row = study.table.slice(choice.candidate, 1).to_pylist()[0]
    figures = figures_of(study, choice, parts)
    exact, records = parts.publish_figures, study.facts["records"]
    shown = [figure for figure in figures if exact or not tells_the_rate(registry.measure(figure.measure))]
    return {
        "title": shorten(parts.title or "How this release was protected", 200),
        "date": parts.date,
        "data": {
            "name": study.facts.get("name") or "",
            "records": f"{records:,}" if records >= parts.tolerance else f"Fewer than {parts.tolerance}",
        },
        "attributes": study.facts["attributes"],
        "tried": _describe_question(study),
        "exact": exact,
        "map": _map(study, choice, parts.tolerance) if exact else "",
        "swapped": list_names(row["swap"] or getattr(choice.spec, "swap", ())),
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
    """Return the band of the magnitude of a score.

    >>> band_text(0.0), band_text(-0.024), band_text(0.1), band_text(250.0)
    ('below 0.01', '0.01 to 0.1', '0.1 to 1', '100 or more')
    """
    place = bisect_right(BANDS, abs(value))
    if place == 0:
        return f"below {BANDS[0]:g}"
    return f"{BANDS[place - 1]:g} to {BANDS[place]:g}" if place < len(BANDS) else f"{BANDS[-1]:g} or more"


def public_rule(objective: str) -> str:
    """Return the rule of the choice without its numbers, which would reveal the lowest rate that satisfies it.

    >>> public_rule("least distortion with risk at most 0.01")
    'least distortion below a limit on risk'
    """
    found = (text for start, text in _PUBLIC_RULES.items() if objective.startswith(start))
    return next(found, "a rule of the agency's own")


def _band_sentence(figures: Sequence[Figure]) -> str:
    first = next((figure for figure in figures if figure.axis == "distortion"), None)
    return "" if first is None else f"{measure_title(first.measure)}: {band_text(first.after)}"


def _heats(study: StudyLike, choice: Chosen) -> list[str]:
    return [
        heatmap_html(study.table_pairs, [round_off(v) for v in values], caption=measure_title(measure))
        for measure, values in candidate_tables(study, choice.candidate).items()
        if values
    ]


def round_off(value: float) -> float:
    """Round to three significant digits.

    >>> round_off(0.0123456), round_off(0.0)
    (0.0123, 0.0)
    """
    return float(f"{value:.{DIGITS}g}")


def refuse_telltale(sentences: Iterable[str], study: StudyLike, choice: Chosen) -> None:
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


def _describe_question(study: StudyLike) -> dict[str, Any]:
    spec = study.spec
    return {
        "choices": "choices" if study.facts.get("search") else "every choice",
        "was": "were" if study.facts.get("search") else "was",
        "most": spec.up_to,
        "attributes": list_names(spec.attributes or [a["name"] for a in study.facts["attributes"]]),
        "constraints": "; ".join(c.label for c in spec.constraints if c.label),
        "risk": ", ".join(map(measure_title, spec.risk)),
        "distortion": ", ".join(map(measure_title, spec.distortion)),
    }


def _map(study: StudyLike, choice: Chosen, tolerance: int) -> str:
    points = public_points(study, choice, distortion=study.spec.distortion[0], tolerance=tolerance)
    svg = map_svg(points, text_as_paths=False)
    return svg[svg.index("<svg") :]


def public_points(study: StudyLike, choice: Chosen, *, distortion: str, tolerance: int) -> Points:
    """Return the points of the map without rates and draws, rounded, in the order of their scores."""
    points = points_of(study, distortion=distortion, choice=choice)
    least = tolerance / max(1, study.facts["records"])
    risk = np.array([round_off(raise_to(value, least)) for value in points.risk])
    x = np.array([round_off(value) for value in points.distortion])
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
        original=None if points.original is None else _round_original(points.original, least),
    )


def _round_original(original: tuple[float, float], least: float) -> tuple[float, float]:
    risk, distortion = original
    return round_off(raise_to(risk, least)), round_off(distortion)


def raise_to(value: float, least: float) -> float:
    """Raise a share so small that it reveals a count below the tolerance; 0 stays 0."""
    return value if value == 0 else max(value, least)


def _figures(study: StudyLike, figures: Sequence[Figure], parts: Parts, *, exact: bool) -> list[dict[str, str]]:
    """Return the scores after; before only with consent, since both together reveal how much was changed."""
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
        return f"below {round_off(least):g}"
    return f"{round_off(value):g}"


Version = Literal["internal", "public"]

SCRIPTLESS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
_VALUES = {"internal": internal_values, "public": public_values}
_POLICIES = {"internal": POLICY, "public": SCRIPTLESS}
_FILE_MODES = {"internal": PRIVATE_FILE, "public": 0o644}


def write_study_report(
    study: StudyLike,
    choice: Chosen,
    path: str | os.PathLike[str],
    *,
    version: Version = "internal",
    force: bool = False,
    **parts: Any,
) -> Path:
    """Write the report atomically. See :func:`study_report` for the parts.

    >>> import tempfile
    >>> from safeswap import datasets, Key
    >>> from safeswap.model.study import StudySpec
    >>> from safeswap.studies.run import run_study
    >>> study = run_study(datasets.cps8d(), StudySpec(attributes=("Race", "Sex")), key=Key.insecure(seed=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "report.html"
    ...     write_study_report(study, study.choose("linear:a=0.1"), path, version="public").name
    'report.html'
    """
    content = study_report(study, choice, version=version, **parts)
    with atomic_write(path, force=force, mode=_FILE_MODES[version]) as part:
        part.write_bytes(content)
    return Path(path)


def study_report(study: StudyLike, choice: Chosen, *, version: Version = "internal", **parts: Any) -> bytes:
    """Render the report; ``parts`` are the fields of :class:`safeswap.reports.study.Parts`."""
    if version not in _VALUES:
        raise SpecError(f"there is no version {version!r}", code="bad-version", hint="choose internal or public")
    text: str = load_template(f"study_{version}.html").render(
        _VALUES[version](study, choice, Parts(**parts)),
        colours=css_variables(),
        for_release=study.facts["for_release"],
        policy=_POLICIES[version],
        product_version=version_of("safeswap"),
    )
    return text.encode()
