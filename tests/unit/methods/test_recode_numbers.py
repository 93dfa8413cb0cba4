"""Steps on quantities by arrays of numbers, against the rules for one value after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import InputError, SpecError
from safeswap.methods.recode import rules
from safeswap.methods.recode.apply import apply_step, is_by_number, values_of
from safeswap.methods.recode.rules import map_values
from safeswap.methods.recode.steps import Blank, Round, TopBottomCode, as_step
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema

NUMBERS = st.floats(-1e6, 1e6) | st.integers(-400, 400).map(lambda n: n / 8) | st.integers(-999, 999).map(float)
STEPS = [
    {"step": "round", "base": 5},
    {"step": "round", "base": 0.1, "how": "down"},
    {"step": "round", "base": 0.25, "how": "up"},
    {"step": "top_bottom_code", "top": "12.5"},
    {"step": "top_bottom_code", "top": "100", "bottom": "-3"},
    {"step": "blank"},
]


def quantity(values: list[float | None], **about: object) -> Microdata:
    attribute = Attribute(name="x", kind="numeric", **about)
    return Microdata(pa.table({"x": pa.array(values, pa.float64())}), Schema(attributes=(attribute,)))


@pytest.mark.parametrize("how", ["nearest", "down", "up"])
@given(values=st.lists(NUMBERS, max_size=20), base=st.sampled_from([1e-9, 0.01, 0.1, 0.3, 1, 5, 1000, 1e15]))
def test_many_values_are_rounded_as_one_is(how: str, values: list[float], base: float) -> None:
    found = rules.round_all(np.array(values, np.float64), base, how)
    assert found.tolist() == [rules.round_to_multiple(value, base, how) for value in values]


@pytest.mark.parametrize("stated", STEPS)
@given(values=st.lists(st.none() | NUMBERS, min_size=1, max_size=12))
def test_numbers_become_what_their_texts_would(stated: dict[str, object], values: list[float | None]) -> None:
    data, step = quantity(values), as_step({**stated, "attribute": "x"})
    assert is_by_number(data, step)
    told = map_values(step, values_of(data, "x"))
    texts = [None if value is None else told[rules.number_text(value)] for value in values]
    assert apply_step(data, step).table["x"].to_pylist() == [None if text is None else float(text) for text in texts]


def test_what_is_missing_and_what_is_no_number_stay_apart() -> None:
    after = apply_step(quantity([None, float("nan"), 7.0]), Round(attribute="x", base=5)).table["x"]
    assert after.null_count == 1
    assert np.isnan(after[1].as_py())
    assert after[2].as_py() == 5.0


def test_a_step_that_changes_nothing_gives_the_file_back() -> None:
    data = quantity([5.0, None], label="hours")
    assert apply_step(data, Round(attribute="x", base=5)) is data
    assert apply_step(quantity([None]), Blank(attribute="x")).table["x"].null_count == 1
    assert apply_step(data, TopBottomCode(attribute="x", top="4")).schema["x"].label == "hours"


def test_codes_among_the_numbers_are_treated_as_codes() -> None:
    data = quantity([9.0, 3.0], missing=("9",))
    assert not is_by_number(data, Round(attribute="x", base=5))
    assert apply_step(data, Round(attribute="x", base=5)).table["x"].to_pylist() == [9.0, 5.0]


def test_bounds_and_numbers_that_make_no_sense_are_refused() -> None:
    for bad in ({"top": "low"}, {"top": "1", "bottom": "2"}, {"top": "1", "top_label": "1+"}):
        with pytest.raises(SpecError):
            apply_step(quantity([1.0]), TopBottomCode(attribute="x", **bad))
    with pytest.raises(InputError):
        apply_step(quantity([float("inf")]), Round(attribute="x", base=1))
    with pytest.raises(SpecError):
        Round(attribute="x", base=1e-12)
