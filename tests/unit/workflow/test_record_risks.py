"""Figures of single records come back in the caller's own type; the measures stand on the map of a study."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from safeswap import datasets, workflow
from safeswap.measures.risk.by_record import record_risk, suda

COLUMNS = {"id": ["a", "b", "c", "d"], "Sex": ["f", "m", "m", "m"], "Town": ["x", "x", "y", None]}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_the_callers_own_type_comes_back(make) -> None:
    frame = make(COLUMNS)
    for found in (record_risk(frame, ["Sex"]), suda(frame, ["Sex", "Town"])):
        assert type(found) is type(frame)
        assert len(found) == 4


def test_the_index_of_a_pandas_frame_stays() -> None:
    frame = pd.DataFrame(COLUMNS, index=[7, 8, 9, 10])
    assert record_risk(frame, ["Sex"])["risk"].to_dict() == {7: 1.0, 8: 1 / 3, 9: 1 / 3, 10: 1 / 3}


def test_the_identifier_comes_along() -> None:
    data = workflow.read(pa.table(COLUMNS), identifier="id")
    found = suda(data, ["Sex", "Town"], contributions=True)
    assert found.column_names == ["id", "minimal_uniques", "smallest", "score", "dis", "share of Sex", "share of Town"]
    assert found["id"].to_pylist() == COLUMNS["id"]
    assert found["share of Sex"].to_pylist() == [1.0, 1.0, 0.0, 0.0]


def test_a_masked_result_is_looked_at_as_it_is_released() -> None:
    masked = workflow.swap(datasets.cps8d(), swap=["Race"], rate=0.1, insecure_seed=1)
    released = record_risk(masked, ["Age", "Race", "Edu"])["risk"].to_pylist()
    assert released == record_risk(masked.data, ["Age", "Race", "Edu"])["risk"].to_pylist()
    assert released != record_risk(datasets.cps8d(), ["Age", "Race", "Edu"])["risk"].to_pylist()


def test_a_study_takes_the_measures_as_its_axes() -> None:
    risk = ["k_anonymity:k=5", "individual_risk", "suda2:max_size=4", "l_diversity:sensitive=AnnSal"]
    found = workflow.study(
        datasets.cps8d(), attributes=["Race", "Sex"], up_to=1, rates=[0.02, 0.1], risk=risk, insecure_seed=1
    )
    assert found.table["reason"].to_pylist() == [""] * 4
    upward, _ = found.axes()
    spec = {"method": "swap", "swap": ["Race"], "rate": 0.02}
    masked = workflow.mask(datasets.cps8d(), spec, insecure_seed=1)
    by_hand = [score.value for score in workflow.assess(masked, measures=risk)]
    assert upward[0] == by_hand[0]
    assert [found.table[name].to_pylist()[0] for name in risk] == by_hand
