"""Frequencies of categorical keys, counted in a population, in weights or in a sample; suppressed values agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import SafeswapError
from safeswap.measures.plot.frequencies import frequency_plot
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEYS = ("sex", "age", "status")


def file(columns, **kinds):
    schema = Schema(attributes=tuple(Attribute(name=n, kind=kinds.get(n, Kind.NOMINAL)) for n in columns))
    return Microdata(pa.table({n: pa.array(v) for n, v in columns.items()}), schema)


@st.composite
def released_files(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    records = draw(st.integers(1, 40))
    columns = {name: [str(v) for v in rng.integers(0, 3, records)] for name in KEYS}
    masked = {name: [None if rng.random() < 0.2 else v for v in values] for name, values in columns.items()}
    people = {name: [str(v) for v in rng.integers(0, 3, 60)] for name in KEYS}
    return file(columns), file(masked), file(people)


def agree(shown, person):
    return all(a is None or a == b for a, b in zip(shown, person, strict=True))


@given(released_files())
def test_frequencies_are_those_of_comparing_everybody(files):
    original, released, people = files
    rows, persons, own = (
        list(zip(*(d.table[k].to_pylist() for k in KEYS), strict=True)) for d in (released, people, original)
    )
    counted = frequency_plot(original, released, KEYS, population=people)
    assert counted.across.tolist() == [sum(agree(row, person) for person in persons) for row in rows]
    sample = frequency_plot(original, released, KEYS)
    assert sample.across.tolist() == [sum(agree(row, person) for person in own) for row in rows]
    halved = frequency_plot(original, released, KEYS, sampling_fraction=0.5)
    assert halved.across.tolist() == [2 * f for f in sample.across.tolist()]
    lost = [sum(a != b for a, b in zip(row, person, strict=True)) / 3 for row, person in zip(rows, own, strict=True)]
    assert sample.perturbation.tolist() == pytest.approx(lost)


def test_weights_are_summed_up():
    data = file({"sex": ["f", "f", "m"], "w": [10.0, 2.5, 4.0]}, w=Kind.WEIGHT)
    assert frequency_plot(data, data, ["sex"], weight="w", k=5).across.tolist() == [12.5, 12.5, 4.0]
    assert frequency_plot(data, data, ["sex"], weight="w", k=5).unsafe.tolist() == [False, False, True]


def test_importance_weighs_what_was_lost():
    before = file({"sex": ["f", "m"], "age": ["1", "2"]})
    after = file({"sex": ["f", "m"], "age": [None, "2"]})
    assert frequency_plot(before, after, ["sex", "age"], importance={"age": 3}).perturbation.tolist() == [0.75, 0.0]


def test_a_population_is_recoded_as_the_release_was():
    before = file({"age": ["23", "27", "31", "38"]})
    after = file({"age": ["20-29", "20-29", "30-39", "30-39"]})
    people = file({"age": ["23"] * 5 + ["31"] * 2 + ["38"] + ["44"]})
    plot = frequency_plot(before, after, ["age"], population=people)
    assert plot.across.tolist() == [5, 5, 3, 3]
    assert plot.perturbation.tolist() == [1, 1, 1, 1]
    assert any("recoded" in note for note in plot.notes)
    assert frequency_plot(before, after, ["age"]).across.tolist() == [2, 2, 2, 2]


def test_a_combination_that_nobody_has_is_said():
    before, after = file({"age": ["1", "2", "2"]}), file({"age": ["2", "1", "3"]})
    plot = frequency_plot(before, after, ["age"])
    assert plot.across.tolist() == [2, 1, 0]
    assert any("no counted record has" in note for note in plot.notes)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"sampling_fraction": 0.0}, "bad-fraction"),
        ({"sampling_fraction": 1.5}, "bad-fraction"),
        ({"sampling_fraction": 0.5, "weight": "w"}, "bad-frequency"),
        ({"weight": "bad"}, "bad-weight"),
        ({"importance": {"sex": -1.0}}, "bad-importance"),
        ({"importance": {"sex": 0.0}}, "bad-importance"),
        ({"k": 0}, "bad-policy"),
        ({"keys": ("w",)}, "key-not-categorical"),
    ],
)
def test_what_makes_no_sense_is_refused(options, code):
    data = file({"sex": ["f", "m"], "w": [1.0, 2.0], "bad": [1.0, -2.0]}, w=Kind.WEIGHT, bad=Kind.WEIGHT)
    with pytest.raises(SafeswapError) as caught:
        frequency_plot(data, data, **{"keys": ("sex",), **options})
    assert caught.value.code == code
