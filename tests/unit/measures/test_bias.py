"""PERCENTAGE BIAS, against its formula told on plain lists."""

from __future__ import annotations

from collections import defaultdict
from math import isnan, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dwellings import KEYS, column, dwellings, edit, microdata

from safeswap import registry
from safeswap.errors import SpecError
from safeswap.measures.utility.bias import (
    bias_bounds,
    bias_report,
    default_levels,
    occupants_by_audit,
    occupants_by_files,
    percentage_bias,
)
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.score import Comparison


def by_hand(before: Microdata, after: Microdata, level: tuple[str, ...], variable: str) -> float:
    """Each record with the mean of its class before and after; where the class is gone, of the one it is in now."""
    was = list(zip(*(column(before, name) for name in level), strict=True))
    now = list(zip(*(column(after, name) for name in level), strict=True))
    x, y = column(before, variable), column(after, variable)
    means, later = defaultdict(list), defaultdict(list)
    for i in range(len(x)):
        means[was[i]].append(x[i])
        later[now[i]].append(y[i])
    squares = []
    for i in range(len(x)):
        there = later[was[i]] or later[now[i]]
        squares.append((np.mean(means[was[i]]) - np.mean(there)) ** 2)
    return 100 * sqrt(np.mean(squares)) / abs(np.mean(x))


@pytest.mark.parametrize("exchange", [1, 2, 3])
@pytest.mark.parametrize("variant", ["letter", "keyed"])
def test_every_level_is_the_formula(exchange: int, variant: str) -> None:
    data = dwellings(600, places=5)
    masked = edit(data, exchange=exchange, variant=variant)
    report = percentage_bias(masked, variables=["INCOME"], keys=(*KEYS, "REGION"))
    levels = [figure for figure in report if figure.reading == "class"]
    assert len(levels) > 5
    for figure in levels:
        assert figure.percentage == pytest.approx(by_hand(data, masked.data, figure.level, "INCOME"), rel=1e-9)
    assert report.average("INCOME") == pytest.approx(np.mean([figure.percentage for figure in levels]))


@pytest.mark.parametrize("exchange", [1, 2, 3])
def test_pointwise_compares_a_record_with_whoever_stands_in_its_place(exchange: int) -> None:
    data = dwellings(600)
    masked = edit(data, exchange=exchange)
    x = np.array(column(data, "INCOME"))
    moved = x.copy()
    for part in masked.audit.exchanges:
        a, b = part.pairs.T
        moved[a], moved[b] = x[b], x[a]
    expected = 100 * np.sqrt(np.mean((x - moved) ** 2)) / x.mean()
    assert percentage_bias(masked, variables=["INCOME"]).pointwise("INCOME") == pytest.approx(expected)


def test_a_place_is_told_by_the_audit_also_after_two_exchanges() -> None:
    data = microdata({"id": [1, 2, 3], "BEDS": [1, 2, 3], "PLACE": list("abc"), "INCOME": [10.0, 20.0, 60.0]})
    masked = edit(data, keys=("BEDS",), geography=("PLACE",), variant="letter", tolerance=2)
    assert column(masked.data, "PLACE") == list("bca")
    occupant = occupants_by_audit(masked.audit.exchanges, 3)
    assert [column(masked.data, "PLACE")[i] for i in occupant] == list("abc")
    expected = 100 * sqrt(((10 - 60) ** 2 + (20 - 10) ** 2 + (60 - 20) ** 2) / 3) / 30
    assert percentage_bias(masked).pointwise("INCOME") == pytest.approx(expected)


@pytest.mark.parametrize("exchange", [1, 3])
@pytest.mark.parametrize("variant", ["letter", "keyed"])
def test_from_two_files_places_are_matched_so_that_all_add_up(exchange: int, variant: str) -> None:
    data = dwellings(800)
    masked = edit(data, exchange=exchange, variant=variant)
    comparison = Comparison(before=data, after=masked.data, attributes=KEYS)
    occupant = occupants_by_files(comparison, KEYS)
    assert sorted(occupant.tolist()) == list(range(800))
    changed = {name for part in masked.audit.exchanges for name in part.attributes}
    if exchange == 1:
        for name in changed:
            now = np.array(column(masked.data, name))
            assert (now[occupant] == np.array(column(data, name))).all()
    exact = percentage_bias(masked, variables=["INCOME"]).pointwise("INCOME")
    assert percentage_bias(data, masked.data, variables=["INCOME"]).pointwise("INCOME") == pytest.approx(exact, rel=0.3)


def test_what_was_not_exchanged_has_no_places() -> None:
    data = dwellings(50)
    recoded = Microdata(data.table.set_column(1, "REGION", data.table.column("BEDS")), data.schema)
    with pytest.raises(SpecError) as caught:
        percentage_bias(data, recoded, readings=["pointwise"])
    assert caught.value.code == "not-an-exchange"
    assert percentage_bias(data, recoded, readings=["class"]).average("INCOME") >= 0


def test_an_untouched_file_has_no_bias_at_any_level() -> None:
    data = dwellings(200)
    assert all(figure.percentage == 0 for figure in percentage_bias(data, data))


def test_method_1_keeps_the_means_of_all_classes_that_geography_does_not_make() -> None:
    data = dwellings(2000)
    masked = edit(data)
    report = percentage_bias(masked, levels=[("BEDS",), KEYS, ("REGION", "BEDS")], readings=["class"])
    found = {figure.level: figure.percentage for figure in report if figure.variable == "INCOME"}
    assert found["BEDS",] == found[KEYS] == 0
    assert found["REGION", "BEDS"] > 0


