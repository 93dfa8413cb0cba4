"""Run attacks on a release, and hold their outcomes against what an agency allows."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from safeswap.attacks.base import Attack, Attacked, Outcome, Setting, Skipped, find_lacking
from safeswap.attacks.forensics import BundleTraces, PublishedTables, RowOrder, SeveralReleases
from safeswap.attacks.inference import (
    AttributeInference,
    EditRules,
    GeographyNesting,
    HouseholdMates,
    SinglingOut,
    Weights,
)
from safeswap.attacks.linkage import DistinctNumbers, FellegiSunter, Linkage, NearestRecord, UnusualCombinations
from safeswap.attacks.replay import ReplayedRules, SeedSearch, SwappedHouseholds, SwappedRecords
from safeswap.errors import InputError, SpecError, UnsafeRelease
from safeswap.measures.base import AttributeNames, ParametricMeasure
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.spec import Stated

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        Linkage(),
        NearestRecord(),
        FellegiSunter(),
        AttributeInference(),
        SinglingOut(),
        HouseholdMates(),
        GeographyNesting(),
        Weights(),
        EditRules(),
        DistinctNumbers(),
        UnusualCombinations(),
        SwappedRecords(),
        SwappedHouseholds(),
        ReplayedRules(),
        SeedSearch(),
        SeveralReleases(),
        RowOrder(),
        BundleTraces(),
        PublishedTables(),
    )
}
"""All attacks by name, in the order in which they are shown."""

POLICY = "SAFESWAP_POLICY"
"""The environment variable with the path of the agency's policy."""

DEFAULT_LIMITS = {
    "household_mates": 0.25,
    "geography_nesting": 0.25,
    "weights": 0.25,
    "row_order": 0.1,
    "bundle_traces": 0.0,
    "replay": 0.25,
    "seed_search": 0.1,
}
"""Limits without a policy: only attacks whose success is a fault of the release, whatever the data and the scenario.

How many records may be found by their keys depends on the scenario and the access to the data: that is the agency's
to state.
"""


def check_names(names: Iterable[str]) -> None:
    """Refuse an attack that does not exist."""
    for name in names:
        if name not in ATTACKS:
            close = get_close_matches(str(name), ATTACKS, n=3)
            raise SpecError(
                f"there is no attack {name!r}",
                code="unknown-attack",
                hint=f"did you mean {' or '.join(close)}?" if close else "the attacks are: " + ", ".join(ATTACKS),
                name=str(name),
            )


def run_attacks(setting: Setting, names: Sequence[str] | None = None, *, full: bool = True) -> Attacked:
    """Run the attacks named, or all, or the quick ones; those that lack something are listed with the reason."""
    check_names(names or ())
    chosen = [each for name, each in ATTACKS.items() if (name in names if names else full or each.quick)]
    found: list[Outcome | Skipped] = []
    for attack in chosen:
        lacking = find_lacking(attack, setting)
        found.append(Skipped(attack=attack.name, reason=lacking) if lacking else _tell_unit(attack, setting))
    return Attacked(
        outcomes=tuple(each for each in found if isinstance(each, Outcome)),
        skipped=tuple(each for each in found if isinstance(each, Skipped)),
    )


def _tell_unit(attack: Attack, setting: Setting) -> Outcome | Skipped:
    """Run an attack; under a scenario that looks for households, say that it looks for persons."""
    outcome = attack.run(setting)
    asked = setting.scenario is not None and setting.scenario.scenario.unit == "household"
    if isinstance(outcome, Skipped) or not asked or not attack.needs & {"scenario", "sensitive"}:
        return outcome
    return replace(outcome, sentence=f"Looking for persons, though the scenario is for households: {outcome.sentence}")


class ReleasePolicy(Stated):
    """The largest advantage that an agency allows, by attack; attacks without a limit are shown only.

    An attack is above its limit if all of its interval is: chance alone refuses no release.

    >>> ReleasePolicy(limits={"linkage": 0.05}).limit_of("linkage")
    0.05
    """

    name: Annotated[str, Field(max_length=200, description="whose policy it is")] = "default"
    limits: Annotated[dict[str, float], Field(description="largest advantage allowed for each attack")] = DEFAULT_LIMITS

    @classmethod
    def _name_in_errors(cls) -> str:
        return "release policy"

    @model_validator(mode="after")
    def _has_limits(self) -> ReleasePolicy:
        for name, limit in self.limits.items():
            if not 0 <= limit <= 1:
                raise ValueError(f"limits: the limit of {name!r} is a number from 0 to 1")
        check_names(self.limits)
        return self

    def limit_of(self, attack: str) -> float | None:
        """Return the limit of an attack; None if it has none."""
        return self.limits.get(attack)

    @property
    def text(self) -> str:
        """The policy as TOML.

        >>> print(ReleasePolicy(name="ours", limits={"linkage": 0.05}).text, end="")
        name = "ours"
        <BLANKLINE>
        [limits]
        linkage = 0.05
        """
        limits = [f"{attack} = {limit!r}" for attack, limit in self.limits.items()]
        return "\n".join([f"name = {json.dumps(self.name, ensure_ascii=False)}", "", "[limits]", *limits, ""])

    def judge(self, attacked: Attacked) -> tuple[Judged, ...]:
        """Return every outcome with its limit."""
        return tuple(Judged(outcome=outcome, allowed=self.limit_of(outcome.attack)) for outcome in attacked)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The outcome of an attack, and the largest advantage allowed."""

    outcome: Outcome
    allowed: float | None = None

    @property
    def is_above(self) -> bool:
        """True if the advantage is above the limit, and not by chance."""
        return self.allowed is not None and self.outcome.is_telling and self.outcome.interval[0] > self.allowed

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for the audit record and reports."""
        return {**self.outcome.as_dict(), "allowed": self.allowed, "is_above": self.is_above}


