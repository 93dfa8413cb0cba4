"""The figures of a study are those of the release made from it: the same draw, the same pairs, the same numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.studies.samples import KEY, file_of, sample

from safeswap.errors import InfeasibleError
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema
from safeswap.model.study import ConstraintSet, StudySpec
from safeswap.studies.evaluate import Evaluator
from safeswap.studies.quick import QuickWay, Replicate, SwapGroup
from safeswap.studies.run import grid, run_study
from safeswap.studies.study import Study
from safeswap.workflow import assess, mask

MEASURES: dict[str, Any] = {
    "risk": ("n_rule", "n_rule:n=5"),
    "distortion": (
        "hellinger",
        "total_variation",
        "entropy_change",
        "entropy_change:absolute=true",
        "adV",
        "cramers_v:absolute=true",
        "adC",
        "hellinger:ways=2",
        "total_variation:ways=2",
        "share_changed",
    ),
}


def assert_is_the_release(data: Microdata, study: Study, number: int) -> None:
    """Mask by the specification of a candidate and compare everything that the study says about it."""
    row = study.table.slice(number, 1).to_pylist()[0]
    spec = study.specs[row["specification"]]
    if row["outcome"] == "rejected":
        with pytest.raises(InfeasibleError) as refusal:
            mask(data, spec, key=KEY, replicate=row["replicate"])
        assert refusal.value.message == row["reason"]
        return
    masked = mask(data, spec, key=KEY, replicate=row["replicate"])
    assert masked.audit.made == row["pairs"]
    scores = assess(masked, measures=study.spec.measures, attributes=study.spec.keys or None)
    for name, score in zip(study.spec.measures, scores, strict=True):
        assert row[name] == pytest.approx(score.value, abs=1e-12), name


def pairs_of_study(data: Microdata, study: Study, number: int) -> np.ndarray:
    """The pairs of the walk from which a candidate was scored, as rows of the file."""
    evaluator = Evaluator(data, study.spec, KEY, candidates=1)
    groups = [evaluator.prepare(group) for group in grid(data, study.spec)]
    place, rate = divmod(number % len(study.specs), len(study.spec.rates))
    group = groups[place]
    assert isinstance(group, SwapGroup)
    prefix, found = Replicate(evaluator._way, number // len(study.specs)).pairs(group, int(group.asked[-1]))
    return prefix.rows[found[: group.asked[rate]]]


CONSTRAINTS = (
    ConstraintSet(),
    ConstraintSet(fixed=("A",)),
    ConstraintSet(differ=("B",)),
    ConstraintSet(fixed=("A", "D"), differ=("C",)),
)


@settings(max_examples=25)
@given(
    records=st.integers(5, 300),
    seed=st.integers(0, 10_000),
    true_swap=st.sampled_from(["any", "all"]),
    pairing=st.sampled_from(["repaired", "uniform"]),
    constraint=st.sampled_from(CONSTRAINTS),
    rates=st.lists(st.floats(0.005, 1.0), min_size=1, max_size=3),
    keys=st.sampled_from([(), ("A", "B", "C"), ("B", "D")]),
)
def test_every_candidate_is_the_release_made_from_it(*, records, seed, true_swap, pairing, constraint, rates, keys):
    data = sample(records, seed=seed)
    question = StudySpec(
        attributes=("A", "B", "C"),
        rates=tuple(rates),
        constraints=(constraint,),
        true_swap=true_swap,
        pairing=pairing,
        keys=keys,
        replicates=2,
        **MEASURES,
    )
    study = run_study(data, question, key=KEY)
    for number in np.random.default_rng(seed).choice(len(study), min(12, len(study)), replace=False):
        assert_is_the_release(data, study, int(number))


@pytest.mark.parametrize("true_swap", ["any", "all"])
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: c.label or "plain")
def test_the_pairs_are_those_of_the_release(true_swap, constraint):
    data = sample(2000, (2, 3, 4, 2, 5))
    question = StudySpec(rates=(0.01, 0.05), constraints=(constraint,), true_swap=true_swap, replicates=2)
    study = run_study(data, question, key=KEY)
    made = np.flatnonzero(study.table.column("outcome").to_numpy(zero_copy_only=False) == "made")
    for number in made[:: max(1, len(made) // 10)]:
        row = study.table.slice(int(number), 1).to_pylist()[0]
        masked = mask(data, study.specs[row["specification"]], key=KEY, replicate=row["replicate"])
        assert pairs_of_study(data, study, int(number)).tolist() == masked.audit.exchanges[0].pairs.tolist()


def test_a_repaired_shortfall_is_scored_as_it_is_released():
    # One random pass makes about 2·0.06·0.94 of 500 pairs; more are only reached by repair.
    rng = np.random.default_rng(3)
    data = file_of(
        {
            "A": np.where(rng.random(1000) < 0.06, "rare", "usual").tolist(),
            "B": rng.choice(list("xyz"), 1000).tolist(),
            "C": rng.choice(list("pq"), 1000).tolist(),
        }
    )
    study = run_study(data, StudySpec(attributes=("A",), rates=(0.02, 0.1, 0.11), replicates=3, **MEASURES), key=KEY)
    assert study.rejected().num_rows == 0
    assert any(len(pairs_of_study(data, study, i)) < study.table.column("pairs")[i].as_py() for i in range(len(study)))
    for number in range(len(study)):
        assert_is_the_release(data, study, number)


def test_more_pairs_than_the_data_allow_are_refused_in_the_words_of_the_release():
    data = sample(200, (2, 2))
    for pairing in ("repaired", "uniform"):
        study = run_study(data, StudySpec(attributes=("A",), rates=(0.01, 1.0), pairing=pairing), key=KEY)
        assert study.table.column("outcome").to_pylist() == ["made", "rejected"]
        for number in range(2):
            assert_is_the_release(data, study, number)


def test_a_rate_too_small_for_a_pair_is_made_even_of_an_attribute_with_one_value():
    data = file_of({"A": ["a"] * 5, "B": list("xyxyz"), "C": list("pqpqp")})
    question = StudySpec(attributes=("A", "B"), rates=(0.25, 1.0), **MEASURES)
    study = run_study(data, question, key=KEY)
    assert study.table.column("outcome").to_pylist() == ["made", "rejected", "made", "made", "made", "rejected"]
    for number in range(len(study)):
        assert_is_the_release(data, study, number)


def test_many_possible_cells_and_many_records_take_the_same_way():
    # 500 × 20 × 20 possible cells have no place each; 230,000 records are ordered as far as needed only.
    rng = np.random.default_rng(5)
    records = 230_000
    data = file_of(
        {
            "id": np.arange(records) * 7,
            "Town": np.minimum(rng.geometric(0.01, records), 500),
            "Job": np.minimum(rng.geometric(0.2, records), 20),
            "Age": rng.integers(0, 20, records),
            "Rare": (rng.random(records) < 0.01).astype(int),
        },
        identifier="id",
    )
    question = StudySpec(
        rates=(0.001, 0.01), constraints=(ConstraintSet(), ConstraintSet(fixed=("Age",))), replicates=2, **MEASURES
    )
    study = run_study(data, question, key=KEY)
    assert study.two_way is not None
    for number in (0, 7, 15, 19, 30, 50):
        assert_is_the_release(data, study, number)
        masked = mask(
            data,
            study.specs[study.table.column("specification")[number].as_py()],
            key=KEY,
            replicate=study.table.column("replicate")[number].as_py(),
        )
        assert np.array_equal(pairs_of_study(data, study, number), masked.audit.exchanges[0].pairs)


@settings(max_examples=6)
@given(
    seed=st.integers(0, 1000),
    pairing=st.sampled_from(["repaired", "uniform"]),
    true_swap=st.sampled_from(["any", "all"]),
)
def test_the_quick_way_gives_what_the_general_way_gives(seed, pairing, true_swap):
    data = sample(120, seed=seed)
    question = StudySpec(
        rates=(0.05, 0.3, 0.9), constraints=CONSTRAINTS, pairing=pairing, true_swap=true_swap, **MEASURES
    )
    quick = run_study(data, question, key=KEY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QuickWay, "measures", None)
        general = run_study(data, question, key=KEY)
    for name in ("label", "spec", "outcome", "pairs", "reason", "replicate"):
        assert quick.table.column(name).equals(general.table.column(name)), name
    for name in question.measures:
        assert quick.scores(name) == pytest.approx(general.scores(name), abs=1e-12, nan_ok=True), name
    assert quick.two_way is not None
    assert quick.two_way == pytest.approx(general.two_way, abs=1e-7, nan_ok=True)
    assert quick.table_pairs == general.table_pairs


@pytest.mark.parametrize("keys", [(), ("A", "B")])
def test_swapping_numbers_alone_is_rejected_where_the_axes_look_at_categories(keys):
    data = sample(400)
    attributes = tuple(data.schema[name] for name in data.attributes if name != "D")
    numeric = data.schema["D"].model_copy(update={"kind": Kind.NUMERIC})
    data = Microdata(data.table, Schema(name="sample", attributes=(*attributes, numeric)))
    study = run_study(data, StudySpec(attributes=("A", "D"), rates=(0.1,), keys=keys, **MEASURES), key=KEY)
    assert [spec.swap for spec in study.specs] == [("A",), ("D",), ("A", "D")]
    for number in (0, 2):
        assert_is_the_release(data, study, number)
    assert study.rejected().select(["label", "reason"]).to_pylist() == [
        {"label": "D", "reason": "n_rule does not apply: masking changed numeric attributes only"}
    ]


def test_the_order_of_the_rows_plays_no_part():
    data = sample(500)
    columns = {"id": list(range(500)), **{name: data.table.column(name).to_pylist() for name in data.attributes}}
    shuffled = np.random.default_rng(1).permutation(500)
    moved = {name: [values[i] for i in shuffled] for name, values in columns.items()}
    question = StudySpec(replicates=3, rates=(0.02, 0.5), true_swap="all")
    one, other = (run_study(file_of(c, identifier="id"), question, key=KEY) for c in (columns, moved))
    assert one.table.select(["pairs", "reason"]).equals(other.table.select(["pairs", "reason"]))
    for name in question.measures:
        assert one.scores(name) == pytest.approx(other.scores(name), abs=1e-12, nan_ok=True)
