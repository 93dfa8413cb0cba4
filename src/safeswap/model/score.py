"""Risk and distortion scores, each with its detail table and a sentence that explains it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.errors import InternalError, SpecError
from safeswap.model.checked import check_types
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema

if TYPE_CHECKING:
    from safeswap.arrays.cells import JointCounts
    from safeswap.model.scenario import Resolved


class Axis(StrEnum):
    """The axis of the risk-utility map to which a measure belongs."""

    RISK = "risk"
    DISTORTION = "distortion"


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """The input of a measure: the file before and after, over stated attributes.

    ``touched`` flags the records that took part in the masking, if known. ``only_numbers`` is whether masking changed
    numeric attributes and no others, where the files at hand do not have all columns. ``recoded`` is the file before in
    the categories of the file after, if the recodes are known; else they are read off the two files. ``scenario`` has
    the keys of the scenario under which risk is measured.
    """

    before: Microdata
    after: Microdata
    attributes: tuple[str, ...]
    touched: npt.NDArray[np.bool_] | None = None
    only_numbers: bool | None = None
    recoded: Microdata | None = None
    scenario: Resolved | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class CountedCells:
    """The input of measures of cell counts where there are too many records: counts only.

    ``joint`` has the counts before and after of the cells that changed, all others merged into one. The small cells
    after are counted by size: how many there are, and how many of their records took no part. ``changed`` are those
    of the attributes that changed; ``only_numbers`` is whether masking changed numeric attributes and no others, of
    the whole file.
    """

    schema: Schema
    attributes: tuple[str, ...]
    changed: frozenset[str]
    joint: JointCounts
    small_cells: npt.NDArray[np.int64]
    small_untouched: npt.NDArray[np.int64]
    untouched: int
    only_numbers: bool


def only_numbers_changed(schema: Schema, changed: Collection[str]) -> bool:
    """Return whether attributes changed, and all that did are numbers or dates."""
    return bool(changed) and all(schema[name].kind.is_measurable for name in changed)


@dataclass(frozen=True, eq=False, kw_only=True)
class Score:
    """One figure. Smaller is better on both axes; for signed measures, the smaller magnitude.

    A figure under a ``scenario`` has its name, and ``before``, the value of the original under the same scenario.
    """

    measure: str
    axis: Axis
    value: float
    sentence: str
    attributes: tuple[str, ...] = ()
    detail: pa.Table | None = None
    before: float | None = None
    scenario: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; the detail table as rows."""
        return {
            "measure": self.measure,
            "axis": self.axis.value,
            "value": self.value,
            "before": self.before,
            "scenario": self.scenario,
            "sentence": self.sentence,
            "attributes": list(self.attributes),
            "detail": self.detail.to_pylist() if self.detail is not None else None,
        }


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A measure that was not computed, and the reason."""

    measure: str
    reason: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Assessment:
    """The scores of one release, in the order asked for, and the default measures that do not apply to it."""

    scores: tuple[Score, ...]
    left_out: tuple[LeftOut, ...] = ()

    def __iter__(self) -> Iterator[Score]:
        return iter(self.scores)

    @check_types
    def __getitem__(self, measure: str) -> Score:
        for score in self.scores:
            if score.measure == measure:
                return score
        known = ", ".join(score.measure for score in self.scores)
        raise SpecError(f"{measure!r} was not assessed", code="unknown-measure", hint=f"assessed were: {known}")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json`` and reports."""
        return {
            "scores": [score.as_dict() for score in self.scores],
            "left_out": [{"measure": each.measure, "reason": each.reason} for each in self.left_out],
        }

    @property
    def left_out_sentences(self) -> tuple[str, ...]:
        """The omitted measures, one sentence per reason."""
        reasons = dict.fromkeys(each.reason for each in self.left_out)
        named = {reason: [each.measure for each in self.left_out if each.reason == reason] for reason in reasons}
        return tuple(f"Left out: {', '.join(names)} ({reason})." for reason, names in named.items())

    def __repr__(self) -> str:
        width = max((len(score.measure) for score in self.scores), default=0)
        lines = [f"{s.measure:<{width}}  {s.axis.value:<10}  {_figures(s)}  {s.sentence}" for s in self.scores]
        return "\n".join([*lines, *self.left_out_sentences])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(s.measure)}</td><td>{s.axis.value}</td><td style='text-align:right'>{_figures(s)}</td>"
            f"<td style='text-align:left'>{escape(s.sentence)}</td></tr>"
            for s in self.scores
        )
        table = f"<table><tr><th>measure</th><th>axis</th><th>value</th><th>meaning</th></tr>{rows}</table>"
        return table + "".join(f"<p>{escape(sentence)}</p>" for sentence in self.left_out_sentences)


def _figures(score: Score) -> str:
    """Return the value; under a scenario, with the value before and the scenario's name."""
    if not score.scenario:
        return f"{score.value:.6g}"
    before = "" if score.before is None else f"{score.before:.6g} → "
    return f"{before}{score.value:.6g} ({escape(score.scenario, quote=False)})"


_ROUNDING = 1e-6


def proved_bound(bound: float, value: float) -> float:
    """Return a lower bound for display beside an attained value; one above it by rounding only becomes the value.

    A lower bound above an attained value is false, and so would be every statement about the result: that is a bug,
    never a figure.

    >>> proved_bound(3.0, 4.0), proved_bound(4.0000001, 4.0)
    (3.0, 4.0)
    >>> proved_bound(5.0, 4.0)
    Traceback (most recent call last):
    safeswap.errors.InternalError: a lower bound came out above a value that was reached
    """
    if bound > value + _ROUNDING * max(1.0, abs(value)):
        raise InternalError("a lower bound came out above a value that was reached", code="false-bound")
    return min(bound, value)
