"""The table of steps, against a count by other code; steps that did not change are not measured again."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pyarrow as pa
import pytest

import safeswap as ss
from safeswap.errors import SpecError
from safeswap.workflow import step_table
from safeswap.workflow.step_table import assess_steps

KEYS = ("town", "sex", "job")
SCENARIOS = [
    {"name": "pairs", "keys": list(KEYS), "up_to": 2, "tolerance": 4},
    {"name": "all", "keys": ["town", "job"], "tolerance": 3},
]
STEPS = [
    {"step": "drop", "attributes": ["note"]},
    {"method": "suppress", "keys": list(KEYS), "up_to": 2, "tolerance": 4, "solver": "greedy"},
    {"method": "swap", "swap": ["job"], "rate": 0.2},
    {"method": "pram", "attributes": ["sex"], "keep": 0.8},
]


def survey(seed: int, records: int) -> ss.Microdata:
    draw = random.Random(seed)
    columns = {name: [draw.choice(["a", "b", "c", "d", None]) for _ in range(records)] for name in (*KEYS, "note")}
    columns = {name: [*values[:-1], "a"] if values else values for name, values in columns.items()}
    return ss.read(pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}))


def count_unsafe(table: pa.Table, scenario: dict) -> int:
    """Unsafe combinations by a plain count; a missing value matches nothing."""
    keys, unsafe = [name for name in scenario["keys"] if name in table.column_names], 0
    for size in range(1, scenario.get("up_to", len(keys)) + 1):
        for names in combinations(keys, size):
            rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
            counts = Counter(row for row in rows if None not in row)
            unsafe += sum(count < scenario["tolerance"] for count in counts.values())
    return unsafe


@pytest.mark.parametrize(("seed", "records"), [(1, 40), (2, 90), (3, 12), (4, 200)])
def test_figures_are_those_of_a_plain_count(seed: int, records: int) -> None:
    masked = ss.mask(survey(seed, records), ss.Pipeline(STEPS), insecure_seed=seed)
    table = assess_steps(masked, scenarios=SCENARIOS)
    assert [row.name for row in table.rows] == ["recode", "suppress", "swap", "pram"]
    before = masked.original.table
    for row, stage in zip(table.rows, masked.stages, strict=True):
        for scenario, figure in zip(SCENARIOS, row.figures, strict=True):
            assert figure.scenario == scenario["name"]
            assert figure.before == count_unsafe(before, scenario)
            assert figure.after == count_unsafe(stage.data.table, scenario)
        after = stage.data.table
        more = {n: after.column(n).null_count - before.column(n).null_count for n in KEYS}
        assert row.blanked == {name: count for name, count in more.items() if count > 0}
        before = after
    part = ss.mask(masked.original, ss.Pipeline(STEPS[:2]), insecure_seed=seed)
    assert table.rows[1].information_loss == ss.assess(part, measures=["information_loss"])["information_loss"].value


def test_a_changed_last_step_costs_that_step(monkeypatch: pytest.MonkeyPatch) -> None:
    data = survey(5, 120)
    first = ss.mask(data, ss.Pipeline(STEPS), insecure_seed=1)
    known = assess_steps(first, scenarios=SCENARIOS)
    other = ss.Pipeline(STEPS).edit("pram", keep=0.5)
    second = ss.mask(data, other, insecure_seed=1, known=first)
    fresh = assess_steps(second, scenarios=SCENARIOS)
    measured: list[int] = []
    whole = step_table.measure_utility
    monkeypatch.setattr(step_table, "measure_utility", lambda part: measured.append(len(part.stages)) or whole(part))
    again = assess_steps(second, scenarios=SCENARIOS, known=known)
    assert measured == [4]
    assert again.rows == fresh.rows
    assert assess_steps(second, scenarios=SCENARIOS[:1], known=known).rows[0].figures != known.rows[0].figures
    assert assess_steps(first, scenarios=SCENARIOS, known=known).rows == known.rows


def test_a_single_masking_is_one_row_and_unknown_keys_are_refused() -> None:
    masked = ss.mask(survey(6, 60), STEPS[2], insecure_seed=1)
    assert [row.name for row in assess_steps(masked).rows] == ["swap"]
    with pytest.raises(SpecError) as refused:
        assess_steps(masked, scenarios=[{"name": "typo", "keys": ["twon"]}])
    assert refused.value.code == "unknown-attribute"


def test_a_household_scenario_is_told_and_not_counted() -> None:
    masked = ss.mask(survey(7, 60), STEPS[2], insecure_seed=1)
    found = assess_steps(masked, scenarios=[{"name": "home", "keys": ["sex"], "unit": "household"}])
    assert found.rows[0].figures[0].after is None
    assert "not counted" in found.rows[0].figures[0].note
