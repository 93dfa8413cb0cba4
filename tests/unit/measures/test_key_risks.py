"""k-anonymity, l-diversity, individual risk and special uniques, each against a count by hand."""

from __future__ import annotations

from collections import Counter
from math import exp, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.measures.samples import microdata

from safeswap import registry
from safeswap.errors import InputError, SafeswapError, SpecError
from safeswap.measures.risk.individual_risk import record_risks
from safeswap.measures.risk.suda2 import intrusion, score_weights, special_uniques, spread
from safeswap.model.microdata import Microdata
from safeswap.model.score import Comparison, Score

KEYS = ("sex", "edu", "area")
NAMES = ("k_anonymity", "l_diversity", "individual_risk", "suda2")


@st.composite
def files(draw: st.DrawFn) -> Microdata:
    """A small file with missing keys, a sensitive attribute that is sometimes missing, and a weight."""
    records = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns: dict[str, list[Any]] = {
        name: [None if x == 0 else f"v{x}" for x in rng.integers(draw(st.integers(0, 1)), levels, records)]
        for name, levels in (("sex", 3), ("edu", 5), ("area", 4), ("ill", 4))
    }
    return microdata({**columns, "w": rng.uniform(0.5, 30, records).tolist()}, w="weight")


def score(data: Microdata, text: str, **parameters: Any) -> Score:
    seen = Comparison(before=data, after=data, attributes=data.schema.categorical)
    return registry.measure(text, **parameters).score(seen)


def matches(one: tuple[Any, ...], other: tuple[Any, ...], missing: str) -> bool:
    """Whether one record counts for the other, by every combination of keys that the other has."""
    if missing == "own":
        return one == other
    if missing == "vouching":
        return all(None in (x, y) or x == y for x, y in zip(one, other, strict=True))
    return all(y is None or x == y for x, y in zip(one, other, strict=True))


def groups(data: Microdata, missing: str) -> list[list[int]]:
    """For each record the records that it cannot be told apart from; none where it cannot be looked for."""
    rows = list(zip(*(data.table[name].to_pylist() for name in KEYS), strict=True))
    every = range(len(rows))
    return [[i for i in every if matches(rows[i], row, missing)] for row in rows]


@given(files(), st.sampled_from(["own", "none", "any", "vouching"]), st.integers(2, 6))
def test_k_anonymity_counts_the_records_that_too_few_are_like(data: Microdata, missing: str, k: int) -> None:
    alike = [len(group) for group in groups(data, missing)]
    found = score(data, "k_anonymity", keys=KEYS, k=k, missing=missing)
    unsafe = sum(0 < number < k for number in alike)
    assert found.value == pytest.approx(unsafe / len(data))
    row = found.detail.to_pylist()[0]
    assert row["unsafe_records"] == unsafe
    assert row["smallest_cell"] == min((number for number in alike if number), default=None)


@given(files(), st.sampled_from(["own", "none", "any", "vouching"]), st.sampled_from(["distinct", "entropy"]))
def test_l_diversity_counts_the_records_whose_sensitive_value_can_be_told(
    data: Microdata, missing: str, kind: str
) -> None:
    values = data.table["ill"].to_pylist()
    unsafe, least = 0, []
    for row, group in enumerate(groups(data, missing)):
        counts = Counter(values[i] for i in group if values[i] is not None)
        shares = [number / counts.total() for number in counts.values()]
        diversity = len(counts) if kind == "distinct" else exp(-sum(x * log(x) for x in shares))
        if group and values[row] is not None:
            unsafe += diversity < 1.7
            least.append(diversity)
    found = score(data, "l_diversity", keys=KEYS, sensitive="ill", kind=kind, l=1.7, missing=missing)
    assert found.value == pytest.approx(unsafe / len(data))
    assert found.detail["least_diversity"].to_pylist()[0] == pytest.approx(min(least, default=None))


@given(files(), st.sampled_from(["own", "none", "any", "vouching"]))
def test_without_weights_the_risk_is_one_over_the_count(data: Microdata, missing: str) -> None:
    expected = [1 / len(group) if group else 0.0 for group in groups(data, missing)]
    found = record_risks(data, KEYS, missing=missing)
    assert found.table()["risk"].to_pylist() == pytest.approx(expected)
    told = score(data, "individual_risk", keys=KEYS, missing=missing, threshold=0.3)
    assert told.value == pytest.approx(sum(expected) / len(data))
    row = told.detail.to_pylist()[0]
    assert (row["expected"], row["highest"]) == pytest.approx((sum(expected), max(expected)))
    assert row["above_threshold"] == sum(risk > 0.3 for risk in expected)


