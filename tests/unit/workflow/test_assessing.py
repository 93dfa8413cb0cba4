"""Assessing: which record is which, which measures apply, and what is said of those that do not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.workflow.alignment_cases import WHATS, Case, aligned_by_hand, file_of, make_case

import safeswap as ss
from safeswap import registry, workflow
from safeswap.errors import InputError, SpecError
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.score import Assessment
from safeswap.model.study import StudySpec
from safeswap.reports.masking import write_masking_report

MEASURES = ("n_rule", "hellinger", "total_variation", "entropy_change", "adV", "share_changed")


REFUSALS = ("records-not-aligned", "files-differ")


def agrees(case: Case) -> bool:
    """Whether the assessment of the given file is that of the file aligned by hand, or refused where there is none."""
    wanted = aligned_by_hand(case)
    original, given = file_of(case.original), file_of(case.given)
    try:
        found = workflow.assess(original, given, measures=MEASURES)
    except InputError as error:
        return wanted is None and error.code in REFUSALS
    except SpecError as error:
        # All that masking changed may be numbers: then the aligned file is refused alike.
        return wanted is not None and error.code == "measure-does-not-apply" and _only_numbers(case)
    if wanted is None:
        return False
    by_hand = workflow.assess(original, file_of(wanted), measures=MEASURES, match="position")
    return figures(found) == figures(by_hand)


def figures(assessment: Assessment) -> list[tuple[str, float]]:
    return [(score.measure, score.value) for score in assessment]


def _only_numbers(case: Case) -> bool:
    pairs = list(zip(case.original, case.masked, strict=True))
    changed = {name for name in ("sex", "area", "income") if any(a[name] != b[name] for a, b in pairs)}
    return changed == {"income"}


@pytest.mark.parametrize("seed", range(100))
def test_order_and_names_of_records_make_no_difference_or_are_refused(seed: int) -> None:
    assert agrees(make_case(seed))


def test_the_refusal_names_the_way_that_works() -> None:
    case = make_case(WHATS.index("renamed"))
    with pytest.raises(InputError) as refused:
        workflow.assess(file_of(case.original), file_of(case.given))
    assert refused.value.code == "records-not-aligned"
    assert "audit=" in refused.value.hint
    assert "--record" in refused.value.hint


def test_a_shuffled_file_without_identifiers_is_refused_and_not_called_safe() -> None:
    data = ss.datasets.cps8d()
    order = np.random.default_rng(1).permutation(len(data))
    for after in (data, ss.swap(data, swap=["Race"], rate=0.1, insecure_seed=1).data):
        shuffled = Microdata(after.table.take(pa.array(order)), after.schema)
        with pytest.raises(InputError) as refused:
            workflow.assess(data, shuffled)
        assert refused.value.code == "records-not-aligned"


def test_a_masked_file_in_its_order_is_not_refused_whatever_was_changed() -> None:
    data = ss.datasets.cps8d()
    everything = list(data.schema.categorical)
    masked = ss.swap(data, swap=everything[:4], rate=0.3, insecure_seed=1)
    assert figures(workflow.assess(data, masked.data)) == figures(workflow.assess(masked))
    pram = ss.mask(data, {"method": "pram", "attributes": everything, "keep": 0.9}, insecure_seed=1)
    assert figures(workflow.assess(data, pram.data, measures=["hellinger"])) == figures(
        workflow.assess(pram, measures=["hellinger"])
    )


def test_a_public_bundle_is_assessed_with_its_audit_record(tmp_path: Path) -> None:
    data = with_identifier(ss.datasets.cps8d(), 2_000)
    key = ss.Key.generate()
    masked = ss.swap(data, swap=["Race"], rate=0.1, key=key)
    published = ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=key)
    released = workflow.read(
        next(p for p in (tmp_path / "public").iterdir() if p.suffix in (".csv", ".parquet")), schema=data.schema
    )
    with pytest.raises(InputError) as refused:
        workflow.assess(data, released)
    assert refused.value.code == "records-not-aligned"
    record = next(path.parent for path in (tmp_path / "audit").rglob("audit.json"))
    assert published.public is not None
    found = workflow.assess(data, released, audit=record, measures=MEASURES)
    assert figures(found) == figures(workflow.assess(masked, measures=MEASURES))


def with_identifier(data: Microdata, records: int) -> Microdata:
    table = data.table.slice(0, records).append_column("id", pa.array([f"p{i:05}" for i in range(records)]))
    attributes = (*data.schema.attributes, Attribute(name="id", kind=Kind.IDENTIFIER))
    return Microdata(table, Schema(name="survey", attributes=attributes))


def numeric_file(records: int = 300) -> Microdata:
    rng = np.random.default_rng(3)
    income = rng.lognormal(10, 1, records)
    columns = {"sex": rng.choice(["m", "f"], records), "area": rng.choice(["n", "s", "w"], records)}
    table = pa.table({**columns, "income": income, "tax": income * 0.3 + rng.normal(0, 500, records)})
    kinds = (Kind.NOMINAL, Kind.NOMINAL, Kind.NUMERIC, Kind.NUMERIC)
    attributes = tuple(Attribute(name=n, kind=kind) for n, kind in zip(table.column_names, kinds, strict=True))
    return Microdata(table, Schema(name="incomes", attributes=attributes))


NUMERIC = [
    {"method": "noise", "attributes": ["income", "tax"], "size": 0.2},
    {"method": "microaggregation", "attributes": ["income", "tax"], "k": 5},
    {"method": "rank_swap", "attributes": ["income", "tax"], "window": 0.1},
]


@pytest.mark.parametrize("spec", NUMERIC, ids=lambda spec: spec["method"])
def test_after_numeric_methods_numeric_measures_step_in_and_the_others_are_named(spec: dict[str, object]) -> None:
    masked = ss.mask(numeric_file(), spec, insecure_seed=1)
    found = workflow.assess(masked)
    assert [s.measure for s in found] == list(registry.default_measures("numbers"))
    assert found["correct_links"].value > 0
    assert any(found[name].value > 0 for name in ("mean_change", "deviation_change", "correlation_change"))
    assert [each.measure for each in found.left_out] == list(registry.default_measures("categories"))[:-1]
    assert {each.reason for each in found.left_out} == {"masking changed numeric attributes only"}
    assert "Left out: n_rule, hellinger" in repr(found)
    assert found.as_dict()["left_out"][0] == {
        "measure": "n_rule",
        "reason": "masking changed numeric attributes only",
    }
    with pytest.raises(SpecError) as refused:
        workflow.assess(masked, measures=["n_rule"])
    assert refused.value.code == "measure-does-not-apply"


def test_the_report_of_a_numeric_masking_names_what_was_left_out(tmp_path: Path) -> None:
    masked = ss.mask(numeric_file(), NUMERIC[0], insecure_seed=1)
    text = write_masking_report(masked, tmp_path / "report.html", assessment=ss.assess(masked)).read_text("utf-8")
    assert "Left out: n_rule, hellinger" in text
    assert "correct_links" in text


def test_a_numeric_candidate_does_not_win_a_map_that_does_not_see_it() -> None:
    spec = StudySpec(attributes=("area",), rates=(0.1,), others=(NUMERIC[0],))
    study = ss.study(numeric_file(), spec, insecure_seed=1)
    assert study.rejected()["reason"].to_pylist() == ["n_rule does not apply: masking changed numeric attributes only"]
    other = spec.model_copy(update={"risk": ("correct_links",), "distortion": ("correlation_change",)})
    assert ss.study(numeric_file(), other, insecure_seed=1).rejected()["label"].to_pylist() == ["area"]


def test_where_both_kinds_changed_both_kinds_are_measured() -> None:
    data = numeric_file()
    masked = ss.swap(data, swap=["area", "income"], rate=0.3, insecure_seed=1)
    found = workflow.assess(masked)
    assert {s.measure for s in found} == set(registry.default_measures("categories", "numbers"))
    assert not found.left_out


def test_one_categorical_attribute_is_assessed_by_what_applies() -> None:
    data = Microdata(pa.table({"x": list("aabbc") * 20}), Schema(attributes=(Attribute(name="x"),)))
    found = workflow.assess(ss.swap(data, swap=["x"], rate=0.2, insecure_seed=1))
    assert [each.measure for each in found.left_out] == ["adV", "adC"]
    assert {each.reason for each in found.left_out} == {"it needs 2 categorical attributes"}
    with pytest.raises(SpecError):
        workflow.assess(ss.swap(data, swap=["x"], rate=0.2, insecure_seed=1), measures=["adV"])


def test_the_default_measures_are_one_table() -> None:
    study = StudySpec()
    assert study.risk == registry.default_measures("study", axis="risk")
    assert study.distortion == registry.default_measures("study", axis="distortion")
    masked = ss.swap(ss.datasets.cps8d(), swap=["Race"], rate=0.02, insecure_seed=1)
    assert tuple(s.measure for s in workflow.assess(masked)) == registry.default_measures("categories")


def test_a_banded_number_that_is_exchanged_shows_in_tables():
    """Bands are categories: a swap of them must not pass as no distortion, and a key that they are counts as risk."""
    rng = np.random.default_rng(6)
    ages, jobs = rng.integers(0, 90, 200), rng.integers(0, 4, 200).astype(str)
    data = ss.read(pa.table({"age": ages, "job": jobs}), kinds={"age": "numeric"})
    bands = {"step": "ranges", "attribute": "age", "breaks": [30, 60]}
    steps = [bands, {"method": "swap", "swap": ["age"], "rate": 0.6}]
    masked = ss.mask(data, ss.Pipeline(steps), key=ss.Key(bytes(range(32))))
    found = ss.assess(masked, measures=["hellinger", "share_changed", "information_loss"])
    assert "age × job" in found["hellinger"].sentence
    pairs = [
        Counter(zip(np.digitize(ages, [30, 60]), jobs, strict=True)),
        Counter(zip([text[:2] for text in masked.data.table.column("age").to_pylist()], jobs, strict=True)),
    ]
    order = {"<3": 0, "30": 1, ">=": 2}
    after = Counter({(order[text], job): number for (text, job), number in pairs[1].items()})
    roots = [np.sqrt(pairs[0][cell] / 200) - np.sqrt(after[cell] / 200) for cell in {*pairs[0], *after}]
    assert found["hellinger"].value == pytest.approx(np.sqrt(sum(root**2 for root in roots) / 2))
    assert found["share_changed"].value == 1  # every column counts, coarser values too
