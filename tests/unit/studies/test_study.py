"""The table of a study, its frontiers, its summary, and its frames."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.unit.studies.samples import KEY, file_of, sample

from safeswap import datasets, registry
from safeswap.errors import SpecError
from safeswap.model.study import ConstraintSet, StudySpec, find_undominated
from safeswap.studies.run import run_study
from safeswap.workflow import study

QUESTION = StudySpec(rates=(0.02, 0.2), constraints=(ConstraintSet(), ConstraintSet(fixed=("A",))), replicates=4)


@pytest.fixture(scope="module")
def made():
    return run_study(sample(), QUESTION, key=KEY)


def test_there_is_one_row_per_candidate_with_everything_about_it(made):
    assert made.table.column_names == [
        *("candidate", "specification", "label", "swap", "constraint", "rate", "spec", "replicate"),
        *("outcome", "pairs", "reason", "n_rule", "hellinger", "total_variation", "entropy_change"),
    ]
    assert len(made) == QUESTION.number_of_candidates(("A", "B", "C", "D")) == (10 + 6) * 2 * 4
    assert made.table.column("candidate").to_pylist() == list(range(len(made)))
    for row in made.table.to_pylist():
        spec = registry.make_spec(json.loads(row["spec"]))
        assert spec == made.specs[row["specification"]]
        assert (list(spec.swap), spec.rate) == (row["swap"], row["rate"])
        assert row["constraint"] == ("A equal" if spec.fixed else "")
        assert row["label"] == "+".join(row["swap"])
        assert row["pairs"] == spec.pairs_for(600)


def test_labels_are_letters_where_all_attributes_have_one():
    found = run_study(datasets.cps8d(), StudySpec(attributes=("Age", "Race"), rates=(0.01,)), key=KEY)
    assert found.table.column("label").to_pylist() == ["A", "R", "AR"]


def test_a_choice_names_the_attributes_that_the_map_has_letters_for():
    for attributes, expected in ((["Race"], "Race"), (["MS", "Race", "Edu"], None)):
        found = study(datasets.cps8d(), attributes=attributes, rates=[0.01, 0.1], insecure_seed=1)
        choice = found.choose("linear:a=0")
        names = ", ".join(found.table["swap"][choice.candidate].as_py())
        assert expected in (None, names)
        assert choice.sentence.startswith(f"Chosen: {names} at rate ")


def test_a_rejected_candidate_has_a_reason_and_no_figure():
    found = run_study(sample(), StudySpec(attributes=("A", "D"), up_to=1, rates=(0.01, 1.0)), key=KEY)
    rejected = found.rejected().to_pylist()
    assert [row["rate"] for row in rejected] == [1.0, 1.0]
    assert all("feasible" in row["reason"] for row in rejected)
    for row in found.table.to_pylist():
        assert (row["outcome"] == "rejected") == bool(row["reason"]) == (row["n_rule"] is None) == (row["pairs"] == 0)
    assert np.isnan(found.scores("n_rule")).tolist() == [False, True, False, True]


def test_the_frontier_of_a_rate_looks_at_that_rate_only(made):
    rates = made.table.column("rate").to_numpy()
    for rate in QUESTION.rates:
        rows = np.flatnonzero(rates == rate)
        expected = rows[find_undominated(made.scores("n_rule")[rows], made.scores("hellinger")[rows])]
        assert sorted(made.frontier(rate=rate)) == expected.tolist()
    union = {row for rate in QUESTION.rates for row in made.frontier(rate=rate)}
    assert set(made.frontier()) <= union


def test_the_frontier_goes_from_left_to_right_and_downwards(made):
    rows = made.frontier()
    assert (np.diff(made.scores("hellinger")[rows]) >= 0).all()
    assert (np.diff(made.scores("n_rule")[rows]) <= 0).all()
    with pytest.raises(SpecError, match=r"rate 0\.3"):
        made.frontier(rate=0.3)


def test_the_summary_is_the_mean_and_spread_over_replicates(made):
    frame = made.table.to_pandas()
    grouped = frame.groupby("specification")[["n_rule", "hellinger"]].agg(["mean", "std"])
    summary = made.summary().to_pandas()
    assert summary["risk_mean"].to_numpy() == pytest.approx(grouped["n_rule"]["mean"].to_numpy())
    assert summary["risk_sd"].to_numpy() == pytest.approx(grouped["n_rule"]["std"].to_numpy())
    assert summary["distortion_mean"].to_numpy() == pytest.approx(grouped["hellinger"]["mean"].to_numpy())
    times = np.zeros(len(made.specs))
    for _, part in frame.groupby("replicate"):
        times += find_undominated(part["n_rule"].to_numpy(), part["hellinger"].to_numpy())
    assert summary["on_frontier"].to_numpy() == pytest.approx(times / 4)


def test_replicates_differ_from_each_other_and_not_from_run_to_run(made):
    again = run_study(sample(), QUESTION, key=KEY)
    assert again.table.equals(made.table)
    by_replicate = made.scores("hellinger").reshape(4, -1)
    assert len({row.tobytes() for row in by_replicate}) == 4


def test_fewer_replicates_are_the_first_of_more(made):
    fewer = run_study(sample(), QUESTION.model_copy(update={"replicates": 2}), key=KEY)
    assert fewer.table.equals(made.table.slice(0, len(fewer)))


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_come_back_in_the_type_of_the_data(kind):
    frame = kind({"A": list("xyxy") * 5, "B": list("ppqq") * 5})
    found = study(frame, rates=[0.5], replicates=2, key=KEY)
    for part in ("candidates", "summary", "frontier", "rejected"):
        assert type(found.to_frame(part)) is type(frame)
    assert len(found.to_frame()) == len(found)
    with pytest.raises(SpecError):
        found.to_frame("all")  # type: ignore[arg-type]


def test_the_drill_down_has_every_table_of_two_attributes(made):
    table = made.distortion_table(5, "hellinger")
    assert list(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True)) == list(made.table_pairs)
    assert made.table_pairs[0] == ("A", "B")
    assert len(made.table_pairs) == 6
    for bad in ((5, "n_rule"), (-1, "hellinger"), (len(made), "hellinger")):
        with pytest.raises(SpecError):
            made.distortion_table(*bad)


def test_tables_are_left_out_where_they_would_take_too_much(monkeypatch):
    from safeswap.studies import evaluate

    monkeypatch.setattr(evaluate, "MOST_TABLE_BYTES", 1000)
    found = run_study(sample(), QUESTION, key=KEY)
    assert found.two_way is None
    assert found.table_pairs == ()
    assert found.distortion_table(0, "hellinger") is None
    assert found.table.equals(run_study(sample(), QUESTION, key=KEY).table)


def test_measures_of_tables_do_not_depend_on_whether_tables_are_kept(monkeypatch, made):
    from safeswap.studies import evaluate

    question = QUESTION.model_copy(update={"distortion": ("adV", "hellinger:ways=2")})
    kept = run_study(sample(), question, key=KEY)
    monkeypatch.setattr(evaluate, "MOST_TABLE_BYTES", 1000)
    assert run_study(sample(), question, key=KEY).table.equals(kept.table)


def test_measures_that_need_the_masked_file_are_measured_all_the_same():
    question = StudySpec(rates=(0.1,), risk=("n_rule", "n_rule:keys=A+B"), replicates=2)
    found = run_study(sample(), question, key=KEY)
    plain = run_study(sample(), question.model_copy(update={"risk": ("n_rule",)}), key=KEY)
    assert found.scores("n_rule") == pytest.approx(plain.scores("n_rule"), abs=1e-12)
    assert found.scores("hellinger") == pytest.approx(plain.scores("hellinger"), abs=1e-12)
    assert found.two_way == pytest.approx(plain.two_way, abs=1e-7)
    assert not np.isnan(found.scores("n_rule:keys=A+B")).any()


def test_candidates_of_other_kinds_stand_beside_the_grid():
    others = (
        {"method": "swap", "swap": ["A", "B"], "rate": 0.1, "mode": "sequential"},
        {"method": "swap", "swap": ["C"], "pairs": 7},
        {"method": "swap", "swap": ["A"], "rate": 1.0, "on_shortfall": "take"},
    )
    question = StudySpec(rates=(0.1,), others=others, replicates=2)
    found = run_study(sample(), question, key=KEY)
    assert len(found) == question.number_of_candidates(("A", "B", "C", "D")) == 26
    last = found.table.slice(10, 3).to_pylist()
    assert [row["label"] for row in last] == ["A+B", "C", "A"]
    assert [row["pairs"] for row in last][:2] == [30, 7]
    assert last[1]["rate"] is None
    assert last[2]["outcome"] == "made"
    assert found.two_way is not None
    assert not np.isnan(found.two_way).any()


def test_any_method_can_stand_on_the_map():
    others = ({"method": "edit_targeted", "keys": ["A", "B", "C"], "exchange": "categorical", "tolerance": 40},)
    found = run_study(sample(), StudySpec(rates=(0.1,), others=others, replicates=2), key=KEY)
    last = found.table.slice(10, 1).to_pylist()[0]
    assert (last["label"], last["swap"], last["rate"], last["outcome"]) == ("edit_targeted", [], None, "made")
    assert last["hellinger"] > 0
    assert found.choose("cap_distortion:1").candidate in range(len(found))


def test_one_candidate_that_fails_does_not_stop_the_others(monkeypatch):
    from safeswap.measures.utility.categories import Dissimilarity

    real, calls = Dissimilarity.score, []

    def sometimes(self, comparison):
        calls.append(1)
        if len(calls) == 5:
            raise ValueError("the income of record 12")
        return real(self, comparison)

    monkeypatch.setattr(Dissimilarity, "score", sometimes)
    found = run_study(sample(), StudySpec(distortion=("D",), rates=(0.1,)), key=KEY, threads=1)
    assert found.rejected().column("reason").to_pylist() == ["it failed with ValueError"]
    assert len(found) == 10


def test_a_constant_attribute_rejects_its_candidates_and_no_others():
    data = file_of({"A": ["x"] * 50, "B": list("pq") * 25, "C": list("rstuv") * 10})
    found = run_study(data, StudySpec(rates=(0.1,), up_to=1), key=KEY)
    assert found.table.column("outcome").to_pylist() == ["rejected", "made", "made"]
    assert "same value" in found.rejected().column("reason")[0].as_py()


def test_facts_say_what_the_file_is_like_and_nothing_of_a_record(made):
    assert made.facts["records"] == 600
    assert made.facts["before"]["hellinger"] == 0.0
    assert made.facts["risk_before"] == made.facts["before"]["n_rule"] > 0
    assert [a["name"] for a in made.facts["attributes"]] == ["A", "B", "C", "D"]
    assert not made.facts["for_release"]
    assert "v0" not in json.dumps(made.facts)


def test_an_unmeasured_measure_is_named(made):
    with pytest.raises(SpecError, match="'adV' was not measured"):
        made.scores("adV")


def test_its_repr_counts_and_shows_no_record(made):
    assert "32 specifications × 4 replicates: 128 candidates" in repr(made)