@given(files(), st.sampled_from(["own", "none", "any", "vouching"]))
def test_weights_are_summed_over_the_records_alike(data: Microdata, missing: str) -> None:
    weights = data.table["w"].to_pylist()
    sums = [sum(weights[i] for i in group) for group in groups(data, missing)]
    found = record_risks(data, KEYS, weight="w", model="inverse", missing=missing)
    shown = [(s, r) for s, r in zip(sums, found.table()["risk"].to_pylist(), strict=True) if s]
    counts = [len(group) for group in groups(data, missing) if group]
    assert [r for _, r in shown] == pytest.approx([1 / max(s, n) for (s, _), n in zip(shown, counts, strict=True)])
    short = sum(0 < s < len(g) for s, g in zip(sums, groups(data, missing), strict=True))
    assert found.below_sample == short
    estimate = record_risks(data, KEYS, weight="w", missing=missing)
    assert (estimate.risks >= found.risks * (1 - 1e-12)).all(), "the mean of 1/F is above one over the mean of F"


@given(files(), st.sampled_from(["own", "none", "any", "vouching"]))
def test_special_uniques_are_few_and_their_scores_add_up(data: Microdata, missing: str) -> None:
    found = special_uniques(data, KEYS, most=3, missing=missing)
    table = found.table(contributions=True)
    score_of, dis = table["score"].to_numpy(), table["dis"].to_numpy()
    assert found.special == np.count_nonzero(table["minimal_uniques"].to_numpy())
    assert score_of.sum() == pytest.approx(found.scores.sum()), "a class with a score is a single record"
    assert ((dis > 0) == (score_of > 0)).all() or found.file_dis == 0
    assert found.by_size["minimal_uniques"].to_numpy().sum() == found.by_keys["minimal_uniques"].to_numpy().sum()
    assert found.by_size["records"].to_numpy().sum() == found.special
    assert score(data, "suda2", keys=KEYS, missing=missing).value == pytest.approx(found.special / len(data))
    mean = score(data, "suda2", keys=KEYS, missing=missing, figure="dis").value
    assert mean == pytest.approx(dis.sum() / len(data))


def test_a_sampled_unique_is_as_sure_as_the_file_is_complete() -> None:
    assert intrusion(10, 20, 1.0) == 1.0
    assert intrusion(0, 20, 0.1) == 0.0
    assert intrusion(10, 0, 0.1) == 1.0
    scores = np.array([0.0, 6.0, 12.0])
    assert spread(scores, 1.0, 2, 4).tolist() == [0.0, 1.0, 1.0]
    low, high = spread(scores, 0.01, 2, 4)[1:]
    assert 0 < low < high < 1


def test_scores_of_many_keys_do_not_overflow() -> None:
    weights = score_weights(62, 61, "elliot")
    assert np.isfinite(weights).all()
    found = spread(weights[1:], 0.01, 100, 62)
    assert np.isfinite(found).all()
    assert (np.diff(found) <= 0).all(), "a smaller set of keys tells more"


def test_a_unique_of_all_keys_counts_by_elliot_and_not_by_ihsn() -> None:
    assert score_weights(3, 3, "elliot").tolist() == [0, 2, 1, 1]
    assert score_weights(3, 3, "ihsn").tolist() == [0, 1, pytest.approx(1 / 3), 0]
    assert score_weights(8, 3, "elliot").tolist() == [0, 7 * 6 * 5, 6 * 5, 5]
    assert score_weights(1, 1, "elliot").tolist() == [0, 1]


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_file_has_no_risk(name: str) -> None:
    empty = microdata({"sex": [], "edu": [], "ill": []})
    parameters = {"sensitive": "ill"} if name == "l_diversity" else {}
    assert score(empty, name, **parameters).value == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_what_is_told_holds_no_value_of_a_record(name: str) -> None:
    data = microdata({"sex": ["Zanzibar", "m", "m"], "edu": ["Zanzibar", "x", "x"], "ill": ["Zanzibar", "n", "n"]})
    told = score(data, name, keys=("sex", "edu"), **({"sensitive": "ill"} if name == "l_diversity" else {}))
    assert "Zanzibar" not in str(told.as_dict())
    for found in (record_risks(data, ["sex"]), special_uniques(data, ["sex"])):
        assert "Zanzibar" not in repr(found)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_made_of_missing_keys_is_told(name: str) -> None:
    data = microdata({"sex": ["f", "m", None], "ill": ["y", "n", "y"]})
    parameters = {"sensitive": "ill"} if name == "l_diversity" else {}
    meanings = {"none": "matches nothing", "own": "a separate value", "any": "could be any value"}
    for missing, words in {**meanings, "vouching": "counts for others too"}.items():
        sentence = score(data, name, keys=("sex",), missing=missing, **parameters).sentence
        assert "A missing key (1 record)" in sentence
        assert words in sentence
    assert "missing" not in score(data, name, keys=("ill",), **dict.fromkeys(parameters, "sex")).sentence


