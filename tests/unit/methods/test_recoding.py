"""Steps do to values what they say, describe the attribute anew, and say no in plain words."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.recode_strategies import recode_inputs
from tests.conformance.strategies import microdata

from safeswap.errors import InfeasibleError, SafeswapError, SpecError
from safeswap.methods.recode.apply import apply_step, pin, unmapped
from safeswap.methods.recode.steps import Ranges, as_step
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

CANARY = "Zanzibar"


def one(values: object, **described: object) -> Microdata:
    """A file of one attribute, x."""
    return Microdata(pa.table({"x": values}), Schema(attributes=(Attribute(name="x", **described),)))


def after(data: Microdata, **step: object) -> list[object]:
    return apply_step(data, {"attribute": "x", **step}).table["x"].to_pylist()


def test_a_map_recodes_and_the_rest_is_as_stated() -> None:
    data = one(["a", "b", "c", None])
    step = {"step": "recode", "map": {"a": "A"}, "groups": {"rest": ["b"]}}
    assert after(data, **step, otherwise="keep") == ["A", "rest", "c", None]
    assert after(data, **step, otherwise="blank") == ["A", "rest", None, None]
    with pytest.raises(SpecError, match="1 of the values of 'x' that occur, in 1 record") as refused:
        after(data, **step)
    assert refused.value.code == "value-not-recoded"
    assert unmapped(data, {"attribute": "x", **step}) == ("c",)


def test_codes_for_no_answer_stay_unless_they_are_named() -> None:
    data = one(["1", "9", "2"], missing=("9",))
    assert after(data, step="recode", map={"1": "a", "2": "a"}) == ["a", "9", "a"]
    assert after(data, step="ranges", breaks=[2]) == ["<2", "9", ">=2"]
    named = apply_step(data, {"step": "recode", "attribute": "x", "map": {"1": "a", "2": "a", "9": "a"}})
    assert named.table["x"].to_pylist() == ["a", "a", "a"]
    assert named.schema["x"].missing == ()


def test_ranges_have_ordered_levels_and_are_closed_as_stated() -> None:
    data = one(pa.array([5, 20, 65, None], pa.int8()), kind=Kind.NUMERIC)
    done = apply_step(data, {"step": "ranges", "attribute": "x", "breaks": [20, 65]})
    assert done.table["x"].to_pylist() == ["<20", "20-64", ">=65", None]
    assert (done.schema["x"].kind, done.schema["x"].levels) == (Kind.ORDINAL, ("<20", "20-64", ">=65"))
    assert after(data, step="ranges", breaks=[20, 65], closed="right") == ["<=20", "<=20", "21-65", None]
    assert after(data, step="ranges", breaks=[20], labels=["young", "old"]) == ["young", "old", "old", None]


def test_ranges_of_equal_count_keep_equal_values_together_and_name_no_value_needlessly() -> None:
    rng = np.random.default_rng(5)
    income = np.round(rng.lognormal(8, 1, 400), 2)
    step = pin(one(income, kind=Kind.NUMERIC), Ranges(attribute="x", equal_count=4))
    assert isinstance(step, Ranges)
    counts = np.histogram(income, [-np.inf, *step.breaks, np.inf])[0]
    assert counts.min() >= 95
    assert not set(step.breaks) & set(income.tolist())


def test_ranges_of_equal_width_are_as_many_as_asked() -> None:
    step = pin(one([0.0, 3.0, 99.5], kind=Kind.NUMERIC), Ranges(attribute="x", equal_width=5))
    assert isinstance(step, Ranges)
    assert len(step.breaks) == 4
    assert np.ptp(np.diff(step.breaks)) <= 1


def test_a_pinned_step_treats_another_file_alike() -> None:
    this, next_year = one([1.0, 2.0, 3.0, 4.0], kind=Kind.NUMERIC), one([100.5, 2.0], kind=Kind.NUMERIC)
    step = pin(this, Ranges(attribute="x", equal_count=2))
    assert apply_step(next_year, step).table["x"].to_pylist() == [">=3", "<3"]


def test_a_hierarchy_of_the_schema_is_climbed_and_the_rest_of_it_stays() -> None:
    tree = ({"Delft": "South", "Leiden": "South", "Haarlem": "North"}, {"South": "NL", "North": "NL"})
    data = one(["Delft", "Haarlem", "Leiden"], hierarchy=tree, kind=Kind.GEOGRAPHY)
    done = apply_step(data, {"step": "hierarchy", "attribute": "x"})
    assert done.table["x"].to_pylist() == ["South", "North", "South"]
    assert done.schema["x"].hierarchy == tree[1:]
    assert apply_step(done, {"step": "hierarchy", "attribute": "x"}).table["x"].to_pylist() == ["NL"] * 3
    with pytest.raises(SpecError, match="has 2 levels, 3 were requested"):
        after(data, step="hierarchy", level=3)
    with pytest.raises(SpecError, match="no hierarchy"):
        after(one(["a"]), step="hierarchy")
    with pytest.raises(SpecError, match="cycle"):
        after(one(["a"], hierarchy=({"a": "b"}, {"b": "a"})), step="hierarchy")


def test_truncation_shortens_codes_and_speaks_of_short_ones() -> None:
    data = one(["4711", "4719", "5"])
    assert after(data, step="truncate", characters=2, otherwise="keep") == ["47", "47", "5"]
    assert after(data, step="truncate", characters=2, fill="*", otherwise="blank") == ["47**", "47**", None]
    with pytest.raises(SpecError, match="1 of the values"):
        after(data, step="truncate", characters=2)


def test_top_and_bottom_coding_goes_by_levels_or_by_numbers() -> None:
    ordered = one(["low", "mid", "high"], kind=Kind.ORDINAL, levels=("low", "mid", "high"))
    assert after(ordered, step="top_bottom_code", top="mid", top_label="mid+") == ["low", "mid+", "mid+"]
    ages = one(pa.array([3, 50, 97], pa.int16()), kind=Kind.NUMERIC)
    done = apply_step(ages, {"step": "top_bottom_code", "attribute": "x", "top": 80, "bottom": 10})
    assert (done.table["x"].to_pylist(), done.table["x"].type) == ([10, 50, 80], pa.int16())
    with pytest.raises(SpecError, match="no order"):
        after(one(["a", "b"]), step="top_bottom_code", top="b")
    with pytest.raises(SpecError, match="not a level"):
        after(ordered, step="top_bottom_code", top=CANARY)


def test_rounding_keeps_the_type_where_it_can() -> None:
    floats = one([12.5, -12.5, float("nan"), 3.1], kind=Kind.NUMERIC)
    done = apply_step(floats, {"step": "round", "attribute": "x", "base": 5}).table["x"]
    assert [repr(value) for value in done.to_pylist()] == ["15.0", "-15.0", "nan", "5.0"]
    texts = one(["1.50", "1.5", "07"], kind=Kind.NUMERIC)
    assert after(texts, step="round", base=0.1) == ["1.5", "1.5", "7"]


def test_blanks_and_drops() -> None:
    data = Microdata(
        pa.table({"x": ["a", "b"], "y": [1, 2]}), Schema(attributes=(Attribute(name="x"), Attribute(name="y")))
    )
    assert apply_step(data, {"step": "blank", "attribute": "x", "values": ["a"]}).table["x"].to_pylist() == [None, "b"]
    assert apply_step(data, {"step": "drop", "attributes": ["x"]}).attributes == ("y",)
    with pytest.raises(SpecError, match="every attribute"):
        apply_step(data, {"step": "drop", "attributes": ["x", "y"]})


def test_levels_keep_their_order_and_labels_their_meaning() -> None:
    data = one(
        ["1", "3"], kind=Kind.ORDINAL, levels=("1", "2", "3", "4"), labels={"1": "one", "3": "three", "4": "four"}
    )
    done = apply_step(data, {"step": "recode", "attribute": "x", "groups": {"3": ["3", "4"]}, "otherwise": "keep"})
    assert done.schema["x"].levels == ("1", "2", "3")
    assert done.schema["x"].labels == {"1": "one"}


BAD: tuple[tuple[dict[str, object], str], ...] = (
    ({"step": "ranges", "breaks": [5, 5]}, "not in ascending order"),
    ({"step": "ranges", "breaks": [5, float("nan")]}, "not a number"),
    ({"step": "ranges"}, "one of them"),
    ({"step": "ranges", "breaks": [1], "labels": ["a"]}, "1 label is given for 2 ranges"),
    ({"step": "recode"}, "give a map"),
    ({"step": "recode", "map": {"1": "a"}, "groups": {"b": ["1"]}}, "'1' is recoded twice"),
    ({"step": "hierarchy", "parents": {"a": "b", "b": "c", "c": "a"}}, "cycle"),
    ({"step": "hierarchy", "levels": [{"a": "b"}, {"b": "a"}]}, "cycle"),
    ({"step": "global_recode", "spans": [{"to": "1", "high": "5"}, {"to": "2", "low": "5"}]}, "span 1 and span 2"),
    ({"step": "global_recode", "spans": [{"to": "1", "low": "9", "high": "5"}]}, "ends before it begins"),
    ({"step": "round", "base": 0}, "must be at least"),
    ({"step": "truncate", "characters": 0}, "must be at least 1"),
    ({"step": "top_bottom_code"}, "give top or bottom"),
    ({"step": "no such step"}, "no such step"),
    ({"step": "truncate", "colour": "red"}, "colour"),
)


@pytest.mark.parametrize(("values", "said"), BAD, ids=[said for _, said in BAD])
def test_a_step_that_makes_no_sense_is_refused_when_it_is_made(values: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said) as refused:
        as_step({"attribute": "x", **values})
    assert refused.value.hint


@pytest.mark.parametrize("kind", [Kind.NUMERIC, Kind.WEIGHT, Kind.HOUSEHOLD, Kind.IDENTIFIER])
def test_codes_are_not_made_of_quantities_and_identifiers(kind: Kind) -> None:
    for step in ({"step": "truncate"}, {"step": "recode", "map": {"1": "2"}}, {"step": "hierarchy", "level": 1}):
        with pytest.raises(SpecError):
            after(one(["1"], kind=kind), **step)


def test_an_unknown_attribute_is_named() -> None:
    with pytest.raises(SpecError, match="no attribute 'y'"):
        apply_step(one(["a"]), {"step": "truncate", "attribute": "y"})


def test_errors_tell_no_value_of_a_record() -> None:
    data = one([CANARY, "1"])
    for step in (
        {"step": "ranges", "breaks": [5]},
        {"step": "round", "base": 5},
        {"step": "recode", "map": {"1": "2"}},
        {"step": "truncate", "characters": 20},
        {"step": "hierarchy", "parents": {"1": "2"}},
        {"step": "global_recode", "spans": [{"to": "a", "low": "1", "high": "1"}]},
        {"step": "top_bottom_code", "top": "1"},
    ):
        with pytest.raises(SafeswapError) as refused:
            after(data, **step)
        assert CANARY not in str(refused.value.as_dict())


def test_a_constant_attribute_has_no_ranges() -> None:
    with pytest.raises(InfeasibleError, match="too few different values"):
        after(one([7, 7], kind=Kind.NUMERIC), step="ranges", equal_width=3)


@given(tried=recode_inputs(microdata(most_records=20)), data=st.data())
def test_a_recode_is_a_function_of_the_value_whatever_the_order_of_rows(tried: tuple, data: st.DataObject) -> None:
    file, spec = tried
    rows = np.array(data.draw(st.permutations(range(len(file)))), dtype=np.int64)
    turned = Microdata(file.table.take(pa.array(rows)), file.schema)
    for step in spec.steps:
        if step.step == "drop":
            continue
        (name,) = step.names
        done, other = apply_step(file, step), apply_step(turned, step)
        pairs = set(zip(map(repr, file.table[name].to_pylist()), map(repr, done.table[name].to_pylist()), strict=True))
        assert len(pairs) == len({old for old, _ in pairs})
        assert list(map(repr, done.table[name].take(pa.array(rows)).to_pylist())) == list(
            map(repr, other.table[name].to_pylist())
        )
        assert done.schema == other.schema
