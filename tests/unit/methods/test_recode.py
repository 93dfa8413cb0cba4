"""Recoding as a masking: what is promised is checked, kept, taken up again and released."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from safeswap import Key, workflow
from safeswap.errors import SpecError
from safeswap.methods.recode.method import RecodeMethod, RecodeSpec
from safeswap.model.invariant import verify
from safeswap.model.microdata import Microdata
from safeswap.workflow.masking import keep, recall
from safeswap.workflow.session import ArgusSession
from safeswap.workflow.step_table import assess_steps

STEPS = [
    {"step": "ranges", "attribute": "Age", "equal_count": 4},
    {"step": "truncate", "attribute": "Town", "characters": 2},
    {"step": "round", "attribute": "Income", "base": 100},
    {"step": "drop", "attributes": ["Name"]},
]


def table() -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "id": np.arange(200),
            "Age": rng.integers(0, 99, 200),
            "Town": rng.choice(["1101", "1102", "2201"], 200),
            "Income": rng.random(200) * 1e4,
            "Name": [f"n{i % 7}" for i in range(200)],
        }
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_recoded_file_is_kept_taken_up_again_undone_and_released(tmp_path: Path, suffix: str) -> None:
    parquet.write_table(table(), tmp_path / "in.parquet")
    data, key = workflow.read(tmp_path / "in.parquet", identifier="id"), Key.generate()
    masked = workflow.mask(data, RecodeSpec(steps=STEPS), key=key)
    output = tmp_path / f"out.{suffix}"
    keep(masked, output, audit=tmp_path / "audit", reading={"identifier": "id"})
    again = recall(tmp_path / "in.parquet", output, audit=tmp_path / "audit")
    assert again.data.schema == masked.data.schema
    assert again.data.table["Age"].to_pylist() == masked.data.table["Age"].to_pylist()
    assert workflow.undo(again).table.equals(data.table)
    published = workflow.release(again, tmp_path / "public", audit=tmp_path / "audit", key=key)
    header = (published.public / "data.csv").read_text().splitlines()[0]
    assert header == "id,Age,Town,Income"


def test_a_wrong_value_and_a_value_that_became_two_are_found() -> None:
    data, spec = workflow.read(table(), identifier="id"), RecodeSpec(steps=STEPS[1:2])
    masked = RecodeMethod().apply(data, spec, key=Key.generate())
    promises = RecodeMethod().invariants(data, spec)
    towns = masked.data.table["Town"].to_pylist()
    for wrong, said in ((["99"] * len(towns), "not what the recoding says"), (["99", *towns[1:]], "more than one")):
        position = masked.data.table.column_names.index("Town")
        kind = masked.data.table["Town"].type
        column = pa.chunked_array([pa.array(wrong, kind.value_type if pa.types.is_dictionary(kind) else kind)])
        spoilt = Microdata(masked.data.table.set_column(position, "Town", column), masked.data.schema)
        found = verify(promises, before=data, after=spoilt, audit=masked.audit)
        assert any(said in finding.problem for finding in found)
        assert "99" not in str([finding.problem for finding in found])


def test_recoded_records_are_still_at_risk() -> None:
    masked = workflow.mask(workflow.read(table(), identifier="id"), RecodeSpec(steps=STEPS), insecure_seed=1)
    assert masked.audit.touched().all()
    assert not masked.audit.perturbed().any()
    assert (
        "none is left"
        not in workflow.assess(masked, measures=["n_rule:keys=Age+Town"])["n_rule:keys=Age+Town"].sentence
    )


def test_a_specification_says_what_it_is_again() -> None:
    from safeswap import registry

    spec = RecodeSpec(steps=STEPS)
    assert registry.make_spec(spec.as_dict()) == spec
    assert spec.replace(steps=STEPS[:1]).names == ("Age",)
    with pytest.raises(SpecError, match="step 2 names 'Name', which an earlier step drops"):
        RecodeSpec(steps=[STEPS[3], {"step": "truncate", "attribute": "Name"}])


def test_a_map_takes_a_recoded_candidate_by_information_loss_and_says_why_not_otherwise() -> None:
    from safeswap import datasets

    step = {"step": "recode", "attribute": "Edu", "groups": {"B": ["Bach", "Bach+"]}, "otherwise": "keep"}
    asked = {"attributes": ["Race"], "rates": [0.05], "others": [{"method": "recode", "steps": [step]}]}
    blind = workflow.study(datasets.cps8d(), distortion=["hellinger"], insecure_seed=1, **asked).table.to_pydict()
    seeing = workflow.study(
        datasets.cps8d(), distortion=["information_loss"], insecure_seed=1, **asked
    ).table.to_pydict()
    assert "does not see what recoding removed" in blind["reason"][1]
    assert seeing["reason"] == ["", ""]
    assert 0 < seeing["information_loss"][1] < 1


def test_what_is_undone_has_the_description_that_it_had(tmp_path: Path) -> None:
    data = workflow.read(table(), identifier="id")
    masked = workflow.mask(data, RecodeSpec(steps=STEPS), key=Key.generate())
    assert workflow.undo(masked).schema == data.schema
    record = keep(masked, tmp_path / "out.parquet", audit=tmp_path / "audit")
    restored = workflow.undo(workflow.read(tmp_path / "out.parquet"), record)
    assert restored.schema == data.schema
    assert restored.table["Age"].to_pylist() == data.table["Age"].to_pylist()


def test_all_values_that_are_not_named_become_the_others() -> None:
    data = workflow.read(
        pa.table({"Town": ["a", "b", "rare", None, "b", "none", "rarer"]}),
        kinds={"Town": "nominal"},
        missing=["none"],
    )
    spec = RecodeSpec(steps=[{"step": "recode", "attribute": "Town", "map": {"a": "a", "b": "A"}, "others": "A"}])
    masked = RecodeMethod().apply(data, spec, key=Key.generate())
    assert masked.data.table["Town"].to_pylist() == ["a", "A", "A", None, "A", "none", "A"]
    promises = RecodeMethod().invariants(data, spec)
    assert not any(each.problem for each in verify(promises, before=data, after=masked.data, audit=masked.audit))
    with pytest.raises(SpecError, match="others covers every value"):
        RecodeSpec(steps=[{**spec.as_dict()["steps"][0], "otherwise": "keep"}])


def test_sentences_name_levels_by_labels_while_these_mean_the_same() -> None:
    merge = {"step": "recode", "attribute": "marital", "groups": {"other": ["5", "3"]}, "otherwise": "keep"}
    again = {**merge, "groups": {"1": ["2", "other"]}}
    last = {**merge, "groups": {"6": ["1", "4"]}, "otherwise": "keep"}
    words = ("Single", "Married", "Widowed", "Separated, not divorced", "Divorced")
    labels = {"marital": {str(code): word for code, word in enumerate(words, start=1)}}
    told = RecodeSpec(steps=[merge, again, last]).recipe.describe(labels)
    assert told == (
        "recode marital: Divorced, Widowed to other, the others are kept",
        "recode marital: Married, other to 1, the others are kept",
        'recode marital: 1, "Separated, not divorced" to 6, the others are kept',
    )
    assert RecodeSpec(steps=[merge]).recipe.sentences == ("recode marital: 5, 3 to other, the others are kept",)


def test_a_label_that_could_be_another_level_goes_with_its_code() -> None:
    step = {"step": "recode", "attribute": "work", "groups": {"other": ["1", "2", "3"]}, "others": "rest"}
    labels = {"work": {"1": "Clerk", "2": "Clerk", "3": "1", "4": "Farmer"}}
    recipe = RecodeSpec(steps=[step]).recipe
    assert recipe.describe(labels) == ("recode work: Clerk (1), Clerk (2), 1 (3) to other, all others to rest",)
    assert recipe.surviving_labels(labels) == {"work": {}}
    capped = RecodeSpec(steps=[{"step": "top_bottom_code", "attribute": "work", "top": "4"}]).recipe
    assert capped.describe(labels) == ("work coded to at most Farmer",)
    assert capped.surviving_labels(labels) == {"work": {"1": "Clerk", "2": "Clerk", "3": "1"}}


def test_the_account_and_the_table_of_steps_name_levels_by_labels() -> None:
    from safeswap.model.schema import Attribute, Schema

    town = Attribute(name="Town", kind="nominal", labels={"12": "Ort", "13": "Dorf"})
    schema = Schema(attributes=(Attribute(name="id", kind="identifier"), town))
    data = workflow.read(pa.table({"id": list(range(6)), "Town": ["12", "13", "14"] * 2}), schema=schema)
    steps = [{"step": "recode", "attribute": "Town", "groups": {"other": ["12", "13"]}, "otherwise": "keep"}]
    masked = workflow.mask(data, RecodeSpec(steps=steps), insecure_seed=1)
    said = "recode Town: Ort, Dorf to other, the others are kept"
    assert masked.changes["Town"].recoded == (said,)
    assert [row.done for row in assess_steps(masked).rows] == [said]
    session = ArgusSession.start(data, {"keys": ["Town"]}, recipe=[*steps, {**steps[0], "groups": {"all": ["other"]}}])
    assert [stage.sentence for stage in session.stages[1:]] == [
        said,
        "recode Town: other to all, the others are kept",
    ]
