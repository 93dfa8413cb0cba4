"""The facts of a release, collected once; every report contains a part of them and nothing else.

:class:`Facts` has everything and is as confidential as the audit record. :class:`MembersFacts` has what members of a
review board may know: no share of changed records, and no figure from which it follows. The public report has a value
of its own (:class:`safeswap.reports.public.PublicPage`), in a module that cannot reach this one. A value is made from
the next more confidential one, by name, field by field: what is not named is not told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, ValidationError

from safeswap.arrays.names import Names
from safeswap.errors import InputError, SpecError
from safeswap.files.atomic import PRIVATE_DIRECTORY, PRIVATE_FILE, atomic_write
from safeswap.files.formats import existing_file
from safeswap.model.checked import check_types
from safeswap.model.spec import Stated, Strict
from safeswap.model.text import plural
from safeswap.reports.public import PublicPage

Audience = Literal["analyst", "chair", "members", "five-safes", "public"]
AUDIENCES: tuple[Audience, ...] = get_args(Audience)
BOARD: tuple[Audience, ...] = ("chair", "members")
"""The two versions for a review board."""

_LARGEST = 256 * 2**20
_PUBLIC_FILE = 0o644

State = Literal["open", "ready", "not ready", "requested", "approved", "rejected", "released"]


class ScenarioFacts(Strict):
    """A possible attacker and what they know."""

    name: str
    sentence: str
    keys: Names
    sensitive: Names = ()
    gone: Names = ()  # keys that are not released


class EstimateFacts(Strict):
    """The effect on one estimate that users compute: its change, and the growth of its standard error."""

    indicator: str
    statistic: str
    domain: str = ""
    change: float | None = None  # relative to the value before
    unweighted: float | None = None
    in_errors: float | None = None
    inflation: float | None = None
    flagged: bool = False
    problem: str = ""


class WeightFacts(Strict):
    """The largest change of a weighted count in a table of one attribute, and of the number of records there."""

    weight: str
    change: float
    unweighted: float
    sentence: str


class Figure(Strict):
    """A figure of the original and of the result; ``limit`` is what is required of it, ``ok`` whether that holds."""

    measure: str
    title: str
    axis: Literal["risk", "utility"]
    before: float | None
    after: float | None
    scenario: str = ""
    sentence: str = ""
    limit: str = ""
    ok: bool | None = None
    tells_the_rate: bool = True
    is_count: bool = False
    estimates: tuple[EstimateFacts, ...] = ()  # behind the figure of key indicators
    multipliers: tuple[tuple[str, float], ...] = ()  # by kind of estimate, the median growth of standard errors


class StepFacts(Strict):
    """One step: what it is, what was planned and done, and the share of the records that it touched."""

    name: str
    method: str
    title: str
    plan: str
    done: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    records: int
    share: float


class ColumnFacts(Strict):
    """The fate of a column. ``untrue`` counts values that differ from the original in the released categories."""

    column: str
    label: str = ""
    status: str
    details: str = ""
    sentence: str
    untrue: int = 0
    share: float = 0.0
    blanked: int = 0
    released: bool = True


class AttackFacts(Strict):
    """The outcome of an attack: how often it succeeded, what guessing reaches, and what is allowed above that."""

    attack: str
    success: float
    baseline: float
    advantage: float
    interval: tuple[float, float] | None = None
    allowed: float | None = None
    is_above: bool | None = None  # as the gate of the release judged it

    @property
    def ok(self) -> bool | None:
        """True if it stays within what is allowed; None if nothing was stated."""
        if self.allowed is not None and self.is_above is not None:
            return not self.is_above
        least = self.interval[0] if self.interval else self.advantage  # what may be chance does not count
        return None if self.allowed is None else least <= self.allowed

    @classmethod
    def of(cls, outcome: Any) -> AttackFacts:
        """Take what reports need from an outcome, or from its plain values."""
        told = outcome if isinstance(outcome, Mapping) else outcome.as_dict()
        return cls(**{name: told[name] for name in cls.model_fields if name in told})

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return self.model_dump()


class MapFacts(Strict):
    """The points of a map: one per specification, the chosen one, and the untouched original (risk, distortion)."""

    labels: tuple[str, ...]
    constraints: tuple[str, ...]
    rates: tuple[float | None, ...]
    risk: tuple[float, ...]
    distortion: tuple[float, ...]
    risk_title: str
    distortion_title: str
    chosen: int | None = None
    original: tuple[float, float] | None = None


class TriedFacts(Strict):
    """The candidates of a study, and the choice; ``swapped`` and ``rule`` say it without a number."""

    sentence: str
    candidates: int
    specifications: int
    frontier: int
    rejected: int
    details: tuple[str, ...] = ()
    chosen: str = ""
    swapped: str = ""
    objective: str = ""
    rule: str = ""
    certainty: float | None = None
    rivals: tuple[tuple[str, str, str, str, str], ...] = ()
    draws: int = 0  # of the chosen specification, from which ``spread`` is estimated
    spread: tuple[tuple[str, str, float, float, float], ...] = ()  # indicator, domain; bias, spread, total, in errors
    map: MapFacts | None = None


class DecisionFacts(Strict):
    """The request for a release and the decision: by whom, when and why; ``obstacles`` prevent it."""

    state: State = "open"
    asked_by: str = ""
    asked_at: str = ""
    decided_by: str = ""
    decided_at: str = ""
    reason: str = ""
    obstacles: tuple[str, ...] = ()


class CheckFacts(Strict):
    """A promise that was verified on the files."""

    sentence: str
    ok: bool


class Facts(Stated):
    """Everything that is known of a masking and its release: confidential.

    ``page`` renders the report for an audience, ``write`` writes reports and the facts behind them.
    """

    called: ClassVar[str] = "the facts of a report"

    format: Literal["safeswap-facts-1"] = "safeswap-facts-1"
    version: str
    title: str = ""
    date: str = ""
    name: str = ""
    records: int
    columns: int
    for_release: bool
    scenarios: tuple[ScenarioFacts, ...] = ()
    figures: tuple[Figure, ...] = ()
    weights: WeightFacts | None = None
    left_out: tuple[str, ...] = ()
    steps: tuple[StepFacts, ...] = ()
    earlier: tuple[str, ...] = ()
    changes: tuple[ColumnFacts, ...] = ()
    statements: tuple[str, ...] = ()
    checks: tuple[CheckFacts, ...] = ()
    flags: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()  # figures of risk above those of the original
    attacks: tuple[AttackFacts, ...] = ()
    override: str = ""  # the officer's reason to release although an attack exceeds the policy
    tried: TriedFacts | None = None
    touched: int = 0
    removed: int = 0
    ledger: tuple[str, ...] = ()
    released_before: bool = False
    remarks: tuple[str, ...] = ()
    decision: DecisionFacts = DecisionFacts()
    public: PublicPage | None = None

    @property
    def share(self) -> float:
        """The share of the records that took part."""
        return self.touched / self.records if self.records else 0.0

    @check_types
    def replace(self, **values: Any) -> Facts:
        """Return the facts with some of them changed, such as the decision."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **values})

    @check_types
    def for_members(self) -> MembersFacts:
        """Return what members of a board may know: nothing reveals how many records were changed."""
        return MembersFacts.of(self)

    @check_types
    def page(self, audience: str) -> bytes:
        """Render the report for an audience: analyst, chair, members, five-safes or public."""
        from safeswap.reports.pages import render_page

        return render_page(self, _as_audience(audience))

    @check_types
    def dump(self, audience: str = "analyst") -> bytes:
        """Return the facts that an audience may know, as JSON."""
        chosen = _as_audience(audience)
        known: Strict = self
        if chosen == "members":
            known = self.for_members()
        elif chosen == "public":
            known = self.public_page()
        return (known.model_dump_json(indent=1) + "\n").encode()

    def public_page(self) -> PublicPage:
        """Return the public part; refused if a release of this would be."""
        if self.public is None:
            raise SpecError(
                "there is no public report: a release of this masking would be refused",
                code="no-public-report",
                hint="see the obstacles in the analyst's report",
            )
        return self.public

    @check_types
    def write(
        self, directory: str | os.PathLike[str], audiences: Sequence[str] = AUDIENCES, *, force: bool = False
    ) -> tuple[Path, ...]:
        """Write the reports for some audiences into a directory, each with the facts that it is made from.

        ``members`` and ``public`` have JSON files of their own; all others share ``facts.json``. Everything but the
        public report is readable by its owner only.
        """
        contents: dict[str, bytes] = {}
        for audience in list_audiences(audiences):
            if audience == "public" and self.public is None:
                continue
            contents[f"{audience}.html"] = self.page(audience)
            contents[f"{audience}.json" if audience in ("members", "public") else "facts.json"] = self.dump(audience)
        folder = Path(directory)
        folder.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        for name, content in contents.items():
            mode = _PUBLIC_FILE if name.startswith("public.") else PRIVATE_FILE
            with atomic_write(folder / name, force=force, mode=mode) as part:
                part.write_bytes(content)
        return tuple(folder / name for name in contents)

    @classmethod
    @check_types
    def read(cls, path: str | os.PathLike[str]) -> Facts:
        """Read the facts from their JSON file."""
        file = existing_file(path)
        if file.stat().st_size > _LARGEST:
            raise InputError("the file is too large for facts of a report", code="not-facts", hint="give facts.json")
        return cls.parse(file.read_bytes(), name=file.name)

    @classmethod
    @check_types
    def parse(cls, content: bytes, *, name: str = "facts.json") -> Facts:
        """Read the facts from JSON."""
        try:
            return cls.model_validate_json(content)
        except (ValidationError, SpecError, ValueError):
            raise InputError(
                f"{name!r} does not hold the facts of a report",
                code="not-facts",
                hint="give the facts.json that `safeswap report` or `safeswap run` has written",
                file=name,
            ) from None


