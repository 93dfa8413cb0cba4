"""A search within a budget: a study too, the same for the same key, and worth its while."""

import builtins

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.studies.samples import KEY, sample

from safeswap.errors import EngineError
from safeswap.model.key import Key
from safeswap.model.study import ConstraintSet, StudySpec, hypervolume
from safeswap.studies.run import CheckpointDirectory, run_study
from safeswap.studies.search import Space, search_study
from safeswap.studies.study import Study

NAMES = tuple("ABCDEFGH")
DATA = sample(1500, (2, 3, 4, 2, 3, 5, 2, 4))
QUESTION = StudySpec(
    up_to=4,
    rates=(0.01, 0.02, 0.05, 0.1, 0.2),
    constraints=(ConstraintSet(), ConstraintSet(fixed=("A",)), ConstraintSet(differ=("B", "C"))),
)


@pytest.fixture(scope="module")
def found():
    return search_study(DATA, QUESTION, key=KEY, budget=120)


def test_the_budget_is_spent_on_distinct_candidates_of_the_study(found):
    assert len(found) == len(found.specs) == len({spec.model_dump_json() for spec in found.specs}) == 120
    grid = {
        QUESTION.swap_spec(names, constraint, rate)
        for names, constraint in QUESTION.groups(NAMES)
        for rate in QUESTION.rates
    }
    assert set(found.specs) <= grid
    assert found.facts["search"]["possible"] == len(grid)
    assert found.facts["search"]["evaluated"] == 120


def test_the_figures_are_those_of_the_whole_study(found):
    whole = run_study(DATA, QUESTION, key=KEY)
    number = {spec: i for i, spec in enumerate(whole.specs)}
    rows = [number[spec] for spec in found.specs]
    for measure in QUESTION.measures:
        assert found.scores(measure).tolist() == whole.scores(measure)[rows].tolist()


def test_the_same_key_takes_the_same_path_and_another_key_another(found):
    again = search_study(DATA, QUESTION, key=KEY, budget=120, threads=1)
    assert again.table.equals(found.table)
    assert search_study(DATA, QUESTION, key=Key.insecure(seed=9), budget=120).specs != found.specs


def test_no_worse_than_a_random_sample_of_the_same_budget():
    whole = run_study(DATA, QUESTION, key=KEY)
    y, x = whole.axes()
    corner = (float(np.nanmax(y)) * 1.01, float(np.nanmax(x)) * 1.01)
    rng = np.random.default_rng(4)
    sampled = []
    for _ in range(20):
        rows = rng.choice(len(whole), 300, replace=False)
        sampled.append(hypervolume(y[rows], x[rows], corner))
    study = search_study(DATA, QUESTION, key=KEY, budget=300)
    assert hypervolume(*study.axes(), corner) >= np.mean(sampled)


def test_replicates_and_stated_candidates_are_part_of_it():
    others = ({"method": "swap", "swap": ["A", "B"], "rate": 0.1, "mode": "sequential"},)
    question = QUESTION.model_copy(update={"replicates": 3, "others": others})
    study = search_study(DATA, question, key=KEY, budget=50)
    assert len(study.specs) == 50
    assert len(study) == 150
    assert study.specs[0].mode == "sequential"
    assert study.table.column("replicate").to_pylist() == [r for r in range(3) for _ in range(50)]
    assert study.choose().certainty is not None
    row = 57
    spec = study.specs[study.table.column("specification")[row].as_py()]
    alone = StudySpec(
        attributes=spec.swap,
        up_to=len(spec.swap),
        rates=(spec.rate,),
        constraints=(ConstraintSet(fixed=spec.fixed, differ=spec.differ),),
        keys=NAMES,
        replicates=3,
    )
    direct = run_study(DATA, alone, key=KEY)
    match = direct.specs.index(spec) + len(direct.specs)
    assert study.scores("hellinger")[row] == direct.scores("hellinger")[match]
    assert np.array_equal(study.two_way[row], direct.two_way[match])


def test_a_search_goes_on_where_it_stopped(found, tmp_path):
    kept = CheckpointDirectory(tmp_path / "unfinished")

    class Stop(Exception):  # noqa: N818
        pass

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise Stop

    with pytest.raises(Stop):
        search_study(DATA, QUESTION, key=KEY, budget=120, checkpoint=kept, progress=stop)
    before = len(list(kept.path.iterdir()))
    assert before > 0
    resumed = search_study(DATA, QUESTION, key=KEY, budget=120, checkpoint=kept)
    assert resumed.table.equals(found.table)


def test_a_small_study_is_simply_enumerated():
    question = StudySpec(attributes=("A", "B"), rates=(0.1,))
    study = search_study(DATA, question, key=KEY, budget=30)
    assert study.table.equals(run_study(DATA, question, key=KEY).table)


def test_a_budget_just_below_the_whole_is_spent_to_the_last():
    tight = StudySpec(attributes=("A", "B", "C", "D", "E"), rates=(0.05, 0.1))
    assert len(set(search_study(DATA, tight, key=KEY, budget=29).specs)) == 29


def test_candidates_that_cannot_be_made_do_not_lead_it_astray():
    question = QUESTION.model_copy(update={"rates": (0.01, 1.0), "true_swap": "all"})
    study = search_study(DATA, question, key=KEY, budget=60)
    assert len(study) == 60
    assert 0 < study.rejected().num_rows < 60
    assert study.choose().spec.rate == 0.01


def test_it_is_saved_and_read_back_like_any_study(found, tmp_path):
    found.save(tmp_path / "study", pages=False)
    read = Study.load(tmp_path / "study")
    assert read.specs == found.specs
    assert read.facts["search"] == found.facts["search"]


def test_without_the_library_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("pymoo"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EngineError) as refusal:
        search_study(DATA, QUESTION, key=KEY, budget=60)
    assert "safeswap[search]" in refusal.value.hint


@given(seed=st.integers(0, 10_000))
def test_rows_are_canonical_and_within_bounds(seed):
    space = Space(QUESTION, NAMES)
    generator = np.random.default_rng(seed)
    rows = space.mutate(space.random(20, generator), generator)
    assert (space.canonical(rows) == rows).all()
    assert ((rows >= 0) & (rows <= space.upper)).all()
    meanings = {tuple(row): space.candidate(row) for row in rows}
    assert len(set(meanings.values())) == len(meanings)
    for names, constraint, rate in meanings.values():
        assert 1 <= len(names) <= 4
        assert list(names) == sorted(names)
        assert not set(names) & {*constraint.fixed, *constraint.differ}
        assert rate in QUESTION.rates


def test_the_size_of_the_space_is_counted_not_made():
    many = tuple(f"a{i}" for i in range(40))
    assert Space(StudySpec(up_to=6, rates=(0.1,)), many).size == 4_598_478
