"""Figures of independent software: pMSE, overlap, coefficients, correlations, linearised variances.

Sources: statsmodels 0.15.0 and scikit-learn 1.9.1 (pMSE on CPS-8d, agreeing to 1e-15), statsmodels, pandas and SciPy
(regressions), samplics 0.6 (Taylor linearisation). ``data/adult_first_5000.csv`` holds six columns of the first 5,000
rows of "Adult" (Becker & Kohavi 1996, UCI Machine Learning Repository, https://doi.org/10.24432/C5XW20, CC BY 4.0).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap.arrays import divergence
from safeswap.engines.memory import exchange
from safeswap.measures import survey
from safeswap.measures.aligned import cross_table
from safeswap.measures.utility.categories import CramersVChange
from safeswap.measures.utility.indicators import Indicators
from safeswap.measures.utility.models import CiOverlap, Coefficients
from safeswap.measures.utility.numbers import Correlations
from safeswap.measures.utility.pmse import Pmse
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.score import Comparison


def exchanged(data: Microdata, names: tuple[str, ...], step: int) -> Comparison:
    """Values exchanged between rows i and i + 1 for i = 0, step, 2 · step, …"""
    first = np.arange(0, len(data) - 1, step)
    after = exchange(data, names, np.stack([first, first + 1], axis=1))
    return Comparison(before=data, after=after, attributes=data.schema.categorical)


@cache
def recoded() -> Comparison:
    """CPS-8d with Sex set to Female in rows 0, 25, 50, …"""
    data = ss.datasets.cps8d()
    sex = np.array(data.table["Sex"].to_pylist(), dtype=object)
    sex[::25] = "Female"
    table = data.table.set_column(data.table.column_names.index("Sex"), "Sex", pa.array(sex.tolist(), pa.string()))
    return Comparison(before=data, after=Microdata(table, data.schema), attributes=data.schema.categorical)


NULLS = {
    False: (16, 1.9194545677900167e-05, 7.008857099232808e-06),
    True: (110, 0.00013948036525940788, 1.8893604710384248e-05),
}
"""Rank, mean and standard deviation of the null, for main effects and for two-way interactions."""


@pytest.mark.parametrize(
    ("case", "interactions", "pmse", "ratio", "standardised"),
    [
        ("exchange", False, 0.0, 0.0, -2.7386127875258306),
        ("exchange", True, 0.0006732853592055282, 4.827097763569381, 28.25321065665844),
        ("recode", False, 0.00025962662970962727, 13.526062771496123, 34.30403568337053),
        ("recode", True, 0.00047533459963329153, 3.407896149033281, 17.776080293946894),
    ],
)
def test_pmse_is_that_of_statsmodels(
    case: str, interactions: bool, pmse: float, ratio: float, standardised: float
) -> None:
    seen = exchanged(ss.datasets.cps8d(), ("AnnSal", "EmpTyp"), 20) if case == "exchange" else recoded()
    score = Pmse(interactions=interactions).score(seen)
    assert score.detail is not None
    (detail,) = score.detail.to_pylist()
    assert score.value == pytest.approx(pmse, rel=1e-9, abs=1e-18)
    rank, mean, deviation = NULLS[interactions]
    assert detail["rank"] == rank
    assert (detail["records"], detail["share_masked"]) == (97_684, 0.5)
    assert (detail["null_mean"], detail["null_deviation"]) == pytest.approx((mean, deviation), rel=1e-12)
    assert detail["standardised"] == pytest.approx(standardised, rel=1e-8)
    assert detail["ratio"] == pytest.approx(ratio, rel=1e-9, abs=1e-12)


@cache
def adult() -> Comparison:
    path = Path(__file__).parent / "data" / "adult_first_5000.csv"
    return exchanged(ss.read(path, kinds={"education_num": "numeric"}), ("education_num", "marital"), 10)


TERMS = 'age + education_num + sex + marital == "Married-civ-spouse"'
MODELS = (
    {"formula": f"hours ~ {TERMS}", "name": "hours"},
    {"formula": f'income == ">50K" ~ {TERMS}', "family": "logistic", "name": "income"},
)
# Coefficient, standard error, both after; overlap; standardised difference: intercept, age, education, male, married.
REGRESSIONS = {
    "hours": [
        (29.5147465220946, 0.8429299674263651, 30.444066331714897, 0.844493911602147, 0.7190773802701942,
         1.102487567807912),
        (-0.018384424570416658, 0.012734996417665252, -0.0023047276181835594, 0.012554424758368777, 0.6757055629549324,
         1.2626385139714897),
        (0.7138240704888784, 0.06463686038976242, 0.5572428279341923, 0.06523884200568383, 0.38503182038401984,
         2.4224759929627764),
        (4.42980383181469, 0.3840283197189711, 5.165640987985195, 0.3717095404522267, 0.5034760492397462,
         1.9161012831266842),
        (3.3750244469146162, 0.38307632330852576, 2.3445741249943324, 0.3632795035891591, 0.29595670394109674,
         2.689934770754207),
    ],
    "income": [
        (-7.632752511756749, 0.2751692848944128, -6.476015331304997, 0.23795021731455512, -0.15098036985740448,
         4.203729282123955),
        (0.025144183974559156, 0.0033544816349013067, 0.03242158798210137, 0.0029280222067159687, 0.4108821546066851,
         2.169457102350874),
        (0.3665606670029133, 0.018212222943861985, 0.2565046831146669, 0.01576554226817757, -0.6560130090513109,
         6.042973679132247),
        (0.051725089099558925, 0.10921141053941347, 0.7144906504028211, 0.09532181451758574, -0.6563126045169003,
         6.068647571071117),
        (2.533544214433339, 0.10725260275954315, 1.4436999010695144, 0.08307780429503067, -1.9530232069288278,
         10.161471939354424),
    ],
}  # fmt: skip


def test_overlap_and_coefficients_are_those_of_statsmodels() -> None:
    overlap, moved = CiOverlap(models=MODELS).score(adult()), Coefficients(models=MODELS).score(adult())
    assert overlap.detail is not None
    names = ("before", "error_before", "after", "error_after", "overlap", "standardised")
    rows = overlap.detail.to_pylist()
    for model, expected in REGRESSIONS.items():
        found = [tuple(row[name] for name in names) for row in rows if row["model"] == model]
        np.testing.assert_allclose(found, expected, rtol=1e-7)
    assert overlap.value == pytest.approx(1 - (0.515849503357998 - 0.6010894071495516) / 2, rel=1e-7)
    flips = {row["coefficient"]: row["significance_flips"] for row in rows if row["model"] == "income"}
    assert flips["sex == Male"]
    assert not flips["age"]
    assert "significance at 5% in 1" in moved.sentence


def test_split_halves_have_about_twice_the_null() -> None:
    """The reference has a mean of 2.098 over 40 splits, with a standard deviation of 0.757 of a single one."""
    data, rng, ratios = ss.datasets.cps8d(), np.random.default_rng(20), []
    for _ in range(10):
        rows = rng.permutation(len(data))
        halves = [Microdata(data.table.take(pa.array(part)), data.schema) for part in (rows[::2], rows[1::2])]
        seen = Comparison(before=halves[0], after=halves[1], attributes=data.schema.categorical)
        detail = Pmse(interactions=False).score(seen).detail
        assert detail is not None
        ratios.append(detail["ratio"][0].as_py())
    assert float(np.mean(ratios)) == pytest.approx(2.0977057198809494, abs=3 * 0.7573844129856482 / np.sqrt(10))


# Cramér's V of CPS-8d before and after the exchange of AnnSal and EmpTyp.
CRAMERS_V = {
    ("AnnSal", "Edu"): (0.35098388275959364, 0.31442654211194443),
    ("EmpTyp", "AvgHrs"): (0.17592103387513724, 0.15987014979441685),
    ("AnnSal", "MS"): (0.4366239964563958, 0.3945188247791084),
}


def test_cramers_v_is_that_of_scipy() -> None:
    seen = exchanged(ss.datasets.cps8d(), ("AnnSal", "EmpTyp"), 20)
    for names, (before, after) in CRAMERS_V.items():
        score = CramersVChange(attributes=names).score(seen)
        assert score.value == pytest.approx(before - after, rel=1e-9)
        table = cross_table(seen, names)
        assert divergence.cramers_v(*table.levels, table.before) == pytest.approx(before, rel=1e-12)


# Correlations before and after.
CORRELATIONS = {
    ("age", "education_num"): (0.018111602582730618, 0.021826659749417963),
    ("education_num", "hours"): (0.1653817350125582, 0.12506831122298268),
    ("age", "hours"): (0.03996586426617038, 0.03996586426617038),
}


def test_each_correlation_is_that_of_pandas() -> None:
    detail = Correlations().score(adult()).detail
    assert detail is not None
    found = {tuple(row["attributes"]): (row["before"], row["before"] + row["value"]) for row in detail.to_pylist()}
    assert found.keys() == CORRELATIONS.keys()
    for names, both in CORRELATIONS.items():
        assert found[names] == pytest.approx(both, rel=1e-9)


def test_correlations_are_those_of_pandas() -> None:
    assert Correlations().score(adult()).value == pytest.approx(0.04031342378957553, rel=1e-9)
    assert Correlations(ranks=True).score(adult()).value == pytest.approx(0.03949056987654345, rel=1e-9)


def test_variances_are_those_of_samplics() -> None:
    psu = [0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 10, 10, 10, 11, 11, 12, 12, 12, 13, 13, 20, 20, 21, 21, 21, 22, 22]
    y = [0, 14, 5, 19, 10, 1, 15, 6, 20, 11, 5, 19, 10, 24, 15, 6, 20, 11, 25, 16, 10, 24, 15, 6, 20, 11, 25]
    columns: dict[str, Any] = {
        "stratum": [0] * 10 + [1] * 10 + [2] * 7,
        "psu": psu,
        "y": [float(value) for value in y],
        "x": [float((1 + 4 * i - 1) % 7 + 1) for i in range(27)],
        "dom": list("BAABAABAABAABAABAABAABAABAA"),
    }
    columns["w"] = [(1.0, 2.75, 2.25, 1.75, 1.25, 3.0, 2.5, 2.0, 1.5)[i % 9] for i in range(27)]
    kinds: dict[str, Any] = {"w": "weight", "y": "numeric", "x": "numeric"}
    attributes = tuple(
        Attribute(name=n, kind=kinds.get(n, "nominal"), design=n if n in ("stratum", "psu") else "") for n in columns
    )
    data = Microdata(pa.table(columns), Schema(attributes=attributes))
    design, (a, b) = survey.read_design(data), (np.array(columns[name]) for name in "yx")
    everywhere: dict[str, Any] = {"of_domain": np.zeros(len(a), dtype=np.int64), "domains": 1}
    for quotient, estimate, error in (
        (survey.mean_of(a), 12.76388888888889, 0.8033908948302474),
        (survey.Quotient(top=a, bottom=None, **everywhere), 689.25, 31.52611351456651),
        (survey.Quotient(top=a, bottom=b, **everywhere), 3.108229988726043, 0.4457563087213667),
    ):
        assert quotient.estimates(design.weights)[0] == pytest.approx(estimate, rel=1e-12)
        assert np.sqrt(quotient.variances(design)[0]) == pytest.approx(error, rel=1e-12)
    by_domain = Indicators(lines=[{"statistic": "mean", "of": "y", "by": ["dom"]}], least=1)
    detail = by_domain.score(Comparison(before=data, after=data, attributes=())).detail
    assert detail is not None
    found = {(row["records"], round(row["before"], 10)): row["error"] for row in detail.to_pylist()}
    assert found[18, round(11.973856209150327, 10)] == pytest.approx(1.320591973021462, rel=1e-12)
    assert found[9, round(14.682539682539682, 10)] == pytest.approx(2.2951441685121394, rel=1e-12)