class Verdict(Strict):
    """One thing that has limits, and the verdict."""

    name: str
    ok: bool | None


class BandedFigure(Strict):
    """A figure as members see it: before in a band; after exactly only where anyone can count it in the release."""

    scenario: str
    title: str
    before: str
    after: str
    limit: str
    ok: bool | None


class MembersFacts(Strict):
    """The facts for members of a review board. There is no field for shares, pairs, rates, parameters or draws."""

    format: Literal["safeswap-members-1"] = "safeswap-members-1"
    version: str
    title: str
    date: str
    records: int
    columns: int
    for_release: bool
    scenarios: tuple[ScenarioFacts, ...]
    risk: tuple[BandedFigure, ...]
    utility: str
    weighted: str
    multipliers: tuple[tuple[str, float], ...]
    withheld: Names
    steps: Names
    earlier: tuple[str, ...]
    states: tuple[tuple[str, str], ...]
    sentences: tuple[str, ...]
    statements: tuple[str, ...]
    checks: Annotated[int, Field(ge=0)]
    broken: Annotated[int, Field(ge=0)]
    flags: tuple[str, ...]
    attacks: tuple[Verdict, ...]
    overridden: bool
    tried: str
    chosen: str
    released_before: bool
    decision: DecisionFacts

    @classmethod
    def of(cls, facts: Facts) -> MembersFacts:
        """Take from the facts what members may know."""
        risk = [each for each in facts.figures if each.axis == "risk"]
        utility = [each for each in facts.figures if each.axis == "utility" and each.after is not None]
        first = utility[0] if utility else None
        public = facts.public.facts if facts.public else None
        return cls(
            version=facts.version,
            title=facts.title,
            date=facts.date,
            records=facts.records,
            columns=facts.columns,
            for_release=facts.for_release,
            scenarios=facts.scenarios,
            risk=tuple(_band_figure(each) for each in risk),
            utility="" if first is None or first.after is None else f"{first.title}: {band(first.after)}",
            weighted="" if facts.weights is None else band(facts.weights.change),
            multipliers=public.multipliers if public else (),  # those that the officer agreed to publish
            withheld=tuple(dict.fromkeys(each.title for each in utility[1:])),
            steps=tuple(each.title for each in facts.steps),
            earlier=facts.earlier,
            states=public.states if public else (),
            sentences=public.columns if public else (),
            statements=public.kept if public else (),
            checks=len(facts.checks),
            broken=sum(not each.ok for each in facts.checks),
            flags=facts.flags,  # they are about the result alone, in which anyone can count
            attacks=tuple(Verdict(name=each.attack, ok=each.ok) for each in facts.attacks),
            overridden=bool(facts.override),
            tried=_tell_tried(facts.tried),
            chosen="" if facts.tried is None else facts.tried.swapped,
            released_before=facts.released_before,
            decision=_hide_figures(facts.decision),
        )


