"""Views of risk against counts by hand, on files with missing keys, rare levels and households of all sizes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

from safeswap.measures.risk.by_record import VIEWS, RiskView, make_view
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario
from safeswap.model.schema import Attribute, Schema

KEYS = ("sex", "town", "job")


def make_file(seed: int, records: int) -> Microdata:
    draw = random.Random(seed)
    rows: dict[str, list[Any]] = {
        "sex": [draw.choice("fm") for _ in range(records)],
        "town": [draw.choice(["a", "b", "c", "c", "c", None]) for _ in range(records)],
        "job": [draw.choice("wxyz") for _ in range(records)],
        "ill": [draw.choice(["yes", "no", None]) for _ in range(records)],
        "home": sorted(draw.randrange(max(1, records // 2)) for _ in range(records)),
        "w": [draw.choice([1.0, 2.5, 40.0]) for _ in range(records)],
    }
    kinds = {"home": "household", "w": "weight"}
    schema = Schema(attributes=tuple(Attribute(name=name, kind=kinds.get(name, "nominal")) for name in rows))
    return Microdata(pa.table(rows), schema)


def see(name: str, data: Microdata, **scenario: Any) -> RiskView:
    found = make_view(name, data, data, Scenario(**{"keys": KEYS, **scenario}))
    assert isinstance(found, RiskView)
    return found


def rows_of(data: Microdata) -> list[dict[str, Any]]:
    return data.table.to_pylist()


def label_of(value: Fraction | int, cuts: Sequence[tuple[Fraction | int, str]], last: str) -> str:
    return next((label for edge, label in cuts if value < edge), last)


@pytest.mark.parametrize("seed", range(8))
def test_records_are_counted_by_the_size_of_their_group(seed: int) -> None:
    data = make_file(seed, records=(1, 3, 30, 200)[seed % 4])
    found = see("groups", data, missing="own", tolerance=3, sensitive=["ill"])
    rows = rows_of(data)
    groups = Counter(tuple(row[key] for key in KEYS) for row in rows)
    sizes = [groups[tuple(row[key] for key in KEYS)] for row in rows]
    cuts = [(3, "fewer than 3"), (5, "3–4"), (10, "5–9"), (50, "10–49")]
    wanted = Counter(label_of(size, cuts, "50 or more") for size in sizes)
    assert {bar.label: bar.count for bar in found.bars if bar.count} == dict(wanted)
    assert found.at_risk.rows.tolist() == [size < 3 for size in sizes]
    values = {group: {row["ill"] for row in rows if tuple(row[k] for k in KEYS) == group} - {None} for group in groups}
    inferred = [row["ill"] is not None and len(values[tuple(row[k] for k in KEYS)]) == 1 for row in rows]
    assert found.sensitive[0].rows.tolist() == inferred


@pytest.mark.parametrize("seed", range(6))
def test_persons_and_households_are_counted_by_the_risk_that_they_are_found(seed: int) -> None:
    data = make_file(seed, records=(2, 25, 120)[seed % 3])
    rows = rows_of(data)
    groups = Counter(tuple(row[key] for key in KEYS) for row in rows)
    risks = [Fraction(1, groups[tuple(row[key] for key in KEYS)]) for row in rows]
    cuts = [
        (Fraction(edge), label)
        for edge, label in (
            ("0.001", "below 0.1%"),
            ("0.01", "0.1–1%"),
            ("0.05", "1–5%"),
            ("0.1", "5–10%"),
            ("0.5", "10–50%"),
        )
    ]
    persons = see("individual", data, missing="own")
    wanted = Counter(label_of(risk, cuts, "50% or more") for risk in risks)
    assert {bar.label: bar.count for bar in persons.bars if bar.count} == dict(wanted)
    assert persons.expected == pytest.approx(float(sum(risks)))
    safe: dict[Any, Fraction] = {}
    for row, risk in zip(rows, risks, strict=True):
        safe[row["home"]] = safe.get(row["home"], Fraction(1)) * (1 - risk)
    homes = see("households", data, missing="own")
    assert homes.total == len(safe)
    assert homes.expected == pytest.approx(float(sum(1 - each for each in safe.values())))
    assert homes.at_risk.rows.tolist() == [1 - safe[row["home"]] >= Fraction("0.1") for row in rows]


@pytest.mark.parametrize("seed", range(6))
def test_special_uniques_are_counted_by_each_key_of_a_minimal_unique(seed: int) -> None:
    data = make_file(seed, records=(1, 12, 60)[seed % 3])
    rows = rows_of(data)
    holds: dict[str, set[int]] = {key: set() for key in KEYS}
    for number, row in enumerate(rows):
        unique: list[tuple[str, ...]] = []
        for size in (1, 2, 3):
            for keys in combinations(KEYS, size):
                if any(row[key] is None for key in keys) or any(set(small) < set(keys) for small in unique):
                    continue
                if sum(all(other[key] == row[key] for key in keys) for other in rows) == 1:
                    unique.append(keys)
        for keys in unique:
            for key in keys:
                holds[key].add(number)
    # A record that matches another in all keys that it has is unique in none.
    found = see("suda", data, missing="none")
    alike = {
        number
        for number, row in enumerate(rows)
        if any(other is not row and all(row[k] is None or other[k] == row[k] for k in KEYS) for other in rows)
    }
    for bar in found.bars:
        assert {row for row, held in enumerate(bar.rows) if held} == holds[bar.label] - alike
    counts = [bar.count for bar in found.bars]
    assert counts == sorted(counts, reverse=True)


def test_the_population_view_tells_the_uniques_and_the_estimates_of_the_model() -> None:
    from safeswap.measures.risk.population_risk import loglinear_risk

    data = make_file(5, 80)
    found, model = see("population", data, population=4000.0), loglinear_risk(data, KEYS, population=4000.0)
    groups = Counter(tuple(row[key] for key in KEYS) for row in rows_of(data))
    assert found.at_risk.count == sum(number == 1 for number in groups.values())
    assert (found.expected_unique, found.expected) == (model.chosen.tau1, model.chosen.tau2)


def test_no_view_is_made_of_keys_that_are_gone() -> None:
    data = make_file(1, 10)
    left = Microdata(data.table.drop_columns(list(KEYS)), Schema(attributes=data.schema.attributes[3:]))
    for name in VIEWS:
        assert "no key is left" in str(make_view(name, data, left, Scenario(keys=KEYS)))
