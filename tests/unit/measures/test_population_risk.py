"""Log-linear fits, t-closeness and recursive l-diversity beside brute force that shares no code."""

from __future__ import annotations

from collections import Counter
from math import exp
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap.errors import InfeasibleError, SpecError
from safeswap.measures.risk.population_risk import fit_counts, loglinear_risk
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.workflow.thresholds import mask_below


def make(columns: dict[str, Any], **kinds: str) -> Microdata:
    names = tuple(Attribute(name=name, kind=kinds.get(name, "nominal")) for name in columns)
    return Microdata(pa.table({name: pa.array(values) for name, values in columns.items()}), Schema(attributes=names))


@pytest.mark.parametrize("seed", range(4))
def test_main_effects_are_the_product_of_the_margins(seed: int) -> None:
    counts = np.random.default_rng(seed).integers(0, 4, (3, 4, 2)).astype(float)
    fitted, _ = fit_counts(counts, 1)
    n = counts.sum()
    expected = np.einsum("i,j,k->ijk", counts.sum((1, 2)), counts.sum((0, 2)), counts.sum((0, 1))) / n**2
    assert np.allclose(fitted, expected)


def test_two_way_interactions_keep_two_way_margins_and_have_no_third_order_term() -> None:
    counts = np.random.default_rng(1).integers(1, 9, (2, 2, 2)).astype(float)
    fitted, _ = fit_counts(counts, 2)
    for axis in range(3):
        assert np.allclose(fitted.sum(axis), counts.sum(axis))
    odds = np.log(fitted)
    signs = np.fromfunction(lambda i, j, k: (-1) ** (i + j + k), (2, 2, 2))
    assert (odds * signs).sum() == pytest.approx(0, abs=1e-6)
    assert fit_counts(counts, 3)[0].tolist() == counts.tolist()


def test_estimates_are_those_written_out_cell_by_cell() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 4, 30), rng.integers(0, 5, 30)
    found = loglinear_risk(make({"a": a, "b": b}), ["a", "b"], population=300.0, interactions="1").chosen
    cells = Counter(zip(a.tolist(), b.tolist(), strict=True))
    tau1 = tau2 = 0.0
    for (x, y), count in cells.items():
        if count == 1:
            rate = 0.9 * ((a == x).sum() * (b == y).sum() / 30) / 0.1
            tau1 += exp(-rate)
            tau2 += (1 - exp(-rate)) / rate
    assert (found.tau1, found.tau2) == pytest.approx((tau1, tau2))


def test_a_census_has_as_many_population_uniques_as_uniques() -> None:
    data = make({"a": [1, 1, 2, 3], "b": [1, 1, 1, 2]})
    found = loglinear_risk(data, ["a", "b"], population=4.0, interactions="2")
    assert (found.chosen.tau1, found.chosen.tau2, found.uniques) == (2.0, 2.0, 2)


@pytest.mark.parametrize(
    ("stated", "error", "code"),
    [
        ({}, SpecError, "bad-population"),
        ({"population": 5.0, "weight": "w"}, SpecError, "bad-population"),
        ({"population": 2.0}, SpecError, "bad-sampling-fraction"),
        ({"weight": "w"}, SpecError, "bad-sampling-fraction"),
    ],
)
def test_a_bad_population_is_refused(stated: dict[str, Any], error: type[Exception], code: str) -> None:
    data = make({"a": [1, 2, 3], "w": [1.0, 0.0, 2.0]}, w="weight")
    with pytest.raises(error) as refused:
        loglinear_risk(data, ["a"], **stated)
    assert refused.value.code == code  # type: ignore[attr-defined]


def test_too_many_cells_are_refused() -> None:
    columns = {f"k{i}": np.arange(60) for i in range(4)}
    with pytest.raises(InfeasibleError) as refused:
        loglinear_risk(make(columns), list(columns), population=1000.0)
    assert refused.value.code == "too-many-cells"


def scored(data: Microdata, measure: str) -> Any:
    return ss.assess(data, data, measures=[measure]).scores[0]