def _hide_figures(decision: DecisionFacts) -> DecisionFacts:
    """Count the obstacles to a release: the sentences may have figures that reveal the rate."""
    number = len(decision.obstacles)
    told = f"{plural(number, 'issue prevents', 'issues prevent')} a release; the chair has the details."
    return decision.model_copy(update={"obstacles": (told,) if number else ()})


def _band_figure(figure: Figure) -> BandedFigure:
    hide = figure.tells_the_rate
    return BandedFigure(
        scenario=figure.scenario,
        title=figure.title,
        before=band(figure.before, is_count=figure.is_count),
        after=band(figure.after, is_count=figure.is_count) if hide else show(figure.after, is_count=figure.is_count),
        limit=figure.limit,
        ok=figure.ok,
    )


def _tell_tried(tried: TriedFacts | None) -> str:
    if tried is None:
        return ""
    return (
        f"{plural(tried.specifications, 'specification was', 'specifications were')} tried and "
        f"{plural(tried.candidates, 'candidate')} measured; {tried.frontier:,} cannot be improved in one respect "
        f"without loss in the other." + (f" Rule of the choice: {tried.rule}." if tried.rule else "")
    )


def band(value: float | None, *, is_count: bool = False) -> str:
    """Return the power-of-ten band of a figure: the same for all files, so that it reveals little.

    >>> band(0.0), band(-0.024), band(0.3), band(250.0), band(1338, is_count=True), band(None)
    ('0', '0.01 to 0.1', '0.1 to 1', '100 to 1,000', '1,000 to 10,000', '–')
    """
    if value is None:
        return "–"
    size = abs(value)
    if size == 0:
        return "0"
    if not is_count and size < 0.001:
        return "below 0.001"
    low = 1.0 if is_count else 0.001
    while size >= 10 * low:
        low *= 10
    return f"{low:,.15g} to {10 * low:,.15g}"


