"""SAFE on microdata: the fewest records, found by trying all; all tables safe from one file, or a typed refusal."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.safe_strategies import any_safe_inputs, safe_example
from tests.conformance.strategies import microdata, values_of

from safeswap import datasets, workflow
from safeswap.errors import InfeasibleError, SpecError
from safeswap.methods.safe.records.method import Safe
from safeswap.methods.safe.records.moves import fewest_changes
from safeswap.methods.safe.spec import SafeSpec
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEY = Key(bytes(range(32)))
TABLES = [["Race", "EmpTyp", "MS", "Edu", "Age"], ["AnnSal", "Sex", "Edu", "Race"], ["Edu", "Age", "Sex", "AvgHrs"]]


def file_of(ordinal=(), **columns) -> Microdata:
    attributes = tuple(Attribute(name=name, kind=Kind.ORDINAL if name in ordinal else Kind.NOMINAL) for name in columns)
    return Microdata(pa.table(columns), Schema(name="a file", attributes=attributes))


def counted(data: Microdata, names) -> dict[tuple[str, ...], int]:
    """A table counted value by value, without any code of the package."""
    found: dict[tuple[str, ...], int] = {}
    for record in zip(*(data.table.column(name).to_pylist() for name in names), strict=True):
        place = tuple(map(repr, record))
        found[place] = found.get(place, 0) + 1
    return found


def apply(data: Microdata, spec: SafeSpec, key: Key = KEY):
    return Safe().apply(data, spec, key=key)


def fewest_by_trying(data: Microdata, spec: SafeSpec) -> int | None:
    """How few records must change, from all files that can be made of these levels; None where no file is safe."""
    names = spec.variables
    values = [sorted(set(data.table.column(name).to_pylist())) for name in names]
    kinds = list(product(*values))
    before = [kinds.index(record) for record in zip(*(data.table.column(n).to_pylist() for n in names), strict=True)]
    files = np.stack(np.meshgrid(*[range(len(kinds))] * len(before), indexing="ij"), axis=-1).reshape(-1, len(before))
    possible = np.ones(len(files), dtype=bool)
    stated = [*((names, False) for names in spec.tables), *((names, True) for names in spec.keep)]
    for table, is_kept in stated:
        place = [tuple(kind[names.index(name)] for name in table) for kind in kinds]
        number = np.array([sorted(set(place)).index(each) for each in place])
        cells = number[files]
        for cell in range(number.max() + 1):
            counts = (cells == cell).sum(axis=1)
            own = (number[before] == cell).sum()
            possible &= counts == own if is_kept else (counts == 0) | (counts >= spec.tolerance)
    changed = (files != np.array(before)).sum(axis=1)[possible]
    return int(changed.min()) if changed.size else None


@settings(max_examples=60)
@given(
    records=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), min_size=2, max_size=6),
    tolerance=st.integers(2, 4),
    tables=st.sampled_from([(("A", "B"),), (("A",), ("B",)), (("A", "B"), ("B",)), (("A",),)]),
    keep=st.sampled_from([(), (), (("A",),), (("A",), ("B",))]),
)
def test_no_file_with_fewer_changes_is_safe(records, tolerance, tables, keep):
    data = file_of(A=[a for a, _ in records], B=[b for _, b in records])
    keep = tuple(names for names in keep if set(names) <= {name for table in tables for name in table})
    spec = SafeSpec(tables=tables, tolerance=tolerance, keep=keep)
    fewest = fewest_by_trying(data, spec)
    if fewest is None:
        with pytest.raises(InfeasibleError) as caught:
            apply(data, spec)
        assert caught.value.code in ("no-safe-records", "margin-below-tolerance")
        return
    facts = apply(data, spec).audit.facts
    assert facts["records_changed"] == facts["fewest_records"] == fewest
    assert facts["proved_fewest"]
    assert all(fewest_changes(np.array([*counted(data, t).values()]), tolerance) <= fewest for t in tables)


@given(any_safe_inputs(microdata(most_records=25)))
def test_all_tables_are_safe_and_kept_margins_exact_or_it_is_refused_never_both(tried):
    data, spec = tried
    try:
        masked = apply(data, spec)
    except InfeasibleError:
        return  # never with a result: what was refused has none
    for names in spec.tables:
        assert all(count >= spec.tolerance for count in counted(masked.data, names).values())
    for names in spec.keep:
        assert counted(masked.data, names) == counted(data, names)
    for name in data.attributes:
        if name not in spec.variables:
            assert values_of(masked.data, name) == values_of(data, name)


def test_the_facts_are_what_a_recount_finds():
    masked = apply(*safe_example())
    before, after, facts = masked.original, masked.data, masked.audit.facts
    values = {n: zip(*(d.table[n].to_pylist() for d in (before, after)), strict=True) for n in before.attributes}
    changed = {n: np.array([one != other for one, other in pairs]) for n, pairs in values.items()}
    moved = np.sum(list(changed.values()), axis=0)
    assert facts["records_changed"] == masked.audit.made == int((moved > 0).sum()) > 0
    assert facts["values_changed"] == int(moved.sum())
    assert facts["values_changed_by_attribute"] == {n: int(c.sum()) for n, c in changed.items() if c.any()}
    assert set(facts["univariate_margins_moved"]) == {
        name for name in before.attributes if counted(before, [name]) != counted(after, [name])
    }
    for names, told in zip(masked.spec.tables, facts["tables"], strict=True):
        one, other = counted(before, names), counted(after, names)
        assert told["small_before"] == sum(count < masked.spec.tolerance for count in one.values())
        assert told["small_after"] == 0
        assert told["occupied_after"] == len(other)
        assert told["total_change"] == sum(abs(one.get(c, 0) - other.get(c, 0)) for c in {*one, *other})


def test_most_records_change_one_value_and_to_a_near_level():
    masked = workflow.safe_records(datasets.cps8d(), TABLES, 5, key=KEY)
    facts = masked.audit.facts
    assert facts["records_by_values_changed"]["1 value:"] >= 0.75 * facts["records_changed"]
    assert all(1 <= steps < 2 for steps in facts["mean_steps_by_attribute"].values())


def test_an_ordered_value_moves_to_the_next_level_rather_than_far():
    ages = [10] * 9 + [20] + [30] * 9 + [90] * 9
    masked = apply(file_of(ordinal=["Age"], Age=ages), SafeSpec(tables=(("Age",),), tolerance=3))
    assert masked.audit.made == 1
    assert masked.data.table["Age"][9].as_py() in (10, 30)


def test_one_change_serves_two_tables():
    # The one record of x is small in both tables; either of its two attributes alone would leave one of them unsafe.
    data = file_of(A=["a"] * 9 + ["x"], B=["b"] * 9 + ["x"], C=["c"] * 10)
    masked = apply(data, SafeSpec(tables=(("A", "C"), ("B", "C")), tolerance=3))
    assert masked.audit.made == 1
    assert masked.audit.facts["records_by_values_changed"] == {"2 values:": 1}


def test_the_key_chooses_among_equal_records():
    data = file_of(A=["a"] * 20 + ["b"] * 2 + ["c"] * 20)
    spec = SafeSpec(tables=(("A",),), tolerance=3)
    chosen = {tuple(np.flatnonzero(apply(data, spec, Key(bytes([i] * 32))).audit.touched())) for i in range(30)}
    assert len(chosen) > 5
    assert all(len(rows) == 1 for rows in chosen)


def test_the_original_comes_back_from_the_audit():
    masked = apply(*safe_example())
    assert masked.audit.made > 0
    assert workflow.undo(masked).table.equals(masked.original.table)


def test_trying_longer_changes_no_more_records():
    data, spec = safe_example()
    quick, thorough = (apply(data, spec.replace(search=search)).audit.facts for search in ("quick", "thorough"))
    assert thorough["records_changed"] <= quick["records_changed"]
    assert thorough["fewest_records"] >= quick["fewest_records"]
    assert thorough["proved_fewest"]


def test_a_safe_programme_changes_nothing():
    masked = workflow.safe_records(datasets.cps8d(), [["Race", "Sex"], ["Age"]], 3, insecure_seed=1)
    assert masked.data.table.equals(masked.original.table)
    assert masked.audit.facts["proved_fewest"]


def test_a_kept_margin_below_tolerance_is_explained():
    data = file_of(A=["a"] * 8 + ["b"], B=["x", "y", "z"] * 3)
    plan = workflow.plan(data, SafeSpec(tables=(("A", "B"),), keep=(("A",),)))
    assert not plan.is_feasible
    assert "the margin by A keeps" in plan.sentence
    with pytest.raises(InfeasibleError) as caught:
        workflow.safe_records(data, ["A", "B"], 3, keep=["A"], insecure_seed=1)
    assert caught.value.code == "margin-below-tolerance"
    assert "the kept margin by A fixes them" in str(caught.value)
    assert caught.value.fields == {"margin": ["A"], "table": ["A", "B"], "cells": 1}


def test_too_few_records_for_any_cell_are_refused():
    with pytest.raises(InfeasibleError) as caught:
        workflow.safe_records(file_of(A=["a", "b"]), ["A"], 3, insecure_seed=1)
    assert caught.value.code == "no-safe-records"


@pytest.mark.parametrize(
    ("tables", "options", "code"),
    [
        ([["Race", "Race"]], {}, "bad-spec"),
        ([[]], {}, "bad-spec"),
        ([["Race"], ["Race"]], {}, "bad-spec"),
        ([["Race", "Shoe"]], {}, "unknown-attribute"),
        ([["Race"]], {"keep": [["Shoe"]]}, "unknown-attribute"),
        ([["Race"]], {"search": "endless"}, "bad-spec"),
    ],
)
def test_what_makes_no_sense_is_refused(tables, options, code):
    with pytest.raises(SpecError) as caught:
        workflow.safe_records(datasets.cps8d(), tables, 3, insecure_seed=1, **options)
    assert caught.value.code == code


def test_a_continuous_item_forms_no_table():
    data = datasets.synthetic_enterprises(50)
    with pytest.raises(SpecError) as caught:
        workflow.safe_records(data, [["turnover"]], 3, insecure_seed=1)
    assert caught.value.code == "not-categorical"


def test_no_refusal_holds_a_value_of_a_record():
    data = file_of(A=["secret"] + ["a"] * 8, B=["x", "y", "z"] * 3)
    with pytest.raises(InfeasibleError) as caught:
        workflow.safe_records(data, ["A", "B"], 3, keep=["A"], insecure_seed=1)
    assert "secret" not in str(caught.value.as_dict())


def test_a_safe_file_is_a_candidate_on_the_map():
    other = {"method": "safe", "tables": [TABLES[0]], "tolerance": 5}
    found = workflow.study(datasets.cps8d(), attributes=["Race"], rates=[0.01], others=[other], insecure_seed=1)
    assert [spec.method for spec in found.specs] == ["swap", "safe"]
    assert found.table.num_rows == 2
    distortion = found.table.column("hellinger").to_pylist()
    assert 0 < distortion[1] < distortion[0]


def many_levels(records, levels):
    drawn = np.random.default_rng(1).integers(0, levels, records)
    return pa.table({"Place": [f"p{level}" for level in drawn], "Sex": [f"s{level % 2}" for level in drawn]})


def test_thousands_of_levels_take_no_longer_than_their_cells():
    masked = workflow.safe_records(many_levels(20_000, 10_000), [["Place"]], 3, insecure_seed=1, time_limit=600)
    facts = masked.audit.facts
    assert not facts["stopped_by_time_limit"]
    assert facts["records_changed"] <= 1.01 * facts["fewest_records"]


def test_when_the_time_is_up_the_tables_are_safe_and_the_facts_say_so():
    data = many_levels(2_000, 400)
    stopped = workflow.safe_records(data, [["Place", "Sex"]], 4, insecure_seed=1, time_limit=1e-6)
    thorough = workflow.safe_records(data, [["Place", "Sex"]], 4, insecure_seed=1)
    assert workflow.check_tables(stopped.data, [["Place", "Sex"]], 4).is_safe
    facts = stopped.audit.facts
    assert facts["stopped_by_time_limit"]
    assert not thorough.audit.facts["stopped_by_time_limit"]
    assert facts["fewest_records"] <= thorough.audit.facts["records_changed"] <= facts["records_changed"]


def test_when_the_time_is_up_before_kept_margins_could_be_met_that_is_the_reason():
    with pytest.raises(InfeasibleError) as caught:
        workflow.safe_records(
            many_levels(2_000, 400), [["Place", "Sex"]], 4, keep=[["Sex"]], insecure_seed=1, time_limit=1e-6
        )
    assert caught.value.code == "no-safe-records-found"
    assert caught.value.fields["timed_out"]
    assert caught.value.fields["cells_left"] > 0
    assert "within 1e-06 seconds" in str(caught.value)
    assert "time_limit" in caught.value.hint
