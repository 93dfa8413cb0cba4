"""What the internal report of a study says: everything that speaks for the choice."""

from __future__ import annotations

from typing import Any

from safeswap.charts.heatmap import candidate_tables, heatmap_html
from safeswap.charts.map import map_fragment, study_sentence
from safeswap.charts.protocol import ChoiceLike, StudyLike
from safeswap.charts.spec_text import python_text
from safeswap.charts.theme import measure_title, number_text, shortened
from safeswap.io.report_parts import Figure, Parts, figures_of

_READINGS = {"any": "any of its swap attributes differs", "all": "all of its swap attributes differ"}


def internal_values(study: StudyLike, choice: ChoiceLike, parts: Parts) -> dict[str, Any]:
    """The values of the internal template."""
    facts = study.facts
    name = facts.get("name") or "a file without a name"
    tables = candidate_tables(study, choice.candidate)
    return {
        "title": shortened(parts.title or f"Risk-utility study: {name}", 200),
        "date": parts.date,
        "data": {"name": name} | {key: f"{facts[key]:,}" for key in ("records", "cells", "possible_cells")},
        "attributes": facts["attributes"],
        "choice": choice,
        "tried": _tried(study),
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


def _tried(study: StudyLike) -> list[str]:
    spec = study.spec
    names = spec.attributes or [a["name"] for a in study.facts["attributes"]]
    risk, distortion = (", ".join(map(measure_title, measures)) for measures in (spec.risk, spec.distortion))
    others = [f"Besides, {len(spec.others):,} stated specifications of other kinds."] if spec.others else []
    search = study.facts.get("search")
    if search is not None:
        others.append(f"What was tried was found by a search ({search['method']}), not by trying everything.")
    choices = "every choice of" if search is None else f"out of {search['possible']:,} possible ones, choices of"
    return [
        study_sentence(study),
        f"Swapped: {choices} up to {spec.up_to} of {', '.join(names)}.",
        f"Rates (shares of records that take part): {', '.join(f'{rate:g}' for rate in spec.rates)}.",
        f"Constraints: {'; '.join(c.label or 'none' for c in spec.constraints)}.",
        f"A pair counts if {_READINGS[spec.true_swap]}; pairing is {spec.pairing}.",
        f"Risk: {risk}. Distortion: {distortion}.",
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
