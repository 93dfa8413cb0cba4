"""Why this one: chosen on the frontier of means, with rivals and with how sure the choice is."""

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.studies.samples import KEY, sample

from safeswap.errors import InfeasibleError
from safeswap.model.spec import SwapSpec
from safeswap.model.study import StudySpec
from safeswap.studies.run import run_study
from safeswap.studies.study import Study


def study_of_points(*replicates: list[tuple[float, float]]) -> Study:
    """A study with given (risk, distortion), one list per replicate; not a number: rejected."""
    count, draws = len(replicates[0]), len(replicates)
    points = np.array(replicates, dtype=np.float64).reshape(-1, 2)
    made = ~np.isnan(points[:, 0])
    specs = tuple(SwapSpec(swap=[f"a{i}"], rate=0.1) for i in range(count))
    table = pa.table(
        {
            "candidate": np.arange(len(points)),
            "specification": np.tile(np.arange(count), draws),
            "label": [f"a{i}" for i in range(count)] * draws,
            "swap": [[f"a{i}"] for i in range(count)] * draws,
            "constraint": [""] * len(points),
            "rate": [0.1] * len(points),
            "replicate": np.repeat(np.arange(draws), count),
            "outcome": np.where(made, "made", "rejected"),
            "reason": np.where(made, "", "too few pairs"),
            "n_rule": pa.array(points[:, 0], from_pandas=True),
            "hellinger": pa.array(points[:, 1], from_pandas=True),
        }
    )
    question = StudySpec(rates=(0.1,), replicates=draws, distortion=("hellinger",))
    return Study(spec=question, table=table, specs=specs, facts={"attributes": []})


POINTS = [(0.5, 0.1), (0.3, 0.2), (0.1, 0.5), (0.4, 0.4)]
NO = float("nan")


def test_each_rule_chooses_its_point_of_the_frontier():
    study = study_of_points(POINTS)
    assert study.frontier().tolist() == [0, 1, 2]
    assert study.choose("linear:a=1").candidate == 1
    assert study.choose("linear:a=0").candidate == 2
    assert study.choose("linear:a=100").candidate == 0
    assert study.choose("cap_risk:0.3").candidate == 1
    assert study.choose("cap_distortion:0.1").candidate == 0
    assert study.choose(lambda risk, distortion: -risk).candidate == 0


def test_a_dominated_candidate_is_never_chosen_even_at_equal_cost():
    study = study_of_points([(0.2, 0.6), (0.2, 0.5), (0.7, 0.5), (0.7, 0.4)])
    assert study.choose("linear:a=0").candidate == 1
    assert study.choose("cap_risk:0.7").candidate == 3
    assert study.choose(lambda *_: 0.0).candidate in study.frontier()
    assert study.choose(lambda risk, distortion: -risk - distortion).candidate in study.frontier()


def test_the_choice_says_what_it_is_no_worse_than_and_who_comes_next():
    choice = study_of_points(POINTS).choose("linear:a=1")
    assert choice.dominates == 1
    assert choice.rivals.column("specification").to_pylist() == [0, 2, 3]
    assert choice.rivals.column("cost_above_chosen").to_pylist() == pytest.approx([0.1, 0.1, 0.3])
    assert choice.certainty is None
    assert "add replicates" in choice.sentence
    assert "at least as good as 1 of the 3 other" in choice.sentence


def test_the_mean_decides_and_the_typical_draw_is_taken_not_the_luckiest():
    lucky = [[(0.5, 0.1)], [(0.5, 0.3)], [(0.5, 0.31)], [(0.5, 0.5)]]
    choice = study_of_points(*lucky).choose("linear:a=1")
    assert choice.replicate in (1, 2)
    first_wins_once = study_of_points([(0.1, 0.1), (0.2, 0.2)], [(0.9, 0.9), (0.2, 0.2)])
    assert first_wins_once.choose("linear:a=1").spec.swap == ("a1",)


def test_a_cap_holds_for_the_draw_that_is_released_not_only_for_the_mean():
    study = study_of_points([(0.1, 0.3)], [(0.3, 0.3)], [(0.19, 0.3)], [(0.21, 0.3)])
    assert study.choose("cap_risk:0.2").risk <= 0.2


def test_the_choice_is_sure_where_draws_agree_and_unsure_where_they_do_not():
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.05, (40, 2))
    apart = study_of_points(*[[(0.1, 0.1), (0.9, 0.9)]] * 5)
    alike = study_of_points(*[[(0.3 + a, 0.3), (0.3 + b, 0.3)] for a, b in noise])
    assert apart.choose().certainty == 1.0
    assert 0.3 < alike.choose().certainty < 0.95
    assert f"{100 * alike.choose().certainty:.0f}%" in alike.choose().sentence


def test_replicates_that_could_not_be_made_do_not_spoil_means_or_certainty():
    study = study_of_points(
        [(0.1, 0.1), (0.5, 0.5)], [(NO, NO), (0.5, 0.5)], [(0.1, 0.1), (0.5, 0.5)], [(0.1, 0.1), (NO, NO)]
    )
    summary = study.summary().to_pylist()
    assert [row["replicates"] for row in summary] == [3, 3]
    assert [row["risk_mean"] for row in summary] == pytest.approx([0.1, 0.5])
    choice = study.choose()
    assert choice.spec.swap == ("a0",)
    # Wrong only where the three draws that could be made are all left out of a resample: (1/4)⁴.
    assert choice.certainty == pytest.approx(1 - 0.25**4, abs=0.01)


def test_a_cap_below_everything_is_refused_with_a_hint():
    with pytest.raises(InfeasibleError) as refusal:
        study_of_points(POINTS).choose("cap_risk:0.01")
    assert refusal.value.code == "no-candidate"
    with pytest.raises(InfeasibleError):
        study_of_points([(NO, NO)]).choose()


def test_the_same_study_gives_the_same_choice_again():
    study = run_study(sample(), StudySpec(replicates=8), key=KEY)
    one, other = study.choose(), study.choose()
    assert one.as_dict() == other.as_dict()


def test_another_pair_of_axes_can_be_chosen_by():
    study = run_study(sample(), StudySpec(risk=("n_rule", "n_rule:n=5"), replicates=3), key=KEY)
    choice = study.choose("linear:a=0.1", risk="n_rule:n=5", distortion="total_variation")
    assert choice.risk == study.scores("n_rule:n=5")[choice.candidate]
    assert choice.distortion == study.scores("total_variation")[choice.candidate]