_STRONG = 0.5


def list_unlimited(judged: Iterable[Judged]) -> list[str]:
    """Remark on attacks without a limit that gain more than half of what there is to gain: no policy stops them."""
    found = [each.outcome for each in judged if each.allowed is None]
    strong = [each for each in found if each.is_telling and each.advantage >= _STRONG]
    strong.sort(key=lambda each: -each.advantage)
    return [f"{each.sentence} The policy has no limit for this attack ({each.attack})." for each in strong]


def refuse_above(judged: Iterable[Judged], *, override: str = "") -> None:
    """Refuse a release that an attack is too successful on, unless an officer gives a reason."""
    above = [each for each in judged if each.is_above]
    if above and not override.strip():
        worst = max(above, key=lambda each: each.outcome.advantage)
        raise UnsafeRelease(
            f"the attack {worst.outcome.attack!r} has an advantage of {worst.outcome.advantage:.1%}, and "
            f"{worst.allowed:.1%} is allowed. {worst.outcome.sentence}",
            code="attack-above-policy",
            hint="mask more, release less, or state why it may be released anyway (override)",
            attacks=[each.as_dict() for each in above],
        )


def read_policy(path: str | os.PathLike[str]) -> ReleasePolicy:
    """Read a policy from TOML: ``name``, and a table ``[limits]`` with the largest advantage allowed by attack."""
    source = Path(path)
    try:
        text = source.read_text("utf-8")
    except (OSError, ValueError) as error:  # also what is no text, or no path
        raise _bad_policy(error, name=source.name, file=str(source)) from None
    return parse_policy(text, name=source.name)


def parse_policy(text: str, *, name: str = "") -> ReleasePolicy:
    """Return the policy that a TOML text states; ``name`` is that of its file, for messages.

    >>> parse_policy("[limits]\\nlinkage = 0.05").limits
    {'linkage': 0.05}
    """
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise _bad_policy(error, name=name) from None
    return ReleasePolicy(**content)


def _bad_policy(error: Exception, *, name: str, **fields: str) -> InputError:
    return InputError(
        f"the policy {name!r} cannot be read ({type(error).__name__})" if name else "it is not valid TOML",
        code="bad-policy",
        hint='a policy is TOML: name = "…", and [limits] with lines such as linkage = 0.05',
        **fields,
    )


def configured_policy() -> ReleasePolicy:
    """Return the agency's policy, or the default one."""
    path = os.environ.get(POLICY, "")
    return read_policy(path) if path else ReleasePolicy()


def as_policy(value: Any) -> ReleasePolicy:
    """Return a policy from itself, plain values or a path; the configured one for None."""
    if value is None:
        return configured_policy()
    if isinstance(value, ReleasePolicy):
        return value
    if isinstance(value, Mapping):
        return ReleasePolicy(**{str(name): each for name, each in value.items()})
    if isinstance(value, (str, os.PathLike)):
        return read_policy(value)
    raise SpecError(
        "a policy is a ReleasePolicy, its values, or the path of its TOML file",
        code="bad-argument",
        hint='policy={"limits": {"linkage": 0.05}}',
        argument="policy",
    )


class BestAttack(ParametricMeasure):
    """The largest advantage of the attacks that need nothing but the two files and, under a scenario, its keys.

    >>> BestAttack(attacks=("linkage",)).text
    'best_attack:attacks=linkage'
    """

    name: ClassVar[str] = "best_attack"
    title: ClassVar[str] = "advantage of the best attack"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Giomi, Boenisch, Wehmeyer & Tasnádi (2023), A unified framework for quantifying privacy risk, PoPETs",
    )

    attacks: Annotated[AttributeNames, Field(description="attacks to try; all quick ones if empty")] = ()

    def score(self, comparison: Comparison) -> Score:
        """Score the best attack; the detail has one row for each."""
        import pyarrow as pa

        attacked = run_attacks(Setting(comparison=comparison, scenario=comparison.scenario), self.attacks, full=False)
        best = attacked.best
        value = max(0.0, best.advantage) if best is not None else 0.0
        sentence = _tell_untried(attacked) if best is None else f"{best.attack}: {best.sentence}"
        columns = ("attack", "success", "baseline", "advantage", "trials")
        rows = [{name: getattr(outcome, name) for name in columns} for outcome in attacked]
        detail = pa.Table.from_pylist(rows) if rows else None
        return self._score(value, sentence, comparison.attributes, detail)


def _tell_untried(attacked: Attacked) -> str:
    """Say why there is no best attack: none was tried, or each had too few guesses."""
    if not attacked.outcomes:
        return "No attack could be tried."
    most = max(attacked.outcomes, key=lambda outcome: outcome.advantage)
    return (
        f"No attack had enough guesses to be conclusive; the largest advantage, {most.advantage:.0%} by {most.attack}, "
        "may be chance."
    )
