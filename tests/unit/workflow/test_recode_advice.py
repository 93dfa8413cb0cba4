"""Advice counts what risky counts on the recoded file, and ranks by what is removed for what is lost."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.strategies import microdata

from safeswap import datasets, read
from safeswap.errors import SpecError
from safeswap.measures.risk.risky import risky
from safeswap.measures.utility.information import InformationLoss
from safeswap.methods.recode.apply import apply_step
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.score import Comparison
from safeswap.workflow.recode_advice import advice, candidates
from safeswap.workflow.session import combinations_left


@given(
    data=microdata(most_records=25),
    missing=st.sampled_from(["none", "own", "any"]),
    up_to=st.integers(1, 2),
    tolerance=st.integers(2, 4),
)
def test_advice_says_what_comes_of_the_recode(data: Microdata, missing: str, up_to: int, tolerance: int) -> None:
    keys = data.schema.categorical
    ordered = {name: data.schema[name].model_copy(update={"kind": Kind.ORDINAL}) for name in keys[:1]}
    data = Microdata(data.table, data.schema.replace(*ordered.values()))
    asked = {"keys": keys, "up_to": min(up_to, len(keys)), "tolerance": min(tolerance, len(data)), "missing": missing}
    every = [step for name in keys for step in candidates(data, name)]
    found = advice(data, asked, candidates=every)
    assert found.unsafe == risky(data, asked).unsafe
    for each in found:
        if each.step.step == "drop" and len(data.attributes) == 1:
            continue
        done = apply_step(data, each.step)
        left = combinations_left(risky(data, asked).asked, done)
        assert each.unsafe == (0 if left is None else risky(done, left).unsafe)
        compared = Comparison(before=data, after=done, attributes=keys)
        if missing != "own" or not any(data.schema[name].missing for name in keys):
            assert each.loss == pytest.approx(InformationLoss(attributes=keys).score(compared).value, abs=1e-9)


def test_the_best_comes_first_and_all_remove_something() -> None:
    keys = ["Age", "Edu", "EmpTyp", "AvgHrs", "MS", "Race"]
    found = advice(datasets.cps8d(), {"keys": keys})
    worths = [each.worth for each in found]
    assert worths == sorted(worths, reverse=True)
    assert all(each.removed > 0 for each in found)
    assert len(advice(datasets.cps8d(), {"keys": keys}, most=2)) == 2


def test_stated_candidates_are_all_told_also_those_that_do_not_help() -> None:
    steps = [{"step": "drop", "attributes": ["Race"]}, {"step": "blank", "attribute": "AnnSal"}]
    found = advice(datasets.cps8d(), {"keys": ["Age", "Edu", "EmpTyp", "Race"]}, candidates=steps)
    assert {each.step.step for each in found} == {"drop", "blank"}
    assert found.as_dict()["tried"] == 2


def test_a_candidate_that_forgets_a_value_is_refused() -> None:
    step = {"step": "recode", "attribute": "Race", "map": {"White": "all"}}
    with pytest.raises(SpecError, match="says nothing about 1"):
        advice(datasets.cps8d(), {"keys": ["Race"]}, candidates=[step])


def test_an_infinite_level_is_in_no_range() -> None:
    values = [float("inf"), 1.5, 1.5, 0.0, 1.5, 0.0, 2.0, 3.0]
    data = read(pa.table({"level": values}), kinds={"level": "ordinal"})
    assert [step.step for step in candidates(data, "level") if step.step == "ranges"] == []
    assert advice(data, {"keys": ["level"], "tolerance": 2}, candidates=list(candidates(data, "level"))).unsafe == 3
