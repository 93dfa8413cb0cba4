"""Utility as users see it: estimates, models, propensity scores. Against plain loops that share no code with it."""

from __future__ import annotations

import json
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safeswap as ss
from safeswap import registry
from safeswap.arrays import regression
from safeswap.engines.memory import exchange
from safeswap.errors import InputError, SafeswapError, SpecError
from safeswap.measures import survey
from safeswap.measures.utility.indicators import Indicators, error_multipliers, read_indicators
from safeswap.measures.utility.models import CiOverlap, Coefficients, Formula, Model
from safeswap.measures.utility.numbers import Eigen, Il1s
from safeswap.measures.utility.pmse import Pmse
from safeswap.model.columns import to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.score import Axis, Comparison
from safeswap.model.study import StudySpec
from safeswap.studies.evaluate import Evaluator, replicate_errors
from safeswap.studies.run import make_measures

KEY = ss.Key(bytes(range(32)))
KINDS = {"w": "weight", "x": "numeric", "y": "numeric"}
LINES: list[dict[str, Any]] = [
    {"statistic": "mean", "of": "x", "by": ["a"]},
    {"statistic": "total", "of": "x", "by": ["a", "b"]},
    {"statistic": "total", "by": ["b"]},
    {"statistic": "share", "of": "b", "level": "0", "by": ["a"]},
    {"statistic": "ratio", "of": "x", "per": "y"},
]


