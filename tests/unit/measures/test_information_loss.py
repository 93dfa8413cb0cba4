"""Information loss against its definition, on recoded, blanked, dropped and swapped values."""

from __future__ import annotations

from collections import Counter
from math import isfinite, log2

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.measures.samples import microdata

from safeswap import datasets, mask, registry
from safeswap.errors import SpecError
from safeswap.measures.base import is_blind_to_recoding
from safeswap.measures.utility.categories import Hellinger
from safeswap.measures.utility.information import InformationLoss, bits_lost
from safeswap.methods.recode.apply import apply_step
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.score import Comparison
from safeswap.workflow.assessing import compare

VALUES = st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=25)


def loss(before: Microdata, after: Microdata, *names: str) -> float:
    return InformationLoss(attributes=names).score(Comparison(before=before, after=after, attributes=())).value


def by_hand(before: list[str | None], after: list[str | None]) -> float:
    """−log₂ P(x | y) per record, or −log₂ P(x) where y is missing, over the entropy of what was known."""
    pairs = [(x, y) for x, y in zip(before, after, strict=True) if x is not None]
    alike, of_after, of_before = Counter(pairs), Counter(y for _, y in pairs), Counter(x for x, _ in pairs)
    told = sum(-log2(of_before[x] / len(pairs)) for x, _ in pairs)
    lost = sum(-log2(of_before[x] / len(pairs) if y is None else alike[x, y] / of_after[y]) for x, y in pairs)
    return lost / told if told else 0.0


@given(data=st.data())
def test_the_figure_is_that_of_the_definition(data: st.DataObject) -> None:
    before = data.draw(VALUES)
    after = data.draw(st.lists(st.sampled_from(["a", "b", "x", None]), min_size=len(before), max_size=len(before)))
    files = [microdata({"x": pa.array(values, pa.string())}) for values in (before, after)]
    assert loss(*files) == pytest.approx(by_hand(before, after), abs=1e-12)


@given(values=VALUES, groups=st.fixed_dictionaries(dict.fromkeys("abcd", st.sampled_from(["p", "q"]))))
def test_recoding_further_never_loses_less_and_never_more_than_all(values: list, groups: dict) -> None:
    data = microdata({"x": pa.array(values, pa.string())})
    once = apply_step(data, {"step": "recode", "attribute": "x", "map": groups})
    twice = apply_step(once, {"step": "recode", "attribute": "x", "map": {"p": "r", "q": "r"}})
    nothing = apply_step(data, {"step": "blank", "attribute": "x"})
    assert -1e-12 <= loss(data, once) <= loss(data, twice) + 1e-12 <= loss(data, nothing) + 2e-12
    assert loss(data, data) == 0
    assert loss(data, nothing) in (0.0, pytest.approx(1.0))


def test_a_dropped_attribute_loses_all_that_it_told() -> None:
    data = microdata({"x": ["a", "b", "a", "b"], "y": ["u", "u", "v", "v"]})
    assert loss(data, apply_step(data, {"step": "drop", "attributes": ["x"]}), "x", "y") == pytest.approx(0.5)


def test_numbers_that_became_ranges_are_counted() -> None:
    data = Microdata(pa.table({"n": [1, 2, 3, 4]}), Schema(attributes=(Attribute(name="n", kind="numeric"),)))
    score = InformationLoss().score(
        Comparison(
            before=data, after=apply_step(data, {"step": "ranges", "attribute": "n", "breaks": [3]}), attributes=()
        )
    )
    assert score.value == pytest.approx(0.5)
    assert score.detail.to_pylist()[0]["levels_after"] == 2


def test_codes_for_no_answer_had_nothing_to_lose() -> None:
    schema = Schema(attributes=(Attribute(name="x", missing=("9",)),))
    files = [Microdata(pa.table({"x": values}), schema) for values in (["1", "2", "9"], ["1", "2", None])]
    assert loss(*files) == 0


def test_the_identifier_is_refused() -> None:
    data = Microdata(pa.table({"id": [1, 2]}), Schema(attributes=(Attribute(name="id", kind="identifier"),)))
    with pytest.raises(SpecError, match="identifier"):
        loss(data, data, "id")
    with pytest.raises(SpecError, match="no categorical"):
        loss(data, data)


def test_tables_are_compared_in_the_categories_of_the_release_and_say_so() -> None:
    data = microdata({"x": ["a", "b", "c", "a"], "y": ["u", "u", "v", "v"]})
    coarse = apply_step(data, {"step": "recode", "attribute": "x", "map": {"a": "p", "b": "p", "c": "q"}})
    seen = Comparison(before=data, after=coarse, attributes=("x", "y"))
    score = Hellinger().score(seen)
    assert score.value == 0
    assert "categories of the release: x" in score.sentence
    blanked = apply_step(coarse, {"step": "blank", "attribute": "x", "values": ["q"]})
    again = Hellinger().score(Comparison(before=coarse, after=blanked, attributes=("x", "y")))
    assert again.value >= 0


NUMERIC = ("percentage_bias", "correct_links", "mean_change", "deviation_change", "correlation_change")
NOT_OF_SUCH_A_FILE = {**dict.fromkeys(NUMERIC, "numeric"), **dict.fromkeys(("l_diversity", "t_closeness"), "sensitive")}
NOT_OF_SUCH_A_FILE |= {"population_risk": "population", "indicators": "indicator"}
NOT_OF_SUCH_A_FILE |= dict.fromkeys(("il1s", "eigen", "correlations"), "numeric")
NOT_OF_SUCH_A_FILE |= dict.fromkeys(("ci_overlap", "coefficients"), "model")
"""Measures that need what this file does not have, recoded or not, and say so."""


@pytest.mark.parametrize("name", registry.measure_names())
def test_every_measure_works_on_recoded_and_blanked_values_or_says_what_it_needs(name: str) -> None:
    steps = [
        {"step": "recode", "attribute": "Edu", "groups": {"B": ["Bach", "Bach+"]}, "otherwise": "keep"},
        {"step": "blank", "attribute": "Race", "values": ["Non-White"]},
    ]
    seen = compare(mask(datasets.cps8d(), {"method": "recode", "steps": steps}, insecure_seed=1))
    if name in NOT_OF_SUCH_A_FILE:
        with pytest.raises(SpecError) as refused:
            registry.measure(name).score(seen)
        assert NOT_OF_SUCH_A_FILE[name] in refused.value.message + refused.value.hint
    else:
        score = registry.measure(name).score(seen)
        assert isfinite(score.value)
        assert score.sentence
        assert not is_blind_to_recoding(registry.measure(name)) or "categories of the release" in score.sentence


def test_levels_that_no_record_has_cost_nothing() -> None:
    levels, merged, counts = np.arange(5), np.array([0, 0, 1, 1, 2]), np.array([3, 5, 0, 0, 0])
    lost, blanked = bits_lost(levels, merged, counts, missing=(4, 3))
    assert lost == pytest.approx(-3 * log2(3 / 8) - 5 * log2(5 / 8))
    assert blanked == 0