def test_missing_amounts_are_left_out() -> None:
    before = microdata({"BEDS": [1, 1, 2, 2], "INCOME": [1.0, None, 4.0, 6.0]})
    after = microdata({"BEDS": [1, 1, 2, 2], "INCOME": [4.0, None, 1.0, 6.0]})
    report = percentage_bias(before, after, levels=[("BEDS",)])
    mean = 11 / 3
    assert report.pointwise("INCOME") == pytest.approx(100 * sqrt((9 + 9 + 0) / 3) / mean)
    assert report.average("INCOME") == pytest.approx(100 * sqrt((9 + 2 * 1.5**2) / 3) / mean)


def test_a_mean_of_zero_has_no_percentage() -> None:
    before = microdata({"BEDS": [1, 2], "INCOME": [-1.0, 1.0], "TAXES": [1.0, 3.0]})
    after = microdata({"BEDS": [1, 2], "INCOME": [1.0, -1.0], "TAXES": [3.0, 1.0]})
    report = percentage_bias(before, after)
    assert isnan(report.pointwise("INCOME"))
    assert [figure.bias for figure in report if figure.reading == "pointwise"] == [2.0, 2.0]
    assert [verdict.variable for verdict in report.verdicts()] == ["TAXES"]
    with pytest.raises(SpecError) as caught:
        bias_bounds(10, 0.01, swapped=1, records=2, mean=0.0, deviation=1.0)
    assert caught.value.code == "no-mean"


def test_the_verdict_names_both_failures() -> None:
    data = dwellings(3000)
    few, many = edit(data, keep_fraction=0.05), edit(data, tolerance=60)
    gentle = percentage_bias(few, variables=["INCOME"])
    rough = percentage_bias(many, variables=["INCOME"])
    assert gentle.swapped < rough.swapped
    assert [v.useful for v in gentle.verdicts(f=1.0)] == [True]
    assert [v.useful for v in rough.verdicts(f=1e-6)] == [False]
    assert [v.protected for v in gentle.verdicts(p=1e9)] == [False]
    assert [v.protected for v in rough.verdicts(p=0)] == [True]


def test_many_keys_are_looked_at_one_by_one_and_all_together() -> None:
    names = [f"k{i}" for i in range(9)]
    data = microdata({name: [1, 2, 1, 2] for name in names})
    after = microdata({**{name: [1, 2, 1, 2] for name in names}, "k0": [2, 1, 1, 2]})
    levels = default_levels(Comparison(before=data, after=after, attributes=tuple(names)), tuple(names))
    assert [len(level) for level in levels] == [2] * 8 + [9]
    alone = default_levels(Comparison(before=data, after=data, attributes=tuple(names)), tuple(names))
    assert [len(level) for level in alone] == [1] * 9 + [9]


@given(st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_the_measure_is_the_mean_over_items_and_levels(records: int, seed: int) -> None:
    masked = edit(dwellings(records, seed=seed % 1000), tolerance=2)
    comparison = seen(masked)
    report = bias_report(comparison, (), comparison.attributes)
    score = registry.measure("percentage_bias").score(comparison)
    assert score.value == pytest.approx(np.mean([report.average(v) for v in ("INCOME", "TAXES")]))
    assert score.detail is not None
    assert set(score.detail.column_names) >= {"variable", "level", "percentage_bias"}


def seen(masked: Masked) -> Comparison:
    return Comparison(
        before=masked.original,
        after=masked.data,
        attributes=masked.original.schema.categorical,
        touched=masked.audit.touched(),
    )


def test_the_sentence_says_what_is_too_little_and_too_much() -> None:
    comparison = seen(edit(dwellings(1500)))
    for parameters, words in (
        ({"f": 1e-9, "p": 0}, "too much to be useful: INCOME"),
        ({"f": 10, "p": 1e9}, "too little to protect: INCOME"),
        ({"f": 10, "p": 0}, "within the acceptable range"),
    ):
        measure = registry.measure("percentage_bias", variables=("INCOME",), reading="pointwise", **parameters)
        assert words in measure.score(comparison).sentence


def test_what_cannot_be_measured_is_refused() -> None:
    data = dwellings(20)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"variables": ["BEDS", "PRICE"]}, "unknown-attribute"),
        ({"levels": [("COLOUR",)]}, "unknown-attribute"),
    ]
    for parameters, code in bad:
        with pytest.raises(SpecError) as caught:
            percentage_bias(data, data, **parameters)
        assert caught.value.code == code
    with pytest.raises(SpecError) as caught:
        percentage_bias(data)
    assert caught.value.code == "nothing-to-compare"
    with pytest.raises(SpecError) as caught:
        percentage_bias(microdata({"BEDS": [1]}), microdata({"BEDS": [1]}))
    assert caught.value.code == "no-continuous-item"
    with pytest.raises(SpecError) as caught:
        percentage_bias(data, dwellings(19))
    assert caught.value.code == "different-length"
    flat = microdata({"BEDS": [1, 2], "INCOME": [-1.0, 1.0]})
    with pytest.raises(SpecError) as caught:
        registry.measure("percentage_bias").score(Comparison(before=flat, after=flat, attributes=("BEDS",)))
    assert caught.value.code == "no-mean"