def sample(seed: int, records: int = 60, *, weights: Any = None, holes: bool = True) -> Microdata:
    """A small survey: strata s of several units u, weights, two categories and two numbers, some of them missing."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-5, 50, records).astype(float)
    columns: dict[str, Any] = {
        "s": rng.integers(0, 3, records),
        "u": np.arange(records) % 7,
        "w": rng.integers(1, 9, records) / 4 if weights is None else weights,
        "a": [None if holes and rng.random() < 0.05 else str(rng.integers(0, 3)) for _ in range(records)],
        "b": rng.integers(0, 2, records).astype(str).tolist(),
        "x": [None if holes and rng.random() < 0.1 else value for value in x.tolist()],
        "y": rng.integers(1, 30, records).astype(float),
    }
    described = tuple(
        Attribute(name=n, kind=KINDS.get(n, "nominal"), design={"s": "stratum", "u": "psu"}.get(n, "")) for n in columns
    )
    return Microdata(pa.table({n: pa.array(v) for n, v in columns.items()}), Schema(attributes=described))


def swapped(data: Microdata, names: tuple[str, ...], seed: int, pairs: int = 10) -> Comparison:
    chosen = np.random.default_rng(seed).permutation(len(data))[: 2 * pairs].reshape(-1, 2)
    return Comparison(before=data, after=exchange(data, names, chosen), attributes=("a", "b"))


def plain_estimates(data: Microdata, line: dict[str, Any]) -> dict[tuple[Any, ...], float]:
    """The estimates of a line by a loop over the records."""
    sums: dict[tuple[Any, ...], list[float]] = {}
    for row in data.table.to_pylist():
        place = tuple(row[name] for name in line.get("by", ()))
        value = row[line["of"]] if line.get("of") else 1.0
        value = float(value == line["level"]) if "level" in line and value is not None else value
        below = row[line["per"]] if line.get("per") else 1.0
        if None in place or value is None or below is None:
            continue
        kept = sums.setdefault(place, [0.0, 0.0])
        kept[0] += row["w"] * value
        kept[1] += row["w"] * below
    return {place: top if line["statistic"] == "total" else top / below for place, (top, below) in sums.items()}


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([("a",), ("b",), ("x",), ("a", "x"), ("b", "y"), ("a", "b", "x", "y")]))
def test_indicators_are_what_a_loop_over_the_records_gives(seed: int, names: tuple[str, ...]) -> None:
    seen = swapped(sample(seed), names, seed)
    found = list(Indicators(lines=LINES, least=1).evaluate(seen))
    for line, row in zip(LINES, found, strict=True):
        before, after = plain_estimates(seen.before, line), plain_estimates(seen.after, line)
        assert sorted(row.before) == pytest.approx(sorted(before.values()), rel=1e-9)
        changes = [after.get(place, 0.0) - value for place, value in before.items()]
        assert sorted(row.change) == pytest.approx(sorted(changes), rel=1e-7, abs=1e-9)


def plain_variance(data: Microdata, linear: list[float]) -> float:
    """Σ m / (m − 1) Σ (z − z̄)² by loops; the strata and units of the sample."""
    sums: dict[Any, dict[Any, float]] = {}
    for row, u in zip(data.table.to_pylist(), linear, strict=True):
        units = sums.setdefault(row["s"], {})
        units[row["u"]] = units.get(row["u"], 0.0) + row["w"] * u
    total = 0.0
    for units in sums.values():
        mean = sum(units.values()) / len(units)
        total += len(units) / (len(units) - 1) * sum((z - mean) ** 2 for z in units.values())
    return total


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_variances_by_linearisation_are_what_loops_give(seed: int) -> None:
    data = sample(seed)
    rows, design = data.table.to_pylist(), survey.read_design(data)
    x = to_numbers(data, "x")
    known = [row for row in rows if row["x"] is not None]
    mass = sum(row["w"] for row in known)
    mean = sum(row["w"] * row["x"] for row in known) / mass
    linear = [0.0 if row["x"] is None else (row["x"] - mean) / mass for row in rows]
    found = survey.mean_of(x).variances(design)[0]
    assert found == pytest.approx(plain_variance(data, linear), rel=1e-9)
    everywhere = np.zeros(len(x), dtype=np.int64)
    total = survey.Quotient(top=np.nan_to_num(x), bottom=None, of_domain=everywhere, domains=1)
    totals = total.variances(design)[0]
    assert totals == pytest.approx(plain_variance(data, [row["x"] or 0.0 for row in rows]), rel=1e-9)
    scores = np.stack([np.nan_to_num(x) * design.weights, design.weights], axis=1)
    assert design.covariance(scores)[0, 0] == pytest.approx(totals, rel=1e-9)


STATED: dict[str, dict[str, Any]] = {
    "D": {"within": ("b",), "attributes": ("a",)},
    "ordinal": {"attributes": ("b",)},
    "indicators": {"lines": LINES, "least": 1},
    "weighted_margins": {"ways": 2},
    "ci_overlap": {"formula": "y ~ x"},
    "coefficients": {"formula": "y ~ x"},
    **{name: {"variables": ("x", "y")} for name in ("mean_change", "deviation_change", "correlation_change")},
}
BY_RECORD = {
    "share_changed": "the share of records that took part",
    "information_loss": "bits of the records as they are coded",
    "percentage_bias": "defined over the swapped records by Moore (1996)",
}
"""Measures of distortion without a weight, and why."""


def distortion_measures() -> list[str]:
    return [name for name in registry.measure_names() if registry.measure(name).axis is Axis.DISTORTION]


def ordered(data: Microdata) -> Microdata:
    attributes = tuple(
        replace_attribute(a, kind="ordinal", levels=("0", "1")) if a.name == "b" else a for a in data.schema.attributes
    )
    return Microdata(data.table, Schema(attributes=attributes))


def replace_attribute(attribute: Attribute, **values: Any) -> Attribute:
    return Attribute(**{**attribute.model_dump(exclude_unset=True), **values})


@pytest.mark.parametrize("name", distortion_measures())
def test_every_measure_is_weighted_and_equal_weights_give_the_unweighted_figure(name: str) -> None:
    equal, unequal = (
        swapped(ordered(sample(3, weights=w, holes=False)), ("a", "b", "x"), 4) for w in (np.full(60, 2.5), None)
    )
    if name in BY_RECORD:
        assert "weighted" not in registry.measure(name).parameters
        return
    in_model = name in ("ci_overlap", "coefficients")
    assert "weighted" in (registry.measure(name).parameters if not in_model else Model.model_fields)

    def value(seen: Comparison, *, weighted: bool | None) -> Any:
        stated = {**STATED.get(name, {}), **({} if weighted is None or in_model else {"weighted": weighted})}
        if in_model:
            model = {**stated, **({} if weighted is None else {"weighted": weighted})}
            detail = registry.measure(name, models=[model]).score(seen).detail
            assert detail is not None
            return detail["before"].to_pylist()  # the errors are those of the design
        return registry.measure(name, **stated).score(seen).value

    assert value(equal, weighted=None) == pytest.approx(value(equal, weighted=False), rel=1e-9, abs=1e-12)
    assert value(unequal, weighted=None) == value(unequal, weighted=True)
    assert value(unequal, weighted=None) != pytest.approx(value(unequal, weighted=False), rel=1e-6)
    if not in_model and name != "indicators":
        sentence = registry.measure(name, **STATED.get(name, {})).score(unequal).sentence
        assert "weight" in sentence


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_weighted_figures_are_those_of_records_repeated_as_often_as_they_weigh(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 5, 40)
    data = ordered(sample(seed, 40, weights=weights.astype(float), holes=False))
    seen = swapped(data, ("a", "b", "x"), seed)
    rows = np.repeat(np.arange(40), weights)
    sides = [
        Microdata(each.table.take(pa.array(rows)).drop_columns(["w"]), data.schema.select([*"suabxy"]))
        for each in (seen.before, seen.after)
    ]
    repeated = Comparison(before=sides[0], after=sides[1], attributes=("a", "b"))
    names = ["hellinger", "total_variation", "entropy_change", "adV", "adC", "D", "ordinal", "mean_change"]
    names += ["deviation_change", "correlation_change", "eigen", "correlations", "weighted_margins"]
    for name in names:
        one, other = (registry.measure(name, **STATED.get(name, {})).score(each).value for each in (seen, repeated))
        assert one == pytest.approx(other, rel=1e-9, abs=1e-11), name
    propensity, many = Pmse(attributes=("a", "b")).score(seen), Pmse(attributes=("a", "b")).score(repeated)
    assert propensity.value == pytest.approx(many.value, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("value", "word"), [(None, "missing"), (float("inf"), "infinite"), (-1.5, "negative"), (0, "zero")]
)
def test_a_weight_that_cannot_be_used_is_told_by_position_and_counts_are_measured(value: Any, word: str) -> None:
    weights = [1.0, 2.5, value, *[3.25] * 57]
    seen = swapped(sample(3, weights=weights), ("a",), 4)
    found, plain = (registry.measure("hellinger", **w).score(seen) for w in ({}, {"weighted": False}))
    assert found.value == plain.value
    assert f"Not weighted: 1 record has a weight 'w' that is {word}; the first is record 3." in found.sentence
    with pytest.raises(InputError, match="the first is record 3") as caught:
        registry.measure("hellinger", weight="w").score(seen)
    assert caught.value.code == "bad-weight"
    assert "1.5" not in caught.value.message


def test_counts_are_told_beside_the_weighted_figure() -> None:
    seen = swapped(sample(3), ("a",), 4)
    usual, stated, plain = (
        registry.measure("hellinger", **w).score(seen) for w in ({}, {"weight": "w"}, {"weighted": False})
    )
    assert usual.value == stated.value != plain.value
    assert usual.sentence.endswith(f"Weighted by w; without weights {plain.value:.4g}.")
    assert usual.detail is not None
    assert usual.detail["unweighted"].to_pylist() == [plain.value]
    assert "eight" not in plain.sentence


def test_the_same_file_is_perfect_in_every_measure() -> None:
    data = sample(5)
    seen = Comparison(before=data, after=data, attributes=("a", "b"))
    stated: dict[str, dict[str, Any]] = {
        "indicators": {"lines": [*LINES, {"statistic": "quantile", "of": "x"}], "least": 1},
        "ci_overlap": {"formula": "y ~ x + b"},
        "coefficients": {"formula": "y ~ x + b"},
    }
    for name in ("pmse", "ci_overlap", "coefficients", "il1s", "eigen", "correlations", "indicators"):
        assert registry.measure(name, **stated.get(name, {})).score(seen).value == 0
    for name in ("weighted_margins", "restricted_hellinger"):
        assert registry.measure(name).score(seen).value == 0
    score = CiOverlap(models=[{"formula": "y ~ x + b"}]).score(seen)
    assert score.detail is not None
    assert set(score.detail["overlap"].to_pylist()) == {1.0}


def test_two_independent_halves_have_a_ratio_of_about_two() -> None:
    rng = np.random.default_rng(11)
    ratios = []
    for _ in range(30):
        codes = rng.integers(0, 3, (2, 600, 3)).astype(str)
        names = ("p", "q", "r")
        sides = [
            Microdata(
                pa.table({n: side[:, i].tolist() for i, n in enumerate(names)}),
                Schema(attributes=tuple(Attribute(name=n) for n in names)),
            )
            for side in codes
        ]
        detail = Pmse().score(Comparison(before=sides[0], after=sides[1], attributes=names)).detail
        assert detail is not None
        ratios.append(detail["ratio"][0].as_py())
    assert 1.7 < float(np.mean(ratios)) < 2.3  # the standard error is about 0.08


def test_main_effects_cannot_see_a_swap_and_interactions_can() -> None:
    seen = swapped(sample(8, 200), ("a",), 4, pairs=60)
    blind, seeing = Pmse(interactions=False, weighted=False).score(seen), Pmse(weighted=False).score(seen)
    assert Pmse(interactions=False).score(seen).value > 0  # records of other weights moved
    assert blind.value == 0
    assert "cannot detect a swap" in blind.sentence
    assert seeing.value > 0
    permuted = Pmse(permutations=5, weighted=False).score(seen)
    assert "permutations" in permuted.sentence
    assert permuted.value == seeing.value


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("hellinger", {"ways": 1}),
        ("total_variation", {"ways": 1}),
        ("entropy_change", {"ways": 1}),
        ("weighted_margins", {}),
        ("D", {}),
        ("mean_change", {"variables": ("x",)}),
        ("deviation_change", {"variables": ("x",)}),
        ("pmse", {"interactions": False}),
    ],
)
def test_a_figure_that_cannot_see_a_swap_says_so(name: str, stated: dict[str, Any]) -> None:
    seen = swapped(sample(8, 200, holes=False), ("a", "x"), 4, pairs=60)
    blind = registry.measure(name, **stated, weighted=False).score(seen)
    assert blind.value == pytest.approx(0, abs=1e-12)
    assert any(words in blind.sentence for words in ("cannot detect", "0 after any swap"))
    assert registry.measure(name, **stated).score(seen).value > 0  # records of other weights moved


def test_a_model_of_every_level_of_many_attributes_is_refused() -> None:
    columns = {name: [str(i) for i in range(60)] for name in "abcdefg"}
    schema = Schema(attributes=tuple(Attribute(name=name) for name in columns))
    data = Microdata(pa.table(columns), schema)
    with pytest.raises(SpecError) as caught:
        Pmse().score(Comparison(before=data, after=data, attributes=tuple(columns)))
    assert caught.value.code == "model-too-large"


def test_distances_and_eigenvalues_by_hand() -> None:
    before = {"x": [0.0, 2.0, 4.0], "y": [1.0, 2.0, 4.0]}
    after = {"x": [2.0, 0.0, 4.0], "y": [1.0, 2.0, 4.0]}
    schema = Schema(attributes=tuple(Attribute(name=n, kind="numeric") for n in before))
    sides = [Microdata(pa.table(columns), schema) for columns in (before, after)]
    seen = Comparison(before=sides[0], after=sides[1], attributes=())
    assert Il1s().score(seen).value == pytest.approx(4 / (sqrt(2) * 2) / 6)
    r, s = (np.corrcoef(columns["x"], columns["y"])[0, 1] for columns in (before, after))
    expected = abs(s - r) / (1 + r) + abs(s - r) / (1 - r)
    assert Eigen().score(seen).value == pytest.approx(expected, rel=1e-9)


def test_eigenvalues_of_attributes_that_add_up_are_left_out() -> None:
    x = np.arange(20.0) % 7
    y = np.arange(20.0) % 5
    schema = Schema(attributes=tuple(Attribute(name=n, kind="numeric") for n in "xyz"))
    before = Microdata(pa.table({"x": x, "y": y, "z": x + y}), schema)
    after = exchange(before, ("x",), np.array([[0, 5], [2, 11]]))
    score = Eigen().score(Comparison(before=before, after=after, attributes=()))
    assert score.value < 10  # a division by 10⁻¹⁶ would show
    assert "1 eigenvalue is 0" in score.sentence


def test_a_model_that_cannot_be_fitted_leaves_the_others_standing() -> None:
    data = sample(2, 80, holes=False)
    seen = swapped(data, ("x",), 1)
    models = [
        {"formula": "y ~ x", "name": "good"},
        {"formula": 'y ~ b == "0" + b == "1"', "name": "collinear"},
        {"formula": 'b == "0" ~ b', "family": "logistic", "name": "separated"},
        {"formula": "a ~ x", "name": "no number"},
    ]
    score = Coefficients(models=models).score(seen)
    for name in ("collinear", "separated", "no number"):
        assert name in score.sentence.split("Not fitted")[1]
    assert score.value > 0
    with pytest.raises(SpecError) as caught:
        Coefficients(models=models[1:]).score(seen)
    assert caught.value.code == "model-not-fitted"
    with pytest.raises(SpecError, match="needs models"):
        Coefficients().score(seen)


def test_a_level_without_records_in_the_model_is_left_out() -> None:
    """Children have no income: their age group is no reason to call the model collinear."""
    rng = np.random.default_rng(4)
    group = rng.integers(0, 3, 80)
    pay = [None if each == 0 else float(each * 10 + rng.normal()) for each in group]
    kinds = (Attribute(name="g", kind="ordinal", levels=("0", "1", "2")), Attribute(name="pay", kind="numeric"))
    data = Microdata(pa.table({"g": group.astype(str), "pay": pay}), Schema(attributes=kinds))
    noisy = data.with_columns({"pay": pa.chunked_array([[None if each is None else each + 0.01 for each in pay]])}, {})
    score = Coefficients(formula="pay ~ g").score(Comparison(before=data, after=noisy, attributes=("g",)))
    assert score.detail is not None
    assert score.detail.column("coefficient").to_pylist() == ["intercept", "g == 2"]
    means = [np.mean([p for g, p in zip(group, pay, strict=True) if g == each]) for each in (1, 2)]
    assert score.detail.column("before").to_pylist() == pytest.approx([means[0], means[1] - means[0]])


@pytest.mark.parametrize("text", ["", "y", "y ~", "~ x", "y ~ x ~ z", "y ~ x + ", "y ~ x:", "y ~ (x)", "y == ~ x"])
def test_a_formula_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        Formula.parse(text)
    assert caught.value.code == "bad-formula"


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["linear", "logistic", "poisson"]))
def test_a_fit_is_where_the_likelihood_is_stationary(seed: int, family: Any) -> None:
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(80), rng.normal(size=(80, 2))])
    eta = design @ np.array([0.2, 0.5, -0.3])
    mean = {"linear": eta, "logistic": 1 / (1 + np.exp(-eta)), "poisson": np.exp(eta)}[family]
    response = {
        "linear": lambda: mean + rng.normal(size=80),
        "logistic": lambda: (rng.random(80) < mean).astype(float),
        "poisson": lambda: rng.poisson(mean).astype(float),
    }[family]()
    found = regression.fit(design, response, family, rng.integers(1, 4, 80).astype(float))
    assert not found.problem
    assert np.abs(found.scores.sum(axis=0)).max() < 1e-6


def test_dependent_columns_are_found() -> None:
    rng = np.random.default_rng(0)
    free = rng.normal(size=(30, 4))
    design = np.column_stack(
        [free[:, 0], free[:, 1], free[:, 0] - 2 * free[:, 1], free[:, 2], np.zeros(30), free[:, 3]]
    )
    assert regression.independent_columns(design).tolist() == [0, 1, 3, 5]
    assert np.linalg.matrix_rank(design) == 4


@pytest.mark.parametrize(
    ("value", "word"), [(0.0, "zero"), (-1.0, "negative"), (None, "missing"), (np.inf, "infinite")]
)
def test_a_bad_weight_is_told_by_its_position(value: float | None, word: str) -> None:
    weights: list[float | None] = [1.5] * 60
    weights[41] = value
    seen = swapped(sample(1, weights=weights), ("a",), 2)
    with pytest.raises(InputError) as caught:
        Indicators(lines=LINES, least=1).score(seen)
    assert caught.value.code == "bad-weight"
    assert word in caught.value.message
    assert caught.value.fields["record"] == 42
    assert "Not weighted" in registry.measure("hellinger").score(seen).sentence


def test_a_stratum_with_one_unit_is_refused_or_joined() -> None:
    data = sample(1)
    table = data.table.set_column(0, "s", pa.array([9] + [0] * 59))
    lonely = Microdata(table, data.schema)
    seen = swapped(lonely, ("a",), 2)
    with pytest.raises(InputError) as caught:
        Indicators(lines=LINES, least=1).score(seen)
    assert caught.value.code == "one-unit-stratum"
    assert Indicators(lines=LINES, least=1, collapse=True).score(seen).value > 0
    assert survey.read_design(lonely, collapse=True).lonely == 0


def test_replicate_weights_give_the_spread_of_their_estimates() -> None:
    data = sample(4, 40)
    rng = np.random.default_rng(0)
    described, table = list(data.schema.attributes), data.table
    for r in range(5):
        described.append(Attribute(name=f"r{r}", kind="weight", design="replicate"))
        table = table.append_column(f"r{r}", pa.array(rng.integers(0, 5, 40).astype(float)))
    full = Microdata(table, Schema(attributes=tuple(described)))
    design, y = survey.read_design(full), to_numbers(full, "y")
    assert full.schema.weight is not None
    assert full.schema.weight.name == "w"
    middle = np.average(y, weights=table["w"].to_numpy())
    squares = [(np.average(y, weights=table[f"r{r}"].to_numpy()) - middle) ** 2 for r in range(5)]
    assert survey.mean_of(y).variances(design)[0] == pytest.approx(np.mean(squares), rel=1e-9)
    jackknife = survey.read_design(full, replicate_scale=4 / 5)
    assert survey.mean_of(y).variances(jackknife)[0] == pytest.approx(0.8 * np.sum(squares), rel=1e-9)


def test_a_quantile_is_the_first_value_with_enough_weight() -> None:
    values, weights = np.array([5.0, 1.0, 3.0, np.nan, 2.0]), np.array([1.0, 2.0, 1.0, 9.0, 1.0])
    domain = np.zeros(5, dtype=np.int64)
    found = [survey.quantiles_of(values, share, weights, domain, 1)[0] for share in (0.1, 0.4, 0.41, 0.8, 0.99)]
    assert found == [1.0, 1.0, 2.0, 3.0, 5.0]
    assert np.isnan(survey.quantiles_of(values, 0.5, weights, domain - 1, 1)[0])


def test_the_error_after_masking_has_both_parts() -> None:
    seen = swapped(sample(6, 200), ("a", "x"), 3, pairs=40)
    score = Indicators(lines=LINES, least=1).score(seen)
    assert score.detail is not None
    for row in score.detail.to_pylist():
        assert row["error_after"] >= abs(row["after"] - row["before"]) - 1e-9
    multipliers = error_multipliers(score)
    assert set(multipliers) == {"mean", "total", "share"}  # a single ratio is too few to publish
    assert all(value >= 0.5 for value in multipliers.values())
    with pytest.raises(SpecError):
        error_multipliers(registry.measure("hellinger").score(seen))


def test_a_design_that_is_not_released_is_still_that_of_the_sample() -> None:
    """Leaving out strata and units changes no value, so it enlarges no error and moves no interval."""
    data = sample(5)
    masked = ss.mask(data, {"method": "recode", "steps": [{"step": "drop", "attributes": ["s", "u"]}]}, key=KEY)
    overlap = "ci_overlap:formula=x ~ y"
    found = ss.assess(masked, measures=[Indicators(lines=LINES, least=1).text, overlap])
    detail = next(iter(found)).detail
    assert detail is not None
    before, after = (detail.column(name).to_pylist() for name in ("error", "error_after"))
    assert after == pytest.approx(before, nan_ok=True)
    assert [score.value for score in found] == pytest.approx([0, 0])


def test_a_weight_that_was_dropped_is_told_as_such() -> None:
    masked = ss.mask(sample(5), {"method": "recode", "steps": [{"step": "drop", "attributes": ["w"]}]}, key=KEY)
    with pytest.raises(InputError, match="no record has a weight 'w'") as caught:
        ss.assess(masked, measures=[Indicators(lines=LINES, least=1).text])
    assert (caught.value.code, "weighted=false" in caught.value.hint) == ("bad-weight", True)


def test_draws_of_one_specification_have_a_bias_and_a_spread() -> None:
    data = sample(6, 100, holes=False)
    spec = ss.SwapSpec(swap=("x",), rate=0.5)
    wanted = Indicators(lines=[LINES[0]], least=1)
    found = replicate_errors(data, spec, wanted, key=ss.Key.insecure(seed=1), replicates=4)
    masked = [
        registry.method("swap").apply(data, spec, key=ss.Key.insecure(seed=1), replicate=r).data for r in range(4)
    ]
    before = plain_estimates(data, LINES[0])
    changes = {place: [plain_estimates(m, LINES[0])[place] - v for m in masked] for place, v in before.items()}
    for row in found.to_pylist():
        place = min(before, key=lambda p: abs(before[p] - row["before"]))
        assert row["bias"] == pytest.approx(np.mean(changes[place]), abs=1e-9)
        assert row["between"] == pytest.approx(np.std(changes[place], ddof=1), abs=1e-9)


@pytest.mark.parametrize(("unit", "dense"), [("relative", 1 << 16), ("errors", 0)])
def test_a_study_updates_estimates_to_what_masking_gives(
    unit: str, dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safeswap.studies.candidates._DENSE", dense)  # 0: only the touched cells are numbered
    data = sample(9, 150)
    slow = [{"statistic": "quantile", "of": "x"}, {"statistic": "regression", "formula": "y ~ x"}]
    text = registry.measure("indicators", lines=[*LINES, *slow], least=2, unit=unit).text
    spec = StudySpec(
        attributes=("a", "b"), rates=(0.1, 0.4), keys=("a", "b"), replicates=2,
        distortion=(
            text, "weighted_margins", "weighted_margins:ways=2,least=3", "hellinger", "total_variation",
            "entropy_change", "hellinger:weighted=false", "hellinger:ways=2", "entropy_change:ways=2", "adV", "adC",
            "adV:weighted=false",
        ),
    )  # fmt: skip
    study = ss.study(data, spec, insecure_seed=1)
    measures = list(make_measures(data, spec).values())
    evaluator = Evaluator(data, spec, ss.Key.insecure(seed=1), candidates=1, measures=measures)
    columns = np.stack([study.scores(name) for name in spec.measures], axis=1)
    for number, row in enumerate(study.table.select(["specification", "replicate"]).to_pylist()):
        slowly = evaluator._mask_and_score(study.specs[row["specification"]], row["replicate"])
        assert slowly.reasons == ("",)
        np.testing.assert_allclose(columns[number], slowly.scores[0], rtol=1e-9, atol=1e-12)
        assert study.two_way is not None
        assert slowly.tables is not None
        np.testing.assert_allclose(study.two_way[number], slowly.tables[0], rtol=1e-5, atol=1e-7)
    (only,) = study.facts["frontier_only"]
    assert only["lines"] == ["quantile of x at 0.5", "y ~ x"]
    assert set(only["values"]) == {str(n) for n in study.frontier(distortion=text)}
    from safeswap.charts.map import study_sentence

    assert "on the frontier only" in study_sentence(study)


def test_values_that_masking_removes_leave_their_domain() -> None:
    data = sample(2, holes=False)
    blank = [None if value == "0" else value for value in data.table["a"].to_pylist()]
    after = Microdata(data.table.set_column(3, "a", pa.array(blank, pa.string())), data.schema)
    seen = Comparison(before=data, after=after, attributes=("a", "b"))
    assert registry.measure("weighted_margins", attributes=("a",)).score(seen).value == 1.0
    assert Indicators(lines=LINES[:1], least=1).score(seen).value == 1.0


def test_rare_domains_and_levels_are_not_named() -> None:
    data = sample(1, 60, holes=False)
    table = data.table.set_column(3, "a", pa.array(["secret"] * 3 + ["x"] * 30 + ["z"] * 27))
    rare = Microdata(table, data.schema)
    seen = Comparison(before=rare, after=rare, attributes=("a",))
    told = [
        Indicators(lines=[LINES[0]], least=1).score(seen),
        registry.measure("coefficients", formula="y ~ a").score(seen),
        registry.measure("weighted_margins").score(seen),
    ]
    for score in told:
        assert score.detail is not None
        assert "secret" not in json.dumps(score.detail.to_pylist()) + score.sentence


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# nothing", "no [[indicators]]"),
        ("nonsense", "not valid TOML"),
        ('[[indicators]]\nstatistic = "mean"\n', "needs 'of'"),
        ('[[indicators]]\nstatistic = "mode"\nof = "x"\n', "indicator 1"),
        ('[[indicators]]\nstatistic = "mean"\nof = "x"\nlevel = "1"\n', "has no 'level'"),
        ('[[indicators]]\nstatistic = "regression"\nformula = "x"\n', "formula"),
        ('unit = "metres"\n[[indicators]]\nstatistic = "total"\n', "unit"),
    ],
)
def test_a_file_of_indicators_says_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "indicators.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_indicators(path)
    assert caught.value.code == "bad-indicators"
    assert problem in caught.value.message


def test_an_indicator_that_cannot_be_computed_leaves_the_others_standing() -> None:
    seen = swapped(sample(1), ("a",), 2)
    lines = [*LINES, {"statistic": "share", "of": "b", "level": "nowhere"}, {"statistic": "mean", "of": "gone"}]
    score = Indicators(lines=lines, least=1).score(seen)
    assert score.sentence.count("Not computed") == 1
    assert score.detail is not None
    assert sum(bool(row["problem"]) for row in score.detail.to_pylist()) == 2
    tight = Indicators(lines=[{**LINES[0], "relative": 1e-9, "errors": 1e-9}], least=1).score(seen)
    assert "Beyond their tolerance" in tight.sentence
    with pytest.raises(SafeswapError):
        Indicators(lines=LINES, least=10_000).score(seen)


def test_pairs_of_attributes_are_all_margins() -> None:
    seen = swapped(sample(7, holes=False), ("a",), 2)
    score = registry.measure("weighted_margins", ways=2).score(seen)
    assert score.detail is not None
    assert [tuple(row) for row in score.detail["attributes"].to_pylist()] == list(combinations(("a", "b"), 2))
