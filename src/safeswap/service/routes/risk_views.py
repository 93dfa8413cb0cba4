"""The risk of a project's data from several sides, before the pipeline and after it: a sentence and some bars each."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import Field

from safeswap.errors import SafeswapError
from safeswap.methods.value_change import record_words
from safeswap.model.scenario import Scenario, as_scenario
from safeswap.model.text import plural
from safeswap.service.http.wire import Wire
from safeswap.service.people.roles import ProjectAccess, Worker
from safeswap.service.routes.argus import RiskyRequest
from safeswap.service.routes.settings import data_after, project_of
from safeswap.service.work.questions import QuestionSlot, load_data_version, refuse_long
from safeswap.service.work.rare import Noise, check_tolerance

if TYPE_CHECKING:
    from safeswap.measures.risk.views import Bar, RiskView
    from safeswap.model.microdata import Microdata

router = APIRouter(tags=["risk"])

ViewName = Literal["groups", "individual", "households", "suda", "population"]


class RiskBar(Wire):
    """A bar of a view: after the pipeline, and in the file itself."""

    label: str
    now: int
    before: int | None = Field(description="None if the bar has no counterpart in the file itself.")


class RiskViewAnswer(Wire):
    """The risk from one side: totals with noise, never values."""

    view: ViewName
    scenario: str
    sentence: str = Field(description="What was found; empty if nothing could be.")
    problem: str = Field(default="", description="Why this view does not apply, and what would help.")
    unit: str = "records"
    total: int = 0
    at_risk: int = 0
    at_risk_before: int | None = None
    bars: tuple[RiskBar, ...] = ()
    sensitive: tuple[RiskBar, ...] = Field(
        default=(), description="Records of which a sensitive value can be inferred."
    )
    steps: int = Field(default=0, description="Steps of the pipeline that are switched on.")


@router.post("/projects/{project_id}/risk-views/{view}")
def view_risk(access: Worker, view: ViewName, body: RiskyRequest, _: QuestionSlot) -> RiskViewAnswer:
    """Look at the risk from one side, in the file and after the pipeline. Totals are approximate."""
    from safeswap.measures.risk.views import make_view

    access.require_data()
    asked = as_scenario(body.asked(access))
    check_tolerance(asked, access.row.tolerance)
    _refuse_long(access, view, asked)
    original = load_data_version(access, version=access.row.data_version, recipe=None)
    listed = project_of(access).listed
    steps = sum(is_on for _, is_on in listed)
    try:
        data = data_after(access, len(listed)) if steps else original
        before = make_view(view, original, original, asked)
        now = make_view(view, original, data, asked) if steps else before
    except SafeswapError as error:
        told = ". ".join(_capitalised(part) for part in (error.message, error.hint) if part)
        problem = _PLAIN.get(error.code, f"{told}.")
        return RiskViewAnswer(view=view, scenario=asked.name, sentence="", problem=problem, steps=steps)
    if isinstance(now, str) or isinstance(before, str):
        return RiskViewAnswer(view=view, scenario=asked.name, sentence="", problem=str(now), steps=steps)
    shown = _Shown(access, original)
    return shown.answer(view, asked, now, before, steps)


_PLAIN = {
    "bad-population": "Of how many people the file is a sample is not known: give the scenario a survey weight, or the "
    "number of people in the population.",
    "no-household": "No column numbers the households: if there is one, set its kind to household on the Data page.",
}


class _Shown:
    """Counts with noise that follows from the records concerned, however the question is put."""

    def __init__(self, access: ProjectAccess, original: Microdata) -> None:
        self.noise = Noise(key=access.key, tolerance=access.row.tolerance)
        self.words = record_words(original, access.key, "risk views", "bars", replicate=0)[:, 0]

    def count(self, bar: Bar, most: int) -> int:
        return self.noise.add(bar.count, "view", int(self.words[bar.rows].sum(dtype=np.uint64)), most=most)

    def answer(self, view: ViewName, asked: Scenario, now: RiskView, before: RiskView, steps: int) -> RiskViewAnswer:
        first = {bar.label: self.count(bar, before.total) for bar in before.bars}
        at_risk, at_first = self.count(now.at_risk, now.total), self.count(before.at_risk, before.total)
        bars = [
            RiskBar(label=bar.label, now=self.count(bar, now.total), before=first.get(bar.label)) for bar in now.bars
        ]
        if view == "population":
            pairs = [(self._share(now, at_risk, part), self._share(before, at_first, part)) for part in (0, 1)]
            labels = ("expected to be unique in the population", "expected to be matched correctly")
            bars += [RiskBar(label=label, now=a, before=b) for label, (a, b) in zip(labels, pairs, strict=True)]
        inferred = {bar.label: self.count(bar, before.total) for bar in before.sensitive}
        sensitive = tuple(
            RiskBar(label=bar.label, now=self.count(bar, now.total), before=inferred.get(bar.label))
            for bar in now.sensitive
        )
        answer = RiskViewAnswer(
            view=view,
            scenario=asked.name,
            sentence="",
            unit=now.unit,
            total=now.total,
            at_risk=at_risk,
            at_risk_before=at_first,
            bars=tuple(bars),
            sensitive=sensitive,
            steps=steps,
        )
        return answer.model_copy(update={"sentence": self._sentence(answer, asked, now)})

    def _share(self, view: RiskView, uniques: int, part: int) -> int:
        """Return an estimate of the model for as many uniques as are shown."""
        value = (view.expected_unique, view.expected)[part] or 0.0
        return round(value * uniques / view.at_risk.count) if view.at_risk.count else 0

    def _sentence(self, found: RiskViewAnswer, asked: Scenario, now: RiskView) -> str:
        number = f"about {found.at_risk:,}" if found.at_risk else "none"
        share = f" ({found.at_risk / found.total:.1%})" if found.at_risk and found.total else ""
        of = f"{number} of {found.total:,} {found.unit}{share}"
        if found.view == "groups":
            keys = plural(len(now.keys), "key")
            told = f"{of} are in groups of {found.bars[0].label} records with the same values of {keys}"
            for bar in found.sensitive:
                told += f"; {bar.label} can be inferred of {f'about {bar.now:,}' if bar.now else 'none'}"
        elif found.view in ("individual", "households"):
            expected = self.noise.add(round(now.expected or 0.0), "expected", *sorted(now.keys), most=found.total)
            whose = "the file counts as the population" if asked.weight is None else f"weighted by {asked.weight}"
            way = "" if found.view == "individual" else " through a member"
            told = (
                f"about {expected:,} of {found.total:,} {found.unit} are expected to be found{way}; {number} at a risk "
                f"of 10% or more ({whose})"
            )
        elif found.view == "suda":
            told = f"{of} are made unique by at most three of the keys"
        else:
            told = (
                f"{of} are unique in the file; of these about {found.bars[1].now:,} are expected to be unique in the "
                f"population, and {found.bars[2].now:,} to be matched correctly"
            )
        return _capitalised(told) + "."


def _refuse_long(access: ProjectAccess, view: ViewName, asked: Scenario) -> None:
    keys = len(asked.names)
    tables = {"suda": 2 * sum(comb(keys, size) for size in (1, 2, 3)), "population": 40}.get(view, 6)
    refuse_long(access.service.settings.limits, records=access.row.records, tables=tables)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
