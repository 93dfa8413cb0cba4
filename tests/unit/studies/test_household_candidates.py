"""Swaps of households on the map: what varies, and what each candidate is scored by."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.conformance.household_strategies import persons

import safeswap as ss

DATA = persons(5, 120)
SPEC: dict[str, Any] = {"method": "household_swap", "risk_variables": ["origin"], "rounds": 1}
SWEEP: dict[str, list[Any]] = {
    "k": [0, 3],
    "rate": [0.05, 0.3],
    "crowd": [0, 10],
    "similar": [[["tenure"]], [["tenure"], []]],
}
KEYS = ["level2", "origin"]


def test_k_rate_crowd_and_profiles_vary_on_the_map() -> None:
    """Every combination is a candidate, scored as the masking of the same key is."""
    key = ss.Key(bytes(range(32)))
    found = ss.study(DATA, vary=[{**SPEC, "sweep": SWEEP}], keys=KEYS, risk=["n_rule"], key=key)
    rows = found.table.to_pylist()
    assert {row["outcome"] for row in rows} == {"made"}
    assert len({row["label"] for row in rows}) == 16
    specs = [found.specs[row["specification"]] for row in rows]
    wanted = {tuple(map(repr, values)) for values in product(*SWEEP.values())}
    tried = {tuple(repr(_plain(getattr(spec, name))) for name in SWEEP) for spec in specs}
    assert tried == wanted
    for row, spec in list(zip(rows, specs, strict=True))[::5]:
        expected = ss.assess(ss.mask(DATA, spec, key=key), measures=["n_rule", "hellinger"], attributes=KEYS)
        assert row["n_rule"] == pytest.approx(expected["n_rule"].value)
        assert row["hellinger"] == pytest.approx(expected["hellinger"].value)
    assert len(found.frontier())


def _plain(value: Any) -> Any:
    return [list(names) for names in value] if isinstance(value, tuple) else value
