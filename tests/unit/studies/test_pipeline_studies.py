"""Studies over pipelines: fixed steps, any method's parameters, and figures equal to masking and measuring again."""

from __future__ import annotations

import pytest

import safeswap as ss
from safeswap.errors import SafeswapError, SpecError
from safeswap.pipelines.method import effects_of
from safeswap.studies.study import Study

RECODE = {"step": "recode", "attribute": "Edu", "otherwise": "keep", "groups": {"Bachelor or more": ["Bach", "Bach+"]}}
PRAM = {"method": "pram", "attributes": ["MS"], "keep": 0.9}
SUPPRESS = {"method": "suppress", "keys": ["Age", "Edu", "EmpTyp", "Race"], "solver": "greedy"}
MEASURES = {"risk": ("n_rule",), "distortion": ("hellinger", "total_variation")}
KEY = ss.Key.insecure(seed=3)


@pytest.fixture(scope="module")
def data():
    return ss.datasets.cps8d()


@pytest.mark.parametrize(
    "fixed",
    [
        {"first": [RECODE]},
        {"first": [PRAM]},
        {"last": [SUPPRESS]},
        {"first": [RECODE, PRAM], "last": [SUPPRESS, {"method": "swap", "swap": ["Sex"], "rate": 0.01}]},
    ],
    ids=["recode first", "pram first", "suppress last", "both"],
)
def test_figures_are_those_of_masking_and_measuring_again(data, fixed):
    found = ss.study(data, attributes=["Race", "Sex"], rates=[0.02], replicates=2, key=KEY, **fixed, **MEASURES)
    assert found.rejected().num_rows == 0
    for row in found.table.to_pylist():
        masked = ss.mask(data, found.specs[row["specification"]], key=KEY, replicate=row["replicate"])
        scores = ss.assess(masked, measures=["n_rule", "hellinger", "total_variation"])
        for measure in ("n_rule", "hellinger", "total_variation"):
            assert scores[measure].value == pytest.approx(row[measure], abs=1e-12)
    assert found.specs[0].names[: len(fixed.get("first", ()))] == ss.Pipeline(fixed.get("first", ())).names


def test_a_recode_first_leaves_the_quick_way(data, monkeypatch):
    from safeswap.studies import evaluate

    monkeypatch.setattr(evaluate.Evaluator, "_compare", lambda *_: pytest.fail("masked instead of counted"))
    found = ss.study(data, attributes=["Race", "Sex"], rates=[0.02], first=[RECODE], key=KEY, **MEASURES)
    assert len(found) == 3


def test_parameters_of_any_method_vary_and_are_told_apart(data):
    vary = [
        {"method": "pram", "attributes": ["MS"], "sweep": {"keep": [0.7, 0.9]}},
        {"method": "pram", "sweep": {"attributes": [["Race"], ["Sex"]], "keep": [0.8]}},
        SUPPRESS,
    ]
    found = ss.study(data, vary=vary, key=KEY, **MEASURES)
    assert found.table.column("label").to_pylist() == [
        "pram keep=0.7", "pram keep=0.9", "pram attributes=['Race'], keep=0.8", "pram attributes=['Sex'], keep=0.8",
        "suppress",
    ]  # fmt: skip
    assert [getattr(spec, "keep", None) for spec in found.specs[:4]] == [0.7, 0.9, 0.8, 0.8]
    both = ss.study(data, vary=vary[:1], rates=[0.01], attributes=["Race"], key=KEY, **MEASURES)
    assert both.table.column("label").to_pylist() == ["R", "pram keep=0.7", "pram keep=0.9"]


def test_a_chosen_candidate_is_a_pipeline_and_survives_its_file(data, tmp_path):
    found = ss.study(data, attributes=["Race"], rates=[0.01], first=[RECODE], last=[SUPPRESS], key=KEY, **MEASURES)
    choice = found.choose()
    assert choice.spec == ss.Pipeline([RECODE, choice.spec["swap"], SUPPRESS])
    found.save(tmp_path / "study", choice=choice, data=data)
    again = Study.load(tmp_path / "study")
    assert again.specs == found.specs
    assert again.spec == found.spec
    masked = ss.mask(data, choice.spec, key=KEY, replicate=choice.replicate)
    assert effects_of(masked.stages[0])[0].columns == ("Edu",)


def test_a_search_takes_fixed_steps_too(data):
    found = ss.study(data, up_to=4, first=[RECODE], budget=30, key=KEY, **MEASURES)
    assert len(found) == 30
    assert all(spec.names == ("recode", "swap") for spec in found.specs)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"vary": [{"method": "pram", "attributes": ["MS"], "sweep": {"keep": []}}]}, "sweep"),
        ({"vary": [{"method": "pram", "attributes": ["MS"], "sweep": 3}]}, "sweep"),
        ({"vary": [{"method": "pram", "attributes": ["MS"], "sweep": {"kep": [0.5]}}]}, "kep"),
        ({"vary": [{"method": "prom"}]}, "there is no method 'prom'"),
        ({"first": [{"method": "swap", "swap": ["Rase"], "rate": 0.1}]}, "step 1 (swap): there is no attribute 'Rase'"),
        ({"first": [{"method": "swap"}]}, "step 1 (swap)"),
        ({"vary": [PRAM], "swaps": False, "attributes": ["Race"], "first": [3]}, "first"),
    ],
)
def test_a_study_that_cannot_be_is_refused_before_it_runs(data, wrong, said):
    with pytest.raises(SafeswapError) as caught:
        ss.study(data, key=KEY, **wrong)
    assert isinstance(caught.value, SpecError)
    assert said in caught.value.message
