"""Random pipelines: undo is exact, earlier draws stay, and what is claimed holds by a recount that shares no code."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap.model.effect import Quality
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.pipelines.account import ComposedMargin, account_for
from safeswap.pipelines.method import run

CATEGORIES = ("A", "B", "C", "D", "E")


def make_file(rng: np.random.Generator, records: int = 240) -> Microdata:
    """Make a file with missing values, a number, a weight and a record identifier."""
    columns: dict[str, Any] = {"id": [f"r{i:04}" for i in range(records)]}
    for name, levels in zip(CATEGORIES, ("pqrs", "xyz", "01234567", "mf", "abcdef"), strict=True):
        values = rng.choice(list(levels), records).tolist()
        columns[name] = [None if rng.random() < 0.03 else value for value in values]
    columns["X"] = [None if rng.random() < 0.03 else x for x in np.round(rng.lognormal(3, 1, records), 1).tolist()]
    columns["w"] = np.round(rng.uniform(1, 9, records), 2).tolist()
    kinds = {"C": "ordinal", "X": "numeric", "w": "weight"}
    return ss.read(pa.table(columns), identifier="id", kinds=kinds)


def make_step(rng: np.random.Generator, recoded: set[str]) -> dict[str, Any]:
    """Make a step of a random method."""
    names = [str(name) for name in rng.permutation(CATEGORIES)]
    some, others = names[: rng.integers(1, 3)], names[3 : 3 + rng.integers(0, 3)]
    steps: list[dict[str, Any]] = [
        {"method": "swap", "swap": some, "fixed": others, "rate": 0.2, "on_shortfall": "take"},
        {"method": "swap", "swap": some, "fixed": others, "rate": 0.2, "on_shortfall": "take", "mode": "sequential"},
        {"method": "suppress", "keys": names[:3], "tolerance": 4, "solver": "greedy"},
        {"method": "pram", "attributes": names[:1], "within": names[3 : 3 + rng.integers(0, 2)], "keep": 0.8},
        {"method": "noise", "attributes": ["X"]},
        {"method": "microaggregation", "attributes": ["X"]},
        {"method": "rank_swap", "attributes": ["X"]},
        {"method": "rank_swap", "attributes": ["X"], "top": 0.05},
        {"method": "top_bottom", "attributes": ["X"], "top_share": 0.1},
        {"method": "edit_targeted", "keys": names[:2], "exchange": "categorical", "missing_keys": "level"},
    ]
    if free := [name for name in ("A", "C") if name not in recoded]:
        recoded.add(free[0])
        low = {"A": ["p", "q"], "C": ["0", "1", "2", "3"]}[free[0]]
        steps += 2 * [{"step": "recode", "attribute": free[0], "groups": {"low": low}, "otherwise": "keep"}]
    if "E" not in recoded and rng.random() < 0.2:
        recoded.add("E")
        return {"step": "blank", "attribute": "E", "values": ["a"]}
    step: dict[str, Any] = steps[rng.integers(0, len(steps))]
    return step


def texts(data: Microdata, name: str) -> list[str | None]:
    """Return the values as text."""
    return [None if value is None else str(value) for value in data.table.column(name).to_pylist()]


def recoded_original(masked: Masked) -> dict[str, list[str | None]]:
    """Recode the original by what each recode did to single values, and by the rule where none had the value."""
    columns = {name: texts(masked.original, name) for name in masked.original.attributes}
    for stage in masked.stages:
        if stage.spec.method != "recode":
            continue
        for step in stage.spec.as_dict()["steps"]:
            name = step["attribute"]
            if step["step"] == "blank":
                columns[name] = [None if value in step["values"] else value for value in columns[name]]
            else:
                columns[name] = ["low" if v in step["groups"]["low"] else v for v in columns[name]]
    return columns


def is_kept(margin: ComposedMargin, before: dict[str, list[str | None]], after: dict[str, list[str | None]]) -> bool:
    """Count both sides and compare."""
    counts = [Counter(zip(*(side[name] for name in margin.attributes), strict=True)) for side in (before, after)]
    if margin.quality is Quality.EXACT:
        return counts[0] == counts[1]
    known = [Counter({cell: n for cell, n in side.items() if None not in cell}) for side in counts]
    return margin.quality is Quality.EXPECTED or all(known[1][cell] <= known[0][cell] for cell in known[1])


@pytest.mark.parametrize("seed", range(40))
def test_what_is_claimed_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data, recoded = make_file(rng), set[str]()
    pipeline = ss.Pipeline([make_step(rng, recoded) for _ in range(rng.integers(1, 6))])
    masked = ss.mask(data, pipeline, insecure_seed=seed)
    account = account_for(masked)
    assert [finding for finding in account.findings if not finding.ok] == []
    before, after = recoded_original(masked), {name: texts(masked.data, name) for name in data.attributes}
    for promise in account.statements:
        if isinstance(promise, ComposedMargin):
            assert is_kept(promise, before, after), promise.sentence
    for change in account.changes:
        same = texts(data, change.column) == after[change.column]
        assert same or change.status != "unchanged"
        if change.status in ("recoded", "blanked"):
            pairs = zip(before[change.column], after[change.column], strict=True)
            assert all(new in (old, None) for old, new in pairs), "what stands is true"
    undone = ss.undo(masked)
    assert undone.table.equals(data.table)
    assert undone.schema == data.schema
    again = run(data, pipeline[:-1], key=ss.Key.insecure(seed=seed))
    assert again.data.table.equals(masked.undo_to(len(pipeline) - 1).table), "a later step leaves the earlier ones"