def show(value: float | None, *, is_count: bool = False) -> str:
    """Return a figure in full.

    >>> show(1338.0, is_count=True), show(0.0123456), show(-2e-09), show(None)
    ('1,338', '0.01235', '> −0.0001', '–')
    """
    if value is None:
        return "–"
    if not is_count and 0 < abs(value) < 1e-4:
        return "> −0.0001" if value < 0 else "< 0.0001"
    return f"{value:,.0f}" if is_count else f"{value:.4g}"


def tell_raised(figures: Iterable[Figure]) -> tuple[str, ...]:
    """Return, by scenario, the figures of risk that are higher than those of the original.

    >>> figure = Figure(measure="risky", title="Unsafe combinations", axis="risk", before=44, after=48, is_count=True)
    >>> tell_raised([figure, figure.model_copy(update={"after": 44})])[0].partition(". ")[0]
    'The release is riskier than the original: Unsafe combinations rose from 44 to 48'
    """
    found: dict[str, list[str]] = {}
    for each in figures:
        before, after = (show(value, is_count=each.is_count) for value in (each.before, each.after))
        if each.axis != "risk" or each.before is None or each.after is None:
            continue
        if each.before < each.after and before != after:
            found.setdefault(each.scenario, []).append(f"{each.title} rose from {before} to {after}")
    return tuple(
        f"{f'Under the scenario {name}, the' if name else 'The'} release is riskier than the original: "
        f"{'; '.join(told)}. This was counted on the files, without the noise that the Pipeline page adds: it is real."
        for name, told in found.items()
    )


def list_audiences(names: Sequence[str]) -> tuple[Audience, ...]:
    """Return the audiences that are named, in their usual order; ``board`` names both of its versions.

    >>> list_audiences(["board", "public"])
    ('chair', 'members', 'public')
    """
    given = (names,) if isinstance(names, str) else tuple(names)
    asked = {each for name in given for each in (BOARD if name == "board" else (_as_audience(name),))}
    return tuple(each for each in AUDIENCES if each in asked)


def _as_audience(name: str) -> Audience:
    for each in AUDIENCES:
        if each == name:
            return each
    raise SpecError(
        f"there is no report for {name!r}", code="unknown-audience", hint="say " + ", ".join((*AUDIENCES, "or board"))
    )
