"""The study of Gomatam, Karr & Sanil (2003), A Risk-Utility Framework for Categorical Data Swapping, NISS report 132.

CPS-8d, every swap of one or two of its eight attributes, three rates: 108 candidates, n-rule risk against the 8-way
Hellinger distance. The report writes the rate as the half-fraction k/N: its 0.005, 0.01 and 0.05 are 0.01, 0.02 and
0.10 of the records. A two-attribute swap counts if both attributes differ, and pairs come from one random pass, as
its infeasible candidate shows. One draw is noise: each claim is asserted in every one of 20 replicates.
"""

import numpy as np
import pytest

from safeswap import datasets
from safeswap.model.key import Key
from safeswap.model.study import ConstraintSet, StudySpec, find_undominated
from safeswap.studies.run import run_study

REPLICATES = 20
RATES = (0.01, 0.02, 0.10)
KEY = Key.insecure(seed=132)
AS_PUBLISHED = StudySpec(true_swap="all", pairing="uniform", rates=RATES, replicates=REPLICATES)
LETTERS = "AWEMRSHI"


@pytest.fixture(scope="module")
def study():
    return run_study(datasets.cps8d(), AS_PUBLISHED, key=KEY)


@pytest.fixture(scope="module")
def risk(study):
    return study.scores("n_rule").reshape(REPLICATES, -1)


@pytest.fixture(scope="module")
def distortion(study):
    return study.scores("hellinger").reshape(REPLICATES, -1)


@pytest.fixture(scope="module")
def rate(study):
    return study.table.column("rate").to_numpy()[: len(study.specs)]


@pytest.fixture(scope="module")
def swapped(study):
    return np.array([len(spec.swap) for spec in study.specs])


def test_eight_single_swaps_and_28_pairs_at_three_rates(study):
    labels = study.table.column("label").to_pylist()[: len(study.specs)]
    pairs = [a + b for i, a in enumerate(LETTERS) for b in LETTERS[i + 1 :]]
    assert len(study.specs) == 108
    assert sorted(labels) == sorted([*LETTERS, *pairs] * 3)


def test_107_of_108_are_feasible_and_only_race_and_income_at_the_highest_rate_falls_short(study, risk):
    assert (~np.isnan(risk)).sum(axis=1).tolist() == [107] * REPLICATES
    rejected = study.rejected().to_pylist()
    assert {(row["label"], row["rate"]) for row in rejected} == {("RI", 0.10)}
    assert sorted(row["replicate"] for row in rejected) == list(range(REPLICATES))
    for row in rejected:
        assert row["reason"].startswith("2,442 pairs requested, but one uniform pass gave ")
        # Half of the 24,421 random pairs times the chance that race and income both differ: about 1,990.
        assert 1_850 < int(row["reason"].split()[-1].replace(",", "")) < 2_130


def test_going_on_until_the_maximum_makes_the_108th_feasible_too():
    repaired = AS_PUBLISHED.model_copy(update={"pairing": "repaired", "replicates": 2})
    assert run_study(datasets.cps8d(), repaired, key=KEY).rejected().num_rows == 0


def test_distortion_rises_and_risk_falls_with_the_rate(risk, distortion, rate):
    mean_risk = np.array([np.nanmean(risk[:, rate == r], axis=1) for r in RATES])
    mean_distortion = np.array([np.nanmean(distortion[:, rate == r], axis=1) for r in RATES])
    assert (np.diff(mean_distortion, axis=0) > 0).all()
    assert (np.diff(mean_risk, axis=0) < 0).all()


def test_single_swaps_are_riskier_than_pairs_on_average_at_every_rate(risk, rate, swapped):
    for r in RATES:
        singles, pairs = (np.nanmean(risk[:, (rate == r) & (swapped == n)], axis=1) for n in (1, 2))
        assert (singles > pairs).all()


def test_the_spread_of_risk_and_of_distortion_grows_with_the_rate(risk, distortion, rate):
    for values in (risk, distortion):
        spread = np.array([np.nanstd(values[:, rate == r], axis=1) for r in RATES])
        assert (np.diff(spread, axis=0) > 0).all()


def test_the_combined_frontier_is_a_strict_subset_of_the_union_of_the_three(risk, distortion, rate):
    for y, x in zip(risk, distortion, strict=True):
        union: set[int] = set()
        for r in RATES:
            rows = np.flatnonzero(rate == r)
            union |= set(rows[find_undominated(y[rows], x[rows])].tolist())
        assert set(np.flatnonzero(find_undominated(y, x)).tolist()) < union


def test_education_at_the_highest_rate_is_dominated_by_many_swaps_at_the_middle_one(study):
    summary = study.summary().to_pandas()
    education = summary[(summary["label"] == "E") & np.isclose(summary["rate"], 0.10)].iloc[0]
    middle = summary[np.isclose(summary["rate"], 0.02)]
    better = (middle["risk_mean"] <= education["risk_mean"]) & (
        middle["distortion_mean"] <= education["distortion_mean"]
    )
    assert better.sum() >= 5


@pytest.mark.parametrize(
    "constraint", [ConstraintSet(fixed=("Sex",)), ConstraintSet(differ=("MS",))], ids=lambda c: c.label
)
def test_the_constrained_collections_have_28_candidates_in_nearly_the_range_of_the_unconstrained(
    study, risk, distortion, rate, constraint
):
    question = AS_PUBLISHED.model_copy(update={"constraints": (constraint,), "rates": (0.02,)})
    constrained = run_study(datasets.cps8d(), question, key=KEY)
    assert len(constrained.specs) == 28
    assert constrained.rejected().num_rows == 0
    assert {len(spec.swap) for spec in constrained.specs} == {1, 2}
    for name, free in (("n_rule", risk), ("hellinger", distortion)):
        values = constrained.scores(name).reshape(REPLICATES, -1)
        low, high = free[:, rate == 0.02].min(), free[:, rate == 0.02].max()
        slack = 0.25 * (high - low)
        assert (values >= low - slack).all()
        assert (values <= high + slack).all()
