"""What an officer is told of the columns of a release."""

from __future__ import annotations

import pyarrow as pa

import safeswap as ss
from safeswap.attacks.base import Outcome
from safeswap.attacks.run import Judged, list_unlimited
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.service.routes.releases.task import _remark_on_columns


def masked_survey(*guessed: str) -> Masked:
    kinds = {"sex": Kind.NOMINAL, "job": Kind.NOMINAL, "town": Kind.GEOGRAPHY, "income": Kind.NUMERIC}
    attributes = tuple(Attribute(name=name, kind=kind, inferred=name in guessed) for name, kind in kinds.items())
    columns = {"sex": list("fmfm"), "job": list("aabb"), "town": list("xxyy"), "income": [1.5, 2.5, 3.5, 4.5]}
    data = Microdata(pa.table(columns), Schema(attributes=attributes))
    return ss.mask(data, {"method": "swap", "swap": ["sex"], "pairs": 1}, insecure_seed=1)


def test_columns_that_nobody_confirmed_or_thought_of_are_named() -> None:
    terms = {"drop": ["town"]}
    masked = masked_survey("sex", "town", "income")
    assert _remark_on_columns(masked, {"terms": terms}) == [
        "Kinds guessed from the values and not confirmed by anyone: sex, income.",
        "No scenario was in use: what an intruder may know has not been stated.",
    ]
    scenario: dict[str, object] = {"name": "own", "keys": ["sex"], "sensitive": []}
    assert _remark_on_columns(masked_survey(), {"terms": terms, "scenario": scenario}) == [
        "The scenario 'own' assumes that nobody knows: job, income."
    ]
    scenario["sensitive"] = ["job", "income"]
    assert _remark_on_columns(masked_survey(), {"terms": terms, "scenario": scenario}) == []


def judged(attack: str, success: float, *, allowed: float | None = None, trials: int = 1000) -> Judged:
    outcome = Outcome(
        attack=attack, success=success, baseline=0.0, trials=trials, against="", sentence=f"{success:.0%} are found."
    )
    return Judged(outcome=outcome, allowed=allowed)


def test_attacks_that_succeed_without_a_limit_are_named_the_strongest_first() -> None:
    tried = [
        judged("linkage", 0.05),
        judged("unusual_combinations", 0.78),
        judged("distinct_numbers", 0.92),
        judged("weights", 0.9, allowed=0.25),  # refused elsewhere
        judged("swapped_records", 1.0, trials=2),  # too few guesses to say anything
    ]
    assert list_unlimited(tried) == [
        "92% are found. The policy has no limit for this attack (distinct_numbers).",
        "78% are found. The policy has no limit for this attack (unusual_combinations).",
    ]
