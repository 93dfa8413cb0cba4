"""What a report of a study is made of, whichever version."""

from __future__ import annotations

from dataclasses import dataclass

from safeswap.charts.protocol import ChoiceLike, StudyLike
from safeswap.model.score import Assessment


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the caller states besides the study and the choice.

    ``before`` and ``after`` are assessments of the original and of the chosen release; without them the study's own
    figures are shown. ``kept`` are the sentences of the method's invariants, ``limits`` further sentences for the last
    section. ``tolerance`` is the smallest number of records that the public version states. ``publish_figures`` is the
    officer's consent that the public version has the map and the figures, from which the rate can be inferred.
    """

    title: str = ""
    before: Assessment | None = None
    after: Assessment | None = None
    kept: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    tolerance: int = 3
    publish_figures: bool = False
    date: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measure before and after; before is None where it is not known."""

    measure: str
    axis: str
    before: float | None
    after: float
    sentence: str = ""


def figures_of(study: StudyLike, choice: ChoiceLike, parts: Parts) -> list[Figure]:
    """One figure per measure: of the assessments where there are any, else of the study."""
    known = {**study.facts.get("before", {}), **{score.measure: score.value for score in parts.before or ()}}

    def start(measure: str, axis: str) -> float | None:
        # The original differs from itself in nothing.
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
