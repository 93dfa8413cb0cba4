"""A study under a scenario: risk by its keys, distortion over all cells, whichever way candidates are scored."""

from collections import Counter

import pytest

import safeswap as ss
from safeswap.charts.points import original_point
from safeswap.errors import SpecError
from safeswap.model.scenario import Scenario
from safeswap.model.study import StudySpec
from safeswap.projects.toml import read_study_spec, write_study_spec

DATA = ss.datasets.cps8d()
SCENARIO = Scenario(name="prosecutor", keys=["Age", "Edu", "EmpTyp", "Race", "MS"], tolerance=8)
GRID = {"attributes": ["Race", "Sex"], "rates": [0.01, 0.1], "insecure_seed": 1}


@pytest.fixture(scope="module")
def found():
    return ss.study(DATA, scenario=SCENARIO, **GRID)


def test_each_candidate_has_the_figures_of_its_assessment(found):
    measures = list(found.spec.measures)
    for number, spec in enumerate(found.specs):
        masked = ss.mask(DATA, spec, insecure_seed=1)
        expected = ss.assess(masked, measures=measures, scenario=SCENARIO)
        row = found.table.slice(number, 1).to_pylist()[0]
        assert [row[name] for name in measures] == pytest.approx([score.value for score in expected])
        assert found.facts["before"]["n_rule"] == expected["n_rule"].before


def test_the_slow_way_gives_the_same_figures(found):
    # k_anonymity is not scored from touched records alone: every candidate is masked.
    slow = ss.study(DATA, scenario=SCENARIO, risk=["n_rule", "k_anonymity"], **GRID)
    for name in found.spec.measures:
        assert slow.table.column(name).to_pylist() == pytest.approx(found.table.column(name).to_pylist())


def test_distortion_is_that_of_all_cells(found):
    plain = ss.study(DATA, **GRID)
    for name in found.spec.distortion:
        assert found.table.column(name).equals(plain.table.column(name))
    assert found.table.column("n_rule") != plain.table.column("n_rule")


def test_the_scenario_is_kept_with_the_question(tmp_path, found):
    assert found.facts["scenario"] == SCENARIO.as_dict()
    write_study_spec(found.spec, tmp_path / "study.toml")
    assert read_study_spec(tmp_path / "study.toml") == found.spec
    assert StudySpec(**found.spec.model_dump(mode="json")) == found.spec


def test_several_sensitive_attributes_need_one_named():
    scenario = {"keys": ["Age", "Race"], "sensitive": ["AnnSal", "Sex"]}
    with pytest.raises(SpecError) as caught:
        ss.study(DATA, scenario=scenario, risk=["l_diversity"], **GRID)
    assert caught.value.code == "several-sensitive"
    one = ss.study(DATA, scenario=scenario, risk=["l_diversity:sensitive=Sex"], **GRID)
    assert len(one) == 6


@pytest.mark.parametrize(
    ("scenario", "code"),
    [({"keys": ["Job"]}, "unknown-attribute"), ({"keys": ["Age"], "unit": "household"}, "no-household")],
)
def test_what_cannot_be_used_is_refused(scenario, code):
    with pytest.raises(SpecError) as caught:
        ss.study(DATA, scenario=scenario, **GRID)
    assert caught.value.code == code


def test_the_untouched_original_has_the_risk_that_every_other_figure_gives_it():
    """The steps that come first are part of every candidate, and not of the original."""
    first = [{"step": "recode", "attribute": "Edu", "otherwise": "keep", "groups": {"some": ["Bach", "Bach+"]}}]
    first.append({"step": "drop", "attributes": ["MS"]})
    scenario = {"name": "prosecutor", "keys": ["Age", "Edu", "MS", "Race"], "tolerance": 20}
    asked = {"attributes": ["Race"], "rates": [0.05], "risk": ["k_anonymity"], "distortion": ["hellinger"]}
    found = ss.study(DATA, first=first, scenario=scenario, insecure_seed=1, **asked)
    masked = ss.mask(DATA, found.specs[0], insecure_seed=1)
    score = ss.assess(masked, scenario=scenario, measures=["k_anonymity"])["k_anonymity"]
    assert original_point(found, "k_anonymity", "hellinger") == (score.before, 0.0)
    assert found.scores("k_anonymity")[0] == score.value != score.before
    rows = list(zip(*(DATA.table[name].to_pylist() for name in scenario["keys"]), strict=True))
    counts = Counter(rows)
    assert score.before == pytest.approx(sum(counts[row] < 20 for row in rows) / len(rows))
