"""Bad input: one clear error each, before anything runs."""

from typing import Any

import pytest
from tests.unit.studies.samples import KEY, file_of, sample

from safeswap import registry
from safeswap.errors import EngineError, InputError, SafeswapError, SpecError
from safeswap.model.study import ConstraintSet, StudySpec
from safeswap.studies import evaluate, run
from safeswap.studies.run import count_candidates, run_study
from safeswap.workflow import study

WITH_IDENTIFIER = file_of({"id": [1, 2, 3, 4], "A": list("xyxy"), "B": list("ppqq")}, identifier="id")


@pytest.fixture(autouse=True)
def nothing_may_run(monkeypatch):
    """Whatever is refused is refused before the first candidate."""

    def ran(*_: Any) -> None:
        raise AssertionError("a candidate was evaluated")

    monkeypatch.setattr(evaluate.Evaluator, "figures", ran)


BAD = {
    "unknown swap attribute": ({"attributes": ("A", "Z")}, "unknown-attribute", "'Z'"),
    "unknown constraint attribute": ({"constraints": ({"fixed": ("Z",)},)}, "unknown-attribute", "'Z'"),
    "unknown key attribute": ({"keys": ("A", "Z")}, "unknown-attribute", "'Z'"),
    "unknown risk measure": ({"risk": ("n_rul",)}, "unknown-measure", "'n_rul'"),
    "unknown distortion measure": ({"distortion": ("hellinge",)}, "unknown-measure", "'hellinge'"),
    "unknown parameter of a measure": ({"risk": ("n_rule:m=3",)}, "bad-spec", "n_rule"),
    "unknown attribute of a measure": ({"risk": ("n_rule:keys=Z",)}, "unknown-attribute", "'Z'"),
    "a distortion measure as risk": ({"risk": ("hellinger",)}, "wrong-axis", "distortion"),
    "no rate": ({"rates": ()}, "bad-spec", "rates"),
    "no risk measure": ({"risk": ()}, "bad-spec", "risk"),
    "no constraint set": ({"constraints": ()}, "bad-spec", "constraints"),
    "rate 0": ({"rates": (0.0, 0.1)}, "bad-spec", "rates.0"),
    "rate above 1": ({"rates": (0.1, 1.01)}, "bad-spec", "rates.1"),
    "rate that is no number": ({"rates": (float("nan"),)}, "bad-spec", "rates.0"),
    "no attribute at a time": ({"up_to": 0}, "bad-spec", "up_to"),
    "no replicate": ({"replicates": 0}, "bad-spec", "replicates"),
    "attribute named twice": ({"attributes": ("A", "A")}, "bad-spec", "twice"),
    "equal and different at once": ({"constraints": ({"fixed": ("A",), "differ": ("A",)},)}, "bad-spec", "'A'"),
    "constraint named twice": ({"constraints": ({"fixed": ("A", "A")},)}, "bad-spec", "twice"),
    "every attribute constrained": (
        {"attributes": ("A",), "constraints": ({}, {"fixed": ("A",)})},
        "empty-study",
        "A equal",
    ),
    "negative slope": ({"objective": "linear:a=-1"}, "bad-objective", "slope"),
    "slope that is no number": ({"objective": "linear:a=nan"}, "bad-objective", "slope"),
    "infinite slope": ({"objective": "linear:a=inf"}, "bad-objective", "slope"),
    "negative cap": ({"objective": "cap_risk:-0.1"}, "bad-objective", "cap on risk"),
    "unknown objective": ({"objective": "cheapest"}, "bad-objective", "'cheapest'"),
    "objective without a figure": ({"objective": "cap_distortion:low"}, "bad-objective", "cap_distortion:low"),
    "unknown setting": ({"rate": 0.1}, "bad-spec", "rate"),
    "unknown method": ({"others": ({"method": "swop"},)}, "unknown-method", "swop"),
    "bad further candidate": ({"others": ({"method": "swap", "swap": ["A"], "rate": 2},)}, "bad-spec", "rate"),
    "unknown attribute of a further candidate": (
        {"others": ({"method": "swap", "swap": ["Z"], "rate": 0.1},)},
        "unknown-attribute",
        "'Z'",
    ),
    "measure of pairs of attributes with one key": (
        {"keys": ("A",), "distortion": ("adV",)},
        "bad-ways",
        "two attributes",
    ),
    "ordinal measure without an order": ({"distortion": ("ordinal",)}, "no-ordinal-attribute", "order"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_study_is_refused_before_anything_runs(case):
    parameters, code, word = BAD[case]
    with pytest.raises(SpecError) as refusal:
        study(sample(), key=KEY, **parameters)
    assert refusal.value.code == code
    assert word in refusal.value.message
    assert refusal.value.hint


def test_the_identifier_has_no_role_in_a_study():
    for parameters in ({"attributes": ("id",)}, {"constraints": ({"differ": ("id",)},)}, {"keys": ("id", "A")}):
        with pytest.raises(SpecError) as refusal:
            study(WITH_IDENTIFIER, key=KEY, **parameters)
        assert refusal.value.code == "identifier-role"


def test_a_file_without_records_or_without_categories_is_refused():
    with pytest.raises(InputError) as refusal:
        study(file_of({"A": [], "B": []}), key=KEY)
    assert refusal.value.code == "no-records"
    only_id = file_of({"id": [1, 2]}, identifier="id")
    with pytest.raises(SpecError) as refused:
        study(only_id, key=KEY)
    assert refused.value.code == "no-categorical-attribute"


def test_a_constraint_set_made_by_itself_gives_the_same_kind_of_error():
    with pytest.raises(SpecError, match="cannot be both equal and different"):
        ConstraintSet(fixed=("A",), differ=("A",))


def test_a_key_or_a_seed_must_be_stated():
    with pytest.raises(SpecError) as refusal:
        study(sample())
    assert refusal.value.code == "no-key"


def test_specification_and_parameters_together_are_refused():
    with pytest.raises(SpecError):
        study(sample(), StudySpec(), rates=(0.1,), key=KEY)


@pytest.fixture
def plugged_in(monkeypatch):
    known = registry._BUILT_IN[registry.MEASURES]
    monkeypatch.setitem(known, "needs_pairs", "tests.unit.studies.samples:NeedsPairs")
    monkeypatch.setitem(known, "fails", "tests.unit.studies.samples:Fails")


@pytest.mark.usefixtures("plugged_in")
def test_a_measure_that_needs_an_audit_it_does_not_get_is_refused():
    with pytest.raises(SpecError) as refusal:
        study(sample(), risk=("needs_pairs",), key=KEY)
    assert refusal.value.code == "needs-audit"
    assert "pairs" in refusal.value.message


@pytest.mark.usefixtures("plugged_in")
def test_a_measure_that_breaks_down_is_named_without_its_words():
    with pytest.raises(EngineError) as refusal:
        study(sample(), risk=("fails",), key=KEY)
    assert refusal.value.code == "measure-failed"
    assert "record 17" not in str(refusal.value.as_dict())


def test_too_large_a_study_states_its_size_and_offers_a_search(monkeypatch):
    monkeypatch.setattr(run, "MOST_CANDIDATES", 29)
    with pytest.raises(SpecError) as refusal:
        study(sample(), key=KEY)
    assert refusal.value.code == "study-too-large"
    assert refusal.value.fields["candidates"] == 30
    assert "search" in refusal.value.hint


def test_a_large_study_is_counted_without_being_made():
    names = tuple(f"a{i}" for i in range(60))
    question = StudySpec(up_to=10, replicates=1000)
    assert question.number_of_candidates(names) > 10**14
    data = file_of({name: ["x", "y"] for name in names})
    with pytest.raises(SpecError) as refusal:
        run_study(data, question, key=KEY)
    assert refusal.value.fields["candidates"] == question.number_of_candidates(names)


@pytest.mark.usefixtures("plugged_in")
def test_counting_candidates_scores_no_measure():
    # "fails" raises as soon as it is asked for a score.
    assert count_candidates(sample(), StudySpec(risk=("fails",))) == count_candidates(sample(), StudySpec()) == 30
    for case in ("unknown swap attribute", "unknown risk measure", "a distortion measure as risk", "negative slope"):
        parameters, code, _ = BAD[case]
        with pytest.raises(SpecError) as refusal:
            count_candidates(sample(), StudySpec(**parameters))
        assert refusal.value.code == code


@pytest.mark.parametrize("budget", [0, 19, 10**9])
def test_a_search_needs_a_sensible_budget(budget):
    with pytest.raises(SafeswapError) as refusal:
        study(sample(), budget=budget, key=KEY)
    assert refusal.value.code == "bad-budget"
