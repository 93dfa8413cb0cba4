"""Partners by weight: each record takes the best of the next 50 eligible ones; and targets in proportion to size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safeswap as ss
from safeswap import registry, workflow
from safeswap.arrays import order
from safeswap.errors import InputError, SpecError
from safeswap.measures.utility.weighted_tables import WeightedMargins
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.score import Comparison

KEY = ss.Key(bytes(range(32)))


def survey(records: int = 120, seed: int = 0) -> Microdata:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "id": np.arange(records),
        "w": rng.integers(1, 40, records) / 4,
        "area": rng.integers(0, 3, records).astype(str),
        "race": rng.integers(0, 4, records).astype(str),
        "income": rng.integers(0, 9, records).astype(float),
    }
    kinds = {"id": "identifier", "w": "weight", "income": "numeric"}
    schema = Schema(name="t", attributes=tuple(Attribute(name=n, kind=kinds.get(n, "nominal")) for n in columns))
    return Microdata(pa.table(columns), schema)


def greedy(strata: Any, coordinates: Any, choice: order.Choice, wanted: int) -> list[list[int]]:
    """The rule told plainly: go through the order; of the next 50 free ones that differ, take the least cost."""
    weights, values, categories = choice
    taken: set[int] = set()
    pairs: list[list[int]] = []
    for i in range(len(strata)):
        if i in taken or len(pairs) == wanted:
            continue
        later = [j for j in range(i + 1, len(strata)) if j not in taken and strata[j] == strata[i]]
        eligible = [j for j in later if (coordinates[j] != coordinates[i]).all()][: order.WINDOW]
        if not eligible:
            continue

        def cost(j: int, i: int = i) -> int:
            gaps = [
                int(values[i][v] != values[j][v]) if categories[v] else abs(int(values[i][v]) - int(values[j][v]))
                for v in range(len(categories))
            ]
            return abs(int(weights[i]) - int(weights[j])) * (sum(gaps) if len(categories) else 1)

        best = min(eligible, key=lambda j: (cost(j), j))
        taken |= {i, best}
        pairs.append([i, best])
    return pairs


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 150), st.tuples(*[st.integers(1, 3)] * 2), st.integers(0, 2))
def test_partners_are_those_of_the_rule_told_plainly(
    seed: int, records: int, sizes: tuple[int, int], values: int
) -> None:
    strata, levels = sizes
    rng = np.random.default_rng(seed)
    of_stratum = rng.integers(0, strata, records).astype(np.uint32)
    coordinates = rng.integers(0, levels, (records, 1)).astype(np.uint32)
    numbers = rng.integers(0, 6, (records, values))
    weights = rng.integers(0, 10, records)
    flags = rng.integers(0, 2, values).astype(np.bool_)
    wanted = int(rng.integers(0, records + 1))
    choice = order.Choice(weights, numbers, flags)
    found = order.walk_best(of_stratum, strata, coordinates, wanted, choice)
    assert found.tolist() == greedy(of_stratum, coordinates, choice, wanted)[: records // 2]


@pytest.mark.parametrize("partner", ["nearest_weight", "least_bias"])
@pytest.mark.parametrize("fixed", [(), ("area",)])
def test_the_pairing_guarantees_hold(partner: Any, fixed: tuple[str, ...]) -> None:
    data = survey()
    spec = ss.SwapSpec(swap=("race", "income"), fixed=fixed, rate=1.0, partner=partner, on_shortfall="take")
    masked = ss.mask(data, spec, key=KEY)
    plain = ss.mask(data, spec.replace(partner="any"), key=KEY)
    assert masked.audit.made == plain.audit.made  # the greedy walk is completed to the maximum
    seen = Comparison(before=data, after=masked.data, attributes=("race",))
    assert registry.measure("total_variation", attributes=("race",), weighted=False).score(seen).value == 0


def test_weighted_margins_move_less_with_nearer_weights_and_not_at_all_with_equal_ones() -> None:
    data = survey(2_000)
    moved = {}
    for partner in ("any", "nearest_weight", "least_bias"):
        masked = ss.mask(data, ss.SwapSpec(swap=("race",), rate=0.4, partner=partner), key=KEY)
        seen = Comparison(before=data, after=masked.data, attributes=("race",))
        moved[partner] = WeightedMargins().score(seen).value
    assert moved["nearest_weight"] < moved["any"] / 3
    assert moved["least_bias"] < moved["any"] / 3
    held = ss.mask(data, ss.SwapSpec(swap=("race",), fixed=("w",), rate=0.4), key=KEY)
    exact = WeightedMargins().score(Comparison(before=data, after=held.data, attributes=("race",)))
    assert exact.value == 0
    assert "0.00%" in exact.sentence


SIZED = {"keys": ["area", "race"], "n": 40, "rule": "pps"}


@pytest.mark.parametrize("targeting", [None, {"keys": ["area", "race"], "n": 10}, SIZED])
def test_duckdb_gives_the_same_records(tmp_path: Path, targeting: Any) -> None:
    data = survey(400)
    pq.write_table(data.table, tmp_path / "survey.parquet")
    for partner in ("nearest_weight", "least_bias"):
        spec = ss.SwapSpec(swap=("race", "income"), fixed=("area",), rate=0.9, partner=partner, targeting=targeting)
        found = []
        for engine in ("memory", "duckdb"):
            places: dict[str, Any] = {
                "target": tmp_path / f"{engine}-{partner}.parquet",
                "audit": tmp_path / f"{engine}-{partner}",
            }
            workflow.mask_file(
                tmp_path / "survey.parquet", spec=spec, key=KEY, schema=data.schema, engine=engine, **places
            )
            found.append(pq.read_table(places["target"]))
        assert found[0].equals(found[1])


def test_what_partners_cannot_be_chosen_by_is_refused() -> None:
    data = survey()
    for values in (
        {"partner": "any", "weight": "w"},
        {"partner": "least_bias", "pairing": "uniform"},
        {"partner": "nearest_weight", "weight": "race"},
    ):
        with pytest.raises(SpecError):
            ss.SwapSpec(swap=("race",), rate=0.1, **values)
    with pytest.raises(SpecError) as caught:
        ss.mask(data, ss.SwapSpec(swap=("race",), rate=0.1, partner="least_bias", weight="area"), key=KEY)
    assert caught.value.code == "not-a-weight"
    schema = data.schema.replace(Attribute(name="w", kind="numeric"))
    with pytest.raises(SpecError) as caught:
        ss.mask(Microdata(data.table, schema), ss.SwapSpec(swap=("race",), rate=0.1, partner="least_bias"), key=KEY)
    assert caught.value.code == "no-weight"
    bad = data.table.set_column(1, "w", pa.array([0.0, *data.table["w"].to_pylist()[1:]]))
    with pytest.raises(InputError) as wrong:
        ss.mask(Microdata(bad, data.schema), ss.SwapSpec(swap=("race",), rate=0.1, partner="nearest_weight"), key=KEY)
    assert wrong.value.code == "bad-weight"


def test_certain_targets_always_take_part_and_others_by_their_size() -> None:
    sizes = np.array([50.0, *[3.0] * 20, *[1.0] * 60])
    weights = order.weights_by_size(sizes, 24)
    assert weights[0] == 1e9
    identity = np.arange(len(sizes), dtype=np.int64)
    taken = np.zeros(len(sizes))
    for seed in range(400):
        taken[order.draw_weighted(identity, bytes([seed % 256]) * 15 + bytes([seed // 256]), weights)[:24]] += 1
    shares = taken / 400
    assert shares[0] == 1
    large, small = 23 * 3 / 120, 23 * 1 / 120  # of the 23 that are left
    assert abs(shares[1:21].mean() - large) < 0.03
    assert abs(shares[21:].mean() - small) < 0.02
    assert order.weights_by_size(np.ones(3), 5).tolist() == [1e9] * 3


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.9])
def test_targets_by_size_are_the_same_on_duckdb(tmp_path: Path, rate: float) -> None:
    data = survey(300, seed=5)
    pq.write_table(data.table, tmp_path / "survey.parquet")
    spec = ss.SwapSpec(swap=("income",), fixed=("area",), rate=rate, targeting=SIZED)
    found = []
    for engine in ("memory", "duckdb"):
        places: dict[str, Any] = {"target": tmp_path / f"{engine}.parquet", "audit": tmp_path / engine}
        workflow.mask_file(tmp_path / "survey.parquet", spec=spec, key=KEY, schema=data.schema, engine=engine, **places)
        found.append(pq.read_table(places["target"]))
    assert found[0].equals(found[1])
    assert not found[0].equals(data.table)
