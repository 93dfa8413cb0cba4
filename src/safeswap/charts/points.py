"""The points of the map, one per specification, at the mean of its draws; and the data of its interactive page.

A study can have millions of candidates, a page cannot. Specifications on a frontier and the chosen one are always
kept; others, their draws and their 2-way tables are kept up to a limit, and the page says how many there were.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from math import isfinite
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap import registry
from safeswap.arrays.types import Floats, Int64s
from safeswap.charts import spec_text, theme
from safeswap.charts.theme import axis_title
from safeswap.measures.base import to_comparable
from safeswap.model.spec import MaskSpec
from safeswap.model.study import find_undominated

TABLE_MEASURES = ("hellinger", "total_variation", "entropy_change", "adV", "adC")
"""The measures of every 2-way table, in the order of the last axis of ``two_way``."""


class StudyLike(Protocol):
    """The shape of a study as charts need it: charts must not import ``study``, which is above them."""

    @property
    def spec(self) -> Any:
        """The question: risk, distortion, measures, replicates and so on."""
        ...

    @property
    def table(self) -> pa.Table:
        """One row per candidate."""
        ...

    @property
    def specs(self) -> Sequence[Any]:
        """The specifications, by the number in the column ``specification``."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Non-disclosive facts about the data."""
        ...

    @property
    def two_way(self) -> npt.NDArray[np.float32] | None:
        """The distortion of every 2-way table of every candidate: (candidates, tables, measures)."""
        ...

    @property
    def table_pairs(self) -> tuple[tuple[str, str], ...]:
        """The attributes of each 2-way table."""
        ...

    def frontier(self, *, risk: str | None = None, distortion: str | None = None, rate: float | None = None) -> Int64s:
        """Return the undominated candidates."""
        ...

    def summary(self, *, risk: str | None = None, distortion: str | None = None) -> pa.Table:
        """Return a row per specification, with the share of replicates in which it is on the frontier."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Chosen:
    """A chosen candidate and the reasons for it."""

    candidate: int
    spec: MaskSpec
    replicate: int
    risk: float
    distortion: float
    objective: str  # the rule, in words
    dominates: int  # specifications that are no better in either score
    rivals: pa.Table
    certainty: float | None  # the share of resamples in which it is chosen again
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json`` and reports."""
        values = {each.name: getattr(self, each.name) for each in fields(Chosen)}
        return {**values, "spec": self.spec.as_dict(), "rivals": self.rivals.to_pylist()}

    def __repr__(self) -> str:
        return self.sentence


@dataclass(frozen=True, eq=False, kw_only=True)
class Cloud:
    """Single draws, each with the index of its specification among the points."""

    risk: Floats
    distortion: Floats
    point: Int64s


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """The points of a map. ``rates`` is NaN for specifications without one, and None if rates must not be shown."""

    labels: tuple[str, ...]
    constraints: tuple[str, ...]
    rates: Floats | None
    risk: Floats
    distortion: Floats
    risk_title: str
    distortion_title: str
    chosen: int | None = None
    cloud: Cloud | None = None
    original: tuple[float, float] | None = None  # risk and distortion of the untouched file: a landmark, no candidate

    def __len__(self) -> int:
        return len(self.labels)

    def frontier(self, rate: float | None = None) -> Int64s:
        """Return the undominated points in order of distortion, of one rate or of all."""
        rows = np.arange(len(self))
        if rate is not None and self.rates is not None:
            rows = np.flatnonzero(np.isclose(self.rates, rate))
        best = rows[find_undominated(self.risk[rows], self.distortion[rows])]
        ordered: Int64s = best[np.lexsort((self.risk[best], self.distortion[best]))]
        return ordered

    def distinct_rates(self) -> list[float]:
        """Return the rates that occur, ascending."""
        if self.rates is None:
            return []
        return [float(rate) for rate in np.unique(self.rates[~np.isnan(self.rates)])]


