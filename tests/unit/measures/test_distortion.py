"""Each distortion measure scores the comparison it is given, in a number, a table and a sentence."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from tests.unit.measures.samples import compare, microdata, swapped_files

import safeswap as ss
from safeswap import registry
from safeswap.arrays import divergence
from safeswap.errors import SpecError
from safeswap.measures.aligned import distortion_tables, joint_counts
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.score import Axis, Comparison

# The measures that any file of categorical attributes can be given; others have needs and tests of their own.
DISTORTION = ["hellinger", "total_variation", "entropy_change", "adV", "adC", "D", "ordinal", "share_changed"]
CATEGORICAL = [*DISTORTION, "n_rule"]
JOINT = ["hellinger", "total_variation", "entropy_change"]


@pytest.mark.parametrize("name", DISTORTION)
@given(comparison=swapped_files())
def test_nothing_changed_is_no_distortion(name: str, comparison: Comparison) -> None:
    same = Comparison(before=comparison.before, after=comparison.before, attributes=comparison.attributes)
    score = registry.measure(name).score(same)
    assert score.value == 0
    assert score.axis is Axis.DISTORTION


@pytest.mark.parametrize("name", JOINT)
@given(comparison=swapped_files())
def test_the_joint_table_of_all_attributes_is_compared(name: str, comparison: Comparison) -> None:
    joint = joint_counts(comparison, comparison.attributes, keep=False)
    score = registry.measure(name).score(comparison)
    assert score.value == getattr(divergence, name)(joint.before, joint.after)
    assert score.attributes == comparison.attributes
    assert isinstance(score.detail, pa.Table)
    assert score.detail["attributes"][0].as_py() == list(comparison.attributes)
    two_way = distortion_tables(comparison, ways=2)
    assert score.detail["value"][1:].to_pylist() == two_way[name].to_pylist()


@pytest.mark.parametrize("name", [*JOINT, "adV", "adC"])
@given(comparison=swapped_files())
def test_over_small_tables_the_mean_magnitude_is_given(name: str, comparison: Comparison) -> None:
    text = f"{name}:ways=2" if name in JOINT else name
    score = registry.measure(text).score(comparison)
    assert score.measure == text
    values = distortion_tables(comparison, ways=2)[name].to_numpy()
    assert score.value == pytest.approx(np.abs(values).mean(), abs=1e-15)
    assert score.detail is not None
    assert score.detail.num_rows == 6


@pytest.mark.parametrize("name", ["adV", "adC", "entropy_change:ways=2"])
@given(comparison=swapped_files())
def test_changes_do_not_cancel_and_the_sentence_has_the_sign(name: str, comparison: Comparison) -> None:
    column, _, ways = name.partition(":")
    values = distortion_tables(comparison, ways=2)[column].to_numpy()
    score = registry.measure(name).score(comparison)
    absolute = registry.measure(f"{column}:{ways},absolute=true" if ways else f"{column}:absolute=true")
    assert absolute.score(comparison).value == score.value == pytest.approx(np.abs(values).mean(), abs=1e-15)
    assert (f"{abs(values.mean()):.4f}." in score.sentence) or values.mean() == 0


def test_a_subset_of_attributes_can_be_stated_by_the_measure() -> None:
    comparison = compare(
        {"x": ["a", "b"], "y": ["c", "d"], "z": ["e", "f"]}, {"x": ["b", "a"], "y": ["c", "d"], "z": ["e", "f"]}
    )
    assert registry.measure("total_variation:attributes=y+z").score(comparison).value == 0
    assert registry.measure("total_variation:attributes=x+y").score(comparison).value == 1


@given(swapped_files())
def test_share_changed_counts_records_that_differ(comparison: Comparison) -> None:
    edu = [data.table["edu"].to_pylist() for data in (comparison.before, comparison.after)]
    expected = np.mean([x != y for x, y in zip(*edu, strict=True)])
    score = registry.measure("share_changed").score(comparison)
    assert score.value == pytest.approx(expected)
    assert score.detail is not None
    assert dict(zip(*score.detail.to_pydict().values(), strict=True))["edu"] == pytest.approx(expected)


def test_missing_becoming_a_value_is_a_change() -> None:
    comparison = compare({"x": ["a", None, "a"]}, {"x": [None, "a", "a"]})
    assert registry.measure("share_changed").score(comparison).value == pytest.approx(2 / 3)


def test_ordinal_displacement_is_the_mean_move_on_the_scale() -> None:
    before = {"edu": ["low", "top", "low", None], "sex": ["m", "f", "m", "f"]}
    after = {"edu": ["top", "low", "low", None], "sex": ["m", "f", "m", "f"]}
    score = registry.measure("ordinal").score(compare(before, after, edu="ordinal"))
    assert score.value == 0.5
    assert score.attributes == ("edu",)
    assert "sex" in score.sentence
    assert score.detail is not None
    (row,) = score.detail.to_pylist()
    assert (row["share_moved"], row["mean_move_of_the_moved"], row["margin_wasserstein"]) == (0.5, 1.0, 0.0)


def test_dissimilarity_is_zero_in_the_whole_file_and_shows_within_areas() -> None:
    before = {"state": ["n", "n", "s", "s"], "race": ["a", "b", "b", "b"]}
    after = {"state": ["s", "n", "n", "s"], "race": ["a", "b", "b", "b"]}
    comparison = compare(before, after)
    assert registry.measure("D").score(comparison).value == 0
    score = registry.measure("D:within=state").score(comparison)
    # Each state of two records: one of two stands in another category.
    assert score.value == 0.5
    assert score.attributes == ("race",)


@given(swapped_files())
def test_dissimilarity_within_an_attribute_is_the_mean_over_its_levels(comparison: Comparison) -> None:
    sex, before, after = (
        np.array(column.to_pylist())
        for column in (comparison.before.table["sex"], comparison.before.table["edu"], comparison.after.table["edu"])
    )
    expected = 0.0
    for area in set(sex.tolist()):
        here = sex == area
        gaps = [abs(int((before[here] == v).sum()) - int((after[here] == v).sum())) for v in set(before.tolist())]
        expected += sum(gaps) / 2 / len(sex)
    score = registry.measure("D:attributes=edu,within=sex").score(comparison)
    assert score.value == pytest.approx(expected, abs=1e-12)


def test_numeric_attributes_are_left_out_and_named() -> None:
    columns = {"sex": ["m", "f"], "race": ["a", "b"], "income": [1.5, 2.5]}
    comparison = compare(columns, {**columns, "income": [2.5, 1.5]}, income="numeric")
    for name in ("hellinger", "adV", "k_anonymity"):
        score = registry.measure(name).score(comparison)
        assert "income" in score.sentence
        assert "income" not in score.attributes
    with pytest.raises(SpecError) as refused:
        registry.measure("n_rule").score(comparison)  # 0, since everybody took part, would be untrue
    assert refused.value.code == "measure-does-not-apply"


def test_a_change_of_numbers_is_a_change_of_records() -> None:
    columns = {"sex": ["m", "f"], "race": ["a", "b"], "income": [1.5, 2.5]}
    comparison = compare(columns, {**columns, "income": [2.5, 1.5]}, income="numeric")
    assert registry.measure("share_changed").score(comparison).value == 1
    assert registry.measure("share_changed:attributes=income").score(comparison).value == 1
    assert registry.measure("share_changed:attributes=sex+race").score(comparison).value == 0


def test_no_sentence_and_no_detail_of_distortion_holds_a_value_of_a_record() -> None:
    before = {"sex": ["zebra", "yak", "zebra"], "edu": ["low", "top", "low"], "race": ["xerus", "wolf", "vole"]}
    after = {**before, "sex": ["yak", "zebra", "zebra"], "edu": ["top", "low", "low"]}
    for name in CATEGORICAL:
        shown = str(registry.measure(name).score(compare(before, after, edu="ordinal")).as_dict())
        assert not any(value in shown for value in ("zebra", "yak", "xerus", "wolf", "vole", "'low'", "'top'"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("hellinger:attributes=nobody", "unknown-attribute"),
        ("adV:attributes=sex", "bad-ways"),
        ("ordinal:attributes=sex", "no-ordinal-attribute"),
        ("hellinger:attributes=id", "identifier-in-measure"),
        ("D:attributes=sex,within=sex", "no-categorical-attribute"),
    ],
)
def test_what_cannot_be_measured_is_refused(text: str, code: str) -> None:
    columns = {"id": [1, 2], "sex": ["m", "f"], "race": ["a", "b"]}
    with pytest.raises(SpecError) as caught:
        registry.measure(text).score(compare(columns, columns, id="identifier"))
    assert caught.value.code == code
    assert caught.value.hint


def test_files_without_categories_cannot_be_compared() -> None:
    with pytest.raises(SpecError) as caught:
        registry.measure("hellinger").score(compare({"x": [1.0]}, {"x": [1.0]}, x="numeric"))
    assert caught.value.code == "no-categorical-attribute"


def test_files_of_different_length_are_compared_by_their_shares() -> None:
    before, after = microdata({"x": ["a", "b"]}), microdata({"x": ["a", "a", "b", "b"]})
    comparison = Comparison(before=before, after=after, attributes=("x",))
    assert registry.measure("hellinger").score(comparison).value == 0
    with pytest.raises(SpecError):
        registry.measure("share_changed").score(comparison)


def test_a_file_without_records_has_no_distortion() -> None:
    empty = microdata({"x": pa.array([], pa.string()), "edu": pa.array([], pa.string())}, edu="ordinal")
    comparison = Comparison(before=empty, after=empty, attributes=("x", "edu"), touched=np.zeros(0, dtype=np.bool_))
    for name in CATEGORICAL:
        assert registry.measure(name).score(comparison).value == 0


@pytest.mark.parametrize("name", JOINT)
def test_many_cells_are_compared_by_those_that_changed(name: str) -> None:
    records = 4_000
    rng = np.random.default_rng(3)
    before = {name: rng.integers(0, 50, records).tolist() for name in ("a", "b", "c", "d")}
    after = {**before, "b": before["b"][:3_500] + before["b"][3_500:][::-1]}
    comparison = compare(before, after)
    joint = joint_counts(comparison, comparison.attributes, keep=False)
    assert joint.cells > 2**22
    score = registry.measure(name).score(comparison)
    assert score.value == pytest.approx(getattr(divergence, name)(joint.before, joint.after), abs=1e-12)
    assert score.value != 0


@pytest.mark.parametrize("codes", [pa.array([1, 2, 3, None]), pa.array([1.0, 2.0, 3.0, None])])
def test_a_number_that_a_recode_left_as_text_has_not_changed(codes: pa.Array) -> None:
    data = Microdata(pa.table({"marital": codes}), Schema(attributes=(Attribute(name="marital"),)))
    step = {"step": "recode", "attribute": "marital", "groups": {"other": ["3"]}, "otherwise": "keep"}
    masked = ss.mask(data, {"method": "recode", "steps": [step]}, insecure_seed=1)
    assert masked.data.table["marital"].to_pylist() == ["1", "2", "other", None]
    assert ss.assess(masked, measures=["share_changed"])["share_changed"].value == 1 / 4
    assert ss.plan(data, masked.spec).sentence == "1 step changes a value in 1 record"
