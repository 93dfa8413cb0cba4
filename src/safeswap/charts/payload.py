"""The data of the interactive map: the scores of a study as plain values, small enough for a page.

A study can have millions of candidates, a page cannot. Specifications on a frontier and the chosen one are always
kept; others, their draws and their 2-way tables are kept up to a limit, and the page says how many there were.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import product
from math import isfinite
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays import dominance
from safeswap.arrays.types import Floats, Int64s
from safeswap.charts import spec_text, theme
from safeswap.charts.points import (
    TABLE_MEASURES,
    Chosen,
    StudyLike,
    column,
    describe_specifications,
    figures,
    marks_of,
    mean_and_spread,
    original_figures,
    specification_numbers,
)

MOST_REJECTED = 500

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Room:
    """Limits on what a page holds: numbers of specifications and draws, bytes of 2-way tables and of texts."""

    specifications: int = 4_000
    draws: int = 20_000
    tables: int = 2_500_000
    texts: int = 2_000_000


PAGE = Room()
NOTEBOOK = Room(specifications=1_500, draws=8_000, tables=800_000, texts=600_000)


def map_payload(
    study: StudyLike,
    *,
    choice: Chosen | None = None,
    risk: str | None = None,
    distortion: str | None = None,
    title: str = "",
    room: Room = PAGE,
) -> dict[str, Any]:
    """Return the content of the page as JSON values."""
    kept, first = _select_specifications(study, choice, room)
    draws = _select_draws(study, kept, choice, room)
    names = list(dict.fromkeys(name for pair in study.table_pairs for name in pair))
    return {
        "title": _title(study, title),
        "facts": {"records": study.facts["records"], "for_release": study.facts["for_release"]},
        "replicates": study.spec.replicates,
        "candidates": study.table.num_rows,
        "all_specifications": len(study.specs),
        "measures": [
            {"title": theme.axis_title(name), "axis": "risk" if name in study.spec.risk else "distortion"}
            for name in study.spec.measures
        ],
        "axes": _axes(study, risk, distortion),
        "original": _original(study),
        "note": study_note(study),
        **_specifications(study, kept, first, room),
        "draws": _draws(study, kept, draws) if study.spec.replicates > 1 else None,
        "tables": _tables(study, names, _prioritise(kept, first), draws, room),
        "rejected": _describe_rejected(study),
        "chosen": None if choice is None else _describe_choice(study, kept, choice),
        "themes": {"light": asdict(theme.LIGHT), "dark": asdict(theme.DARK)},
    }


def study_note(study: StudyLike) -> str:
    """Say by which weight tables are compared, and what is computed for the candidates of the frontier only."""
    told = [f"Tables are weighted by {weight}."] if (weight := study.facts.get("weight")) else []
    lines = [line for each in study.facts.get("frontier_only", ()) for line in each["lines"]]
    if lines:
        shown = ", ".join(lines[:3]) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
        told.append(f"Key indicators are compared without {shown}, computed for the candidates on the frontier only.")
    return " ".join(told)


def as_json(values: Any) -> str:
    """Encode JSON that is safe inside a script element: no ``<``, ``>`` or ``&``, no JavaScript line separator.

    >>> print(as_json({"name": "</script><b>"}))
    {"name":"\\u003c/script\\u003e\\u003cb\\u003e"}
    """
    text = json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _title(study: StudyLike, stated: str) -> str:
    name = study.facts.get("name")
    return theme.shorten(stated or (f"Risk-utility map: {name}" if name else "Risk-utility map"), 200)


def _original(study: StudyLike) -> list[float | None] | None:
    """Return the figures of the untouched original in the order of the measures; None if the study has none."""
    known = original_figures(study)
    return _round([known.get(name, np.nan) for name in study.spec.measures], 9) if known else None


def _axes(study: StudyLike, risk: str | None, distortion: str | None) -> list[int]:
    measures = list(study.spec.measures)
    return [measures.index(risk or study.spec.risk[0]), measures.index(distortion or study.spec.distortion[0])]


def _select_specifications(study: StudyLike, choice: Chosen | None, room: Room) -> tuple[Int64s, list[int]]:
    """Return the specifications to keep, ascending, and those that have priority when room is short."""
    means = {name: mean_and_spread(study, name)[0] for name in study.spec.measures}
    best = np.zeros(len(study.specs), dtype=np.bool_)
    for risk, distortion in product(study.spec.risk, study.spec.distortion):
        best |= dominance.find_undominated(means[risk], means[distortion])
    first = [] if choice is None else [int(specification_numbers(study)[choice.candidate])]
    first += [int(i) for i in np.flatnonzero(best) if int(i) not in first]
    everywhere = np.linspace(0, len(study.specs) - 1, min(len(study.specs), room.specifications)).astype(np.int64)
    return np.union1d(everywhere, np.array(first, dtype=np.int64)), first


def _select_draws(study: StudyLike, kept: Int64s, choice: Chosen | None, room: Room) -> dict[str, Int64s]:
    """Return the candidates to keep: those on a frontier of single draws, and whole replicates while there is room."""
    best = [study.frontier(risk=r, distortion=d) for r, d in product(study.spec.risk, study.spec.distortion)]
    best.append(np.array([] if choice is None else [choice.candidate], dtype=np.int64))
    frontier = np.unique(np.concatenate(best))
    replicate = study.table.column("replicate").to_numpy()
    some = np.isin(specification_numbers(study), kept) & (replicate < max(1, room.draws // max(1, len(kept))))
    rows = np.union1d(np.flatnonzero(some & ~np.isnan(column(study, study.spec.risk[0]))), frontier)
    return {"rows": rows, "frontier": frontier}


def _specifications(study: StudyLike, kept: Int64s, first: list[int], room: Room) -> dict[str, Any]:
    described = describe_specifications(study).take(pa.array(kept))
    rates = [rate for rate in dict.fromkeys(described["rate"].to_pylist()) if rate is not None]
    constraints = list(dict.fromkeys(described["constraint"].to_pylist()))
    marked, methods = marks_of(study, kept)
    kinds = list(dict.fromkeys(marked))
    means = [mean_and_spread(study, name) for name in study.spec.measures]
    place = {rate: i for i, rate in enumerate(sorted(rates))}
    was_made = ~np.isnan(column(study, study.spec.risk[0]))
    number = specification_numbers(study)[was_made]
    made = np.bincount(number, minlength=len(study.specs))
    pairs = np.bincount(number, weights=column(study, "pairs")[was_made], minlength=len(study.specs))
    return {
        "rates": sorted(rates),
        "constraints": [theme.shorten(text) for text in constraints],
        "marks": [theme.shorten(kind or "none") for kind in kinds],
        "several_methods": methods > 1,
        "specs": {
            "number": kept.tolist(),
            "label": [theme.shorten(text) for text in described["label"].to_pylist()],
            "swap": [theme.shorten(", ".join(names), 200) for names in described["swap"].to_pylist()],
            "rate": [place.get(rate, -1) for rate in described["rate"].to_pylist()],
            "constraint": [constraints.index(text) for text in described["constraint"].to_pylist()],
            "mark": [kinds.index(kind) for kind in marked],
            "pairs": _round(pairs[kept] / np.maximum(made[kept], 1)),
            "made": made[kept].tolist(),
            "mean": [_round(mean[kept], 9) for mean, _ in means],
            "spread": [_round(spread[kept]) for _, spread in means],
            "often": _frontier_shares(study, kept),
            "texts": _texts(study, _prioritise(kept, first), room),
        },
    }


def _frontier_shares(study: StudyLike, kept: Int64s) -> dict[str, list[float | None]]:
    """Return, by pair of axes, the share of replicates in which each specification is on the frontier."""
    if study.spec.replicates < 2:
        return {}
    place = {name: i for i, name in enumerate(study.spec.measures)}
    return {
        f"{place[risk]},{place[distortion]}": _round(
            study.summary(risk=risk, distortion=distortion)["on_frontier"].to_numpy()[kept], 3
        )
        for risk, distortion in product(study.spec.risk, study.spec.distortion)
    }


def _texts(study: StudyLike, numbers: list[int], room: Room) -> dict[str, list[str]]:
    def texts(number: int) -> list[str]:
        spec = study.specs[number]
        return [spec_text.python_text(spec), spec_text.command_text(spec), spec_text.toml_text(spec)]

    return _fill(numbers, texts, room.texts)


def _draws(study: StudyLike, kept: Int64s, draws: dict[str, Int64s]) -> dict[str, Any]:
    rows = draws["rows"]
    number = specification_numbers(study)[rows]
    rows, number = rows[np.isin(number, kept)], number[np.isin(number, kept)]
    return {
        "candidate": rows.tolist(),
        "spec": np.searchsorted(kept, number).tolist(),
        "replicate": study.table.column("replicate").to_numpy()[rows].tolist(),
        "pairs": study.table.column("pairs").to_numpy()[rows].tolist(),
        "value": [_round(figures(study, name)[rows], 9) for name in study.spec.measures],
    }


def _tables(
    study: StudyLike, names: list[str], numbers: list[int], draws: dict[str, Int64s], room: Room
) -> dict[str, Any] | None:
    """Return the 2-way distortions of the specifications' means and of the frontier's draws."""
    if study.two_way is None or not study.table_pairs:
        return None
    rows_of = _rows_by_specification(study)
    two_way = study.two_way

    def mean_tables(number: int) -> list[list[float | None]] | None:
        rows = rows_of[number]
        rows = rows[~np.isnan(two_way[rows, 0, 0])]
        return [_round(t, 5) for t in two_way[rows].mean(axis=0, dtype=np.float64).T] if len(rows) else None

    def draw_tables(row: int) -> list[list[float | None]]:
        return [_round(t, 5) for t in two_way[row].T]

    singles = draws["frontier"].tolist() if study.spec.replicates > 1 else []
    return {
        "attributes": [theme.shorten(name) for name in names],
        "pairs": [[names.index(a), names.index(b)] for a, b in study.table_pairs],
        "measures": [theme.measure_title(name) for name in TABLE_MEASURES],
        "specs": _fill(numbers, mean_tables, room.tables),
        "draws": _fill(singles, draw_tables, room.tables // 2),
    }


def _rows_by_specification(study: StudyLike) -> list[Int64s]:
    number = specification_numbers(study)
    order = np.argsort(number, kind="stable")
    return np.split(order, np.cumsum(np.bincount(number, minlength=len(study.specs)))[:-1])


def _describe_rejected(study: StudyLike) -> dict[str, Any]:
    """Return the rejected candidates with the reason, grouped by specification and reason."""
    bad = study.table.filter(pc.not_equal(study.table.column("reason"), ""))
    counted: Counter[tuple[Any, ...]] = Counter(
        zip(*(bad.column(name).to_pylist() for name in ("label", "constraint", "rate", "reason")), strict=True)
    )
    lines = [
        [theme.shorten(label), theme.shorten(constraint), rate, times, theme.shorten(reason, 300)]
        for (label, constraint, rate, reason), times in list(counted.items())[:MOST_REJECTED]
    ]
    return {"lines": lines, "all": len(counted), "candidates": bad.num_rows}


def _describe_choice(study: StudyLike, kept: Int64s, choice: Chosen) -> dict[str, Any]:
    number = int(specification_numbers(study)[choice.candidate])
    return {"spec": int(np.searchsorted(kept, number)), "candidate": choice.candidate, "sentence": choice.sentence}


def _prioritise(kept: Int64s, first: list[int]) -> list[int]:
    """Return all kept numbers, those in ``first`` at the front."""
    done = set(first)
    return [*first, *(int(i) for i in kept if int(i) not in done)]


def _fill(numbers: Iterable[int], make: Callable[[int], T], room: int) -> dict[str, T]:
    """Make one entry per number until ``room`` bytes are used."""
    made: dict[str, T] = {}
    for number in numbers:
        entry = make(number)
        room -= len(json.dumps(entry, separators=(",", ":")))
        if room < 0:
            break
        if entry is not None:
            made[str(number)] = entry
    return made


def _round(values: Floats | Any, digits: int = 6) -> list[float | None]:
    """Round to significant digits; None for numbers that are not finite."""
    numbers: list[float | None] = []
    for value in np.asarray(values, dtype=np.float64).tolist():
        short = float(f"{value:.{digits}g}") if isfinite(value) else None
        numbers.append(int(short) if short is not None and short.is_integer() and abs(short) < 1e15 else short)
    return numbers