@pytest.mark.parametrize("name", NAMES)
def test_the_released_file_is_looked_at_and_not_the_original(name: str) -> None:
    before = microdata({"sex": ["f", "m", "m", "f"], "ill": ["y", "n", "y", "n"]})
    after = microdata({"sex": ["f"] * 4, "ill": ["y", "n", "y", "n"]})
    seen = Comparison(before=before, after=after, attributes=("sex", "ill"))
    parameters = {"sensitive": "ill"} if name == "l_diversity" else {}
    value = registry.measure(name, keys=("sex",), **parameters).score(seen).value
    assert value == (0.25 if name == "individual_risk" else 0.0)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("k_anonymity:k=1", "bad-spec"),
        ("k_anonymity:missing=some", "bad-spec"),
        ("k_anonymity:keys=nowhere", "unknown-attribute"),
        ("l_diversity", "no-sensitive-attribute"),
        ("l_diversity:sensitive=nowhere", "unknown-attribute"),
        ("l_diversity:sensitive=edu,keys=edu+sex", "sensitive-key"),
        ("l_diversity:sensitive=edu,l=1", "bad-spec"),
        ("l_diversity:sensitive=edu,kind=own", "bad-spec"),
        ("l_diversity:sensitive=edu,kind=entropy,weight=bad", "bad-weight"),
        ("individual_risk:weight=edu", "not-a-weight"),
        ("individual_risk:weight=bad", "bad-weight"),
        ("individual_risk:model=poisson", "bad-spec"),
        ("suda2:max_size=0", "bad-spec"),
        ("suda2:sampling_fraction=0", "bad-spec"),
        ("suda2:scoring=own", "bad-spec"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, code: str) -> None:
    data = microdata({"sex": ["f", "m"], "edu": ["x", "y"], "bad": [-1.0, 2.0]}, bad="weight")
    with pytest.raises((SpecError, InputError)) as caught:
        score(data, text)
    assert caught.value.code == code
    assert caught.value.hint


def test_bad_calls_of_the_functions_are_refused() -> None:
    data = microdata({"id": ["1", "2"], "sex": ["f", "m"]}, id="identifier")
    many = microdata({f"k{j}": ["a", "b"] for j in range(63)})
    for call, code in (
        (lambda: record_risks(data, []), "bad-keys"),
        (lambda: record_risks(data, ["sex", "sex"]), "bad-keys"),
        (lambda: record_risks(data, ["id"]), "identifier-in-measure"),
        (lambda: record_risks(data, ["sex"], model="poisson"), "bad-spec"),  # type: ignore[arg-type]
        (lambda: special_uniques(data, ["sex"], most=0), "bad-spec"),
        (lambda: special_uniques(data, ["sex"], sampling_fraction=1.5), "bad-fraction"),
        (lambda: special_uniques(data, ["sex"], scoring="own"), "bad-spec"),  # type: ignore[arg-type]
        (lambda: special_uniques(many, many.attributes), "too-many-keys"),
        (lambda: special_uniques(many, many.attributes[:40], most=6), "too-many-combinations"),
    ):
        with pytest.raises(SafeswapError) as caught:
            call()
        assert caught.value.code == code


def test_the_text_of_a_measure_gives_it_back_whatever_its_names() -> None:
    for measure in (
        registry.measure("l_diversity", sensitive="a,b", keys=("x",)),
        registry.measure("individual_risk", weight="w=1", model="inverse"),
        registry.measure("suda2", max_size=2, figure="dis", missing="any"),
    ):
        assert registry.measure(measure.text) == measure
