"""Each promise about numbers holds for the method's result, and fails when the result is tampered with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.conformance import numeric_strategies as examples

import safeswap as ss
from safeswap import registry
from safeswap.methods.numeric.spec import NoiseSpec, RankSwapSpec, TopBottomSpec
from safeswap.model.audit import Exchange
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata

KEY = Key(bytes(range(32)))


def masked(data, spec):
    return registry.method(spec.method).apply(data, spec, key=KEY)


def broken(found, data=None, audit=None):
    """The names of the promises that do not hold on a result that was tampered with."""
    promises = registry.method(found.spec.method).invariants(found.original, found.spec)
    after, told = data or found.data, audit or found.audit
    return {finding.invariant for p in promises if not (finding := p.check(found.original, after, told)).ok}


def with_column(found, name, values):
    column = found.data.table.column(name)
    array = pa.array([None if v is None else str(v) for v in values]) if pa.types.is_string(column.type) else values
    return found.data.with_columns({name: pa.chunked_array([pa.array(array, column.type)])}, {})


@pytest.mark.parametrize("name", ["rank_swap", "noise", "microaggregation", "top_bottom", "pram"])
def test_nothing_is_broken_in_what_the_method_makes(name):
    assert broken(masked(*getattr(examples, f"{name}_example")())) == set()


def test_a_pair_too_far_apart_is_found():
    data, _ = examples.rank_swap_example()
    found = masked(data, RankSwapSpec(attributes=("turnover",), window=0.02))
    values = np.array([float(v) for v in data.table["turnover"].to_pylist()])
    ends = np.array([[int(values.argmin()), int(values.argmax())]])
    far = Exchange(attributes=("turnover",), pairs=ends)
    assert "RanksNear" in broken(found, audit=replace(found.audit, exchanges=(far,)))


def test_noise_that_is_too_large_or_leans_is_found():
    data, _ = examples.noise_example()
    found = masked(data, NoiseSpec(attributes=("turnover", "employees"), size=0.2))
    before = np.array(data.table["employees"].to_pylist())
    after = np.array(found.data.table["employees"].to_pylist())
    assert "AddedNoise" in broken(found, with_column(found, "employees", before + 3 * (after - before)))
    assert "AddedNoise" in broken(found, with_column(found, "employees", after + 40))


def test_noise_without_the_correlation_asked_for_is_found():
    data, _ = examples.noise_example()
    attributes = ("turnover", "employees")
    independent = masked(data, NoiseSpec(attributes=attributes, size=0.5))
    correlated = masked(data, NoiseSpec(attributes=attributes, size=0.5, kind="correlated"))
    assert broken(correlated) == set()
    promises = registry.method("noise").invariants(data, correlated.spec)
    found = [p.check(data, independent.data, independent.audit) for p in promises]
    assert [f.problem for f in found if not f.ok] == [
        "the variance of the noise in turnover and employees together is not as requested"
    ]


def test_a_group_that_is_too_small_is_found():
    found = masked(*examples.microaggregation_example())
    values = found.data.table["employees"].to_pylist()
    values[7] += 1
    assert "GroupsOfAtLeast" in broken(found, with_column(found, "employees", values))


def test_a_mean_that_moved_is_found():
    found = masked(*examples.microaggregation_example())
    values = [value + 3 for value in found.data.table["employees"].to_pylist()]
    assert broken(found, with_column(found, "employees", values)) >= {"KeptMean"}


def test_a_value_beyond_the_bounds_is_found():
    data, _ = examples.top_bottom_example()
    found = masked(data, TopBottomSpec(attributes=("employees",), top=50.0))
    values = found.data.table["employees"].to_pylist()
    values[0] = 51
    assert "WithinBounds" in broken(found, with_column(found, "employees", values))


def test_a_margin_that_chance_does_not_explain_is_found():
    data, spec = examples.pram_example()
    table = pa.concat_tables([data.table] * 10).set_column(0, "id", pa.array(range(2400)))
    found = masked(Microdata(table, data.schema), spec)
    assert broken(found) == set()
    values = ["18"] * len(found.data)
    assert "ExpectedMargin" in broken(found, with_column(found, "division", values))


def test_a_value_that_went_missing_is_found():
    found = masked(*examples.noise_example())
    values = found.data.table["employees"].to_pylist()
    values[3] = None
    assert "MissingStays" in broken(found, with_column(found, "employees", values))


def test_users_are_told_what_concerns_the_columns_they_get():
    data, spec = examples.microaggregation_example()
    promises = registry.method("microaggregation").invariants(data, spec)
    told = [p.for_users_of(("employees",)) for p in promises]
    sentences = " ".join(p.sentence for p in told if p is not None)
    assert "at least 4 records" in sentences
    assert "turnover" not in sentences


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"top_share": 0.1}, "Large values of x are"),
        ({"bottom": 3.0}, "Small values of x are"),
        ({"top": 9.0, "bottom_share": 0.1}, "Large and small values of x are"),
    ],
)
def test_only_the_end_that_is_cut_off_is_told(stated, said):
    data = ss.read(pa.table({"x": [float(number % 13) for number in range(60)]}), kinds={"x": "numeric"})
    masked = ss.mask(data, {"method": "top_bottom", "attributes": ["x"], **stated}, insecure_seed=1)
    assert any(each.sentence.startswith(said) for each in masked.account.statements)