@pytest.mark.parametrize("kind", ["nominal", "ordinal", "numeric"])
@pytest.mark.parametrize("seed", range(3))
def test_t_closeness_is_the_earth_movers_distance(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    key, ill = rng.integers(0, 4, 40), rng.integers(0, 5, 40)
    score = scored(make({"k": key, "ill": ill}, ill=kind), "t_closeness:keys=k,sensitive=ill,t=0.2")
    levels = sorted(set(ill.tolist()))
    overall = [np.mean(ill == level) for level in levels]
    beyond, worst = 0, 0.0
    for cell in set(key.tolist()):
        own = [np.mean(ill[key == cell] == level) for level in levels]
        gaps = np.subtract(own, overall)
        distance = (
            np.abs(gaps).sum() / 2 if kind == "nominal" else np.abs(np.cumsum(gaps))[:-1].sum() / (len(levels) - 1)
        )
        worst = max(worst, distance)
        beyond += int((key == cell).sum()) if distance > 0.2 else 0
    assert score.value == pytest.approx(beyond / 40)
    assert score.detail["largest_distance"][0].as_py() == pytest.approx(worst)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("c", [0.5, 1.0, 3.0])
def test_recursive_diversity_is_that_of_its_definition(seed: int, c: float) -> None:
    rng = np.random.default_rng(seed)
    key, ill = rng.integers(0, 6, 40), rng.choice(4, 40, p=[0.6, 0.2, 0.1, 0.1])
    score = scored(make({"k": key, "ill": ill}), f"l_diversity:keys=k,sensitive=ill,l=2,kind=recursive,c={c}")
    unsafe = 0
    for cell in set(key.tolist()):
        counts = sorted(Counter(ill[key == cell].tolist()).values(), reverse=True)
        unsafe += sum(counts) if not counts[0] < c * sum(counts[1:]) else 0
    assert score.value == pytest.approx(unsafe / 40)


def test_records_above_a_risk_are_blanked_until_none_is() -> None:
    rng = np.random.default_rng(5)
    data = make({"a": rng.integers(0, 6, 120), "b": rng.integers(0, 6, 120), "w": np.full(120, 4.0)}, w="weight")
    for weight in (None, "w"):
        done = mask_below(data, ["a", "b"], threshold=0.25, weight=weight, insecure_seed=1).masked
        measure = "individual_risk:keys=a+b,threshold=0.25" + (",weight=w" if weight else "")
        before, after = scored(data, measure), scored(done.data, measure)
        assert before.detail["above_threshold"][0].as_py() > 0 or weight
        assert after.detail["above_threshold"][0].as_py() == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighted", [False, True])
def test_records_above_a_risk_are_swapped_until_none_keeps_its_keys(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    data = make({"a": rng.integers(0, 7, 150), "b": rng.integers(0, 7, 150), "w": rng.uniform(1, 3, 150)}, w="weight")
    weight = "w" if weighted else None
    found = mask_below(data, ["a", "b"], threshold=0.4, by="swap", swap=["a"], weight=weight, insecure_seed=seed)
    before, after = (
        list(zip(each.table["a"].to_pylist(), each.table["b"].to_pylist(), strict=True))
        for each in (data, found.masked.data)
    )
    weights = data.table["w"].to_pylist()

    def risk(cell: Any, rows: list[Any]) -> float:
        count = rows.count(cell)
        total = sum(w for row, w in zip(rows, weights, strict=True) if row == cell) if weighted else count
        if total <= count:
            return 1 / count
        p = count / total  # the sum behind E[1/F] under the negative binomial distribution
        term, value, number = p**count, 0.0, count
        while term > 1e-14 or number < total:
            value += term / number
            term *= (1 - p) * number / (number - count + 1)
            number += 1
        return value

    assert found.above == sum(risk(cell, before) > 0.4 for cell in before) > 0
    assert not any(risk(cell, after) > 0.4 for cell, own in zip(after, before, strict=True) if cell == own)
    assert found.masked.spec.method == "swap"
    again = ss.mask(data, found.as_dict()["spec"], insecure_seed=seed)
    assert again.data.table.equals(found.masked.data.table)


def test_a_threshold_that_cannot_be_reached_or_makes_no_sense_is_refused() -> None:
    data = make({"a": [1, 1, 1, 2], "b": [1, 1, 1, 1]})
    for stated, code in (
        ({"threshold": 0.0}, "bad-spec"),
        ({"threshold": 0.5, "by": "swap"}, "bad-spec"),
        ({"threshold": 0.5, "by": "swap", "swap": ["c"]}, "bad-spec"),
        ({"threshold": 0.2, "by": "swap", "swap": ["b"]}, "constant-attribute"),
        ({"threshold": 0.1, "by": "swap", "swap": ["a"]}, "risk-stays"),
    ):
        with pytest.raises((SpecError, InfeasibleError)) as refused:
            mask_below(data, ["a", "b"], insecure_seed=1, **stated)
        assert refused.value.code == code
    fine = mask_below(make({"a": [1] * 9 + [2] * 9}), ["a"], threshold=0.5, by="swap", swap=["a"], insecure_seed=1)
    assert (fine.above, fine.masked.audit.made) == (0, 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["entropy", "recursive", "t"])
def test_values_are_counted_by_the_survey_weight(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    key, ill, weight = rng.integers(0, 6, 60), rng.choice(4, 60, p=[0.6, 0.2, 0.1, 0.1]), rng.uniform(0.1, 5, 60)
    data = make({"k": key, "ill": ill, "w": weight}, w="weight")
    measure = f"l_diversity:keys=k,sensitive=ill,l=2,kind={kind},c=1.5,weight=w"
    score = scored(data, "t_closeness:keys=k,sensitive=ill,t=0.2,weight=w" if kind == "t" else measure)
    overall = np.array([weight[ill == v].sum() for v in range(4)]) / weight.sum()
    unsafe = 0
    for cell in set(key.tolist()):
        sums = np.array([weight[(key == cell) & (ill == value)].sum() for value in range(4)])
        shares = sums / sums.sum()
        if kind == "entropy":
            bad = np.exp(-sum(p * np.log(p) for p in shares if p > 0)) < 2
        elif kind == "recursive":
            largest = sorted(sums, reverse=True)
            bad = not largest[0] < 1.5 * sum(largest[1:])
        else:
            bad = np.abs(shares - overall).sum() / 2 > 0.2
        unsafe += int((key == cell).sum()) if bad else 0
    assert score.value == pytest.approx(unsafe / 60)