def points_of(
    study: StudyLike, *, risk: str | None = None, distortion: str | None = None, choice: Chosen | None = None
) -> Points:
    """Return the specifications of a study that were made at least once, with their draws."""
    risk, distortion = risk or study.spec.risk[0], distortion or study.spec.distortion[0]
    number = specification_numbers(study)
    y, _ = mean_and_spread(study, risk)
    x, _ = mean_and_spread(study, distortion)
    made = np.flatnonzero(~(np.isnan(x) | np.isnan(y)))
    described = describe_specifications(study).take(pa.array(made))
    place = np.full(len(study.specs), -1, dtype=np.int64)
    place[made] = np.arange(len(made))
    cloud = None
    if study.spec.replicates > 1:
        dy, dx = figures(study, risk), figures(study, distortion)
        rows = np.flatnonzero(~(np.isnan(dx) | np.isnan(dy)))
        cloud = Cloud(risk=dy[rows], distortion=dx[rows], point=place[number[rows]])
    chosen = -1 if choice is None else int(place[number[choice.candidate]])
    return Points(
        labels=tuple(described["label"].to_pylist()),
        constraints=tuple(marks_of(study, made)[0]),
        rates=described["rate"].to_numpy(),
        risk=y[made],
        distortion=x[made],
        risk_title=axis_title(risk),
        distortion_title=axis_title(distortion),
        chosen=chosen if chosen >= 0 else None,
        cloud=cloud,
        original=original_point(study, risk, distortion),
    )


def original_figures(study: StudyLike) -> dict[str, float]:
    """Return the figures of the untouched original by measure, as a map shows them; empty for studies without them."""
    before = study.facts.get("before", {})
    found = {name: float(before[name]) for name in study.spec.measures if before.get(name) is not None}
    return {name: float(to_comparable(registry.measure(name), np.array([v]))[0]) for name, v in found.items()}


def original_point(study: StudyLike, risk: str, distortion: str) -> tuple[float, float] | None:
    """Return risk and distortion of the untouched original; None if a figure is not known."""
    known = original_figures(study)
    where = known.get(risk, np.nan), known.get(distortion, np.nan)
    return where if np.isfinite(where).all() else None


def column(study: StudyLike, name: str) -> Floats:
    """Return one column of the table of candidates, NaN for nulls."""
    values: Floats = study.table.column(name).to_numpy().astype(np.float64)
    return values


def figures(study: StudyLike, measure: str) -> Floats:
    """Return the scores of a measure as a map shows them: magnitudes if it is signed."""
    return to_comparable(registry.measure(measure), column(study, measure))


def specification_numbers(study: StudyLike) -> Int64s:
    """Return the specification number of each candidate."""
    numbers: Int64s = study.table.column("specification").to_numpy().astype(np.int64)
    return numbers


def describe_specifications(study: StudyLike) -> pa.Table:
    """Return label, swapped attributes, constraint and rate, a row per specification."""
    number = specification_numbers(study)
    first = np.full(len(study.specs), 0, dtype=np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return study.table.select(["label", "swap", "constraint", "rate"]).take(pa.array(first))


def marks_of(study: StudyLike, numbers: Int64s) -> tuple[list[str], int]:
    """Return what the mark of each specification stands for, and the number of methods.

    It is the constraint under which it swaps, empty for none; with several methods, the method as well.
    """
    constraints = describe_specifications(study)["constraint"].to_pylist()
    kinds = [(str(study.specs[number].method).replace("_", " "), constraints[number]) for number in numbers]
    methods = len({method for method, _ in kinds})
    return [": ".join(filter(None, kind)) if methods > 1 else kind[1] for kind in kinds], methods


def mean_and_spread(study: StudyLike, name: str) -> tuple[Floats, Floats]:
    """Return the mean and standard deviation of a measure over the draws of each specification."""
    values, number, many = figures(study, name), specification_numbers(study), len(study.specs)
    known = ~np.isnan(values)
    count = np.bincount(number[known], minlength=many)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(number[known], weights=values[known], minlength=many) / count
        squares = np.bincount(number[known], weights=(values[known] - mean[number[known]]) ** 2, minlength=many)
        return mean, np.sqrt(squares / (count - 1))


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
        best |= find_undominated(means[risk], means[distortion])
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
